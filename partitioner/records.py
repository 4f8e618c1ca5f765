"""The records of the two control topics, as values and as bytes.

`_keyorder` holds `timeline` (keyed by topic) and `waiver` records: authority, written by controllers alone.
`_keyorder_writers` holds `lease` and `ready` records: who writes, and who is ready for a change.
Full state in every record, since log compaction keeps only the last one of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, TypeVar

from . import codec
from .errors import CorruptRecordError, KeyorderError
from .modes import Mode
from .timeline import ChangePhase, Drain, Epoch, OpenChange, Retirement, Slice, Timeline

T = TypeVar("T")

CONTROL_TOPIC = "_keyorder"
WRITERS_TOPIC = "_keyorder_writers"

_CUTS = {"type": "map", "values": "long"}
_EPOCH = {
    "type": "record",
    "name": "keyorder.epoch",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "count", "type": "int"},
        {"name": "ends", "type": _CUTS},
        {"name": "begins", "type": _CUTS},
        {"name": "committed_at_ms", "type": "long"},
    ],
}
_SLICE = {
    "type": "record",
    "name": "keyorder.slice",
    "fields": [
        {"name": "partition", "type": "int"},
        {"name": "first", "type": "int"},
        {"name": "last", "type": "int"},
    ],
}
_CHANGE = {
    "type": "record",
    "name": "keyorder.change",
    "fields": [
        {"name": "epoch", "type": "int"},
        {"name": "count", "type": "int"},
        {"name": "phase", "type": "string"},
        {"name": "attempt", "type": "int"},
        {"name": "immediate", "type": "boolean"},
        {"name": "groups", "type": {"type": "array", "items": "string"}},
        {"name": "slice", "type": ["null", _SLICE]},
    ],
}
_DRAIN = {
    "type": "record",
    "name": "keyorder.drain",
    "fields": [
        {"name": "partition", "type": "int"},
        {"name": "epoch", "type": "int"},
        {"name": "upto", "type": "long"},
        {"name": "mode", "type": "int"},
        {"name": "immediate", "type": "boolean"},
        {"name": "groups", "type": {"type": "array", "items": "string"}},
        {"name": "emptied", "type": "boolean"},
    ],
}
TIMELINE = codec.record_kind(
    1,
    "timeline",
    [
        {"name": "topic", "type": "string"},
        {"name": "topic_id", "type": "string"},
        {"name": "cluster_id", "type": "string"},
        {"name": "initial", "type": "int"},
        {"name": "epochs", "type": {"type": "array", "items": _EPOCH}},
        {"name": "last_number", "type": "int"},
        {"name": "ordered", "type": "boolean"},
        {"name": "view_age_ms", "type": "int"},
        {"name": "settings", "type": {"type": "map", "values": "string"}},
        {"name": "change", "type": ["null", _CHANGE]},
        {"name": "drains", "type": {"type": "array", "items": _DRAIN}},
        {"name": "purged", "type": _CUTS},
    ],
)
WAIVER = codec.record_kind(
    2,
    "waiver",
    [
        {"name": "topic", "type": "string"},
        {"name": "group", "type": "string"},
        {"name": "epoch", "type": "int"},
        {"name": "partition", "type": "int"},
        {"name": "who", "type": "string"},
        {"name": "why", "type": "string"},
        {"name": "at_ms", "type": "long"},
    ],
)
LEASE = codec.record_kind(
    3,
    "lease",
    [
        {"name": "writer", "type": "string"},
        {"name": "nonce", "type": "string"},
        {"name": "state", "type": "string"},
        {"name": "incarnation", "type": ["null", "long"]},
        {"name": "lease_ms", "type": "int"},
        {"name": "sequence", "type": "long"},
        {"name": "topics", "type": {"type": "array", "items": "string"}},
        {"name": "transactional_id", "type": ["null", "string"]},
        {"name": "transaction_timeout_ms", "type": "int"},
    ],
)
READY = codec.record_kind(
    4,
    "ready",
    [
        {"name": "topic", "type": "string"},
        {"name": "writer", "type": "string"},
        {"name": "nonce", "type": "string"},
        {"name": "epoch", "type": "int"},
        {"name": "acknowledged", "type": _CUTS},
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
    """One process's right to write, under one join. `sequence` counts its records, so that a read-back is recognised."""

    writer: str
    nonce: str
    state: LeaseState
    incarnation: int | None
    lease_ms: int
    sequence: int
    topics: tuple[str, ...]
    transactional_id: str | None = None
    transaction_timeout_ms: int = 0


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
    """An operator let one gate of one group open, and answers for the order."""

    topic: str
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


def waiver_key(waiver: Waiver) -> bytes:
    """The record key of a waiver; the group comes last, since its name may hold anything."""
    return f"waiver:{waiver.topic}:{waiver.epoch}:{waiver.partition}:{waiver.group}".encode()


def lease_key(writer: str, nonce: str) -> bytes:
    """One key per join: with one per writer, an old record would erase a new JOIN in the log cleaner."""
    return f"lease:{nonce}:{writer}".encode()


def ready_key(topic: str, writer: str, nonce: str) -> bytes:
    """The record key of a writer's READY for the newest attempt on a topic."""
    return f"ready:{topic}:{nonce}:{writer}".encode()


def encode_timeline(t: Timeline) -> bytes:
    """The bytes of a timeline record."""
    change = None
    if t.change is not None:
        c = t.change
        change = {
            "epoch": c.epoch,
            "count": c.count,
            "phase": c.phase.value,
            "attempt": c.attempt,
            "immediate": c.retirement.immediate,
            "groups": list(c.retirement.groups),
            "slice": None if c.slice is None else asdict(c.slice),
        }
    epochs = [
        {
            "number": e.number,
            "count": e.count,
            "ends": {str(q): o for q, o in e.ends.items()},
            "begins": {str(p): o for p, o in e.begins.items()},
            "committed_at_ms": e.committed_at_ms,
        }
        for e in t.epochs
    ]
    return codec.encode(
        TIMELINE,
        {
            "topic": t.topic,
            "topic_id": t.topic_id,
            "cluster_id": t.cluster_id,
            "initial": t.initial,
            "epochs": epochs,
            "last_number": t.last_number,
            "ordered": t.ordered,
            "view_age_ms": round(t.view_age_s * 1000),
            "settings": dict(t.settings),
            "change": change,
            "drains": [_encoded_drain(d) for d in t.drains],
            "purged": {str(p): offset for p, offset in t.purged.items()},
        },
    )


def decode_timeline(data: bytes) -> Timeline:
    """A timeline from its bytes. Raises RecordVersionError, CorruptRecordError."""
    f = codec.decode(TIMELINE, data).fields
    c = f["change"]
    return _checked(
        "timeline",
        lambda: Timeline(
            topic=f["topic"],
            topic_id=f["topic_id"],
            cluster_id=f["cluster_id"],
            initial=f["initial"],
            epochs=tuple(
                Epoch(e["number"], e["count"], _cuts(e["ends"]), _cuts(e["begins"]), e["committed_at_ms"])
                for e in f["epochs"]
            ),
            last_number=f["last_number"],
            ordered=f["ordered"],
            view_age_s=f["view_age_ms"] / 1000,
            settings=f["settings"],
            change=None if c is None else _decoded_change(c),
            drains=tuple(_decoded_drain(d) for d in f["drains"]),
            purged=_cuts(f["purged"]),
        ),
    )


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
    return _checked("lease", lambda: Lease(**{**f, "state": LeaseState(f["state"]), "topics": tuple(f["topics"])}))


def decode_ready(data: bytes) -> Ready:
    """A READY from its bytes. Raises RecordVersionError, CorruptRecordError."""
    f = codec.decode(READY, data).fields
    return _checked("ready", lambda: Ready(**{**f, "acknowledged": _cuts(f["acknowledged"])}))


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


def _decoded_change(c: Mapping[str, Any]) -> OpenChange:
    retirement = Retirement(c["immediate"], tuple(c["groups"]))
    piece = None if c["slice"] is None else Slice(**c["slice"])
    return OpenChange(c["epoch"], c["count"], ChangePhase(c["phase"]), c["attempt"], retirement, piece)


def _encoded_drain(d: Drain) -> dict[str, Any]:
    return {
        "partition": d.partition,
        "epoch": d.epoch,
        "upto": d.upto,
        "mode": int(d.mode),
        "immediate": d.retirement.immediate,
        "groups": list(d.retirement.groups),
        "emptied": d.emptied,
    }


def _decoded_drain(d: Mapping[str, Any]) -> Drain:
    retirement = Retirement(d["immediate"], tuple(d["groups"]))
    return Drain(d["partition"], d["epoch"], d["upto"], Mode.of_code(d["mode"]), retirement, d["emptied"])


def _cuts(encoded: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in encoded.items()}


def _checked(kind: str, build: Callable[[], T]) -> T:
    """Contents that decode but make no sense are corruption too."""
    try:
        return build()
    except KeyorderError as error:
        raise CorruptRecordError(f"a {kind} record contradicts itself: {error}") from error
    except ValueError as error:
        raise CorruptRecordError(f"a {kind} record holds a value that this version does not know: {error}") from error
