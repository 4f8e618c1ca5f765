"""The timeline record: its schema by minor version, and its bytes.

A minor version may only append to the outermost record, so what later versions know of a drain or of an open change
stands in lists and records of its own there, and is put together again here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from fastavro.types import Schema

from ..epochs import ChangePhase, Drain, Epoch, Folded, OpenChange, Retirement, Slice
from ..errors import CorruptRecordError, KeyorderError
from ..hashing import DEFAULT_HASH
from ..modes import Mode
from ..timeline import Timeline
from . import codec, packed

T = TypeVar("T")

CUTS = {"type": "map", "values": "long"}
_EPOCH = codec.record("epoch", number="int", count="int", ends=CUTS, begins=CUTS, committed_at_ms="long")


def _change(of_hash: str) -> Schema:
    """An open change. of_hash: the type of a hash."""
    slice_ = codec.record("slice", partition="int", first=of_hash, last=of_hash)
    return codec.record(
        "change",
        epoch="int",
        count="int",
        phase="string",
        attempt="int",
        immediate="boolean",
        groups=codec.array("string"),
        slice=["null", slice_],
    )


_DRAIN = codec.record(
    "drain",
    partition="int",
    epoch="int",
    upto="long",
    mode="int",
    immediate="boolean",
    groups=codec.array("string"),
    emptied="boolean",
)
# Since minor version 1. What it does not say has the meaning that it had before.
_CHANGE_MORE = codec.record("change_more", delay_ms=["null", "long"], forced="boolean", deadline_ms="long")
_PURGE = codec.record(
    "purge", partition="int", delay_ms=["null", "long"], forced="boolean", tries="int", error="string"
)
# Since minor version 2.
_FOLDED = codec.record("folded", first_count="int", highest_count="int")
_FIRST: list[dict[str, Any]] = codec.fields(
    topic="string",
    topic_id="string",
    cluster_id="string",
    initial="int",
    epochs=codec.array(_EPOCH),
    last_number="int",
    ordered="boolean",
    view_age_ms="int",
    settings={"type": "map", "values": "string"},
    change=["null", _change("int")],
    drains=codec.array(_DRAIN),
    purged=CUTS,
)
_SECOND: list[dict[str, Any]] = [
    *_FIRST,
    {"name": "change_more", "type": ["null", _CHANGE_MORE], "default": None},
    {"name": "purges", "type": codec.array(_PURGE), "default": []},
    {"name": "held_ms", "type": CUTS, "default": {}},
]
# An older client that begins with a folded timeline reads it as one that was adopted at its base; one that runs refuses it.
_THIRD: list[dict[str, Any]] = [
    *_SECOND,
    {"name": "folded", "type": ["null", _FOLDED], "default": None},
    {"name": "foldable", "type": CUTS, "default": {}},
]
_VERSIONS = (_FIRST, _SECOND, _THIRD)
TIMELINE = codec.record_kind(1, "timeline", *_VERSIONS)


def _with_hash(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fields of a version, for a topic with another hash: one may need more than 31 bits."""
    rest = [{**field, "type": ["null", _change("long")]} if field["name"] == "change" else field for field in fields]
    return [{"name": "hash", "type": "string"}, *rest]


# A topic whose keys are not placed by murmur2. An older client accepts a newer minor version and would place its keys by
# murmur2, so these have a major version of their own, which it refuses. Its minor versions follow those of the first.
HASHED_TIMELINE = codec.record_kind(1, "timeline", *map(_with_hash, _VERSIONS[1:]), major=2)


def _packed(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fields of a version, with epochs and drains packed."""
    return [*packed.FIELDS, *(field for field in _with_hash(fields) if field["name"] not in _PACKED)]


_PACKED = {"epochs", "drains", "purges", "held_ms"}
# A long timeline, under whatever hash. Short ones stay as older clients know them; these are refused by them.
PACKED_TIMELINE = codec.record_kind(1, "timeline", *map(_packed, _VERSIONS[2:]), major=3)
_MAJORS = (TIMELINE, HASHED_TIMELINE, PACKED_TIMELINE)
# How many cuts a timeline may have before it is packed: some five kilobytes of them.
_LONG = 400


def encode_timeline(t: Timeline) -> bytes:
    """The bytes of a timeline record."""
    c = t.change
    if sum(len(e.ends) + len(e.begins) for e in t.epochs) + 2 * len(t.drains) > _LONG:
        kind, long = PACKED_TIMELINE, True
    else:
        kind, long = TIMELINE if t.hash == DEFAULT_HASH else HASHED_TIMELINE, False
    return codec.encode(
        kind,
        {
            **({} if kind is TIMELINE else {"hash": t.hash}),
            **(_packed_fields(t) if long else _listed_fields(t)),
            "topic": t.topic,
            "topic_id": t.topic_id,
            "cluster_id": t.cluster_id,
            "initial": t.initial,
            "last_number": t.last_number,
            "ordered": t.ordered,
            "view_age_ms": round(t.view_age_s * 1000),
            "settings": dict(t.settings),
            "change": None if c is None else _encoded_change(c),
            "purged": {str(p): offset for p, offset in t.purged.items()},
            "change_more": None if c is None else {**_wishes(c.retirement), "deadline_ms": c.deadline_ms},
            "folded": None if t.folded is None else asdict(t.folded),
            "foldable": {str(number): at_ms for number, at_ms in t.foldable.items()},
        },
    )


def _listed_fields(t: Timeline) -> dict[str, Any]:
    return {
        "epochs": [_encoded_epoch(e) for e in t.epochs],
        "drains": [_encoded_drain(d) for d in t.drains],
        "purges": [
            {"partition": d.partition, **_wishes(d.retirement), "tries": d.tries, "error": d.error} for d in t.drains
        ],
        "held_ms": {str(e.number): e.held_ms for e in t.epochs if e.held_ms},
    }


def _packed_fields(t: Timeline) -> dict[str, Any]:
    return {"packed_epochs": packed.pack_epochs(t.epochs), "packed_drains": packed.pack_drains(t.drains)}


def _epochs_and_drains(f: Mapping[str, Any]) -> tuple[tuple[Epoch, ...], tuple[Drain, ...]]:
    if "packed_epochs" in f:
        return packed.unpack_epochs(f["initial"], f["packed_epochs"]), packed.unpack_drains(f["packed_drains"])
    epochs = _decoded_epochs(f["epochs"], cuts(f["held_ms"]))
    return epochs, _decoded_drains(f["drains"], {p["partition"]: p for p in f["purges"]})


def decode_timeline(data: bytes) -> Timeline:
    """A timeline from its bytes. Raises RecordVersionError, CorruptRecordError."""
    f = codec.decode_any(_MAJORS, data).fields
    c = f["change"]
    epochs, drains = checked("timeline", lambda: _epochs_and_drains(f))
    return checked(
        "timeline",
        lambda: Timeline(
            topic=f["topic"],
            topic_id=f["topic_id"],
            cluster_id=f["cluster_id"],
            initial=f["initial"],
            epochs=epochs,
            last_number=f["last_number"],
            ordered=f["ordered"],
            view_age_s=f["view_age_ms"] / 1000,
            settings=f["settings"],
            change=None if c is None else _decoded_change(c, f["change_more"] or {}),
            drains=drains,
            purged=cuts(f["purged"]),
            hash=f.get("hash", DEFAULT_HASH),
            folded=None if f["folded"] is None else Folded(**f["folded"]),
            foldable=cuts(f["foldable"]),
        ),
    )


def require_known_timeline(data: bytes) -> None:
    """Raises RecordVersionError for a timeline record that cannot be written again here without loss."""
    codec.decode_any(_MAJORS, data).require_known()


def _encoded_epoch(e: Epoch) -> dict[str, Any]:
    return {
        "number": e.number,
        "count": e.count,
        "ends": {str(q): o for q, o in e.ends.items()},
        "begins": {str(p): o for p, o in e.begins.items()},
        "committed_at_ms": e.committed_at_ms,
    }


def _decoded_epochs(epochs: Iterable[Mapping[str, Any]], held_ms: Mapping[int, int]) -> tuple[Epoch, ...]:
    return tuple(
        Epoch(
            e["number"],
            e["count"],
            cuts(e["ends"]),
            cuts(e["begins"]),
            e["committed_at_ms"],
            held_ms.get(e["number"], 0),
        )
        for e in epochs
    )


def _encoded_change(c: OpenChange) -> dict[str, Any]:
    return {
        "epoch": c.epoch,
        "count": c.count,
        "phase": c.phase.value,
        "attempt": c.attempt,
        "immediate": c.retirement.immediate,
        "groups": list(c.retirement.groups),
        "slice": None if c.slice is None else asdict(c.slice),
    }


def _decoded_change(c: Mapping[str, Any], more: Mapping[str, Any]) -> OpenChange:
    piece = None if c["slice"] is None else Slice(**c["slice"])
    deadline_ms = more.get("deadline_ms", 0)
    return OpenChange(
        c["epoch"], c["count"], ChangePhase(c["phase"]), c["attempt"], _retirement(c, more), piece, deadline_ms
    )


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


def _decoded_drains(drains: Iterable[Mapping[str, Any]], purges: Mapping[int, Mapping[str, Any]]) -> tuple[Drain, ...]:
    found = []
    for d in drains:
        more = purges.get(d["partition"], {})
        found.append(
            Drain(
                partition=d["partition"],
                epoch=d["epoch"],
                upto=d["upto"],
                mode=Mode.of_code(d["mode"]),
                retirement=_retirement(d, more),
                emptied=d["emptied"],
                tries=more.get("tries", 0),
                error=more.get("error", ""),
            )
        )
    return tuple(found)


def _wishes(retirement: Retirement) -> dict[str, Any]:
    """What minor version 0 did not know of a retirement."""
    return {"delay_ms": retirement.delay_ms, "forced": retirement.forced}


def _retirement(first: Mapping[str, Any], more: Mapping[str, Any]) -> Retirement:
    return Retirement(first["immediate"], tuple(first["groups"]), more.get("delay_ms"), more.get("forced", False))


def cuts(encoded: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in encoded.items()}


def checked(kind: str, build: Callable[[], T]) -> T:
    """Contents that decode but make no sense are corruption too."""
    try:
        return build()
    except KeyorderError as error:
        raise CorruptRecordError(f"a {kind} record contradicts itself: {error}") from error
    except ValueError as error:
        raise CorruptRecordError(f"a {kind} record holds a value that this version does not know: {error}") from error
