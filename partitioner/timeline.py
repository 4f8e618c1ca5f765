"""The timeline of a topic: its committed epochs and the offsets at which each one cut the partitions.

Everywhere in keyorder an *offset* is the next one to read, and every cut is exclusive: a record at offset `o` lies
before a cut `c` when `o < c`. Each epoch after the first carries two maps (KIP-253's thresholds):

- `ends[q]`, for each partition that keys leave: every record of a leaving key written earlier lies below it;
- `begins[p]`, for each partition that keys enter: every record of an entering key written under it lies at or above.

Only committed epochs appear. The number of an attempt that was given up is spent and appears nowhere, so "the epoch
before e" always means the committed one before it. The oldest ones are folded away in time (`folding`): the first that is
left is then the base, without cuts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from .epochs import ChangePhase, Drain, DrainState, Epoch, Folded, OpenChange, Retirement, Slice
from .errors import IdentityMismatchError, LayoutError, TimelineRegressionError
from .hashing import DEFAULT_HASH
from .layout import Layout
from .modes import Mode

DEFAULT_VIEW_AGE_S = 2.0

# When and by whom the topic was given back to stock clients; not among the settings that can be given.
_RELEASED = "keyorder.released"


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """Which topic of which cluster this is, and how many partitions it physically has."""

    topic_id: str
    cluster_id: str
    partitions: int


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
    folded: what is kept of epochs that were folded away; None while the adoption is still listed.
    foldable: {epoch: when it was first seen that nothing of it is left to wait for}, in milliseconds of the controllers' wall
        clocks; see `folding`.
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
    folded: Folded | None = None
    foldable: Mapping[int, int] = field(default_factory=dict)
    _checked: tuple[Epoch, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.epochs:
            raise LayoutError(f"the timeline of {self.topic!r} has no epoch")
        Layout(self.initial, self.epochs[0].count, self.hash)
        # What a timeline that this one was made of has checked is not checked again: it may have thousands of epochs.
        known = 0
        for mine, theirs in zip(self.epochs, self._checked):  # noqa: B905 - as far as they are the same
            if mine is not theirs:
                break
            known += 1
        for before, after in pairwise(self.epochs[max(0, known - 1) :]):
            if after.number <= before.number:
                numbers = [e.number for e in self.epochs]
                raise TimelineRegressionError(f"the epochs of {self.topic!r} do not grow: {numbers}")
            _check_cuts(self.topic, self.initial, before, after)
        if self.last_number < self.epochs[-1].number:
            object.__setattr__(self, "last_number", self.epochs[-1].number)
        object.__setattr__(self, "_checked", self.epochs)

    @property
    def released(self) -> str | None:
        """When and by whom the topic was given back to stock clients; None while it is under management.

        Its epochs stay: readers find the order of what was written before in them.
        """
        return self.settings.get(_RELEASED)

    def given_back(self, mark: str) -> Timeline:
        """This timeline with the mark that gives the topic to stock clients. mark: when and by whom."""
        return replace(self, settings={**self.settings, _RELEASED: mark})

    def taken_back(self) -> Timeline:
        """This timeline without that mark."""
        return replace(self, settings={name: value for name, value in self.settings.items() if name != _RELEASED})

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
        listed = max(e.count for e in self.epochs)
        return listed if self.folded is None else max(listed, self.folded.highest_count)

    @property
    def first_count(self) -> int:
        """The count at adoption: every group has had a commit on each of these partitions since its birth."""
        return self.epochs[0].count if self.folded is None else self.folded.first_count

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

    def folded_to(self, number: int) -> Timeline:
        """This timeline with epoch `number` as its base: it and all before it have no cuts any more."""
        at = next(i for i, epoch in enumerate(self.epochs) if epoch.number == number)
        if at == 0:
            return self
        base = replace(self.epochs[at], ends={}, begins={})
        folded = Folded(self.first_count, max(self.highest_count, *(e.count for e in self.epochs[: at + 1])))
        foldable = {e: since for e, since in self.foldable.items() if e > number}
        return replace(self, epochs=(base, *self.epochs[at + 1 :]), folded=folded, foldable=foldable)

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
        changed or vanished otherwise than by folding: both mean that the control topic was lost, truncated or rewritten.
        """
        self.check_identity(newer.topic_id, newer.cluster_id)
        went_back = newer.epochs[0].number < self.epochs[0].number or newer.last_number < self.last_number
        same = (newer.initial, newer.hash) == (self.initial, self.hash)
        if went_back or not same or not self._is_continued_by(newer):
            raise TimelineRegressionError(
                f"the timeline of {self.topic!r} went from epoch {self.newest.number} (last used {self.last_number}) to "
                f"epoch {newer.newest.number} (last used {newer.last_number}), initial {self.initial} to {newer.initial}, "
                f"hash {self.hash} to {newer.hash}: "
                "the control topic was lost, truncated or rewritten; nothing is sent or delivered until it is restored"
            )

    def _is_continued_by(self, newer: Timeline) -> bool:
        """Whether what both list is the same, and nothing is missing but the oldest epochs."""
        base = newer.epochs[0]
        if base.number == self.epochs[0].number:
            return newer.epochs[: len(self.epochs)] == self.epochs and newer.first_count == self.first_count
        # Folding ends at an epoch that this one knows, or all that this one knows is folded away.
        mine = [epoch for epoch in self.epochs if epoch.number >= base.number]
        if newer.folded is None or newer.first_count != self.first_count:
            return False
        if not mine:
            return True
        same_base = replace(mine[0], ends={}, begins={}) == base
        return same_base and newer.epochs[1 : len(mine)] == tuple(mine[1:])


def new_epoch(timeline: Timeline, known: Timeline) -> str:
    """What a client that knew the one before says of a timeline, for its log."""
    newest = timeline.newest
    held = f"; writers held records for {newest.held_ms} ms" if newest.held_ms else ""
    return (
        f"{timeline.topic}: epoch {newest.number} is in force, {known.newest.count} to {newest.count} partitions{held}"
    )


def crossings(initial: int, before: int, after: int) -> list[tuple[int, int]]:
    """Each (q, p) between which keys move when the count goes from `before` to `after`."""
    return list(Layout(initial, before).moves_to(Layout(initial, after)))


@lru_cache(maxsize=64)
def sides(initial: int, before: int, after: int) -> tuple[frozenset[int], frozenset[int]]:
    """The partitions that keys leave and those that they enter."""
    moves = crossings(initial, before, after)
    return frozenset(q for q, _ in moves), frozenset(p for _, p in moves)


def _check_cuts(topic: str, initial: int, before: Epoch, after: Epoch) -> None:
    # Each outer partition is on one side of a move of its own. Compared first: a damaged record may name any count.
    outer = after.begins if after.count > before.count else after.ends
    known = sides(initial, before.count, after.count) if len(outer) == abs(after.count - before.count) else None
    if known is None or after.ends.keys() != known[0] or after.begins.keys() != known[1]:
        raise TimelineRegressionError(
            f"epoch {after.number} of {topic!r} ({before.count} -> {after.count} partitions) lacks cuts: "
            f"ends {dict(after.ends)}, begins {dict(after.begins)}"
        )
