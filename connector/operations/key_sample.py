"""Looking at some records of a topic: how its keys were placed, and whether OrderedProducers have written it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ...partitioner.adoption import KeySample, KeySampler
from ...partitioner.errors import BrokerUnreachableError
from ...partitioner.routing import HINT_HEADER
from .. import clock
from ..config import REFILL, connection_of
from ..kafka_errors import translate
from ..log_offsets import LogOffsets
from ..messages import key_of, offset_of
from ..metadata import prefetch_metadata

# How far to look back in a partition whose newest records have no key: markers and aborted records take offsets too.
_LOOKS_BACK = (16, 256)


def sample_keys(
    config: Mapping[str, Any],
    topic: str,
    partitions: int,
    records: int = 1_000,
    timeout: float = 20.0,
    offsets: LogOffsets | None = None,
) -> KeySample:
    """The newest and the oldest records of every partition, some `records` in all. Joins no group, commits nothing.

    It reads with read_uncommitted: who placed a record of an aborted transaction placed the others too, and behind an open
    one read_committed would show nothing. An empty topic is not read, so its user needs no right to.

    timeout: in seconds. offsets: lists offsets, as the same user; a client of its own if None.
    Raises NotAuthorizedError, BrokerUnreachableError (a partition with records showed none in time) and Kafka's own.
    """
    sampler = KeySampler(topic, partitions)
    logs = offsets or LogOffsets(config)
    deadline = clock.now() + timeout
    try:
        places = [(topic, p) for p in range(partitions)]
        starts, ends = logs.earliest(places, timeout), logs.high_watermarks(places, timeout)
    finally:
        if logs is not offsets:
            logs.close()
    spans = {p: (starts[topic, p], ends[topic, p]) for _, p in places if starts[topic, p] < ends[topic, p]}
    if not spans:
        return sampler.sample()
    half = max(1, records // (2 * len(spans)))
    with _Reader(config, sampler, deadline) as reader:
        newest = {p: (max(start, end - half), end) for p, (start, end) in spans.items()}
        unread = reader.read(newest)
        if unread:
            raise BrokerUnreachableError(
                str(config.get("bootstrap.servers")),
                f"read the newest records of {topic}, partitions {', '.join(map(str, sorted(unread)))}",
            )
        oldest = {p: (start, min(start + half, newest[p][0])) for p, (start, _) in spans.items()}
        reader.read({p: span for p, span in oldest.items() if span[0] < span[1]})
        for times in _LOOKS_BACK:
            back = {
                p: (max(oldest[p][1], newest[p][0] - times * half), newest[p][0])
                for p in spans
                if p not in reader.keyed
            }
            reader.read({p: span for p, span in back.items() if span[0] < span[1]}, most=half)
    return sampler.sample()


class _Reader:
    """Reads spans of partitions. keyed: those that have shown a record with a key."""

    def __init__(self, config: Mapping[str, Any], sampler: KeySampler, deadline: float) -> None:
        self._sampler, self._deadline = sampler, deadline
        self._servers = str(config.get("bootstrap.servers"))
        self.keyed: set[int] = set()
        self._consumer = Consumer(
            {
                **connection_of(config),
                **REFILL,
                "group.id": "keyorder-key-sample",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 10,
            }
        )

    def __enter__(self) -> _Reader:
        prefetch_metadata(self._consumer, self._sampler.topic)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, spans: Mapping[int, tuple[int, int]], most: int | None = None) -> set[int]:
        """Read [first, last) of each partition, or `most` keyed records of it. Returns those that showed nothing in time."""
        topic, left, silent = self._sampler.topic, set(spans), set(spans)
        taken = dict.fromkeys(spans, 0)
        if not spans:
            return silent
        self._consumer.incremental_assign([TopicPartition(topic, p, first) for p, (first, _) in spans.items()])
        while left and clock.now() < self._deadline:
            done: set[int] = set()
            for message in self._consumer.consume(500, 0.1):
                p, error = message.partition(), message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF and p is not None:
                        done.add(p)
                        silent.discard(p)
                    elif not error.retriable():
                        raise translate(error, "read", f"topic {topic}", self._servers)
                    continue
                if p not in left or p in done:
                    continue
                offset = offset_of(message)
                silent.discard(p)
                if offset < spans[p][1]:
                    hinted = any(header[0] == HINT_HEADER for header in message.headers() or ())
                    if self._sampler.take(p, offset, key_of(message), hinted):
                        self.keyed.add(p)
                        taken[p] += 1
                if offset + 1 >= spans[p][1] or (most is not None and taken[p] >= most):
                    done.add(p)
            done &= left
            if done:
                left -= done
                self._consumer.incremental_unassign([TopicPartition(topic, p) for p in done])
        if left:
            self._consumer.incremental_unassign([TopicPartition(topic, p) for p in left])
        return silent
