"""The marker topic: which batch a task's last committed transaction belonged to, and what it wrote.

A marker is written inside the task's own transaction, so it is there exactly when the rows are. It is looked for after
`init_transactions()` returned: by then every other attempt of the task is fenced, and has committed or never will.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition, murmur2
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from ...connector import clock
from ...connector.config import connection_of
from ...connector.control.control_topics import Slot
from ...connector.control.rights import require_write
from ...connector.kafka_errors import ends_partition, translate, translated
from ...connector.log_offsets import LogOffsets
from ...connector.messages import offset_of
from ...connector.metadata import prefetch_metadata, wait_for_partitions
from ...connector.refusals import ClusterAdmin
from ...partitioner.errors import BrokerUnreachableError, CorruptRecordError, RecordVersionError
from ...partitioner.records.control_records import MARKER_TOPIC
from .task import transactional_id

# An unfinished transaction hides what lies behind it in its partition, so that not all tasks share a few.
_PARTITIONS = 24
# Format 1: the fingerprint depends on the order of the rows, and there is no run.
_FORMAT = 2
# Seconds. A marker is the last record of a transaction: it lies open for the time of a commit, unless its task was killed.
_PATIENCE = 15.0


@dataclass(frozen=True)
class Marker:
    """What a task has committed last: the batch's number, how many rows, and their fingerprint.

    run: of the query, another one after each restart. version: of the marker's format, which says how rows are compared.
    """

    batch: int
    rows: int
    fingerprint: str
    run: str = ""
    version: int = _FORMAT


def encode_marker(marker: Marker) -> bytes:
    """JSON with its version in front of all else, so that it can be read by eye."""
    return json.dumps({"version": marker.version, **asdict(marker)}).encode()


def decode_marker(data: bytes, place: str) -> Marker:
    """Raises CorruptRecordError, RecordVersionError."""
    try:
        fields = json.loads(data)
        version = int(fields.pop("version"))
    except (ValueError, KeyError, AttributeError, TypeError, OverflowError, RecursionError) as raised:
        raise CorruptRecordError(f"{place}: it is no marker of the Spark sink") from raised
    if not 1 <= version <= _FORMAT:
        raise RecordVersionError(f"marker of the Spark sink at {place}", (version, 0), _FORMAT)
    try:
        run = str(fields.get("run", ""))
        return Marker(int(fields["batch"]), int(fields["rows"]), str(fields["fingerprint"]), run, version)
    except (ValueError, KeyError, TypeError, OverflowError) as raised:
        raise CorruptRecordError(f"{place}: it is no marker of the Spark sink") from raised


def marker_slot(task_slot: str) -> Slot:
    """Where the markers of a task are."""
    return MARKER_TOPIC, murmur2(task_slot.encode(), _PARTITIONS)


def ensure_marker_topic(config: Mapping[str, Any], timeout: float = 20.0) -> None:
    """Make the marker topic where it is missing: compacted, replicated as the cluster allows.

    Raises NotAuthorizedError, BrokerUnreachableError.
    """
    servers = str(config.get("bootstrap.servers"))
    admin = ClusterAdmin(config)
    with translated("list", "topics", servers):
        metadata = admin.list_topics(timeout=timeout)
    if MARKER_TOPIC in metadata.topics:
        require_write(admin, servers, MARKER_TOPIC, timeout, read=True)
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
    """Follows the marker partitions that this process has asked about. Not thread-safe.

    patience: seconds after which the transaction of another task that hides what lies behind it is ended.
    query: keeps the markers of this query alone.
    """

    def __init__(self, config: Mapping[str, Any], patience: float = _PATIENCE, query: str | None = None) -> None:
        self._servers = str(config.get("bootstrap.servers"))
        self._connection, self._patience = connection_of(config), patience
        self._offsets = LogOffsets(config)
        self._consumer = self._reading("read_committed")
        self._next: dict[int, int] = {}
        self._prefix = "" if query is None else f"{query}/"
        # Decoded when they are asked for: markers of another query may be written by a newer keyorder.
        self._markers: dict[str, tuple[bytes, str]] = {}

    def last(self, task_slot: str, timeout: float = 60.0) -> Marker | None:
        """The task's newest committed marker; None when it has none.

        Reads to the high watermark: an open transaction of another task hides what lies behind it, so this waits until
        it ends, which takes a commit's time; one that takes longer was left open by a task that was killed, and is aborted
        here. Raises BrokerUnreachableError, CorruptRecordError, RecordVersionError.
        """
        self._follow([marker_slot(task_slot)[1]], task_slot, timeout)
        return self._marker(task_slot)

    def of_batch(self, query: str, batch: int, timeout: float = 60.0) -> dict[int, Marker]:
        """The newest markers of a query's tasks that are of that batch, by the tasks' numbers. Raises as `last`."""
        self._follow(range(_PARTITIONS), "", timeout)
        found: dict[int, Marker] = {}
        for slot in self._markers:
            of, _, number = slot.rpartition("/")
            marker = self._marker(slot) if of == query and number.isdecimal() else None
            if marker is not None and marker.batch == batch:
                found[int(number)] = marker
        return found

    def _marker(self, slot: str) -> Marker | None:
        return decode_marker(*self._markers[slot]) if slot in self._markers else None

    def _follow(self, partitions: Sequence[int], own: str, timeout: float) -> None:
        """Read on to where the partitions end now. own: the slot of the task that asks."""
        deadline = clock.now() + timeout
        ends = self._offsets.high_watermarks([(MARKER_TOPIC, partition) for partition in partitions], timeout)
        new = [partition for partition in partitions if partition not in self._next]
        if new:
            if not self._next:
                prefetch_metadata(self._consumer, MARKER_TOPIC)
            self._next.update(dict.fromkeys(new, 0))
            with translated("read", f"topic {MARKER_TOPIC}", self._servers):
                self._consumer.assign([TopicPartition(MARKER_TOPIC, p, at) for p, at in self._next.items()])
        patient_until, refused = clock.now() + self._patience, ""
        while behind := [p for p in partitions if self._next[p] < ends[MARKER_TOPIC, p]]:
            partition, before = behind[0], sum(self._next[p] for p in behind)
            message = self._consumer.poll(0.1)
            now = clock.now()
            if message is not None:
                self._take(message)
            if sum(self._next[p] for p in behind) > before:
                patient_until = now + self._patience
            elif now >= deadline:
                detail = (
                    f"{MARKER_TOPIC}[{partition}] could not be read to {ends[MARKER_TOPIC, partition]}: a transaction in it "
                    f"may be open{refused}"
                )
                raise BrokerUnreachableError(self._servers, detail)
            elif now >= patient_until:
                refused = self._end_other(partition, own, deadline)
                patient_until = clock.now() + self._patience

    def close(self) -> None:
        """Release the clients."""
        self._consumer.close()
        self._offsets.close()

    def _reading(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **self._connection,
                "group.id": "keyorder-spark-markers",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 50,
            }
        )

    def _end_other(self, partition: int, own: str, deadline: float) -> str:
        """Abort the transaction behind which committed markers cannot be read. Returns why it cannot be aborted, or "".

        A task that is alive after all is fenced by that and fails; Spark tries it again, and finds that nothing of it was
        committed. A transaction whose commit was decided is not aborted: the coordinator finishes it first.
        """
        slot = self._first_hidden(partition, deadline)
        if slot is None or slot == own:
            return ""
        name = transactional_id(slot)
        try:
            ending = Producer({**self._connection, "transactional.id": name})
            ending.init_transactions(max(1.0, min(30.0, deadline - clock.now())))
        except KafkaException as raised:
            return f", and {name} cannot be ended: {raised.args[0].str()}"
        return ""

    def _first_hidden(self, partition: int, deadline: float) -> str | None:
        """The slot of the first marker that cannot be read as committed, with which the oldest open transaction begins."""
        reader = self._reading("read_uncommitted")
        try:
            reader.assign([TopicPartition(MARKER_TOPIC, partition, self._next[partition])])
            while clock.now() < deadline:
                message = reader.poll(0.1)
                if message is None:
                    continue
                error, key = message.error(), message.key()
                if error is None:
                    return None if key is None else key.decode()
                if ends_partition(error, f"topic {MARKER_TOPIC}", self._servers):
                    return None
        finally:
            reader.close()
        return None

    def _take(self, message: Any) -> None:
        error, partition, offset = message.error(), message.partition(), offset_of(message)
        if error is not None:
            if ends_partition(error, f"topic {MARKER_TOPIC}", self._servers):
                self._next[partition] = max(self._next[partition], offset)
            return
        key, value = message.key(), message.value()
        if key is not None and value is not None and key.startswith(self._prefix.encode()):
            self._markers[key.decode()] = value, f"{MARKER_TOPIC}[{partition}]@{offset}"
        self._next[partition] = offset + 1
