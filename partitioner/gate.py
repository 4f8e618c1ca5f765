"""The gate: one rule for growth and shrink (KIP-253, "Proposed Changes" 8).

The *entry* of key `k` at offset `o` of partition `p` is the newest epoch `e` with `begins_e[p] <= o`, `home(k, e) = p`
and `q = home(k, before e) != p`. A record without an entry is free. Any other waits for gate `(p, e)`, which is open when

    position(q) >= ends_e[q]
    and every older gate (q, f), f < e, begins_f[q] <= ends_e[q], is open.

The second line is the chain. With counts 1 -> 2 -> 4 and nothing written to partition 1 in between, `ends_2[1]` is 0 and
`position(1) >= 0` holds at once, while the key's first record may still lie unread in partition 0. Edges run to older
epochs only, so there is no cycle.

`position` is what a group has processed *and committed*, acknowledged by the broker; a partition without a commit counts
as 0, which opens nothing that has records before its cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from .timeline import Timeline, crossings

Position = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Gate:
    """What `partition` waits for from `begins` on: that each origin has been processed up to its cut.

    origins: ((q, ends), ...). One for a growth, one or more for a shrink.
    """

    partition: int
    epoch: int
    begins: int
    origins: tuple[tuple[int, int], ...]


class Gates:
    """All gates of one timeline. Immutable once made; make a new one for a new timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        by_partition: dict[int, list[Gate]] = {}
        if timeline.ordered:
            for before, after in pairwise(timeline.epochs):
                origins: dict[int, list[tuple[int, int]]] = {}
                for q, p in crossings(timeline.initial, before.count, after.count):
                    origins.setdefault(p, []).append((q, after.ends[q]))
                for p, waits in origins.items():
                    gate = Gate(p, after.number, after.begins[p], tuple(waits))
                    by_partition.setdefault(p, []).append(gate)
        self._by_partition = {p: tuple(gates) for p, gates in by_partition.items()}

    def of(self, partition: int) -> tuple[Gate, ...]:
        """The gates into `partition`, oldest first; empty when no key ever entered it."""
        return self._by_partition.get(partition, ())

    def all(self) -> Iterable[Gate]:
        """Every gate, partition by partition."""
        for gates in self._by_partition.values():
            yield from gates

    def open_now(self, position: Position, waived: Collection[tuple[int, int]] = ()) -> Opened:
        """A look at which gates are open at these positions. `waived` holds (partition, epoch) let go by an operator."""
        return Opened(self, position, waived)


class Opened:
    """Which gates are open at fixed positions. Answers are kept, so each edge of a chain is followed but once or twice."""

    def __init__(self, gates: Gates, position: Position, waived: Collection[tuple[int, int]] = ()) -> None:
        self._gates, self._position, self._waived = gates, position, waived
        self._known: dict[tuple[int, int], bool] = {}

    def is_open(self, gate: Gate) -> bool:
        """The rule of this module, chain included. A loop, not a recursion: chains grow as long as timelines."""
        stack = [gate]
        while stack:
            top = stack[-1]
            key = (top.partition, top.epoch)
            if key not in self._known:
                if key in self._waived:
                    self._known[key] = True
                elif any(self._position(q) < ends for q, ends in top.origins):
                    self._known[key] = False
                else:
                    older = list(self._chain(top))
                    unknown = [g for g in older if (g.partition, g.epoch) not in self._known]
                    if unknown:
                        stack.extend(unknown)
                        continue
                    self._known[key] = all(self._known[g.partition, g.epoch] for g in older)
            stack.pop()
        return self._known[gate.partition, gate.epoch]

    def blockers(self, gate: Gate) -> set[tuple[int, int]]:
        """Each (q, offset) that the group has to reach before `gate` opens, found along the chain; empty when open."""
        found: set[tuple[int, int]] = set()
        seen: set[tuple[int, int]] = set()
        stack = [] if self.is_open(gate) else [gate]
        while stack:
            top = stack.pop()
            seen.add((top.partition, top.epoch))
            found.update((q, ends) for q, ends in top.origins if self._position(q) < ends)
            stack.extend(g for g in self._chain(top) if (g.partition, g.epoch) not in seen and not self.is_open(g))
        return found

    def _chain(self, gate: Gate) -> Iterable[Gate]:
        """The older gates that `gate` also waits for: keys that had come to an origin before they left it."""
        for q, ends in gate.origins:
            for older in self._gates.of(q):
                if older.epoch < gate.epoch and older.begins <= ends:
                    yield older

    def first_closed(self, partition: int) -> Gate | None:
        """The closed gate of `partition` with the lowest `begins`, or None: the partition may be read up to there."""
        closed = [gate for gate in self._gates.of(partition) if not self.is_open(gate)]
        return min(closed, key=lambda gate: gate.begins, default=None)


def consistent_starts(
    gates: Gates, starts: Mapping[int, int], waived: Collection[tuple[int, int]] = ()
) -> dict[int, int]:
    """Start offsets such that none lies behind a closed gate.

    Offsets that were listed one partition after another can skip a record in the middle: partition 0 listed before a
    record, the change and the key's next record before partition 1 was. `starts` must hold every partition of the
    timeline, and the timeline must have been read to its end after the starts were taken.

    Returns a new map in which `starts[p]` was lowered to `begins_e[p]` wherever gate (p, e) is closed at these starts.
    """
    clipped = dict(starts)
    look = gates.open_now(clipped.__getitem__, waived)
    for gate in sorted(gates.all(), key=lambda gate: gate.epoch):
        if gate.begins < clipped[gate.partition] and not look.is_open(gate):
            clipped[gate.partition] = gate.begins
            look = gates.open_now(clipped.__getitem__, waived)  # a clip may close what waits for this partition
    return clipped
