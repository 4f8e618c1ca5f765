"""Looking for strays in the newest records of a topic: who writes beside keyorder, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ...partitioner.routing import HINT_HEADER, Routing, parse_hint
from ...partitioner.timeline import Timeline
from .. import clock
from ..config import REFILL, connection_of
from ..kafka_errors import ends_partition
from ..log_offsets import LogOffsets
from ..messages import offset_of
from ..metadata import prefetch_metadata


@dataclass(frozen=True, slots=True)
class PartitionStrays:
    """What was found among the `records` looked at. last, last_foreign: the offset of the last of each, None without one.

    strays: written against the timeline, by a stock producer or by one of ours that was late. foreign: of moved keys, in
    their place and without the hint that an OrderedProducer gives them, so by a stock producer.
    """

    partition: int
    records: int
    strays: int
    last: int | None
    foreign: int = 0
    last_foreign: int | None = None


def scan(
    config: Mapping[str, Any], timeline: Timeline, partitions: int, records: int, timeout: float
) -> list[PartitionStrays]:
    """The last `records` of each partition, judged by the timeline. Joins no group and commits nothing.

    What is not read within `timeout` seconds is not counted. Raises BrokerUnreachableError, NotAuthorizedError,
    KafkaOperationError (a partition cannot be read).
    """
    logs = LogOffsets(config)
    try:
        places = [(timeline.topic, p) for p in range(partitions)]
        starts, ends = logs.earliest(places, timeout), logs.stable_ends(places, timeout)
    finally:
        logs.close()
    consumer = Consumer(
        {
            **connection_of(config),
            **REFILL,
            "group.id": "keyorder-stray-scan",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    routing = Routing(timeline)
    open_ends = {p for t, p in places if starts[t, p] < ends[t, p]}
    seen = dict.fromkeys(range(partitions), 0)
    strays: dict[int, list[int]] = {p: [] for p in range(partitions)}
    foreign: dict[int, list[int]] = {p: [] for p in range(partitions)}
    deadline = clock.now() + timeout
    try:
        prefetch_metadata(consumer, timeline.topic)
        consumer.assign(
            [TopicPartition(t, p, max(starts[t, p], ends[t, p] - records)) for t, p in places if p in open_ends]
        )
        while open_ends and clock.now() < deadline:
            for message in consumer.consume(1000, 0.2):
                partition, error = message.partition(), message.error()
                assert partition is not None
                if error is not None:
                    if ends_partition(error, f"topic {timeline.topic}", str(config.get("bootstrap.servers"))):
                        open_ends.discard(partition)
                    continue
                offset = offset_of(message)
                seen[partition] += 1
                key = message.key()
                if key is not None:
                    data = key.encode() if isinstance(key, str) else key
                    hint = next((parse_hint(h[1]) for h in message.headers() or () if h[0] == HINT_HEADER), None)
                    tombstone = message.value() is None and routing.is_move_tombstone(data, partition, hint)
                    if not tombstone and routing.is_stray(data, partition, offset):
                        strays[partition].append(offset)
                    elif hint is None and routing.entered(data, partition, offset):
                        foreign[partition].append(offset)
                if offset + 1 >= ends[timeline.topic, partition]:
                    open_ends.discard(partition)
    finally:
        consumer.close()
    return [
        PartitionStrays(
            p, seen[p], len(strays[p]), max(strays[p], default=None), len(foreign[p]), max(foreign[p], default=None)
        )
        for p in range(partitions)
    ]
