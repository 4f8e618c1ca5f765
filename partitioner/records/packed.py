"""Epochs and drains of a long timeline in few bytes.

Which partitions have a cut follows from two counts, so their numbers are not written. Cuts of neighbours are alike, since
keys are spread evenly: only the difference to the one before is written, and Avro takes one to three bytes for that.
Retired partitions that went the same way share one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

from ..epochs import Drain, Epoch, Retirement
from ..errors import LayoutError
from ..modes import Mode
from ..timeline import sides
from . import codec

_LONGS = codec.array("long")
_EPOCH = codec.record("packed_epoch", number="int", count="int", cuts=_LONGS, committed_at_ms="long", held_ms="long")
_DRAINS = codec.record(
    "packed_drains",
    first="int",
    epoch="int",
    upto=_LONGS,
    mode="int",
    immediate="boolean",
    groups=codec.array("string"),
    delay_ms=["null", "long"],
    forced="boolean",
    emptied="boolean",
    tries="int",
    error="string",
)
FIELDS: list[dict[str, Any]] = codec.fields(packed_epochs=codec.array(_EPOCH), packed_drains=codec.array(_DRAINS))


def pack_epochs(epochs: Iterable[Epoch]) -> list[dict[str, Any]]:
    """The epochs as they are written: `ends` then `begins`, each by partition, as differences."""
    return [
        {
            "number": e.number,
            "count": e.count,
            "cuts": _differences([*(e.ends[q] for q in sorted(e.ends)), *(e.begins[p] for p in sorted(e.begins))]),
            "committed_at_ms": e.committed_at_ms,
            "held_ms": e.held_ms,
        }
        for e in epochs
    ]


def unpack_epochs(initial: int, packed: Sequence[Mapping[str, Any]]) -> tuple[Epoch, ...]:
    """The epochs again. Raises LayoutError where counts and cuts do not fit."""
    found = [_epoch(f, (), ()) for f in packed[:1]]
    if packed and packed[0]["cuts"]:
        raise LayoutError("the first epoch has cuts")
    for before, after in pairwise(packed):
        # Each outer partition has a cut of its own. Compared first: a damaged record may name any count.
        if abs(after["count"] - before["count"]) > len(after["cuts"]) or before["count"] < initial:
            raise LayoutError(f"epoch {after['number']} lacks cuts")
        leaves, enters = sides(initial, before["count"], after["count"])
        found.append(_epoch(after, sorted(leaves), sorted(enters)))
    return tuple(found)


def pack_drains(drains: Iterable[Drain]) -> list[dict[str, Any]]:
    """The drains as they are written: those of neighbouring partitions that went the same way in one entry."""
    found = []
    for (epoch, mode, wishes, emptied, tries, error, _), run in groupby(enumerate(drains), key=_way):
        alike = [drain for _, drain in run]
        found.append(
            {
                "first": alike[0].partition,
                "epoch": epoch,
                "upto": _differences([d.upto for d in alike]),
                "mode": int(mode),
                "immediate": wishes.immediate,
                "groups": list(wishes.groups),
                "delay_ms": wishes.delay_ms,
                "forced": wishes.forced,
                "emptied": emptied,
                "tries": tries,
                "error": error,
            }
        )
    return found


def unpack_drains(packed: Iterable[Mapping[str, Any]]) -> tuple[Drain, ...]:
    """The drains again."""
    return tuple(
        Drain(
            partition=f["first"] + at,
            epoch=f["epoch"],
            upto=upto,
            mode=Mode.of_code(f["mode"]),
            retirement=Retirement(f["immediate"], tuple(f["groups"]), f["delay_ms"], f["forced"]),
            emptied=f["emptied"],
            tries=f["tries"],
            error=f["error"],
        )
        for f in packed
        for at, upto in enumerate(accumulate(f["upto"]))
    )


def _epoch(f: Mapping[str, Any], leaves: Sequence[int], enters: Sequence[int]) -> Epoch:
    cuts = list(accumulate(f["cuts"]))
    if len(cuts) != len(leaves) + len(enters):
        raise LayoutError(f"epoch {f['number']} has {len(cuts)} cuts, not {len(leaves) + len(enters)}")
    ends = dict(zip(leaves, cuts[: len(leaves)], strict=True))
    begins = dict(zip(enters, cuts[len(leaves) :], strict=True))
    return Epoch(f["number"], f["count"], ends, begins, f["committed_at_ms"], f["held_ms"])


def _differences(offsets: Sequence[int]) -> list[int]:
    return [*offsets[:1], *(b - a for a, b in pairwise(offsets))]


def _way(item: tuple[int, Drain]) -> tuple[Any, ...]:
    at, d = item
    # Neighbours keep the distance between their number and their place in the list.
    return d.epoch, d.mode, d.retirement, d.emptied, d.tries, d.error, d.partition - at
