"""The records of the two control topics, as values and as bytes.

`_keyorder` holds `timeline` (keyed by topic) and `waiver` records: authority, written by controllers alone.
`_keyorder_writers` holds `lease` and `ready` records: who writes, and who is ready for a change.
Full state in every record, since log compaction keeps only the last one of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..numbers import number_of
from ..timeline import Timeline
from . import codec
from .timeline_record import CUTS, checked, cuts
from .timeline_record import TIMELINE as TIMELINE
from .timeline_record import decode_timeline as decode_timeline
from .timeline_record import encode_timeline as encode_timeline
from .timeline_record import require_known_timeline as require_known_timeline

CONTROL_TOPIC = "_keyorder"
WRITERS_TOPIC = "_keyorder_writers"
# Where the exactly-once Spark sink notes its batches.
MARKER_TOPIC = "_keyorder_spark"
#: Kafka's own topics and keyorder's: no pattern of topics means them.
INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", CONTROL_TOPIC, WRITERS_TOPIC, MARKER_TOPIC}
)

WAIVER = codec.record_kind(
    2,
    "waiver",
    [
        {"name": "topic", "type": "string"},
        {"name": "topic_id", "type": "string"},
        {"name": "group", "type": "string"},
        {"name": "epoch", "type": "int"},
        {"name": "partition", "type": "int"},
        {"name": "who", "type": "string"},
        {"name": "why", "type": "string"},
        {"name": "at_ms", "type": "long"},
    ],
)
_LEASE_1_0: list[dict[str, Any]] = codec.fields(
    writer="string",
    nonce="string",
    state="string",
    incarnation=["null", "long"],
    lease_ms="int",
    sequence="long",
    topics=codec.array("string"),
    transactional_id=["null", "string"],
    transaction_timeout_ms="int",
)
_LEASE_1_1 = [*_LEASE_1_0, {"name": "proven", "type": "boolean", "default": False}]
LEASE = codec.record_kind(
    3, "lease", _LEASE_1_0, _LEASE_1_1, [*_LEASE_1_1, {"name": "took_id_after", "type": "long", "default": -1}]
)
READY = codec.record_kind(
    4,
    "ready",
    [
        {"name": "topic", "type": "string"},
        {"name": "writer", "type": "string"},
        {"name": "nonce", "type": "string"},
        {"name": "epoch", "type": "int"},
        {"name": "acknowledged", "type": CUTS},
    ],
)


class LeaseState(str, Enum):
    """JOIN is the first record of a nonce, LIVE every renewal; LEFT is the writer's own end, EXPELLED a controller's."""

    JOIN = "JOIN"
    LIVE = "LIVE"
    LEFT = "LEFT"
    EXPELLED = "EXPELLED"


@dataclass(frozen=True, slots=True)
class Lease:
    """One process's right to write, under one join. `sequence` counts its records, so that a read-back is recognised.

    proven: the broker has acknowledged a record of this join, so it held its transactional id after it had joined.
    took_id_after: where this log ended before the writer took its transactional id: whoever joined below that offset had
    taken it earlier, and is fenced. -1: not known.
    """

    writer: str
    nonce: str
    state: LeaseState
    incarnation: int | None
    lease_ms: int
    sequence: int
    topics: tuple[str, ...]
    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    proven: bool = False
    took_id_after: int = -1

    @property
    def identity(self) -> tuple[str, str | None]:
        """Whose lease it is: of two joins of one identity the later one stands."""
        return self.writer, self.transactional_id


@dataclass(frozen=True, slots=True)
class Ready:
    """A writer holds the moving keys of attempt `epoch` and has nothing of them in flight.

    acknowledged: {origin: offset} one above the last record that the broker acknowledged to this writer.
    """

    topic: str
    writer: str
    nonce: str
    epoch: int
    acknowledged: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiver:
    """An operator let one gate of one group open, and answers for the order.

    topic_id: of the topic as it was then: one that is made again counts its epochs from the beginning.
    """

    topic: str
    topic_id: str
    group: str
    epoch: int
    partition: int
    who: str
    why: str
    at_ms: int = 0


ControlRecord = Timeline | Waiver | Lease | Ready


def timeline_key(topic: str) -> bytes:
    """The record key of a topic's timeline."""
    return f"timeline:{topic}".encode()


def topic_of_key(key: bytes) -> str | None:
    """The topic whose timeline a key names, None for any other key."""
    kind, _, topic = key.partition(b":")
    # A name that is no UTF-8 is nobody's: Kafka allows letters, digits and three signs.
    return topic.decode(errors="replace") if kind == b"timeline" else None


def waiver_key(waiver: Waiver) -> bytes:
    """The record key of a waiver; the group comes last, since its name may hold anything."""
    return f"waiver:{waiver.topic}:{waiver.epoch}:{waiver.partition}:{waiver.group}".encode()


def waiver_of_key(key: bytes) -> tuple[str, int, int, str] | None:
    """(topic, epoch, partition, group) of a waiver's key; a tombstone has nothing else. None for any other key."""
    parts = key.split(b":", 4)
    if len(parts) != 5 or parts[0] != b"waiver":
        return None
    try:
        topic, epoch, partition, group = (part.decode() for part in parts[1:])
    except UnicodeDecodeError:
        return None
    numbers = number_of(epoch), number_of(partition)
    return None if numbers[0] is None or numbers[1] is None else (topic, numbers[0], numbers[1], group)


def lease_key(writer: str, nonce: str) -> bytes:
    """One key per join: with one per writer, an old record would erase a new JOIN in the log cleaner.

    The cleaner keeps the last record of a join alone, so each holds the full state.
    """
    return f"lease:{nonce}:{writer}".encode()


def ready_key(topic: str, writer: str, nonce: str) -> bytes:
    """The record key of a writer's READY for the newest attempt on a topic."""
    return f"ready:{topic}:{nonce}:{writer}".encode()


def encode_waiver(waiver: Waiver) -> bytes:
    """The bytes of a waiver record."""
    return codec.encode(WAIVER, {name: getattr(waiver, name) for name in Waiver.__dataclass_fields__})


def encode_lease(lease: Lease) -> bytes:
    """The bytes of a lease record."""
    fields = {name: getattr(lease, name) for name in Lease.__dataclass_fields__}
    return codec.encode(LEASE, {**fields, "state": lease.state.value, "topics": list(lease.topics)})


def encode_ready(ready: Ready) -> bytes:
    """The bytes of a READY record."""
    acknowledged = {str(q): offset for q, offset in ready.acknowledged.items()}
    fields = {name: getattr(ready, name) for name in Ready.__dataclass_fields__}
    return codec.encode(READY, {**fields, "acknowledged": acknowledged})


def decode_waiver(data: bytes) -> Waiver:
    """A waiver from its bytes. Raises RecordVersionError, CorruptRecordError."""
    return Waiver(**codec.decode(WAIVER, data).fields)


def decode_lease(data: bytes) -> Lease:
    """A lease from its bytes. Raises RecordVersionError, CorruptRecordError."""
    f = codec.decode(LEASE, data).fields
    return checked("lease", lambda: Lease(**{**f, "state": LeaseState(f["state"]), "topics": tuple(f["topics"])}))


def decode_ready(data: bytes) -> Ready:
    """A READY from its bytes. Raises RecordVersionError, CorruptRecordError."""
    f = codec.decode(READY, data).fields
    return checked("ready", lambda: Ready(**{**f, "acknowledged": cuts(f["acknowledged"])}))


_DECODERS = {
    b"timeline": decode_timeline,
    b"waiver": decode_waiver,
    b"lease": decode_lease,
    b"ready": decode_ready,
}


def decode_record(key: bytes | None, value: bytes | None) -> ControlRecord | None:
    """Any control record, by the prefix of its key; None for a tombstone or a kind that this version does not know."""
    if key is None or value is None:
        return None
    decoder: Any = _DECODERS.get(key.split(b":", 1)[0])
    record: ControlRecord | None = decoder(value) if decoder is not None else None
    return record
