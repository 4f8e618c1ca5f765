"""The check of a connector's settings: its own, those of all connectors, of its converters, transforms and clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.connector import Connector, SourceConnector
from ..api.errors import NotFoundError
from ..config.configdef import ConfigDef
from ..config.keys import ConfigValue, Importance, Recommender, Type, Width
from ..config.rendering import validation_json
from .clients import check_clients
from .pipeline import Chain, Converters, words
from .plugins import Plugins, full_name, is_simple, version_problem
from .settings import JSON, SIMPLE, connector_definition, cross_checks

_OVERRIDES = ("producer.override.", "consumer.override.")
_HALVES = ("key", "value", "header")


class Definitions:
    """Every setting that one connector may have, as tools that make a form of them see it.

    unknown: (setting, error) of plugins that are not there. classes: (setting, plugin group) of those that name one.
    """

    def __init__(
        self, plugins: Plugins, worker: Mapping[str, str], kind: type[Connector], config: Mapping[str, str]
    ) -> None:
        self._plugins, self._config = plugins, config
        self.definition = connector_definition(kind.kind).merged(kind.config())
        self.unknown: list[tuple[str, str]] = []
        self.classes: list[tuple[str, str]] = [(f"{half}.converter", "converters") for half in _HALVES]
        self._version("connector.plugin.version", "connectors", full_name(kind), "connector.class")
        for half in _HALVES:
            self._converter(
                f"{half}.converter", worker.get(f"{half}.converter") or (SIMPLE if half == "header" else JSON)
            )
        for kinds in ("transforms", "predicates"):
            aliases = words(config.get(kinds, ""))
            for alias in dict.fromkeys(aliases):
                self._step(kinds, alias)
            if len(set(aliases)) < len(aliases):
                self.unknown.append((kinds, "An alias is given twice."))

    def _converter(self, name: str, default: str) -> None:
        given = self._config.get(name)
        if given == "":
            self.unknown.append((name, "It is empty: name a class, or leave it out for the worker's."))
        offered = self._plugins.full_names("converters")
        if name.startswith("header."):
            offered = [*offered, SIMPLE]
        self.definition.change(name, default=self._full("converters", default), recommender=_offering(offered))
        there = self._version(f"{name}.plugin.version", "converters", given or default, name if given else None)
        if given and there and not is_simple(given):
            try:
                self.definition.embed(f"{name}.", self._plugins.converter(given).config())
            except NotFoundError as error:
                self.unknown.append((name, str(error)))

    def _step(self, kinds: str, alias: str) -> None:
        """A transform or a predicate."""
        find: Callable[[str], Any] = self._plugins.transform if kinds == "transforms" else self._plugins.predicate
        prefix, group = f"{kinds}.{alias}.", f"{kinds.capitalize()}: {alias}"
        name, given = f"{prefix}type", self._config.get(f"{prefix}type", "").strip()
        definition, offered = self.definition, _offering(self._plugins.full_names(kinds))
        definition.define(
            name, Type.CLASS, importance=Importance.HIGH, group=group, order=0, width=Width.LONG, recommender=offered
        )
        definition.define(
            f"{prefix}plugin.version", Type.STRING, None, Importance.HIGH, group=group, order=1, width=Width.LONG
        )
        there = self._version(f"{prefix}plugin.version", kinds, given, name)
        self.classes.append((name, kinds))
        if not (given and there):
            return
        try:
            definition.embed(prefix, find(given).config(), group)
        except NotFoundError as error:
            self.unknown.append((name, str(error)))
            return
        if kinds == "transforms":
            if f"{prefix}negate" in self._config and f"{prefix}predicate" not in self._config:
                self.unknown.append((name, f"{prefix}negate is about a predicate: set {prefix}predicate"))
            place = sum(key.group == group for key in definition.keys.values())
            definition.define(f"{prefix}negate", Type.BOOLEAN, False, group=group, order=place)
            definition.define(f"{prefix}predicate", Type.STRING, None, group=group, order=place + 1)

    def _version(self, name: str, group: str, plugin: str, named: str | None) -> bool:
        """Whether the version that is asked for is there. named: the setting of the class, to be blamed, too.

        A Python environment holds one version of a package: another one cannot be had.
        """
        try:
            there = self._plugins.version(group, plugin)
        except NotFoundError:
            self.definition.change(name, recommender=_offering([], visible=group != "converters"))
            return True
        self.definition.change(name, default=there, recommender=_offering([there]))
        problem = version_problem(self._config.get(name), there)
        if problem:
            self.unknown += [(blamed, problem) for blamed in (name, named) if blamed is not None]
        return not problem

    def _full(self, group: str, name: str) -> str | None:
        try:
            return self._plugins.shown(group, name)
        except NotFoundError:
            return None

    def in_full(self, values: list[ConfigValue]) -> None:
        """Show classes by their whole names, and none for one that is not there."""
        by_name = {value.name: value for value in values}
        for name, group in self.classes:
            value = by_name[name]
            value.value = self._full(group, value.value) if value.value else None


def common_settings(plugins: Plugins, kind: type[Connector]) -> ConfigDef:
    """A connector's own settings, then those that every connector has."""
    common, own = connector_definition(kind.kind), kind.config()
    common.change("connector.plugin.version", default=plugins.version("connectors", full_name(kind)))
    return own.merged(ConfigDef(), _without(common, own))


def _without(definition: ConfigDef, other: ConfigDef) -> ConfigDef:
    rest = ConfigDef()
    rest.keys = {name: key for name, key in definition.keys.items() if name not in other.keys}
    return rest


def validate(
    plugins: Plugins, worker: Mapping[str, str], kind: type[Connector], config: Mapping[str, str]
) -> dict[str, Any]:
    """Connect's validate answer for a connector's settings, placeholders resolved before. Every error is collected."""
    definitions = Definitions(plugins, worker, kind, config)
    own = {value.name: value for value in kind.validate(config)}
    values: list[ConfigValue] = [own.pop(value.name, value) for value in definitions.definition.validate(config)]
    values += list(own.values())
    # What goes to the clients has no definition here: the client library knows its own settings.
    values += [
        ConfigValue(name, config[name]) for name in config if name.startswith(_OVERRIDES) and name not in _OVERRIDES
    ]
    parsed = {value.name: value.value for value in values}
    for name, problem in [
        *definitions.unknown,
        *cross_checks(kind.kind, config, parsed),
        *_of_source(worker, kind, config, parsed),
    ]:
        _blame(values, name, problem)
    checks: list[tuple[str, str, Callable[[], object]]] = [
        ("transforms", "transforms", lambda: Chain(plugins, config)),
        *(
            (f"{half}.converter", f"{half}.converter", lambda half=half: Converters.one(plugins, worker, config, half))
            for half in _HALVES
        ),
        ("connector.class", "override", lambda: check_clients(kind.kind, worker, config)),
    ]
    for setting, prefix, build in checks:
        others = ("predicates",) if prefix == "transforms" else ()
        if any(value.errors and value.name.startswith((prefix, *others)) for value in values):
            continue  # said already
        try:
            build()
        except ConfigError as error:
            _blame(values, error.setting, f"{error.problem}; {error.fix}")
        except NotFoundError as error:
            _blame(values, setting, str(error))
    definitions.in_full(values)
    return validation_json(config.get("connector.class") or full_name(kind), definitions.definition, values)


def _of_source(
    worker: Mapping[str, str], kind: type[Connector], config: Mapping[str, str], parsed: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """What the connector itself has to be asked about transactions."""
    if not issubclass(kind, SourceConnector):
        return []
    found = []
    enabled = worker.get("exactly.once.source.support", "disabled") == "enabled"
    if str(parsed.get("exactly.once.support")).lower() == "required":
        if not enabled:
            found.append(("exactly.once.support", "The worker's exactly.once.source.support is not enabled."))
        elif not kind().exactly_once_support(dict(config)):
            found.append(("exactly.once.support", "The connector cannot do it with these settings."))
    if str(parsed.get("transaction.boundary")).lower() == "connector" and not kind().can_define_transaction_boundaries(
        dict(config)
    ):
        found.append(("transaction.boundary", "The connector ends no transactions by itself: use poll or interval."))
    return found


def _offering(names: list[str], visible: bool = True) -> Recommender:
    return Recommender(lambda name, parsed: names, lambda name, parsed: visible)


def _blame(values: list[ConfigValue], name: str, problem: str) -> None:
    found = next((value for value in values if value.name == name), None)
    if found is None:
        found = ConfigValue(name)
        values.append(found)
    found.errors.append(problem)
