"""The timeline of a topic: its committed epochs and the offsets at which each one cut the partitions.

Everywhere in keyorder an *offset* is the next one to read, and every cut is exclusive: a record at offset `o` lies
before a cut `c` when `o < c`. Each epoch after the first carries two maps (KIP-253's thresholds):

- `ends[q]`, for each partition that keys leave: every record of a leaving key written earlier lies below it;
- `begins[p]`, for each partition that keys enter: every record of an entering key written under it lies at or above.

Only committed epochs appear. The number of an attempt that was given up is spent and appears nowhere, so "the epoch
before e" always means the committed one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from .epochs import ChangePhase, Drain, DrainState, Epoch, OpenChange, Retirement, Slice
from .errors import IdentityMismatchError, LayoutError, TimelineRegressionError
from .hashing import DEFAULT_HASH
from .layout import Layout
from .modes import Mode

DEFAULT_VIEW_AGE_S = 2.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that the control topic says about one topic.

    topic_id, cluster_id: a mismatch means another topic of the same name, or another cluster.
    initial: the lowest partition count, and the base of the linear hashing.
    hash: by which keys are placed (`hashing.HASHES`); it never changes.
    epochs: at least one; the first is the adoption, without cuts.
    last_number: the highest epoch number ever used, given-up attempts included.
    ordered: `enable.ordered.delivery`; off means no gates, never another routing.
    view_age_s: T, the longest that a reader may go without a look at the control topic's end.
    settings: further per-topic settings by their dotted names.
    drains: the retired partitions, lowest first; a growth that uses one again takes it out.
    purged: {partition: offset} below which a compacted topic's partition holds no value of a key that left it: each
        was re-homed or superseded, and is tombstoned. A move tombstone to a cut at or below it is not needed. Only grows.
    """

    topic: str
    topic_id: str
    cluster_id: str
    initial: int
    epochs: tuple[Epoch, ...]
    last_number: int = 0
    ordered: bool = True
    view_age_s: float = DEFAULT_VIEW_AGE_S
    settings: Mapping[str, str] = field(default_factory=dict)
    change: OpenChange | None = None
    drains: tuple[Drain, ...] = ()
    purged: Mapping[int, int] = field(default_factory=dict)
    hash: str = DEFAULT_HASH

    def __post_init__(self) -> None:
        if not self.epochs:
            raise LayoutError(f"the timeline of {self.topic!r} has no epoch")
        numbers = [e.number for e in self.epochs]
        if any(b <= a for a, b in pairwise(numbers)):
            raise TimelineRegressionError(f"the epochs of {self.topic!r} do not grow: {numbers}")
        if self.last_number < numbers[-1]:
            object.__setattr__(self, "last_number", numbers[-1])
        Layout(self.initial, self.epochs[0].count, self.hash)
        for before, after in pairwise(self.epochs):
            _check_cuts(self.topic, self.initial, before, after)

    @property
    def newest(self) -> Epoch:
        """The epoch in force for writers."""
        return self.epochs[-1]

    @property
    def layout(self) -> Layout:
        """The layout in force for writers."""
        return Layout(self.initial, self.newest.count, self.hash)

    @property
    def highest_count(self) -> int:
        """The highest count that any epoch had: how many partitions may hold records."""
        return max(e.count for e in self.epochs)

    def layout_of(self, epoch: Epoch) -> Layout:
        """The layout of one of the epochs."""
        return Layout(self.initial, epoch.count, self.hash)

    def opened(
        self, count: int, phase: ChangePhase, attempt: int = 1, retirement: Retirement | None = None
    ) -> Timeline:
        """This timeline with a new attempt open, under the next unused number."""
        number = self.last_number + 1
        return replace(
            self, last_number=number, change=OpenChange(number, count, phase, attempt, retirement or Retirement())
        )

    def rehoming(self, slice: Slice, attempt: int = 1) -> Timeline:
        """This timeline with a new attempt open that re-homes the values of `slice`, under the next unused number."""
        number = self.last_number + 1
        change = OpenChange(number, self.newest.count, ChangePhase.PLAN, attempt, slice=slice)
        return replace(self, last_number=number, change=change)

    def prepared(self, deadline_ms: int = 0) -> Timeline:
        """This timeline with the open attempt moved from PLAN to PREPARE, which lasts `deadline_ms` at most."""
        if self.change is None or self.change.phase is not ChangePhase.PLAN:
            raise LayoutError(f"{self.topic!r}: only a planned change can be prepared, not {self.change}")
        return replace(self, change=replace(self.change, phase=ChangePhase.PREPARE, deadline_ms=deadline_ms))

    def given_up(self) -> Timeline:
        """This timeline with the open attempt dropped; its number stays spent."""
        return replace(self, change=None)

    def committed(
        self, ends: Mapping[int, int], begins: Mapping[int, int], at_ms: int = 0, held_ms: int = 0
    ) -> Timeline:
        """This timeline with the prepared attempt as its newest epoch, copy-check-apply-check."""
        if self.change is None or self.change.phase is not ChangePhase.PREPARE or self.change.slice is not None:
            raise LayoutError(f"{self.topic!r}: only a prepared change can be committed, not {self.change}")
        epoch = Epoch(self.change.epoch, self.change.count, dict(ends), dict(begins), at_ms, held_ms)
        # A partition that is used again begins a new generation: whatever was to empty the old one is called off.
        drains = [d for d in self.drains if d.partition >= epoch.count]
        retired = range(epoch.count, self.newest.count)
        drains += [Drain(p, epoch.number, epoch.ends[p], Mode.READ_ONLY, self.change.retirement) for p in retired]
        return replace(
            self, epochs=(*self.epochs, epoch), change=None, drains=tuple(sorted(drains, key=lambda d: d.partition))
        )

    def mode(self, partition: int) -> Mode:
        """KIP-694's mode of a partition: READ_WRITE while it is active or unknown."""
        if partition < self.newest.count:
            return Mode.READ_WRITE
        return next((d.mode for d in self.drains if d.partition == partition), Mode.READ_WRITE)

    def cut_of_retired(self, partition: int) -> int:
        """The cut at which a retired partition ended. Raises KeyError for one that is not retired."""
        for drain in self.drains:
            if drain.partition == partition:
                return drain.upto
        raise KeyError(partition)

    def drain_of(self, partition: int, epoch: int) -> Drain | None:
        """The drain of that generation, None once it is used again or was never retired."""
        return next((d for d in self.drains if (d.partition, d.epoch) == (partition, epoch)), None)

    def drained(self, partition: int, mode: Mode, emptied: bool = False) -> Timeline:
        """This timeline with the drain of a retired partition moved on."""
        return self._with_drain(partition, mode=mode, emptied=emptied, error="")

    def purge_failed(self, partition: int, error: str) -> Timeline:
        """This timeline with one more failed deletion noted; it stays to be done."""
        tries = 1 + next((d.tries for d in self.drains if d.partition == partition), 0)
        return self._with_drain(partition, mode=Mode.NONE, tries=tries, error=error)

    def retired_by(self, retirement: Retirement) -> Timeline:
        """This timeline with other wishes for all partitions that still wait to be emptied."""
        waiting = [d.partition for d in self.drains if d.state is DrainState.WAITING]
        timeline = self
        for partition in waiting:
            timeline = timeline._with_drain(partition, retirement=retirement)
        return timeline

    def _with_drain(self, partition: int, **changes: Any) -> Timeline:
        drains = [replace(d, **changes) if d.partition == partition else d for d in self.drains]
        return replace(self, drains=tuple(drains))

    def cleared(self, partition: int, epoch: int) -> Timeline:
        """This timeline with the retired partition counted as emptied: all its keys are tombstoned there.

        Unchanged when the generation that `epoch` retired is no longer the retired one.
        """
        drain = self.drain_of(partition, epoch)
        if drain is None:
            return self
        purged = {**self.purged, partition: max(drain.upto, self.purged.get(partition, 0))}
        return replace(self.drained(partition, Mode.NONE, emptied=True), purged=purged)

    def check_identity(self, topic_id: str, cluster_id: str) -> None:
        """Stop unless this timeline was made for that topic of that cluster. Raises IdentityMismatchError."""
        for what, mine, theirs in (("topic_id", self.topic_id, topic_id), ("cluster_id", self.cluster_id, cluster_id)):
            if mine != theirs:
                raise IdentityMismatchError(self.topic, what, mine, theirs)

    def check_successor(self, newer: Timeline) -> None:
        """Stop unless `newer` can follow this one.

        Raises IdentityMismatchError for another topic or cluster, TimelineRegressionError when committed epochs
        changed or vanished: both mean that the control topic was lost, truncated or rewritten.
        """
        self.check_identity(newer.topic_id, newer.cluster_id)
        known = len(self.epochs)
        went_back = newer.epochs[:known] != self.epochs or newer.last_number < self.last_number
        if went_back or (newer.initial, newer.hash) != (self.initial, self.hash):
            raise TimelineRegressionError(
                f"the timeline of {self.topic!r} went from epoch {self.newest.number} (last used {self.last_number}) to "
                f"epoch {newer.newest.number} (last used {newer.last_number}), initial {self.initial} to {newer.initial}, "
                f"hash {self.hash} to {newer.hash}: "
                "the control topic was lost, truncated or rewritten; nothing is sent or delivered until it is restored"
            )


def crossings(initial: int, before: int, after: int) -> list[tuple[int, int]]:
    """Each (q, p) between which keys move when the count goes from `before` to `after`."""
    return list(Layout(initial, before).moves_to(Layout(initial, after)))


def _check_cuts(topic: str, initial: int, before: Epoch, after: Epoch) -> None:
    # Each outer partition is on one side of a move of its own. Compared first: a damaged record may name any count.
    outer = after.begins if after.count > before.count else after.ends
    moves = crossings(initial, before.count, after.count) if len(outer) == abs(after.count - before.count) else None
    if moves is None or {q for q, _ in moves} != set(after.ends) or {p for _, p in moves} != set(after.begins):
        raise TimelineRegressionError(
            f"epoch {after.number} of {topic!r} ({before.count} -> {after.count} partitions) lacks cuts: "
            f"ends {dict(after.ends)}, begins {dict(after.begins)}"
        )
