"""What a change of the partition count would do to the keys: the dry run, as exact shares of the hash space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

from ..epochs import ChangePhase
from ..layout import Layout
from ..timeline import Timeline


@dataclass(frozen=True, slots=True)
class KeyMove:
    """`share` of all keys goes from one partition to another.

    source: the partition that they leave. target: the one that they enter. share: exact, of the whole hash space.
    """

    source: int
    target: int
    share: Fraction


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What would move when `current` becomes `target`.

    moves: every pair of partitions between which keys go, ordered by the partition that is added or retired.
    share_moved: the sum of the moves. Keys that are in none of them stay where they are, and never wait.
    share_moved_by_stock: what the stock partitioner, `hash % count`, would move for the same two counts.
    """

    current: Layout
    target: Layout
    moves: tuple[KeyMove, ...]

    @property
    def share_moved(self) -> Fraction:
        """The part of the hash space whose home changes, in [0, 1)."""
        return sum((move.share for move in self.moves), Fraction(0))

    @property
    def share_moved_by_stock(self) -> Fraction:
        """The part that `hash % count` would move between the same counts, in [0, 1)."""
        before, after = self.current.count, self.target.count
        # Among the residues modulo the least common multiple just those below the smaller count agree.
        return 1 - Fraction(min(before, after), lcm(before, after))

    @property
    def added(self) -> range:
        """The partitions that become active, empty for a shrink."""
        return range(self.current.count, self.target.count)

    @property
    def retired(self) -> range:
        """The partitions that are written no more, empty for a growth."""
        return range(self.target.count, self.current.count)


def plan_change(current: Layout, count: int) -> ChangePlan:
    """The plan of bringing `current` to `count` partitions. Raises LayoutError for a count below `initial`."""
    target = current.resized(count)
    larger = max(current, target, key=lambda layout: layout.count)
    outer = range(min(current.count, count), larger.count)
    pairs = zip(outer, current.moves_to(target), strict=True)
    # Added or retired, a partition brings or takes exactly the keys that it holds in the larger layout.
    return ChangePlan(current, target, tuple(KeyMove(q, p, larger.share(each)) for each, (q, p) in pairs))


def rehearse(timeline: Timeline, count: int) -> Timeline:
    """The timeline as it would be PREPAREd for `count`, for plans and dry runs; writes nothing."""
    return replace(timeline, change=None).opened(count, ChangePhase.PLAN).prepared()
