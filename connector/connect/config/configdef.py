"""ConfigDef: what settings there are, of what type, with what default (Kafka's ConfigDef).

All settings of a file or a REST body are text; `parse` turns them into values, `validate` collects every error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ....partitioner.errors import ConfigError
from .keys import NO_DEFAULT_VALUE, ConfigKey, ConfigValue, Importance, Recommender, Type, Width
from .parsing import parse_type, without_secret
from .validators import Validator


class ConfigDef:
    """A set of settings. `define` returns the definition itself, so that calls chain."""

    def __init__(self) -> None:
        self.keys: dict[str, ConfigKey] = {}

    def define(
        self,
        name: str,
        type: Type | str,
        default: Any = NO_DEFAULT_VALUE,
        importance: Importance | str = Importance.MEDIUM,
        documentation: str = "",
        *,
        validator: Validator | None = None,
        group: str | None = None,
        order: int | None = None,
        width: Width | str = Width.NONE,
        display_name: str = "",
        dependents: tuple[str, ...] = (),
        recommender: Recommender | None = None,
        internal: bool = False,
        alternative: str | None = None,
    ) -> ConfigDef:
        """Add a setting. Types, importances and widths may be given by name. Raises ValueError for one defined twice.

        order: its place in its group; by default behind those that are there.
        """
        if name in self.keys:
            raise ValueError(f"setting {name!r} is defined twice")
        if order is None:
            order = -1 if group is None else 1 + sum(key.group == group for key in self.keys.values())
        key = ConfigKey(
            name,
            Type(type),
            default,
            Importance(importance),
            documentation,
            validator,
            group,
            order,
            Width(width),
            display_name or name,
            dependents,
            recommender,
            internal,
            alternative,
        )
        if not key.required and default is not None:
            key = replace(key, default=parse_type(key, default))
            if validator is not None:
                validator.ensure(name, key.default)
        self.keys[name] = key
        return self

    def embed(self, prefix: str, other: ConfigDef, group: str | None = None) -> ConfigDef:
        """Add all settings of another definition below a prefix, in a group of their own if one is given."""
        for key in other.keys.values():
            name = prefix + key.name
            display = name if key.display_name == key.name else key.display_name
            order = key.order if group is None else sum(k.group == group for k in self.keys.values())
            self.keys[name] = replace(key, name=name, display_name=display, group=group or key.group, order=order)
        return self

    def change(self, name: str, **fields: Any) -> ConfigDef:
        """Replace fields of a setting's ConfigKey."""
        self.keys[name] = replace(self.keys[name], **fields)
        return self

    def merged(self, *others: ConfigDef) -> ConfigDef:
        """A new definition of these settings and the others'; a later one of the same name wins."""
        result = ConfigDef()
        for each in (self, *others):
            result.keys.update(each.keys)
        return result

    def names(self) -> Iterator[str]:
        """The names, in the order of their definition."""
        return iter(self.keys)

    def groups(self) -> list[str]:
        """The groups, in the order of their first setting."""
        return list(dict.fromkeys(key.group for key in self.keys.values() if key.group is not None))

    def parse(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The typed value of every defined setting. Raises ConfigError for the first that is wrong."""
        values = {value.name: value for value in self.validate(config)}
        for value in values.values():
            if value.errors:
                raise ConfigError(value.name, value.errors[0], "see its description")
        return {name: value.value for name, value in values.items()}

    def validate(self, config: Mapping[str, Any]) -> list[ConfigValue]:
        """Each defined setting with its value and *all* its errors; nothing is raised."""
        found = {name: self._one(key, config) for name, key in self.keys.items()}
        parsed = {name: value.value for name, value in found.items()}
        for name, key in self.keys.items():
            if key.recommender is not None:
                found[name].recommended_values = key.recommender.valid_values(name, parsed)
                found[name].visible = key.recommender.visible(name, parsed)
        return list(found.values())

    def _one(self, key: ConfigKey, config: Mapping[str, Any]) -> ConfigValue:
        result = ConfigValue(key.name)
        source = key.name if key.name in config or key.alternative is None else key.alternative
        if source not in config or config[source] is None:
            if key.required:
                result.errors.append(f'Missing required configuration "{key.name}" which has no default value.')
            else:
                result.value = key.default
            return result
        try:
            result.value = parse_type(key, config[source])
            if key.validator is not None:
                key.validator.ensure(key.name, result.value)
        except ConfigError as error:
            result.errors.append(without_secret(key, error))
        return result
