"""What a topic carries: records and bytes per second and partition, and how far groups are behind.

Rates are differences of two samples. Records are counted by high watermarks, so transaction markers count too. The client
library cannot ask for the size of logs; bytes are the records' rate times the size of the newest ones, read when needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from ...partitioner.changes.scaling_policy import GroupLag, Load
from .. import clock
from ..config import connection_of
from ..group_commits import GroupCommits
from ..kafka_errors import ends_partition, translated
from ..log_offsets import LogOffsets
from ..messages import place_of
from ..metadata import prefetch_metadata

_NEWEST = 20
_SIZES_AGE = 60.0
# Of how many groups a client stays open between two samples.
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a topic of `count` active partitions.

    at: before it was asked for, in seconds. ends: high watermarks, retired partitions included. committed: by group and
    partition, the log start where nothing is. sizes: mean bytes of the newest records; None if they were not read.
    """

    at: float
    count: int
    ends: Mapping[int, int]
    committed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    sizes: Mapping[int, float] | None = None


def load_between(before: Sample, after: Sample) -> Load | None:
    """The load between two samples; None if they cannot be compared.

    That is so when the layout changed between them, or when a log is shorter than it was: the topic was made anew.
    """
    seconds = after.at - before.at
    shorter = any(after.ends.get(p, 0) < end for p, end in before.ends.items())
    if seconds <= 0 or before.count != after.count or shorter:
        return None
    active = [p for p in range(after.count) if p in before.ends and p in after.ends]
    records = {p: (after.ends[p] - before.ends[p]) / seconds for p in active}
    sizes = after.sizes
    # A partition without records has no size: it has no rate either, or the next sample will know.
    in_bytes = None if sizes is None else {p: rate * sizes.get(p, 0.0) for p, rate in records.items()}
    groups = {}
    for group, committed in after.committed.items():
        behind = sum(max(0, after.ends[p] - offset) for p, offset in committed.items() if p in after.ends)
        earlier = before.committed.get(group, {})
        # A group that was set back consumes nothing in that moment; it is not negative.
        advanced = sum(max(0, offset - earlier.get(p, offset)) for p, offset in committed.items())
        groups[group] = GroupLag(behind, advanced / seconds)
    return Load(records, in_bytes, groups)


class LoadMeter:
    """Measures topics, each at its own pace. Not thread-safe; `close` it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = connection_of(config)
        self._servers = str(config.get("bootstrap.servers"))
        self._offsets = LogOffsets(config)
        self._commits = GroupCommits(config, _KEPT)
        self._samples: dict[str, Sample] = {}
        self._sizes: dict[str, tuple[float, dict[int, float]]] = {}

    def measure(
        self, topic: str, count: int, partitions: int, every: float, groups: Iterable[str] = (), sizes: bool = False
    ) -> Load | None:
        """The load since the last sample; None for a first one, and before `every` seconds have passed.

        count: active partitions. partitions: those that may hold records. sizes: read some records for the bytes.
        Raises NotAuthorizedError, BrokerUnreachableError, KafkaOperationError.
        """
        before, at = self._samples.get(topic), clock.now()
        if before is not None and before.count == count and at - before.at < every:
            return None
        places = [(topic, p) for p in range(partitions)]
        ends = {p: end for (_, p), end in self._offsets.high_watermarks(places).items()}
        committed = self._committed(groups, topic, partitions)
        known = self._sizes_of(topic, ends, at) if sizes else None
        self._samples[topic] = after = Sample(at, count, ends, committed, known)
        return None if before is None else load_between(before, after)

    def forget(self, topic: str) -> None:
        """Begin anew with this topic."""
        self._samples.pop(topic, None)

    def close(self) -> None:
        """Release the clients."""
        self._offsets.close()
        self._commits.close()

    def _committed(self, groups: Iterable[str], topic: str, partitions: int) -> dict[str, dict[int, int]]:
        """By group and partition; where nothing is committed, the log start."""
        places = [(topic, p) for p in range(partitions)]
        commits = self._commits.read(groups, places, 5.0)
        missing = {place for found in commits.values() for place in places if place not in found}
        starts = self._offsets.earliest(missing)
        return {
            group: {p: found[topic, p].offset if (topic, p) in found else starts[topic, p] for _, p in places}
            for group, found in commits.items()
        }

    def _sizes_of(self, topic: str, ends: Mapping[int, int], now: float) -> dict[int, float]:
        """Mean sizes, read again every minute: they change more slowly than rates."""
        read_at, known = self._sizes.get(topic, (float("-inf"), {}))
        if now - read_at >= _SIZES_AGE or any(p not in known for p, end in ends.items() if end):
            # One whose records were all deleted has none to read, and would be asked for at every sample.
            known = {**dict.fromkeys(ends, 0.0), **known, **self._read_sizes(topic, ends)}
            self._sizes[topic] = now, known
        return known

    def _read_sizes(self, topic: str, ends: Mapping[int, int], timeout: float = 3.0) -> dict[int, float]:
        consumer = Consumer(
            {
                **self._config,
                "group.id": "keyorder-load",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": 65_536,
                "isolation.level": "read_uncommitted",
            }
        )
        totals: dict[int, list[int]] = {}
        open_ends = {p for p, end in ends.items() if end}
        deadline = clock.now() + timeout
        try:
            prefetch_metadata(consumer, topic)
            with translated("read", f"topic {topic}", self._servers):
                consumer.assign([TopicPartition(topic, p, max(0, ends[p] - _NEWEST)) for p in sorted(open_ends)])
                while open_ends and clock.now() < deadline:
                    for message in consumer.consume(500, 0.2):
                        _, partition = place_of(message)
                        error = message.error()
                        if error is None:
                            totals.setdefault(partition, []).append(size_of(message))
                        elif not ends_partition(error, f"topic {topic}", self._servers):
                            continue
                        if error is not None or len(totals[partition]) >= _NEWEST:
                            open_ends.discard(partition)
        finally:
            consumer.close()
        return {p: sum(sizes) / len(sizes) for p, sizes in totals.items()}


def size_of(message: Message) -> int:
    """Bytes of key, value and headers, as they were sent; batches and compression change what lies on disk."""
    headers = message.headers() or []
    parts = [message.key(), message.value(), *(part for header in headers for part in header)]
    return sum(len(part.encode() if isinstance(part, str) else part) for part in parts if part is not None)
