"""What the picture shows, counted off a history: per partition and slice of time, what was written, delivered, late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..verify.events import Kind
from ..verify.history import History
from .late import LateCounter


@dataclass(slots=True)
class Series:
    """Counts in slices of `step` seconds from `start` (nanoseconds of the history's clock).

    written, delivered, late: for each partition a count for each slice. lag: records acknowledged and not yet done with
    for the first time, at the end of each slice.
    """

    start: int
    step: float
    slices: int
    written: dict[int, list[int]] = field(default_factory=dict)
    delivered: dict[int, list[int]] = field(default_factory=dict)
    late: dict[int, list[int]] = field(default_factory=dict)
    lag: list[int] = field(default_factory=list)
    late_records: int = 0
    late_keys: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Series:
        """The inverse of as_dict, after JSON made strings of the partitions."""
        rows = {n: {int(p): row for p, row in facts[n].items()} for n in ("written", "delivered", "late")}
        return Series(**{**facts, **rows})


def count_series(history: History, start: int, step: float) -> Series:
    """Slices from `start` to the last delivery."""
    pace = int(step * 1e9)
    last = max((e.t for e in history.events() if e.kind is Kind.DELIVER_END), default=start)
    series = Series(start, step, max(1, (last - start) // pace + 1))
    late = LateCounter()
    changes = [0] * series.slices
    done: set[int] = set()
    for event in history.events():
        if event.vid < 0:
            continue
        place = min(max((event.t - start) // pace, 0), series.slices - 1)
        if event.kind is Kind.SEND_OK:
            _add(series.written, event.partition, place, series.slices)
            changes[place] += 1
        elif event.kind is Kind.DELIVER_START:
            _add(series.delivered, event.partition, place, series.slices)
            value = history.values[event.vid]
            if late.see((value.writer, value.key), value.seq):
                _add(series.late, event.partition, place, series.slices)
        elif event.kind is Kind.DELIVER_END and event.vid not in done:
            done.add(event.vid)
            changes[place] -= 1
    waiting = 0
    for change in changes:
        waiting += change
        series.lag.append(waiting)
    series.late_records, series.late_keys = late.records, len(late.keys)
    return series


def _add(rows: dict[int, list[int]], partition: int, place: int, slices: int) -> None:
    row = rows.get(partition)
    if row is None:
        row = rows[partition] = [0] * slices
    row[place] += 1
