"""Where configurations, assignments and states are kept: in memory (standalone) or in compacted topics (distributed)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .....partitioner.errors import PeerError
from ....config import connection_of
from ....kafka_errors import translate
from ....library_calls import shielded
from ....messages import offset_of
from ..kafka_log import KafkaLog, Update

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class FencedError(PeerError):
    """Another worker leads now."""

    retriable = True


class Log(ABC):
    """A table that is written by key and told to a fold."""

    @abstractmethod
    def poll(self) -> None:
        """Apply what has arrived."""

    @abstractmethod
    def read_to_end(self) -> None:
        """Apply all that is there now."""

    @abstractmethod
    def write(self, records: Mapping[str, bytes | None]) -> None:
        """Write; durable when this returns."""

    def lead(self) -> None:  # noqa: B027  # memory has no rivals
        """Become the only writer: fence all others."""

    def close(self) -> None:  # noqa: B027
        """Release what is open."""


class MemoryLog(Log):
    """For a worker that is alone."""

    def __init__(self, apply: Update) -> None:
        self._apply = apply

    def poll(self) -> None:
        pass

    def read_to_end(self) -> None:
        pass

    def write(self, records: Mapping[str, bytes | None]) -> None:
        for key, value in records.items():
            self._apply(key, value)


class TopicLog(Log):
    """A compacted topic that anybody writes: states."""

    def __init__(self, config: Mapping[str, Any], topic: str, partitions: int, replication: int, apply: Update) -> None:
        self._log = KafkaLog(config, topic, partitions, replication, apply)
        self._log.open()

    def poll(self) -> None:
        self._log.poll(0)

    def read_to_end(self) -> None:
        self._log.read_to_end()

    def write(self, records: Mapping[str, bytes | None]) -> None:
        self._log.write(records)

    def close(self) -> None:
        self._log.close()


class LedLog(TopicLog):
    """A compacted topic that the leader alone writes: each write is a transaction under one transactional id, so that a
    worker that only believes to lead writes nothing.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, replication: int, apply: Update, transactional_id: str
    ) -> None:
        super().__init__(config, topic, 1, replication, apply)
        self._config, self._topic, self._id = connection_of(config), topic, transactional_id
        self._pen: Producer | None = None

    def lead(self) -> None:
        self._drop_pen()
        pen = Producer(
            {
                **self._config,
                "transactional.id": self._id,
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
                "linger.ms": 0,
            }
        )
        try:
            pen.init_transactions(30)
        except KafkaException as raised:
            raise translate(raised.args[0], "use", f"transactional id {self._id}") from raised
        self._pen = pen
        self.read_to_end()

    def write(self, records: Mapping[str, bytes | None]) -> None:
        if self._pen is None:
            raise FencedError("this worker does not lead")
        failures: list[KafkaError] = []
        offsets: list[int] = []

        @shielded
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(offset_of(message))

        try:
            self._pen.begin_transaction()
            for key, value in records.items():
                self._pen.produce(self._topic, value, key, 0, on_delivery=delivered)
            self._pen.flush(15)
            if failures:
                raise KafkaException(failures[0])
            self._pen.commit_transaction(15)
        except (KafkaException, SystemError) as raised:
            # Whether it was written is not known, or somebody else leads: begin again by `lead`.
            self._drop_pen()
            error = raised.args[0] if isinstance(raised, KafkaException) else None
            if error is None or error.code() in _FENCED:
                raise FencedError("another worker leads now") from raised
            raise FencedError(f"the write is uncertain: {error.str()}") from raised
        self._log.read_past(0, max(offsets))

    def close(self) -> None:
        self._drop_pen()
        super().close()

    def _drop_pen(self) -> None:
        pen, self._pen = self._pen, None
        if pen is not None:
            try:
                pen.close()
            except KafkaException:
                pass  # a fenced one complains once more


@dataclass(frozen=True)
class Status:
    """The state of a connector (run 0) or of one run of a task."""

    state: str
    worker_id: str
    trace: str | None = None
    run: int = 0

    def json(self) -> dict[str, Any]:
        """As the REST shows it."""
        shown: dict[str, Any] = {"state": self.state, "worker_id": self.worker_id}
        return shown if self.trace is None else {**shown, "trace": self.trace}


class Statuses:
    """The states, folded; an older run never hides a newer one."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, int], Status] = {}
        self.connectors: dict[str, Status] = {}
        self.topics: dict[str, set[str]] = {}

    def apply(self, key: str, value: bytes | None) -> None:
        """Take one record in."""
        kind, _, rest = key.partition(":")
        words = json.loads(rest)
        if kind == "status-topic":
            connector, topic = words
            known = self.topics.setdefault(connector, set())
            (known.discard if value is None else known.add)(topic)
            return
        status = None if value is None else Status(**json.loads(value))
        if kind == "status-connector":
            if status is None:
                self.connectors.pop(words[0], None)
            else:
                self.connectors[words[0]] = status
        elif status is None:
            self.tasks.pop((words[0], words[1]), None)
        else:
            known_run = self.tasks.get((words[0], words[1]))
            if known_run is None or status.run >= known_run.run:
                self.tasks[words[0], words[1]] = status


def task_status(connector: str, number: int, status: Status | None) -> dict[str, bytes | None]:
    """The record of a task's state."""
    return {f"status-task:{json.dumps([connector, number])}": _encode(status)}


def connector_status(connector: str, status: Status | None) -> dict[str, bytes | None]:
    """The record of a connector's state."""
    return {f"status-connector:{json.dumps([connector])}": _encode(status)}


def topic_status(connector: str, topic: str, active: bool) -> dict[str, bytes | None]:
    """The record that a connector uses a topic (KIP-558)."""
    return {f"status-topic:{json.dumps([connector, topic])}": b"{}" if active else None}


def _encode(status: Status | None) -> bytes | None:
    if status is None:
        return None
    return json.dumps(
        {"state": status.state, "worker_id": status.worker_id, "trace": status.trace, "run": status.run}
    ).encode()
