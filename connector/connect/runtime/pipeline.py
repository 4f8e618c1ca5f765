"""A connector's converters and transforms, built from its settings, and the check of all of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.connector import Connector
from ..api.errors import NotFoundError
from ..config.configdef import ConfigDef
from ..config.keys import ConfigValue, Importance, Type
from ..config.rendering import validation_json
from ..converters.base import Converter
from ..converters.headers import ByConverter, HeaderConverter, SimpleHeaderConverter
from ..transforms.base import Predicate, R, Transformation
from .clients import check_clients
from .plugins import SIMPLE_HEADERS, Plugins, full_name
from .settings import below, connector_definition, cross_checks


class Chain:
    """The transforms of one task, in order. Raises ConfigError, NotFoundError when it is built."""

    def __init__(self, plugins: Plugins, config: Mapping[str, str]) -> None:
        self._steps: list[tuple[Transformation, Predicate | None, bool]] = []
        predicates: dict[str, Predicate] = {}
        for alias in _words(config.get("predicates", "")):
            own = below(config, f"predicates.{alias}.")
            predicate = plugins.predicate(_type(own, f"predicates.{alias}.type"))()
            predicate.configure(own)
            predicates[alias] = predicate
        for alias in _words(config.get("transforms", "")):
            own = below(config, f"transforms.{alias}.")
            transform = plugins.transform(_type(own, f"transforms.{alias}.type"))()
            transform.configure(own)
            wanted = own.get("predicate")
            if wanted is not None and wanted not in predicates:
                raise ConfigError(f"transforms.{alias}.predicate", repr(wanted), "name one of the predicates")
            negate = own.get("negate", "false").lower() == "true"
            self._steps.append((transform, predicates[wanted] if wanted else None, negate))

    def apply(self, record: R) -> R | None:
        """The record as it leaves the chain; None if it was dropped. Raises DataError."""
        current: R | None = record
        for transform, predicate, negate in self._steps:
            if current is None:
                return None
            if predicate is None or predicate.test(current) != negate:
                current = transform.apply(current)
        return current

    def close(self) -> None:
        """End every transform."""
        for transform, _, _ in self._steps:
            transform.close()


class Converters:
    """Key, value and header converter of one task. A connector that names none takes the worker's, settings included."""

    def __init__(self, plugins: Plugins, worker: Mapping[str, str], config: Mapping[str, str]) -> None:
        self.key: Converter = self.one(plugins, worker, config, "key")
        self.value: Converter = self.one(plugins, worker, config, "value")
        self.header: HeaderConverter = self.one(plugins, worker, config, "header")

    @staticmethod
    def one(plugins: Plugins, worker: Mapping[str, str], config: Mapping[str, str], half: str) -> Any:
        """The converter of one half: key, value or header."""
        name = f"{half}.converter"
        source = config if config.get(name) else worker
        given = source.get(name) or (SIMPLE_HEADERS if half == "header" else "JsonConverter")
        if half == "header" and given.rpartition(".")[2] == SIMPLE_HEADERS:
            return SimpleHeaderConverter()
        made = plugins.converter(given)()
        try:
            made.configure(below(source, f"{name}."), half == "key")
        except ConfigError as error:
            raise ConfigError(f"{name}.{error.setting}", error.problem, error.fix) from error
        return ByConverter(made) if half == "header" else made


def full_definition(
    plugins: Plugins, kind: type[Connector], config: Mapping[str, str]
) -> tuple[ConfigDef, list[tuple[str, str]]]:
    """(every setting of a connector: what all have, its own, and its transforms'; (setting, error) of unknown transforms)."""
    definition = connector_definition(kind.kind).merged(kind.config())
    unknown: list[tuple[str, str]] = []
    find: Callable[[str], type[Transformation] | type[Predicate]]
    for kinds, find in (("transforms", plugins.transform), ("predicates", plugins.predicate)):
        for alias in _words(config.get(kinds, "")):
            prefix, group = f"{kinds}.{alias}.", f"{kinds.capitalize()}: {alias}"
            definition.define(f"{prefix}type", Type.STRING, importance=Importance.HIGH, group=group)
            if kinds == "transforms":
                definition.define(f"{prefix}predicate", Type.STRING, None, Importance.LOW, group=group)
                definition.define(f"{prefix}negate", Type.BOOLEAN, False, Importance.LOW, group=group)
            if config.get(f"{prefix}type"):
                try:
                    definition.embed(prefix, find(config[f"{prefix}type"]).config(), group)
                except NotFoundError as error:
                    unknown.append((f"{prefix}type", str(error)))
    return definition, unknown


def validate(
    plugins: Plugins, worker: Mapping[str, str], kind: type[Connector], config: Mapping[str, str]
) -> dict[str, Any]:
    """Connect's validate answer for a connector's settings, placeholders resolved before. Every error is collected."""
    definition, problems = full_definition(plugins, kind, config)
    own = {value.name: value for value in kind.validate(config)}
    values: list[ConfigValue] = [own.pop(value.name, value) for value in definition.validate(config)]
    values += list(own.values())
    parsed = {value.name: value.value for value in values}
    for name, problem in [*problems, *cross_checks(kind.kind, config, parsed)]:
        _blame(values, name, problem)
    checks: list[tuple[str, str, Callable[[], object]]] = [
        ("transforms", "transforms", lambda: Chain(plugins, config)),
        *(
            (f"{half}.converter", f"{half}.converter", lambda half=half: Converters.one(plugins, worker, config, half))
            for half in ("key", "value", "header")
        ),
        ("connector.class", "override", lambda: check_clients(kind.kind, worker, config)),
    ]
    for setting, words, build in checks:
        if any(value.errors and words in value.name for value in values):
            continue  # said already
        try:
            build()
        except ConfigError as error:
            _blame(values, error.setting, f"{error.problem}; {error.fix}")
        except NotFoundError as error:
            _blame(values, setting, str(error))
    return validation_json(full_name(kind), definition, values)


def _blame(values: list[ConfigValue], name: str, problem: str) -> None:
    found = next((value for value in values if value.name == name), None)
    if found is None:
        found = ConfigValue(name)
        values.append(found)
    found.errors.append(problem)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _type(own: Mapping[str, str], name: str) -> str:
    if not own.get("type"):
        raise ConfigError(name, "it is missing", "name the class")
    return own["type"]
