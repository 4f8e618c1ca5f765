"""What a worker tells of its connectors: configurations, states, tasks, plugins. Thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .....partitioner.errors import ConfigError
from ...api.errors import BadRequestError, NotFoundError
from ...config.configdef import ConfigDef
from ...config.rendering import definition_json
from ..group.herder import Herder
from ..group.state import Target
from ..plugins import full_name, is_simple, version_problem
from ..validation import common_settings, validate

T = TypeVar("T")


class Views:
    """What can be read. Asked on the herder's thread, where the state is at rest."""

    def __init__(self, herder: Herder) -> None:
        self.herder = herder
        self._worker = herder.worker
        self._plugins = herder.worker.plugins

    def connectors(self) -> list[str]:
        """The names."""
        return self._read(lambda: sorted(self.herder.state.configs))

    def config(self, name: str) -> dict[str, str]:
        """A connector's configuration, placeholders as they were given."""
        return self._read(lambda: dict(self.herder.config_of(name)))

    def info(self, name: str) -> dict[str, Any]:
        """Name, configuration, tasks, type."""

        def read() -> dict[str, Any]:
            config = self.herder.config_of(name)
            tasks = [{"connector": name, "task": number} for number in range(len(self._task_configs(name)))]
            return {"name": name, "config": dict(config), "tasks": tasks, "type": self._kind_word(config)}

        return self._read(read)

    def status(self, name: str) -> dict[str, Any]:
        """The states of a connector and its tasks."""

        def read() -> dict[str, Any]:
            config = self.herder.config_of(name)
            known, state = self.herder.known, self.herder.state
            connector = known.connectors.get(name)
            version, tasks = self._version(config), []
            # Those that have still to end are listed too: no task listed means that none runs.
            for key in sorted(k for k in {*state.wanted(), *state.assignment.slots} if k[0] == name):
                slot, status = state.assignment.slots.get(key), known.tasks.get(key)
                # A run that is being ended is nobody's state: its connector may have been deleted and made again.
                if status is not None and slot is not None and slot.member is not None and status.run == slot.run:
                    shown = status.json()
                else:
                    shown = {"state": "UNASSIGNED", "worker_id": ""}
                tasks.append({"id": key[1], **shown, **version})
            unknown = {"state": "UNASSIGNED", "worker_id": self.herder.worker_id}
            shown_connector = {**(unknown if connector is None else connector.json()), **version}
            return {"name": name, "connector": shown_connector, "tasks": tasks, "type": self._kind_word(config)}

        return self._read(read)

    def task_status(self, name: str, number: int) -> dict[str, Any]:
        """The state of one task."""
        found = next((task for task in self.status(name)["tasks"] if task["id"] == number), None)
        if found is None:
            raise NotFoundError(f"No status found for task {name}-{number}")
        return dict(found)

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """The tasks' configurations."""

        def read() -> list[dict[str, Any]]:
            self.herder.config_of(name)
            configs = self._task_configs(name)
            hide, task = self._worker.resolver.redact, self._task_class(self.herder.config_of(name))
            return [
                {"id": {"connector": name, "task": i}, "config": {**{k: hide(v) for k, v in config.items()}, **task}}
                for i, config in enumerate(configs)
            ]

        return self._read(read)

    def topics(self, name: str) -> dict[str, Any]:
        """The topics that a connector has used since its start or the last reset."""

        def read() -> dict[str, Any]:
            self.herder.config_of(name)
            return {name: {"topics": sorted(self.herder.known.topics.get(name, ()))}}

        return self._read(read)

    def _check_version(self, name: str, version: str | None) -> None:
        for group in ("connectors", "transforms", "predicates", "converters"):
            try:
                there = self._plugins.version(group, name)
            except NotFoundError:
                continue
            problem = version_problem(version, there)
            if problem:
                raise BadRequestError(f"{name}: {problem}")
            return

    def plugins(self, connectors_only: bool = True) -> list[dict[str, str]]:
        """The plugins."""
        return [info.json() for info in self._plugins.listed(connectors_only)]

    def plugin_config(self, name: str, version: str | None = None) -> list[dict[str, Any]]:
        """The settings of a plugin. version: the one that is meant, or a range; another than what is installed is refused."""
        self._check_version(name, version)
        definition: ConfigDef | None = None
        try:
            definition = common_settings(self._plugins, self._plugins.connector(name))
        except NotFoundError:
            pass
        for find in (
            self._plugins.transform,
            self._plugins.predicate,
            self._plugins.converter,
        ):
            if definition is not None:
                break
            try:
                definition = find(name).config()
            except NotFoundError:
                continue
        if definition is None and is_simple(name):
            return []
        if definition is None:
            raise NotFoundError(f"Unknown plugin {name}. Must be one of the plugins that GET /connector-plugins lists")
        return [definition_json(key) for key in definition.keys.values()]

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> dict[str, Any]:
        """Connect's validate answer. A null is an error of its setting."""
        settings = {name: value for name, value in config.items() if value is not None}
        given = settings.get("connector.class")
        if given is not None and _short(given) != _short(plugin):
            raise BadRequestError(f"Included connector type {given} does not match request type {plugin}")
        kind, resolver = self._plugins.connector(plugin if given is None else given), self._worker.resolver
        answer = validate(self._plugins, self.herder.settings, kind, resolver.resolve(settings))
        shown = {entry["value"]["name"]: entry["value"] for entry in answer["configs"]}
        for name in config.keys() - settings.keys():
            if name not in shown:
                shown[name] = {"name": name, "recommended_values": [], "errors": [], "visible": True}
                answer["configs"].append({"definition": None, "value": shown[name]})
            shown[name]["value"] = None
            shown[name]["errors"].append("null is no value: leave the setting out")
            answer["error_count"] += 1
        return _unresolved(answer, settings, resolver.redact)

    def catch_up(self) -> None:
        """Read to their ends what the leader and the tasks have written."""

        def read() -> None:
            self.herder.configs.read_to_end()
            self.herder.statuses.read_to_end()

        self._read(read)

    def _read(self, work: Callable[[], T]) -> T:
        return self.herder.call(work)

    def _lead(self, work: Callable[[], T]) -> T:
        return self.herder.call(work, lead=True)

    def _task_configs(self, name: str) -> list[dict[str, str]]:
        """Of a connector's tasks; a stopped one has none."""
        if self.herder.state.target(name) is Target.STOPPED:
            return []
        return self.herder.state.tasks.get(name, ([], ""))[0]

    def _task_class(self, config: Mapping[str, str]) -> dict[str, str]:
        """What Kafka Connect adds to the settings of a task."""
        try:
            kind = self._plugins.connector(config["connector.class"])
        except (NotFoundError, ConfigError):
            return {}
        full, task = full_name(kind), kind.task_class()
        java = full.startswith("org.apache.kafka.")
        return {"task.class": f"{full.removesuffix('Connector')}Task" if java else full_name(task)}

    def _version(self, config: Mapping[str, str]) -> dict[str, str]:
        try:
            return {"version": self._plugins.version("connectors", config["connector.class"])}
        except (NotFoundError, ConfigError):
            return {}

    def _kind_word(self, config: Mapping[str, str]) -> str:
        try:
            return self._plugins.connector(config["connector.class"]).kind
        except (NotFoundError, ConfigError):
            return "unknown"


def _short(plugin: str) -> str:
    return plugin.rpartition(".")[2].removesuffix("Connector")


def _unresolved(answer: dict[str, Any], config: Mapping[str, str], redact: Callable[[str], str]) -> dict[str, Any]:
    """The validate answer with values as they were given: what a placeholder stands for is never shown."""
    for entry in answer["configs"]:
        value = entry["value"]
        given = config.get(value["name"])
        if isinstance(given, str) and "${" in given:
            value["value"] = given
        elif isinstance(value["value"], str):
            value["value"] = redact(value["value"])
        value["errors"] = [redact(error) for error in value["errors"]]
    return answer
