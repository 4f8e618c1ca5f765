"""The gate: one rule for growth and shrink (KIP-253, "Proposed Changes" 8).

The *entry* of key `k` at offset `o` of partition `p` is the newest epoch `e` with `begins_e[p] <= o`, `home(k, e) = p`
and `q = home(k, before e) != p`. A record without an entry is free. Any other waits for gate `(p, e)`, which is open when

    position(q) >= ends_e[q]
    and every older gate (q, f), f < e, begins_f[q] <= ends_e[q], is open.

The second line is the chain. With counts 1 -> 2 -> 4 and nothing written to partition 1 in between, `ends_2[1]` is 0 and
`position(1) >= 0` holds at once, while the key's first record may still lie unread in partition 0. Edges run to older
epochs only, so there is no cycle.

`position` is what a group has processed *and committed*, acknowledged by the broker; a partition without a commit counts
as 0, which opens nothing that has records before its cut. Where members have callbacks a gate also asks for `proven(q)`,
the epoch in the acknowledged commit, to be at least its own. That is no matter of offsets: cuts of two epochs may be equal,
and the newer flush cannot be proven before the older gate is open.

How it is judged without walking the chain: cuts of a partition only rise from epoch to epoch. So of the gates into `p`
that wait for `q`, in the order of their epochs (a *dependency*), the closed ones are all from some epoch on: the first one
whose `ends` lies above `position(q)`, or the first one that a closed gate of `q` lies before. A look finds these epochs,
oldest first, by bisection in each dependency; a dependency that is as long as the timeline costs no more than its logarithm.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice, pairwise
from math import inf

from ..routing import Move
from ..timeline import Timeline, crossings

Position = Callable[[int], int]
Proven = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Gate:
    """What `partition` waits for from `begins` on: that each origin has been processed up to its cut.

    origins: ((q, ends), ...). One for a growth, one or more for a shrink.
    """

    partition: int
    epoch: int
    begins: int
    origins: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GateDependency:
    """The gates into `to` that wait for `origin`: their epochs, and their ends, which never fall."""

    origin: int
    to: int
    epochs: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def closed_by_position(self, position: int, proven: float = inf) -> int:
        """Where the gates begin whose ends the origin's position has not reached, or whose flush it does not prove."""
        return min(bisect_right(self.ends, position), bisect_right(self.epochs, proven))

    def closed_by_gate(self, closed: Gate) -> int:
        """Where the gates begin that wait for a closed gate of the origin."""
        return max(bisect_right(self.epochs, closed.epoch), bisect_left(self.ends, closed.begins))


class Gates:
    """All gates of one timeline. Immutable once made; make a new one for a new timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        found: dict[int, list[Gate]] = {}
        self._dependencies: dict[tuple[int, int], GateDependency] = {}
        if timeline.ordered:
            for before, after in pairwise(timeline.epochs):
                origins: dict[int, list[tuple[int, int]]] = {}
                for q, p in crossings(timeline.initial, before.count, after.count):
                    origins.setdefault(p, []).append((q, self._lengthen(q, p, after.number, after.ends[q])))
                for p, waits in origins.items():
                    found.setdefault(p, []).append(Gate(p, after.number, after.begins[p], tuple(waits)))
        self._by_partition = {p: tuple(_rising(gates)) for p, gates in found.items()}
        self._epochs = {p: [gate.epoch for gate in gates] for p, gates in self._by_partition.items()}
        self._into: dict[int, list[GateDependency]] = {}
        self._out_of: dict[int, list[GateDependency]] = {}
        for dependency in self._dependencies.values():
            self._into.setdefault(dependency.to, []).append(dependency)
            self._out_of.setdefault(dependency.origin, []).append(dependency)

    def _lengthen(self, q: int, p: int, epoch: int, ends: int) -> int:
        """Add a gate to its dependency. Ends that fall (the log was cut off) are raised: what waits longer reorders nothing."""
        dependency = self._dependencies.setdefault((q, p), GateDependency(q, p))
        ends = max(ends, dependency.ends[-1]) if dependency.ends else ends
        dependency.epochs.append(epoch)
        dependency.ends.append(ends)
        return ends

    def of(self, partition: int) -> tuple[Gate, ...]:
        """The gates into `partition`, oldest first; empty when no key ever entered it."""
        return self._by_partition.get(partition, ())

    def all(self) -> Iterable[Gate]:
        """Every gate, partition by partition."""
        for gates in self._by_partition.values():
            yield from gates

    def older(self, partition: int, epoch: int) -> int:
        """How many of `of(partition)` are older than `epoch`."""
        return bisect_left(self._epochs.get(partition, ()), epoch)

    def entry(self, moves: Sequence[Move], partition: int, offset: int) -> Gate | None:
        """The gate by which a key came to `partition` the last time before `offset`; None for a record that is free.

        moves: all of the key's, oldest first, as its route has them.
        """
        for move in reversed(moves):
            if move.home == partition:
                gate = self._by_partition[partition][self.older(partition, move.epoch)]
                if gate.begins <= offset:
                    return gate
        return None

    def into(self, partition: int) -> Sequence[GateDependency]:
        """The dependencies that lead to a partition."""
        return self._into.get(partition, ())

    def out_of(self, partition: int) -> Sequence[GateDependency]:
        """The dependencies that lead away from a partition."""
        return self._out_of.get(partition, ())

    def open_now(
        self, position: Position, waived: Collection[tuple[int, int]] = (), proven: Proven | None = None
    ) -> Opened:
        """A look at which gates are open at these positions. `waived` holds (partition, epoch) let go by an operator.

        proven: the newest epoch whose flush each origin proves; None where no proof is asked for.
        """
        return Opened(self, position, waived, proven)


def _rising(gates: list[Gate]) -> list[Gate]:
    """Begins that fall (the log was cut off) lowered before the fall: so the first closed gate is also the lowest."""
    lowest: float = inf
    for at in reversed(range(len(gates))):
        if gates[at].begins > lowest:
            gates[at] = replace(gates[at], begins=int(lowest))
        lowest = gates[at].begins
    return gates


class Opened:
    """Which gates are open at fixed positions. A partition is judged on first use, with those that it depends on."""

    def __init__(
        self,
        gates: Gates,
        position: Position,
        waived: Collection[tuple[int, int]] = (),
        proven: Proven | None = None,
    ) -> None:
        self._gates, self._position, self._waived = gates, position, waived
        self._proven: Proven = proven or (lambda q: inf)
        self._closed_from: dict[
            tuple[int, int], float
        ] = {}  # per dependency: the epoch from which on its gates are closed
        self._first: dict[int, Gate | None] = {}  # per judged partition

    def is_open(self, gate: Gate) -> bool:
        """The rule of this module, chain included."""
        p = gate.partition
        self._judge(p)
        # A gate of an older timeline, on a dependency that was folded away since, waits for nothing any more.
        closed_from = self._closed_from
        return (p, gate.epoch) in self._waived or all(
            gate.epoch < closed_from.get((q, p), inf) for q, _ in gate.origins
        )

    def first_closed(self, partition: int) -> Gate | None:
        """The closed gate of `partition` with the lowest `begins`, or None: the partition may be read up to there."""
        self._judge(partition)
        return self._first[partition]

    def blockers(self, gate: Gate) -> set[tuple[int, int]]:
        """Each (q, offset) that the group has to reach before `gate` opens, found along the chain; empty when open.

        Also those that were reached, and whose flush is not proven.
        """
        found: set[tuple[int, int]] = set()
        looked: dict[int, int] = {}
        stack = [] if self.is_open(gate) else [gate]
        while stack:
            top = stack.pop()
            for q, ends in top.origins:
                if self._position(q) < ends or self._proven(q) < top.epoch:
                    found.add((q, ends))
                stack.extend(self._closed_before(q, top.epoch, ends, looked))
        return found

    def _closed_before(self, q: int, epoch: int, ends: int, looked: dict[int, int]) -> Iterator[Gate]:
        """The closed gates of `q` that a gate waits for. What an older gate waits for stays looked at: each comes once."""
        first = self.first_closed(q)
        if first is None:
            return
        gates = self._gates.of(q)
        since = max(looked.get(q, 0), self._gates.older(q, first.epoch))
        upto = min(self._gates.older(q, epoch), bisect_right(gates, ends, key=lambda gate: gate.begins))
        looked[q] = max(looked.get(q, 0), upto)
        for gate in gates[since:upto]:
            if not self.is_open(gate):
                yield gate

    def _judge(self, partition: int) -> None:
        """Find from where on each dependency to `partition`, and to whatever it depends on, is closed."""
        if partition in self._first:
            return
        unknown = self._not_judged(partition)
        positions: dict[int, int] = {}
        queue: list[tuple[int, int]] = []
        for p in unknown:
            for dependency in self._gates.into(p):
                q = dependency.origin
                if q not in positions:
                    positions[q] = self._position(q)
                at = dependency.closed_by_position(positions[q], self._proven(q))
                known = self._first.get(q)
                self._close(dependency, at if known is None else min(at, self._kept_closed(dependency, known)), queue)
        while queue:
            # Oldest epoch first: a gate keeps only newer ones closed, so the first answer for a partition is final.
            epoch, p = heappop(queue)
            if p not in unknown:
                continue
            unknown.discard(p)
            gate = self._first[p] = self._gates.of(p)[self._gates.older(p, epoch)]
            for dependency in self._gates.out_of(p):
                if (p, dependency.to) in self._closed_from:
                    self._close(dependency, self._kept_closed(dependency, gate), queue)
        self._first.update(dict.fromkeys(unknown))

    def _not_judged(self, partition: int) -> set[int]:
        """`partition` and all that its keys ever came from, as far as that is not judged yet."""
        found: set[int] = set()
        stack = [partition]
        while stack:
            p = stack.pop()
            if p not in found and p not in self._first:
                found.add(p)
                stack.extend(dependency.origin for dependency in self._gates.into(p))
        return found

    def _close(self, dependency: GateDependency, at: int, queue: list[tuple[int, int]]) -> None:
        """The gates of a dependency are closed from this one on; the first that nobody waived asks for its turn."""
        place = dependency.origin, dependency.to
        epoch = dependency.epochs[at] if at < len(dependency.epochs) else inf
        if epoch >= self._closed_from.setdefault(place, inf):
            return
        self._closed_from[place] = epoch
        waiting = (e for e in islice(dependency.epochs, at, None) if (dependency.to, e) not in self._waived)
        first = next(waiting, None)
        if first is not None:
            heappush(queue, (first, dependency.to))

    def _kept_closed(self, dependency: GateDependency, gate: Gate) -> int:
        """Where the gates of a dependency begin that wait for this closed one: the chain."""
        return dependency.closed_by_gate(gate)


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
    lowest: dict[int, int] = {}  # of each partition, the lowest begins of its closed gates so far
    for gate in sorted(gates.all(), key=lambda gate: gate.epoch):
        # A clip may close what waits for that partition, and only newer gates do: one pass is enough.
        p = gate.partition
        closed = any(clipped[q] < ends or lowest.get(q, inf) <= ends for q, ends in gate.origins)
        if closed and (p, gate.epoch) not in waived:
            lowest[p] = min(gate.begins, lowest.get(p, gate.begins))
            clipped[p] = min(gate.begins, clipped[p])
    return clipped
