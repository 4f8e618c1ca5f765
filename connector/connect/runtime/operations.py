"""What can be asked of a worker from outside, by REST or from a command. Thread-safe."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ....partitioner.errors import ConfigError
from ..api.connector import Connector
from ..api.errors import BadRequestError, ConnectorExistsError, NotFoundError
from ..config.configdef import ConfigDef
from ..config.rendering import definition_json
from .clients import worker_connection
from .group_offsets import GroupOffsets
from .herder import Herder
from .offsets import canonical
from .parking import Parked, ParkingList
from .pipeline import validate
from .state import Target
from .stores import connector_status, topic_status
from .worker import exactly_once

T = TypeVar("T")


class Operations:
    """The operations of Connect's REST, and the release of parked keys."""

    def __init__(self, herder: Herder) -> None:
        self.herder = herder
        self._worker = herder.worker
        self._plugins = herder.worker.plugins

    # -- reading -------------------------------------------------------------------------------------------------

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
            count = len(self.herder.state.tasks.get(name, ([], ""))[0])
            tasks = [{"connector": name, "task": number} for number in range(count)]
            return {"name": name, "config": dict(config), "tasks": tasks, "type": self._kind_word(config)}

        return self._read(read)

    def status(self, name: str) -> dict[str, Any]:
        """The states of a connector and its tasks."""

        def read() -> dict[str, Any]:
            config = self.herder.config_of(name)
            known, state = self.herder.known, self.herder.state
            connector = known.connectors.get(name)
            tasks = []
            # Those that have still to end are listed too: no task listed means that none runs.
            for key in sorted(k for k in {*state.wanted(), *state.assignment.slots} if k[0] == name):
                slot, status = state.assignment.slots.get(key), known.tasks.get(key)
                current = status is not None and slot is not None and status.run == slot.run
                shown = status.json() if current and status is not None else {"state": "UNASSIGNED", "worker_id": ""}
                tasks.append({"id": key[1], **shown})
            unknown = {"state": "UNASSIGNED", "worker_id": self.herder.worker_id}
            shown_connector = unknown if connector is None else connector.json()
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
            configs = self.herder.state.tasks.get(name, ([], ""))[0]
            hide = self._worker.resolver.redact
            return [
                {"id": {"connector": name, "task": i}, "config": {k: hide(v) for k, v in config.items()}}
                for i, config in enumerate(configs)
            ]

        return self._read(read)

    def topics(self, name: str) -> dict[str, Any]:
        """The topics that a connector has used since its start or the last reset."""

        def read() -> dict[str, Any]:
            self.herder.config_of(name)
            return {name: {"topics": sorted(self.herder.known.topics.get(name, ()))}}

        return self._read(read)

    def plugins(self, connectors_only: bool = True) -> list[dict[str, str]]:
        """The plugins."""
        return [info.json() for info in self._plugins.listed(connectors_only)]

    def plugin_config(self, name: str) -> list[dict[str, Any]]:
        """The settings of a plugin."""
        definition: ConfigDef | None = None
        for find in (
            self._plugins.connector,
            self._plugins.transform,
            self._plugins.predicate,
            self._plugins.converter,
        ):
            try:
                definition = find(name).config()
                break
            except NotFoundError:
                continue
        if definition is None:
            raise NotFoundError(f"Unknown plugin {name}. Must be one of the plugins that GET /connector-plugins lists")
        return [definition_json(key) for key in definition.keys.values()]

    def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        """Connect's validate answer."""
        kind = self._plugins.connector(plugin)
        given = str(config.get("connector.class") or "")
        if given and given.rpartition(".")[2].removesuffix("Connector") != plugin.rpartition(".")[2].removesuffix(
            "Connector"
        ):
            raise BadRequestError(f"Included connector type {given} does not match request type {plugin}")
        resolver = self._worker.resolver
        answer = validate(self._plugins, self.herder.settings, kind, resolver.resolve(config))
        return _unresolved(answer, config, resolver.redact)

    # -- changing ------------------------------------------------------------------------------------------------

    def create(
        self, name: str, config: Mapping[str, Any], initial_state: str | None = None, initial_offsets: Any = None
    ) -> dict[str, Any]:
        """POST /connectors. Raises ConnectorExistsError, BadRequestError with every error of the configuration."""
        target = _target(initial_state)
        checked = self._checked(name, config)
        kind = self._plugins.connector(checked["connector.class"])

        def write() -> None:
            state = self.herder.state
            if name in state.configs:
                raise ConnectorExistsError(f"Connector {name} already exists")
            if initial_offsets is not None:
                self._alter(name, kind, checked, _offset_pairs(initial_offsets))
            self.herder.configs.write(
                {
                    f"connector-{name}": _json({"properties": checked}),
                    f"target-state-{name}": _json({"state": target.value}),
                }
            )

        self._lead(write)
        return self.info(name)

    def put_config(self, name: str, config: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """PUT config. (Whether it was created, info)."""
        checked = self._checked(name, config)

        def write() -> bool:
            created = name not in self.herder.state.configs
            if not created:
                before = self._kind_word(self.herder.config_of(name))
                if before != self._kind_word(checked):
                    raise BadRequestError(f"Connector {name} is a {before}; its kind cannot change: delete it first")
            self.herder.configs.write({f"connector-{name}": _json({"properties": checked})})
            return created

        return self._lead(write), self.info(name)

    def patch_config(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """PATCH config (KIP-477): null removes a setting."""
        merged: dict[str, Any] = dict(self.config(name))
        merged.update(changes)
        return self.put_config(name, {k: v for k, v in merged.items() if v is not None})[1]

    def delete(self, name: str) -> None:
        """Forget a connector; its offsets stay, as in Kafka Connect."""

        def write() -> None:
            self.herder.config_of(name)
            self.herder.configs.write({f"connector-{name}": None, f"target-state-{name}": None, f"tasks-{name}": None})
            topics = self.herder.known.topics.get(name, set())
            records: dict[str, bytes | None] = connector_status(name, None)
            for topic in topics:
                records.update(topic_status(name, topic, False))
            self.herder.statuses.write(records)

        self._lead(write)

    def set_target(self, name: str, target: Target) -> None:
        """Pause, resume or stop."""

        def write() -> None:
            self.herder.config_of(name)
            if self.herder.state.target(name) is not target:
                self.herder.configs.write({f"target-state-{name}": _json({"state": target.value})})

        self._lead(write)

    def restart(self, name: str, include_tasks: bool, only_failed: bool) -> dict[str, Any] | None:
        """Restart a connector. The status to show, None for the plain form (204)."""
        before = self.status(name)

        def work() -> set[tuple[str, int]]:
            known = self.herder.known.connectors.get(name)
            if not only_failed or (known is not None and known.state == "FAILED"):
                self.herder.connectors.restart(name)
            keys = {(name, t["id"]) for t in before["tasks"] if not only_failed or t["state"] == "FAILED"}
            if include_tasks:
                self.herder.restart_tasks(keys)
                return keys
            return set()

        keys = self._lead(work)
        if not (include_tasks or only_failed):
            return None
        for task in before["tasks"]:
            if (name, task["id"]) in keys:
                task.update(state="RESTARTING")
                task.pop("trace", None)
        if not only_failed or before["connector"]["state"] == "FAILED":
            before["connector"].update(state="RESTARTING")
            before["connector"].pop("trace", None)
        return before

    def restart_task(self, name: str, number: int) -> None:
        """Restart one task."""

        def work() -> None:
            self.herder.config_of(name)
            if (name, number) not in self.herder.state.wanted():
                raise NotFoundError(f"Task {name}-{number} not found")
            self.herder.restart_tasks({(name, number)})

        self._lead(work)

    def reset_topics(self, name: str) -> None:
        """Forget the topics that were used."""

        def work() -> None:
            self.herder.config_of(name)
            records: dict[str, bytes | None] = {}
            for topic in self.herder.known.topics.get(name, ()):
                records.update(topic_status(name, topic, False))
            if records:
                self.herder.statuses.write(records)

        self._lead(work)

    # -- offsets -------------------------------------------------------------------------------------------------

    def offsets(self, name: str) -> dict[str, Any]:
        """The offsets of a connector."""
        config = self.config(name)
        if self._kind_word(config) == "sink":
            return {"offsets": self._group(config, name).read()}
        self._worker.offsets.refresh()
        pairs = self._worker.offsets.of(name)
        return {"offsets": [{"partition": partition, "offset": offset} for partition, offset in pairs]}

    def alter_offsets(self, name: str, offsets: Any) -> dict[str, str]:
        """PATCH offsets: only while STOPPED; refused where a key's order would break."""
        pairs = _offset_pairs(offsets)

        def work() -> None:
            config = self._stopped_config(name)
            self._alter(name, self._plugins.connector(config["connector.class"]), config, pairs)

        self._lead(work)
        return {"message": f"The offsets for this connector have been altered successfully ({len(pairs)} partitions)"}

    def reset_offsets(self, name: str) -> dict[str, str]:
        """DELETE offsets: all of them, so that the connector begins anew. Only while STOPPED."""

        def work() -> None:
            config = self._stopped_config(name)
            if self._kind_word(config) == "sink":
                self._group(config, name).reset()
                return
            store = self._worker.offsets
            store.refresh()
            before = store.of(name)
            self._instance(config).alter_offsets(
                self._worker.resolver.resolve(config), before, [(partition, None) for partition, _ in before]
            )
            store.write(name, {canonical(partition): None for partition, _ in before})

        self._lead(work)
        return {"message": "The offsets for this connector have been reset successfully"}

    def _alter(
        self, name: str, kind: type[Connector], config: Mapping[str, str], pairs: Sequence[tuple[dict[str, Any], Any]]
    ) -> None:
        if kind.kind == "sink":
            self._group(config, name).alter(pairs)
            return
        store = self._worker.offsets
        store.refresh()
        self._instance(config).alter_offsets(self._worker.resolver.resolve(config), store.of(name), pairs)
        store.write(name, {canonical(partition): offset for partition, offset in pairs})

    def _stopped_config(self, name: str) -> dict[str, str]:
        config = self.herder.config_of(name)
        if not self.herder.stopped(name):
            raise BadRequestError(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done "
                f"for the specified connector by issuing a PUT request to /connectors/{name}/stop"
            )
        return config

    def _instance(self, config: Mapping[str, str]) -> Any:
        return self._plugins.connector(config["connector.class"])()

    def _group(self, config: Mapping[str, str], name: str) -> GroupOffsets:
        resolved = self._worker.resolver.resolve(config)
        return GroupOffsets(self.herder.settings, resolved, name)

    # -- parked keys ---------------------------------------------------------------------------------------------

    def parked(self, name: str) -> list[Parked]:
        """The parked keys of a sink connector."""
        self.config(name)
        return self._with_parking(name, lambda parking: parking.entries(name))

    def release(self, name: str, topic: str, key: bytes, mode: str) -> Parked:
        """Ask for a parked key's release; its task does it as soon as it can."""
        self.config(name)
        return self._with_parking(name, lambda parking: parking.request_release(name, topic, key, mode))

    def _with_parking(self, name: str, work: Callable[[ParkingList], T]) -> T:
        config = worker_connection(self.herder.settings)
        replication = int(self.herder.parsed["internal.replication.factor"])
        parking = ParkingList(config, self._worker.parking_topic, replication, name)
        try:
            return work(parking)
        finally:
            parking.close()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _read(self, work: Callable[[], T]) -> T:
        return self.herder.call(work)

    def _lead(self, work: Callable[[], T]) -> T:
        return self.herder.call(work, lead=True)

    def _kind_word(self, config: Mapping[str, str]) -> str:
        try:
            return self._plugins.connector(config["connector.class"]).kind
        except (NotFoundError, ConfigError):
            return "unknown"

    def _checked(self, name: str, config: Mapping[str, Any]) -> dict[str, str]:
        if not isinstance(config, Mapping) or not config:
            raise BadRequestError('"config" must be an object of settings')
        if not name or name != name.strip() or "/" in name:
            raise BadRequestError(f"{name!r} is no name for a connector: it may not be empty nor hold a slash")
        if any(not isinstance(v, (str, int, float, bool)) for v in config.values() if v is not None):
            raise BadRequestError("settings are text, numbers or true and false")
        made = {k: v if isinstance(v, str) else json.dumps(v) for k, v in config.items() if v is not None}
        if made.setdefault("name", name) != name:
            raise BadRequestError(
                f"Connector name configuration ({made['name']}) doesn't match connector name ({name})"
            )
        if not made.get("connector.class"):
            raise BadRequestError(f"Connector config {{name={name}}} contains no connector type")
        if f"connect-{name}" == self.herder.settings.get("group.id"):
            raise BadRequestError(f"Consumer group for sink connector {name} matches the group.id of the workers")
        try:
            answer = self.validate(made["connector.class"], made)
        except NotFoundError as error:
            raise BadRequestError(str(error)) from error
        errors = [f"{c['value']['name']}: {e}" for c in answer["configs"] for e in c["value"]["errors"]]
        kind = self._plugins.connector(made["connector.class"])
        if made.get("exactly.once.support") == "required" and not exactly_once(
            self.herder.parsed, kind, self._worker.resolver.resolve(made)
        ):
            errors.append(
                "exactly.once.support: it is required, but the worker's exactly.once.source.support is not enabled, or the "
                "connector cannot do it with these settings"
            )
        if errors:
            raise BadRequestError(
                f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
                + "\n".join(errors)
            )
        return made


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


def _offset_pairs(document: Any) -> list[tuple[dict[str, Any], Any]]:
    """[{"partition", "offset"}, ...] checked. Raises BadRequestError."""
    if not isinstance(document, list) or not document:
        raise BadRequestError("Partitions / offsets need to be provided for an alter offsets request")
    pairs = []
    for entry in document:
        if not isinstance(entry, dict) or not isinstance(entry.get("partition"), dict):
            raise BadRequestError('each of "offsets" needs an object "partition" and an "offset" (an object or null)')
        if entry.get("offset") is not None and not isinstance(entry["offset"], dict):
            raise BadRequestError('"offset" must be an object or null')
        pairs.append((entry["partition"], entry.get("offset")))
    return pairs


def _target(word: str | None) -> Target:
    if word is None:
        return Target.STARTED
    words = {"RUNNING": Target.STARTED, "PAUSED": Target.PAUSED, "STOPPED": Target.STOPPED}
    if str(word).upper() not in words:
        raise BadRequestError(f"initial_state {word!r} is none of {', '.join(words)}")
    return words[str(word).upper()]


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()
