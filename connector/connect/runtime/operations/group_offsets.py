"""The offsets of a sink connector: those of its consumer group, changed only where each key's order stays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from .....partitioner.errors import TopicNotFoundError
from .....partitioner.gates.gate import Gates
from .....partitioner.gates.starts import flushed_epoch, metadata_of
from .....partitioner.timeline import Timeline
from ....admin import TopicAdmin
from ....admin_link import AdminLink
from ....config import connection_of
from ....group_commits import GroupCommits
from ....kafka_errors import translate
from ....log_offsets import LogOffsets
from ....metadata import cluster_metadata, identify
from ...api.errors import BadRequestError, OffsetsRefusedError
from ...api.java import BLANKS
from ...api.java_regex import compiled
from ..clients import consumer_config, group_of

_TIMEOUT = 15.0
_NUMBER = re.compile(r"[+-]?\d+")
_SHAPE = '{"partition": {"kafka_topic": T, "kafka_partition": P}, "offset": {"kafka_offset": O}}'


class GroupOffsets:
    """Reads and changes the offsets of a stopped sink connector."""

    def __init__(self, worker: Mapping[str, str], connector: Mapping[str, str], name: str) -> None:
        self._config = connection_of(consumer_config(worker, connector, name, 0))
        self._group, self._connector = group_of(name), connector
        self._servers = str(self._config.get("bootstrap.servers"))
        self._cluster = AdminLink(self._config)

    def read(self) -> list[dict[str, Any]]:
        """Connect's shape: [{"partition": {"kafka_topic", "kafka_partition"}, "offset": {"kafka_offset"}}]."""
        return [
            {"partition": {"kafka_topic": t, "kafka_partition": p}, "offset": {"kafka_offset": offset}}
            for (t, p), offset in sorted(self._committed().items())
        ]

    def alter(self, pairs: Sequence[tuple[dict[str, Any], Any]], replace: bool = False) -> None:
        """Set offsets, all or none. Raises BadRequestError, OffsetsRefusedError; nothing is changed then.

        replace: the others are forgotten.
        """
        wanted = dict(self._parsed(partition, offset) for partition, offset in pairs)
        before = self._committed()
        after = wanted if replace else {**before, **wanted}
        self._check_places(wanted)
        timelines = {topic: TopicAdmin(self._config).managed(topic) for topic in {t for t, _ in wanted}}
        self._check_ends(wanted)
        for topic, timeline in timelines.items():
            if timeline is not None:
                check_order(timeline, {p: offset for (t, p), offset in after.items() if t == topic})
        places = []
        for (topic, partition), offset in wanted.items():
            timeline = timelines[topic]
            epoch = 0 if timeline is None else flushed_epoch(timeline, partition, offset)
            places.append(TopicPartition(topic, partition, offset, metadata_of(epoch)))
        if replace and before.keys() - wanted.keys():
            self.reset()
        try:
            self._done(lambda: self._cluster.set_offsets(self._group, places, _TIMEOUT))
        except KafkaException as raised:
            raise translate(raised.args[0], "set the offsets of", f"group {self._group}") from raised

    def reset(self) -> None:
        """Forget all offsets, so that the group begins anew: each key's whole history again, in order."""
        try:
            self._done(lambda: self._cluster.delete_group(self._group, _TIMEOUT))
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise translate(raised.args[0], "delete", f"group {self._group}") from raised

    def _committed(self) -> dict[tuple[str, int], int]:
        """All that the group has committed, on whichever topic: the connector may have read other ones before."""
        topics = cluster_metadata(self._cluster.client, self._servers, _TIMEOUT).topics
        places = [(name, p) for name, topic in topics.items() for p in topic.partitions]
        found = GroupCommits(self._config).read([self._group], places, _TIMEOUT)[self._group]
        return {place: commit.offset for place, commit in found.items()}

    def _parsed(self, partition: dict[str, Any], offset: Any) -> tuple[tuple[str, int], int]:
        try:
            topic, number = partition["kafka_topic"], _whole(partition["kafka_partition"], 31)
            if offset is None:
                raise BadRequestError(
                    "an offset cannot be forgotten for single partitions of a sink: give the offset to go on from, or DELETE all"
                )
            value = _whole(offset["kafka_offset"], 63)
        except (KeyError, TypeError, ValueError):
            raise BadRequestError(f"a sink's offset has the form {_SHAPE}") from None
        if not isinstance(topic, str) or number < 0 or value < 0:
            raise BadRequestError(f"a sink's offset has the form {_SHAPE}, numbers not negative")
        topics = [t.strip() for t in self._connector.get("topics", "").split(",") if t.strip()]
        regex = self._connector.get("topics.regex", "").strip(BLANKS)
        if not (topic in topics or (regex and compiled(regex).fullmatch(topic))):
            raise BadRequestError(f"topic {topic!r} is none of this connector's")
        return (topic, number), value

    def _check_places(self, wanted: Mapping[tuple[str, int], int]) -> None:
        for topic in {t for t, _ in wanted}:
            try:
                count = identify(self._cluster.client, topic, self._servers).partitions
            except TopicNotFoundError:
                raise BadRequestError(f"there is no topic {topic!r}") from None
            unknown = sorted(p for t, p in wanted if t == topic and p >= count)
            if unknown:
                raise BadRequestError(f"topic {topic!r} has {count} partitions: there is no partition {unknown[0]}")

    def _check_ends(self, wanted: Mapping[tuple[str, int], int]) -> None:
        offsets = LogOffsets(self._config)
        try:
            for place, end in offsets.high_watermarks(wanted).items():
                if wanted[place] > end:
                    raise BadRequestError(f"{place[0]}[{place[1]}] ends at {end}: it has no offset {wanted[place]}")
        finally:
            offsets.close()

    def _done(self, call: Any) -> None:
        try:
            call()
        except KafkaException as raised:
            code = raised.args[0].code()
            if code in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
                raise BadRequestError(
                    "the connector's tasks have not left their group yet: try again in a moment"
                ) from raised
            raise


def _whole(value: Any, bits: int) -> int:
    """A whole number, or text of one as Java reads it. Raises ValueError."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value >= 2**bits:
        raise ValueError(value)
    return value


def check_order(timeline: Timeline, offsets: Mapping[int, int]) -> None:
    """Raise OffsetsRefusedError if a partition would be past a gate whose origin is not: keys that moved would be
    delivered at their new home first, and their older records after them.
    """
    opened = Gates(timeline).open_now(lambda q: offsets.get(q, 0))
    for gate in Gates(timeline).all():
        at = offsets.get(gate.partition, 0)
        if at > gate.begins and not opened.is_open(gate):
            behind = [
                f"{q} below {ends} (at {offsets.get(q, 0)})" for q, ends in gate.origins if offsets.get(q, 0) < ends
            ]
            raise OffsetsRefusedError(
                f"offset {at} of {timeline.topic}[{gate.partition}] lies behind the gate of epoch {gate.epoch}, which needs "
                f"partition {', '.join(behind) or 'its origins'}: older records of moved keys would come after newer ones. "
                f"Set the origins to their cuts, or partition {gate.partition} to {gate.begins} at most"
            )
