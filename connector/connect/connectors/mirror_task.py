"""The mirror's task: an ordered consumer of the source in front of the runtime's producer."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException, Message, TopicPartition

from ....partitioner.errors import PeerError
from ....partitioner.routing import HINT_HEADER
from ... import clock
from ...consuming.consumer import OrderedConsumer
from ...consuming.listener import KeyRebalanceListener
from ...kafka_errors import translate
from ...messages import offset_of, place_of
from ..api.connector import Config
from ..api.errors import ConnectError
from ..api.java_regex import NOT_MEANT, compiled, topics_pattern
from ..api.records import Header, Headers, SourceRecord
from ..api.task import Place, SourceTask
from .mirror_groups import GroupSync
from .mirror_settings import PLACE_HEADER, client, cluster, definition

_LOG = logging.getLogger("keyorder.connect.task")
_COMMIT_S = 0.25
_MARK_S = 1.0


class MirrorTask(SourceTask, KeyRebalanceListener):
    """Reads with an OrderedConsumer; the group's position follows what is acknowledged in the target.

    The stored source offset is ahead of the group's position after a crash between the two; reading goes on from it.
    """

    def start(self, config: Config) -> None:
        self._options = definition().parse(config)
        self._targets: dict[str, str] = {}
        source = client(config, "source")
        group = self._options["source.group.id"] or f"connect-mirror-{config['name']}"
        self._one_cluster = False
        self._groups: GroupSync | None = None
        if self._options["target.bootstrap.servers"]:
            target = client(config, "target")
            self._one_cluster = cluster(source) == cluster(target)
            if self._options["groups.regex"]:
                name = self._options["groups.name"]
                self._groups = GroupSync(source, target, self._options["groups.regex"], name, group)
        self._consumer = OrderedConsumer(
            {
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **({"topic.blacklist": NOT_MEANT} if self._options["source.topics.regex"] else {}),
                **source,
                "group.id": group,
                "enable.auto.commit": False,
            }
        )
        self._taken: dict[Place, int] = {}  # next offset by partition, of what poll has returned
        self._done: dict[Place, int] = {}  # of what the target has acknowledged (or a transaction committed)
        self._waiting: dict[Place, list[int]] = {}
        now = clock.now()
        self._next_commit, self._next_mark, self._next_sync = now, now, now
        self._ending = False
        pattern = self._options["source.topics.regex"]
        self._consumer.subscribe([topics_pattern(pattern) if pattern else self._options["source.topic"]], listener=self)

    def poll(self) -> list[SourceRecord] | None:
        # With transactions the group follows what one has committed (`commit`), never what was acknowledged inside it.
        if not self.context.exactly_once and clock.now() >= self._next_commit:
            self._next_commit = clock.now() + _COMMIT_S
            self._commit_group()
        if self._groups is not None:
            self._follow_groups(self._groups)
        messages = self._consumer.consume(self._options["batch.size"], 0.1)
        records = []
        for message in messages:
            error = message.error()
            if error is not None:
                failure = translate(error, "read", f"topic {message.topic() or self._options['source.topic']}")
                if not failure.retriable:
                    raise failure
                continue
            made = self._record(message)
            if made is not None:
                records.append(made)
        return records

    def _follow_groups(self, groups: GroupSync) -> None:
        """What poll has returned so far is all that was handed out: the place for a mark."""
        now = clock.now()
        try:
            if now >= self._next_mark:
                self._next_mark = now + _MARK_S
                groups.take_marks(self._taken, {topic: self._target(topic) for topic, _ in self._taken})
            if now >= self._next_sync:
                self._next_sync = now + self._options["groups.interval.ms"] / 1000
                groups.sync({topic: self._target(topic) for topic, _ in self._taken})
        except PeerError as error:
            if not error.retriable:
                raise
            _LOG.warning("offsets of groups are translated later: %s", error)

    def _target(self, topic: str) -> str:
        """The topic that gets another one's records. Raises ConnectError where copies would be copied again."""
        if topic not in self._targets:
            target: str = self._options["target.topic"].replace("${topic}", topic)
            pattern = self._options["source.topics.regex"]
            if self._one_cluster and (target == topic or (pattern and compiled(pattern).fullmatch(target))):
                raise ConnectError(
                    f"{topic} would be copied to {target} of the same cluster, which is a source, too: copies would be copied without end"
                )
            self._targets[topic] = target
        return self._targets[topic]

    def _record(self, message: Message) -> SourceRecord | None:
        place = topic, partition = place_of(message)
        offset = offset_of(message)
        if offset < self._taken.get(place, 0):
            return None  # stored as copied, though the group's position was not there yet
        target = self._target(topic)
        self._taken[place] = offset + 1
        self._waiting.setdefault(place, []).append(offset)
        pairs = [pair for pair in message.headers() or [] if pair[0] != HINT_HEADER]
        headers = Headers(Header(pair[0], pair[1]) for pair in pairs)
        if self._options["include.source.place"]:
            headers.add(PLACE_HEADER, f"{topic}/{partition}/{offset}".encode())
        return SourceRecord(
            topic=target,
            key=message.key(),
            value=message.value(),
            headers=headers,
            timestamp=max(message.timestamp()[1], 0),
            source_partition={"topic": topic, "partition": partition},
            source_offset={"offset": offset + 1},
        )

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        place = record.source_partition["topic"], record.source_partition["partition"]
        here = record.source_offset["offset"] - 1
        waiting = self._waiting.get(place, [])
        if here in waiting:
            waiting.remove(here)
            self._done[place] = waiting[0] if waiting else self._taken[place]

    def commit(self) -> None:
        """Offsets are stored: now the group may follow."""
        self._commit_group()

    def _commit_group(self) -> None:
        """Let the group's position follow: it is what opens the gates of a managed source."""
        owned = {(p.topic, p.partition) for p in self._consumer.assignment()}
        due = [TopicPartition(*place, offset) for place, offset in self._done.items() if place in owned]
        if due:
            try:
                self._consumer.commit(offsets=due, asynchronous=False)
            except KafkaException as raised:
                topics = ", ".join(sorted({place.topic for place in due}))
                failure = translate(raised.args[0], "commit the offsets of", f"the group that reads {topics}")
                if not isinstance(failure, PeerError):
                    raise failure from raised
                return  # a rebalance: what was not committed is read again, and left out where it is stored as copied
            self._done.clear()

    def on_assign(self, partitions: list[TopicPartition]) -> None:
        """Partitions have come: what is stored as copied is not copied again."""
        places = [(place.topic, place.partition) for place in partitions]
        stored = self.context.offset_storage_reader.offsets([{"topic": t, "partition": p} for t, p in places])
        for place, offset in zip(places, stored, strict=True):
            self._taken[place] = 0 if offset is None else int(offset["offset"])
            self._waiting.pop(place, None)
            self._done.pop(place, None)

    def on_revoke(self, partitions: list[TopicPartition]) -> None:
        """Partitions go to another task: what this one still has on its way must not land behind what that one writes."""
        if not self._ending:
            self.context.flush()
        if not self.context.exactly_once:  # else `commit` has, if the transaction stands: after a failure it is aborted
            self._commit_group()
        for place in partitions:
            self._taken.pop((place.topic, place.partition), None)
            if self._groups is not None:
                self._groups.forget(place.topic, place.partition)

    def stop(self) -> None:
        self._ending = True  # the runtime has flushed already
        if hasattr(self, "_consumer"):
            self._consumer.close()
        groups: GroupSync | None = getattr(self, "_groups", None)
        if groups is not None:
            groups.close()
