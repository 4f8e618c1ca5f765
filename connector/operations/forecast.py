"""What a change would do, before it is made: which keys move, who has what to read first, and how long that may take.

Nothing is guessed. A time is told only where it was measured: gates from two samples of what a group commits, holding from
earlier changes of the same topic. Everything else is None, with the reason in words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ...partitioner.changes.plan import ChangePlan, KeyMove
from ...partitioner.epochs import Retirement
from ...partitioner.gates.starts import Commit
from ...partitioner.layout import Layout
from ...partitioner.timeline import Timeline
from .notices import Notice
from .stock_look import NOBODY_SEEN, StockProducers


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. at: seconds. starts, ends: log starts and high watermarks. committed: by group and partition."""

    at: float
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    committed: Mapping[str, Mapping[int, Commit]]

    def position(self, group: str, partition: int) -> int:
        """Where the group is: its commit, the log start without one or below it."""
        commit = self.committed.get(group, {}).get(partition)
        return max(self.starts.get(partition, 0), 0 if commit is None else commit.offset)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a group has left to read in one partition that keys leave.

    lag: offsets, transaction markers included. consumed_per_s: measured, None without two samples.
    """

    partition: int
    at: int
    end: int
    consumed_per_s: float | None = None

    @property
    def lag(self) -> int:
        """end - at."""
        return max(0, self.end - self.at)


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """What a change would mean for one group, were it committed now.

    backlogs: per origin. gate_s: seconds until its last gate opens, at the measured pace; None when that is not known,
    and `why` says why not. named: a shrink waits for it before it empties anything.
    """

    group: str
    backlogs: tuple[Backlog, ...]
    gate_s: float | None
    why: str
    named: bool = False

    @property
    def lag(self) -> int:
        """Over all origins."""
        return sum(backlog.lag for backlog in self.backlogs)


@dataclass(frozen=True, slots=True)
class HoldForecast:
    """How long records of moving keys would wait in their producers.

    seconds: the longest of the topic's earlier changes, None when none is known. at_most_s: per attempt, after which it is
    given up. epochs: those changes. moving_per_s: how many records of moving keys come in, None without two samples.
    """

    seconds: float | None
    at_most_s: float
    epochs: tuple[int, ...] = ()
    moving_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class ChangeForecast:
    """A dry run of a change.

    plan: which shares of the keys move from where to where. partitions_to_create: physically. sampled_s: seconds between
    the two samples, 0 for a single one. waits_for_groups, delay_ms: of a shrink; delay_ms is None for a growth. stock: what
    shows that producers without keyorder write the topic; nobody looks where nothing would change.
    """

    topic: str
    plan: ChangePlan
    partitions_to_create: int
    hold: HoldForecast
    groups: tuple[GroupForecast, ...]
    sampled_s: float = 0.0
    waits_for_groups: tuple[str, ...] = ()
    delay_ms: int | None = None
    warnings: tuple[Notice, ...] = ()
    stock: StockProducers = NOBODY_SEEN

    @property
    def current(self) -> Layout:
        """The layout now."""
        return self.plan.current

    @property
    def target(self) -> Layout:
        """The layout that was asked for."""
        return self.plan.target

    @property
    def moves(self) -> tuple[KeyMove, ...]:
        """Every pair of partitions between which keys go."""
        return self.plan.moves

    @property
    def share_moved(self) -> Fraction:
        """The part of the hash space whose home changes."""
        return self.plan.share_moved

    @property
    def not_waited_for(self) -> dict[str, int]:
        """{group: lag} of groups that a shrink does not wait for and that have not read what it retires."""
        if not self.plan.retired:
            return {}
        return {g.group: g.lag for g in self.groups if not g.named and g.lag}


@dataclass(frozen=True, slots=True)
class Loss:
    """What a group would not have read when a partition is emptied. records: at most, markers included."""

    group: str
    partition: int
    records: int
    at: int
    upto: int


def origins_of(plan: ChangePlan) -> list[int]:
    """The partitions that keys leave, lowest first."""
    return sorted({move.source for move in plan.moves})


def group_forecasts(
    plan: ChangePlan, first: Sample, last: Sample, named: Collection[str] = ()
) -> tuple[GroupForecast, ...]:
    """Each group's backlog in the origins. `first` and `last` are the same for a single sample."""
    seconds = last.at - first.at
    found = []
    for group in sorted(last.committed):
        backlogs = []
        for q in origins_of(plan):
            at = last.position(group, q)
            pace = max(0, at - first.position(group, q)) / seconds if seconds > 0 else None
            backlogs.append(Backlog(q, at, last.ends[q], pace))
        gate_s, why = gate_time(backlogs)
        found.append(GroupForecast(group, tuple(backlogs), gate_s, why, group in named))
    return tuple(found)


def gate_time(backlogs: Iterable[Backlog]) -> tuple[float | None, str]:
    """(seconds until the slowest origin is read to its end, ""), or (None, why that is not known)."""
    slowest = 0.0
    for backlog in backlogs:
        if not backlog.lag:
            continue
        if backlog.consumed_per_s is None:
            return None, "one sample tells no pace: measure with --sample SECONDS"
        if not backlog.consumed_per_s:
            return None, f"it committed nothing of partition {backlog.partition} while it was measured"
        slowest = max(slowest, backlog.lag / backlog.consumed_per_s)
    return slowest, ""


def hold_forecast(timeline: Timeline, plan: ChangePlan, first: Sample, last: Sample, at_most_s: float) -> HoldForecast:
    """From the topic's earlier changes, and from what comes in to the partitions that keys leave."""
    known = [epoch for epoch in timeline.epochs if epoch.held_ms]
    seconds = last.at - first.at
    moving = None
    if seconds > 0:
        moving = 0.0
        for move in plan.moves:
            came = max(0, last.ends[move.source] - first.ends[move.source]) / seconds
            moving += came * float(move.share / plan.current.share(move.source))
    longest = max((epoch.held_ms / 1000 for epoch in known), default=None)
    return HoldForecast(longest, at_most_s, tuple(epoch.number for epoch in known), moving)


def losses(upto: Mapping[int, int], sample: Sample) -> tuple[Loss, ...]:
    """What each group has not read of these partitions below these offsets; groups that have read all are left out."""
    found = []
    for group in sorted(sample.committed):
        for p, end in sorted(upto.items()):
            at = sample.position(group, p)
            if at < end:
                found.append(Loss(group, p, end - at, at, end))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ForcedDrain:
    """What a forced shrink would lose. records: {partition: records that it holds below its cut}, read or not."""

    topic: str
    records: Mapping[int, int]
    losses: tuple[Loss, ...]
    retirement: Retirement = field(default_factory=Retirement)

    def lines(self) -> Sequence[str]:
        """For people, one fact per line."""
        held = sum(self.records.values())
        names = ", ".join(map(str, self.records))
        if not self.losses:
            return [f"Partitions {names} of {self.topic} hold {held} records; every group with commits has read them."]
        told = [
            f"Partitions {names} of {self.topic} hold {held} records. Not read yet, and lost once they are emptied:"
        ]
        return told + [
            f"  group {loss.group}: {loss.records} records of partition {loss.partition} (it is at {loss.at} of {loss.upto})"
            for loss in self.losses
        ]
