"""The marker topic: which batch a task's last committed transaction belonged to, and what it wrote.

A marker is written inside the task's own transaction, so it is there exactly when the rows are. It is looked for after
`init_transactions()` returned: by then every other attempt of the task is fenced, and has committed or never will.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, murmur2
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ...connector import clock
from ...connector.config import connection_of
from ...connector.control.control_topics import Slot
from ...connector.kafka_errors import ends_partition, translate, translated
from ...connector.log_offsets import LogOffsets
from ...connector.messages import offset_of
from ...connector.metadata import acquaint, wait_for_partitions
from ...partitioner.errors import BrokerUnreachableError, CorruptRecordError, RecordVersionError

MARKER_TOPIC = "_keyorder_spark"
# An unfinished transaction hides what lies behind it in its partition, so that not all tasks share a few.
_PARTITIONS = 24
_FORMAT = 1


@dataclass(frozen=True)
class Marker:
    """What a task has committed last: the batch's number, how many rows, and their fingerprint."""

    batch: int
    rows: int
    fingerprint: str


def encode_marker(marker: Marker) -> bytes:
    """JSON with its version in front of all else, so that it can be read by eye."""
    return json.dumps({"version": _FORMAT, **asdict(marker)}).encode()


def decode_marker(data: bytes, place: str) -> Marker:
    """Raises CorruptRecordError, RecordVersionError."""
    try:
        fields = json.loads(data)
        version = int(fields.pop("version"))
    except (ValueError, KeyError, AttributeError, TypeError) as raised:
        raise CorruptRecordError(f"{place}: it is no marker of the Spark sink") from raised
    if version != _FORMAT:
        raise RecordVersionError(f"marker of the Spark sink at {place}", (version, 0), _FORMAT)
    try:
        return Marker(int(fields["batch"]), int(fields["rows"]), str(fields["fingerprint"]))
    except (ValueError, KeyError, TypeError) as raised:
        raise CorruptRecordError(f"{place}: it is no marker of the Spark sink") from raised


def marker_slot(task_slot: str) -> Slot:
    """Where the markers of a task are."""
    return MARKER_TOPIC, murmur2(task_slot.encode(), _PARTITIONS)


def ensure_marker_topic(config: Mapping[str, Any], timeout: float = 20.0) -> None:
    """Make the marker topic where it is missing: compacted, replicated as the cluster allows.

    Raises NotAuthorizedError, BrokerUnreachableError.
    """
    servers = str(config.get("bootstrap.servers"))
    admin = AdminClient(connection_of(config))
    with translated("list", "topics", servers):
        metadata = admin.list_topics(timeout=timeout)
    if MARKER_TOPIC in metadata.topics:
        return
    replicas = min(3, len(metadata.brokers))
    settings = {"cleanup.policy": "compact", "min.insync.replicas": "2" if replicas >= 3 else "1"}
    topic = NewTopic(MARKER_TOPIC, _PARTITIONS, replicas, config=settings)
    for future in admin.create_topics([topic], operation_timeout=timeout).values():
        try:
            future.result(timeout)
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(raised.args[0], "create", f"marker topic {MARKER_TOPIC}", servers) from raised
    wait_for_partitions(admin, MARKER_TOPIC, _PARTITIONS, servers, timeout)


class MarkerReader:
    """Follows the marker partitions that this process has asked about. Not thread-safe."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._servers = str(config.get("bootstrap.servers"))
        self._offsets = LogOffsets(config)
        self._consumer = Consumer(
            {
                **connection_of(config),
                "group.id": "keyorder-spark-markers",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 50,
            }
        )
        self._next: dict[int, int] = {}
        self._markers: dict[str, Marker] = {}

    def last(self, task_slot: str, timeout: float = 60.0) -> Marker | None:
        """The task's newest committed marker; None when it has none.

        Reads to the high watermark: an open transaction of another task hides what lies behind it, so this waits until
        it ends, which takes a commit's time. Raises BrokerUnreachableError, CorruptRecordError, RecordVersionError.
        """
        partition = marker_slot(task_slot)[1]
        deadline = clock.now() + timeout
        end = self._offsets.high_watermarks([(MARKER_TOPIC, partition)], timeout)[MARKER_TOPIC, partition]
        if partition not in self._next:
            if not self._next:
                acquaint(self._consumer, MARKER_TOPIC)
            self._next[partition] = 0
            with translated("read", f"topic {MARKER_TOPIC}", self._servers):
                self._consumer.assign([TopicPartition(MARKER_TOPIC, p, at) for p, at in self._next.items()])
        while self._next[partition] < end:
            message = self._consumer.poll(0.1)
            if message is not None:
                self._take(message)
            elif clock.now() >= deadline:
                detail = f"{MARKER_TOPIC}[{partition}] could not be read to {end}: a transaction in it may be open"
                raise BrokerUnreachableError(self._servers, detail)
        return self._markers.get(task_slot)

    def close(self) -> None:
        """Release the clients."""
        self._consumer.close()
        self._offsets.close()

    def _take(self, message: Any) -> None:
        error, partition, offset = message.error(), message.partition(), offset_of(message)
        if error is not None:
            if ends_partition(error, f"topic {MARKER_TOPIC}", self._servers):
                self._next[partition] = max(self._next[partition], offset)
            return
        key, value = message.key(), message.value()
        if key is not None and value is not None:
            self._markers[key.decode()] = decode_marker(value, f"{MARKER_TOPIC}[{partition}]@{offset}")
        self._next[partition] = offset + 1
