"""Copies a topic into another of any partition count, on this cluster or from another one, each key in order.

The source may be managed (its keys may move while they are copied) or not, whatever its partitioner: what counts is that
a key's records lie in one partition of an unmanaged topic. Records keep key, value, headers and time, and carry their
place of origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Message, TopicPartition

from ....partitioner.errors import PeerError
from ....partitioner.routing import HINT_HEADER
from ... import clock
from ...consuming.consumer import OrderedConsumer
from ...consuming.listener import KeyRebalanceListener
from ...kafka_errors import translate
from ...messages import offset_of, place_of
from ..api.connector import Config, SourceConnector
from ..api.errors import ConnectError, OffsetsRefusedError
from ..api.records import Header, Headers, SourceRecord
from ..api.task import SourceTask
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString, Range

_COMMIT_S = 0.25
PLACE_HEADER = "keyorder-mirror-source"


class MirrorConnector(SourceConnector):
    """Migrates a topic. Use key, value and header converters ByteArrayConverter: bytes stay as they are."""

    version = "1"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("source.topic", Type.STRING, importance=Importance.HIGH, documentation="The topic to copy.", validator=NonEmptyString())
            .define("target.topic", Type.STRING, importance=Importance.HIGH, documentation="The topic to write.", validator=NonEmptyString())
            .define("source.bootstrap.servers", Type.STRING, importance=Importance.HIGH, documentation="The cluster of the source.")
            .define("source.group.id", Type.STRING, None, Importance.MEDIUM, "The group that reads it; by default connect-mirror-<name>.")
            .define("batch.size", Type.INT, 1000, Importance.LOW, "Records per poll.", validator=Range(1))
            .define("include.source.place", Type.BOOLEAN, True, Importance.LOW, f"Add the header {PLACE_HEADER}: topic/partition/offset.")
        )  # fmt: skip

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return MirrorTask

    def start(self, config: Config) -> None:
        if config["source.topic"] == config["target.topic"] and config["source.bootstrap.servers"] == config.get(
            "bootstrap.servers"
        ):
            raise ConnectError(
                "source.topic and target.topic are one topic of one cluster: it would copy itself without end"
            )
        self._config = config

    def task_configs(self, max_tasks: int) -> list[Config]:
        # Partitions go from task to task by the source's group. Exactly-once is by task, so there it is one task's work.
        return [dict(self._config) for _ in range(max_tasks)]

    def exactly_once_support(self, config: Config) -> bool:
        return int(config.get("tasks.max", "1")) == 1

    def alter_offsets(
        self,
        config: Config,
        before: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        after: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> None:
        raise OffsetsRefusedError(
            "going back would copy old records after newer ones of their keys, going forward would lose records: "
            "migrate into a new topic instead"
        )


class MirrorTask(SourceTask, KeyRebalanceListener):
    """Reads with an OrderedConsumer; the group's position follows what is acknowledged in the target.

    The stored source offset is ahead of the group's position after a crash between the two; reading goes on from it.
    """

    def start(self, config: Config) -> None:
        self._options = MirrorConnector.config().parse(config)
        self._topic, self._target = self._options["source.topic"], self._options["target.topic"]
        prefix = "source."
        own = ("topic", "group.id")
        client = {
            k.removeprefix(prefix): v
            for k, v in config.items()
            if k.startswith(prefix) and k.removeprefix(prefix) not in own
        }
        self._consumer = OrderedConsumer(
            {
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **client,
                "group.id": self._options["source.group.id"] or f"connect-mirror-{config['name']}",
                "enable.auto.commit": False,
            }
        )
        self._taken: dict[int, int] = {}  # next offset per partition, of what poll has returned
        self._done: dict[int, int] = {}  # of what the target has acknowledged (or a transaction committed)
        self._waiting: dict[int, list[int]] = {}
        self._next_commit, self._ending = clock.now(), False
        self._consumer.subscribe([self._topic], listener=self)

    def poll(self) -> list[SourceRecord] | None:
        if not self.context.exactly_once and clock.now() >= self._next_commit:
            self._next_commit = clock.now() + _COMMIT_S
            self._commit_group()
        messages = self._consumer.consume(self._options["batch.size"], 0.1)
        records = []
        for message in messages:
            error = message.error()
            if error is not None:
                failure = translate(error, "read", f"topic {self._topic}")
                if not failure.retriable:
                    raise failure
                continue
            made = self._record(message)
            if made is not None:
                records.append(made)
        return records

    def _record(self, message: Message) -> SourceRecord | None:
        _, partition = place_of(message)
        offset = offset_of(message)
        if offset < self._taken.get(partition, 0):
            return None  # stored as copied, though the group's position was not there yet
        self._taken[partition] = offset + 1
        self._waiting.setdefault(partition, []).append(offset)
        pairs = [pair for pair in message.headers() or [] if pair[0] != HINT_HEADER]
        headers = Headers(Header(pair[0], pair[1]) for pair in pairs)
        if self._options["include.source.place"]:
            headers.add(PLACE_HEADER, f"{self._topic}/{partition}/{offset}".encode())
        return SourceRecord(
            topic=self._target,
            key=message.key(),
            value=message.value(),
            headers=headers,
            timestamp=max(message.timestamp()[1], 0),
            source_partition={"topic": self._topic, "partition": partition},
            source_offset={"offset": offset + 1},
        )

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        number, here = record.source_partition["partition"], record.source_offset["offset"] - 1
        waiting = self._waiting.get(number, [])
        if here in waiting:
            waiting.remove(here)
            self._done[number] = waiting[0] if waiting else self._taken[number]

    def commit(self) -> None:
        """Offsets are stored: now the group may follow."""
        self._commit_group()

    def _commit_group(self) -> None:
        """Let the group's position follow: it is what opens the gates of a managed source."""
        owned = {p.partition for p in self._consumer.assignment()}
        due = [TopicPartition(self._topic, p, offset) for p, offset in self._done.items() if p in owned]
        if due:
            try:
                self._consumer.commit(offsets=due, asynchronous=False)
            except KafkaException as raised:
                failure = translate(raised.args[0], "commit the offsets of", f"the group that reads {self._topic}")
                if not isinstance(failure, PeerError):
                    raise failure from raised
                return  # a rebalance: what was not committed is read again, and left out where it is stored as copied
            self._done.clear()

    def on_assign(self, partitions: list[TopicPartition]) -> None:
        """Partitions have come: what is stored as copied is not copied again."""
        for place in partitions:
            stored = self.context.offset_storage_reader.offset({"topic": self._topic, "partition": place.partition})
            self._taken[place.partition] = 0 if stored is None else int(stored["offset"])
            self._waiting.pop(place.partition, None)
            self._done.pop(place.partition, None)

    def on_revoke(self, partitions: list[TopicPartition]) -> None:
        """Partitions go to another task: what this one still has on its way must not land behind what that one writes."""
        if not self._ending:
            self.context.flush()
        self._commit_group()

    def stop(self) -> None:
        self._ending = True  # the runtime has flushed already
        if hasattr(self, "_consumer"):
            self._consumer.close()
