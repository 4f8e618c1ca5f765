"""A connector's converters and transforms, built from its settings, and the check of all of them together."""

from __future__ import annotations

from collections.abc import Mapping
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
from .plugins import SIMPLE_HEADERS, Plugins
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
        self.key = self._one(plugins, worker, config, "key.converter", True)
        self.value = self._one(plugins, worker, config, "value.converter", False)
        name = config.get("header.converter") or worker.get("header.converter") or SIMPLE_HEADERS
        self.header: HeaderConverter = (
            SimpleHeaderConverter()
            if name.rpartition(".")[2] == SIMPLE_HEADERS
            else ByConverter(self._one(plugins, worker, config, "header.converter", False))
        )

    @staticmethod
    def _one(
        plugins: Plugins, worker: Mapping[str, str], config: Mapping[str, str], name: str, is_key: bool
    ) -> Converter:
        source = config if config.get(name) else worker
        made = plugins.converter(source.get(name) or "JsonConverter")()
        try:
            made.configure(below(source, f"{name}."), is_key)
        except ConfigError as error:
            raise ConfigError(f"{name}.{error.setting}", error.problem, error.fix) from error
        return made


def full_definition(plugins: Plugins, kind: type[Connector], config: Mapping[str, str]) -> ConfigDef:
    """Every setting of a connector: what all have, its own, and its transforms'. Raises NotFoundError."""
    definition = connector_definition(kind.kind).merged(kind.config())
    for alias in _words(config.get("transforms", "")):
        prefix = f"transforms.{alias}."
        definition.define(f"{prefix}type", Type.STRING, importance=Importance.HIGH, group=f"Transforms: {alias}")
        definition.define(f"{prefix}predicate", Type.STRING, None, Importance.LOW, group=f"Transforms: {alias}")
        definition.define(f"{prefix}negate", Type.BOOLEAN, False, Importance.LOW, group=f"Transforms: {alias}")
        if config.get(f"{prefix}type"):
            definition.embed(prefix, plugins.transform(config[f"{prefix}type"]).config(), f"Transforms: {alias}")
    for alias in _words(config.get("predicates", "")):
        prefix = f"predicates.{alias}."
        definition.define(f"{prefix}type", Type.STRING, importance=Importance.HIGH, group=f"Predicates: {alias}")
        if config.get(f"{prefix}type"):
            definition.embed(prefix, plugins.predicate(config[f"{prefix}type"]).config(), f"Predicates: {alias}")
    return definition


def validate(
    plugins: Plugins, worker: Mapping[str, str], kind: type[Connector], config: Mapping[str, str]
) -> dict[str, Any]:
    """Connect's validate answer for a connector's settings, placeholders resolved before. Every error is collected."""
    values: list[ConfigValue]
    try:
        definition = full_definition(plugins, kind, config)
    except NotFoundError as error:
        definition = connector_definition(kind.kind).merged(kind.config())
        values = definition.validate(config)
        _blame(values, "transforms", str(error))
        return validation_json(kind.__name__, definition, values)
    own = {value.name: value for value in kind.validate(config)}
    values = [own.pop(value.name, value) for value in definition.validate(config)]
    values += list(own.values())
    parsed = {value.name: value.value for value in values}
    for name, problem in cross_checks(kind.kind, config, parsed):
        _blame(values, name, problem)
    if not any(value.errors for value in values):
        for setting, build in (
            ("transforms", lambda: Chain(plugins, config)),
            ("key.converter", lambda: Converters(plugins, worker, config)),
            ("connector.class", lambda: check_clients(kind.kind, worker, config)),
        ):
            try:
                build()
            except ConfigError as error:
                _blame(values, error.setting, f"{error.problem}; {error.fix}")
            except NotFoundError as error:
                _blame(values, setting, str(error))
    return validation_json(kind.__name__, definition, values)


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
