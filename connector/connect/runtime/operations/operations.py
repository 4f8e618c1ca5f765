"""What can be asked of a worker from outside, by REST or from a command. Thread-safe."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ...api.errors import BadRequestError, ConnectorExistsError, NotFoundError, RebalanceInProgressError
from ..clients import worker_connection
from ..group.state import Target
from ..group.stores import connector_status, topic_status
from ..tasks.parking import Parked, ParkingList
from .checking import checked
from .connector_offsets import OffsetOperations, offset_pairs
from .views import T


class ConfigChangedError(RebalanceInProgressError):
    """Somebody else was faster: read it again."""


class Operations(OffsetOperations):
    """The operations of Connect's REST, and the release of parked keys."""

    def create(
        self, name: str, config: Mapping[str, Any], initial_state: str | None = None, initial_offsets: Any = None
    ) -> dict[str, Any]:
        """POST /connectors. Raises ConnectorExistsError, BadRequestError with every error of the configuration."""
        target = _target(initial_state)
        given = self._checked(name, config)
        name = given["name"]
        kind = self._plugins.connector(given["connector.class"])

        def write() -> None:
            state = self.herder.state
            if name in state.configs:
                raise ConnectorExistsError(f"Connector {name} already exists")
            if initial_offsets is not None:
                self._alter(name, kind, given, offset_pairs(initial_offsets), replace=True)
            self.herder.configs.write(
                {
                    f"connector-{name}": _json({"properties": given}),
                    f"target-state-{name}": _json({"state": target.value}),
                }
            )

        self._lead(write)
        return self.info(name)

    def put_config(
        self, name: str, config: Mapping[str, Any], instead_of: Mapping[str, str] | None = None
    ) -> tuple[bool, dict[str, Any]]:
        """PUT config. (Whether it was created, info). instead_of: raises ConfigChangedError when it is another by now."""
        given = self._checked(name, config)
        name = given["name"]

        def write() -> bool:
            created = name not in self.herder.state.configs
            if instead_of is not None and self.herder.config_of(name) != instead_of:
                raise ConfigChangedError(f"The configuration of connector {name} has changed meanwhile")
            if not created:
                before = self._kind_word(self.herder.config_of(name))
                if before != self._kind_word(given):
                    raise BadRequestError(f"Connector {name} is a {before}; its kind cannot change: delete it first")
            self.herder.configs.write({f"connector-{name}": _json({"properties": given})})
            return created

        return self._lead(write), self.info(name)

    def patch_config(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """PATCH config (KIP-477): null removes a setting. Of two at the same time both take effect."""
        if changes.get("name", name) is None:
            raise BadRequestError("the name of a connector cannot be removed")
        while True:
            before = self._lead(lambda: dict(self.herder.config_of(name)))  # a follower may know an older one
            merged = {k: v for k, v in {**before, **changes}.items() if v is not None}
            with suppress(ConfigChangedError):  # then another one has succeeded: this cannot go on for ever
                return self.put_config(name, merged, instead_of=before)[1]

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

    def _checked(self, name: str, config: Mapping[str, Any]) -> dict[str, str]:
        return checked(self._plugins, self.herder.settings, self._worker.resolver, name, config)

    def set_target(self, name: str, target: Target) -> None:
        """Pause, resume or stop."""

        def write() -> None:
            self.herder.config_of(name)
            if self.herder.state.target(name) is not target:
                self.herder.configs.write({f"target-state-{name}": _json({"state": target.value})})

        self._lead(write)

    def set_level(self, logger: str, level: str) -> None:
        """Set a logger's level on every worker of the group, by the topic of configurations; not on those that come later."""
        self._lead(lambda: self.herder.configs.write({f"logger-cluster-{logger}": _json({"level": level})}))

    def restart(self, name: str, include_tasks: bool, only_failed: bool) -> dict[str, Any] | None:
        """Restart a connector. The status to show, None for the plain form (204)."""
        self._lead(lambda: self.herder.statuses.read_to_end())  # whoever asks may have seen more at another worker
        before = self.status(name)

        def work() -> set[tuple[str, int]]:
            known = self.herder.known.connectors.get(name)
            if not only_failed or (known is not None and known.state == "FAILED"):
                self.herder.leader.connectors.restart(name)
            keys = {(name, t["id"]) for t in before["tasks"] if not only_failed or t["state"] == "FAILED"}
            if include_tasks:
                self.herder.leader.restart_tasks(keys)
                return keys
            return set()

        keys = self._lead(work)
        if not (include_tasks or only_failed):
            return None
        for task in before["tasks"]:
            if (name, task["id"]) in keys:
                task.update(state="RESTARTING")
        if not only_failed or before["connector"]["state"] == "FAILED":
            before["connector"].update(state="RESTARTING")
        return before

    def restart_task(self, name: str, number: int) -> None:
        """Restart one task."""

        def work() -> None:
            self.herder.config_of(name)
            if (name, number) not in self.herder.state.wanted():
                raise NotFoundError(f"Task {name}-{number} not found")
            self.herder.leader.restart_tasks({(name, number)})

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


def _target(word: str | None) -> Target:
    if word is None:
        return Target.STARTED
    words = {"RUNNING": Target.STARTED, "PAUSED": Target.PAUSED, "STOPPED": Target.STOPPED}
    if str(word).upper() not in words:
        raise BadRequestError(f"initial_state {word!r} is none of {', '.join(words)}")
    return words[str(word).upper()]


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()
