"""Setting a group's offsets anew, for all partitions of a topic at once and at a consistent cut.

Offsets that are set partition by partition, as Kafka's own tool does it, may skip a record in the middle or put a key's
old records behind its new ones. Here they are taken first, then the timeline is read to its end, then what lies behind
a closed gate is lowered to that gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ...partitioner.epochs import Epoch
from ...partitioner.errors import GroupNotEmptyError, KeyorderError, UsageError
from ...partitioner.gates.gate import Gates, consistent_starts
from ...partitioner.gates.starts import flushed_epoch, metadata_of
from ...partitioner.records.control_records import Waiver, timeline_key
from ...partitioner.timeline import Timeline
from ..config import connection_of
from ..control.control_reader import readable
from ..control.control_topics import timeline_slot
from ..kafka_errors import translate, translated
from ..log_offsets import LogOffsets
from ..metadata import identify
from .waiving import active_waivers, take_back

_TIMEOUT = 15.0
_NOT_EMPTY = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.STALE_MEMBER_EPOCH,
}


class Point(str, Enum):
    """Where to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    EPOCH = "epoch"
    OFFSET = "offset"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Target:
    """What the group is set to. at: milliseconds since 1970 for TIME, the epoch's number for EPOCH, the
    offset for OFFSET, records for SHIFT.
    """

    point: Point
    at: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset does, or has done.

    offsets: {partition: offset}, every partition of the topic. clipped: {partition: offset before it was lowered to a
    closed gate}. before: {partition: what was committed}. taken_back: waivers that end with it, since the gates that
    they let go are passed anew. executed: whether it was done.
    """

    group: str
    topic: str
    target: Target
    before: Mapping[int, int]
    offsets: Mapping[int, int]
    clipped: Mapping[int, int]
    taken_back: tuple[Waiver, ...]
    executed: bool


def reset(
    config: Mapping[str, Any],
    admin: AdminClient,
    group: str,
    timeline: Timeline,
    target: Target,
    execute: bool,
    members: int,
) -> Reset:
    """Work out the offsets, and commit them all in one request with `execute`.

    Raises GroupNotEmptyError (`members` is not 0, or one joined meanwhile), UsageError (no such epoch, a time in the
    future is the latest offset), NotAuthorizedError, BrokerUnreachableError.
    """
    if members:
        raise GroupNotEmptyError(group, members)
    topic = timeline.topic
    partitions = identify(admin, topic, str(config.get("bootstrap.servers"))).partitions
    client = Consumer({**connection_of(config), "group.id": group, "enable.auto.commit": False})
    logs = LogOffsets(config)
    try:
        places = [(topic, p) for p in range(partitions)]
        starts = {p: o for (_, p), o in logs.earliest(places, _TIMEOUT).items()}
        ends = {p: o for (_, p), o in logs.stable_ends(places, _TIMEOUT).items()}
        wanted = _wanted(client, timeline, target, starts, ends)
        newest = _newest(config, timeline)  # read after the offsets were taken
        offsets = _consistent(newest, wanted)
        before = _committed(client, topic, partitions)
        waivers = tuple(active_waivers(config, newest, group))
        if execute:
            take_back(config, list(waivers))
            _commit(client, group, newest, offsets)
        clipped = {p: wanted[p] for p in wanted if offsets[p] < wanted[p]}
        return Reset(group, topic, target, before, offsets, clipped, waivers, execute)
    finally:
        client.close()
        logs.close()


def _wanted(
    client: Consumer, timeline: Timeline, target: Target, starts: dict[int, int], ends: dict[int, int]
) -> dict[int, int]:
    if target.point is Point.EARLIEST:
        return dict(starts)
    if target.point is Point.LATEST:
        return dict(ends)
    if target.point is Point.OFFSET:
        return {p: min(max(target.at, starts[p]), ends[p]) for p in starts}
    if target.point is Point.SHIFT:
        before = _committed(client, timeline.topic, len(starts))
        if not before:
            raise UsageError(f"the group has no committed offset on {timeline.topic!r} to shift: name a point instead")
        # A partition without a commit was made since the group began: it is read from its log's start.
        return {p: min(max(before.get(p, starts[p]) + target.at, starts[p]), ends[p]) for p in starts}
    if target.point is Point.TIME:
        return _by_time(client, timeline.topic, target.at, starts, ends)
    epoch = next((e for e in timeline.epochs if e.number == target.at), None)
    if epoch is None:
        known = ", ".join(str(e.number) for e in timeline.epochs)
        raise UsageError(f"{timeline.topic!r} has no epoch {target.at}: it has {known}")
    return _by_epoch(client, timeline, epoch, starts, ends)


def _by_epoch(
    client: Consumer, timeline: Timeline, epoch: Epoch, starts: dict[int, int], ends: dict[int, int]
) -> dict[int, int]:
    """The epoch's own cuts; partitions that it left alone have none, and start where they were when it was committed."""
    if epoch is timeline.epochs[0]:
        return dict(starts)
    alone = _by_time(client, timeline.topic, epoch.committed_at_ms, starts, ends)
    cuts = {**alone, **epoch.begins, **epoch.ends}
    # A log that begins above the cut has nothing below it any more; an end below it is a matter for the gate.
    return {p: max(starts[p], cut) for p, cut in cuts.items() if p in starts}


def _by_time(client: Consumer, topic: str, at_ms: int, starts: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
    with translated("list the offsets of", f"topic {topic}"):
        found = client.offsets_for_times([TopicPartition(topic, p, at_ms) for p in starts], timeout=_TIMEOUT)
    offsets = {}
    for place in found:
        if place.error is not None:
            raise translate(place.error, "list the offsets of", f"topic {topic}")
        # No record as late as that: what comes next.
        offsets[place.partition] = (
            min(place.offset, ends[place.partition]) if place.offset >= 0 else ends[place.partition]
        )
    return offsets


def _consistent(timeline: Timeline, wanted: dict[int, int]) -> dict[int, int]:
    if not timeline.ordered:
        return wanted
    everywhere = {**dict.fromkeys(range(timeline.highest_count), 0), **wanted}
    clipped = consistent_starts(Gates(timeline), everywhere)
    return {p: clipped[p] for p in wanted}


def _newest(config: Mapping[str, Any], timeline: Timeline) -> Timeline:
    for message in reversed(readable(config, [timeline_slot(timeline.topic)], _TIMEOUT)):
        if message.key == timeline_key(timeline.topic) and isinstance(message.record, Timeline):
            timeline.check_successor(message.record)
            return message.record
    return timeline


def _committed(client: Consumer, topic: str, partitions: int) -> dict[int, int]:
    with translated("read the offsets of", f"topic {topic}"):
        answers = client.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=_TIMEOUT)
    return {a.partition: a.offset for a in answers if a.error is None and a.offset >= 0}


def _commit(client: Consumer, group: str, timeline: Timeline, offsets: Mapping[int, int]) -> None:
    places = [
        TopicPartition(timeline.topic, p, o, metadata_of(flushed_epoch(timeline, p, o))) for p, o in offsets.items()
    ]
    try:
        for result in client.commit(offsets=places, asynchronous=False) or []:
            if result.error is not None:
                raise KafkaException(result.error)
    except KafkaException as raised:
        raise _refused(raised.args[0], group) from raised


def _refused(error: KafkaError, group: str) -> KeyorderError:
    """The broker takes a commit from outside only while the group has no members: whoever joined meanwhile is safe."""
    if error.code() in _NOT_EMPTY:
        return GroupNotEmptyError(group, None)
    return translate(error, "commit the offsets of", f"group {group}")


def milliseconds_of(text: str) -> int:
    """An ISO time as milliseconds since 1970; one without a zone is this machine's. Raises UsageError."""
    try:
        return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time: write it as 2026-01-31T12:00:00+00:00") from error
