"""ConfigDef: what settings there are, of what type, with what default (Kafka's ConfigDef).

All settings of a file or a REST body are text; `parse` turns them into values, `validate` collects every error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib import import_module
from typing import Any, Final

from ....partitioner.errors import ConfigError
from .validators import Validator


class Type(Enum):
    """Kafka's types of settings."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(Enum):
    """How likely a user has to think of a setting."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(Enum):
    """How wide an input field should be."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


HIDDEN: Final = "[hidden]"
_BOUNDS = {Type.SHORT: 2**15, Type.INT: 2**31, Type.LONG: 2**63}


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT_VALUE"


NO_DEFAULT_VALUE: Final = _NoDefault()


class Password:
    """A secret: shown as [hidden] wherever it is printed. `value` has the text."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __str__(self) -> str:
        return HIDDEN

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True)
class Recommender:
    """Suggests values, and whether a setting matters, given the others. Both take (name, parsed settings)."""

    valid_values: Callable[[str, Mapping[str, Any]], list[Any]] = lambda name, parsed: []
    visible: Callable[[str, Mapping[str, Any]], bool] = lambda name, parsed: True


@dataclass(frozen=True)
class ConfigKey:
    """One setting."""

    name: str
    type: Type
    default: Any
    importance: Importance
    documentation: str
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None
    internal: bool = False
    alternative: str | None = None

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is NO_DEFAULT_VALUE


@dataclass
class ConfigValue:
    """What is to be said of one setting's value."""

    name: str
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


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
        width: Width | str = Width.NONE,
        display_name: str = "",
        dependents: tuple[str, ...] = (),
        recommender: Recommender | None = None,
        internal: bool = False,
        alternative: str | None = None,
    ) -> ConfigDef:
        """Add a setting. Types, importances and widths may be given by name. Raises ValueError for one defined twice."""
        if name in self.keys:
            raise ValueError(f"setting {name!r} is defined twice")
        in_group = sum(key.group == group for key in self.keys.values())
        key = ConfigKey(
            name,
            Type(type),
            default,
            Importance(importance),
            documentation,
            validator,
            group,
            in_group + 1 if group is not None else -1,
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
        """Add all settings of another definition below a prefix."""
        for key in other.keys.values():
            self.keys[prefix + key.name] = replace(key, name=prefix + key.name, group=group or key.group)
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
            result.errors.append(_without_secret(key, error))
        return result


def _without_secret(key: ConfigKey, error: ConfigError) -> str:
    if key.type is Type.PASSWORD:
        return f"Invalid value {HIDDEN} for configuration {key.name}: {error.fix}"
    return f"Invalid value {error.problem} for configuration {key.name}: {error.fix}"


def parse_type(key: ConfigKey, value: Any) -> Any:
    """One value as its type says. Raises ConfigError."""
    kind = key.type
    text = value.strip() if isinstance(value, str) else value
    if kind is Type.BOOLEAN:
        if isinstance(text, bool):
            return text
        if str(text).lower() in ("true", "false"):
            return str(text).lower() == "true"
        raise ConfigError(key.name, repr(value), "it must be true or false")
    if kind in _BOUNDS:
        return _integer(key, value, text, _BOUNDS[kind])
    if kind is Type.DOUBLE:
        try:
            return float(text)
        except (TypeError, ValueError):
            raise ConfigError(key.name, repr(value), "it must be a number") from None
    if kind is Type.LIST:
        if isinstance(value, (list, tuple)):
            return [str(item) for item in value]
        return [item.strip() for item in str(text).split(",")] if text else []
    if kind is Type.PASSWORD:
        return value if isinstance(value, Password) else Password(str(value))
    if kind is Type.CLASS:
        return _class(key, text)
    if not isinstance(value, str):
        raise ConfigError(key.name, repr(value), "it must be text")
    return text


def _integer(key: ConfigKey, value: Any, text: Any, bound: int) -> int:
    try:
        if isinstance(text, (bool, float)):
            raise ValueError
        number = int(text)
    except (TypeError, ValueError):
        raise ConfigError(key.name, repr(value), "it must be a whole number") from None
    if not -bound <= number < bound:
        raise ConfigError(key.name, repr(value), f"it must lie between {-bound} and {bound - 1}")
    return number


def _class(key: ConfigKey, value: Any) -> Any:
    """A class by `module:Name` or `module.Name`; other names are looked up by the runtime's plugin table."""
    if isinstance(value, type):
        return value
    module, separator, name = str(value).rpartition(":" if ":" in str(value) else ".")
    if not separator:
        return str(value)
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return str(value)


def shown(key: ConfigKey, value: Any) -> Any:
    """A value as Connect's REST shows it: text, lists joined, secrets hidden."""
    if value is None or value is NO_DEFAULT_VALUE:
        return None
    if key.type is Type.PASSWORD:
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)
