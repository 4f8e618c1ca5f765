"""One group's deliveries and ownership, read off the history.

- A **period** is one actor's ownership of one partition: from assign to revoke ("revoke": a clean end),
  lost, crash (also: the same actor was opened or started again), or until another actor was assigned
  the partition without any of these ("expiry": the group had given the member up, which learns it late).
  Where refused commits are an excuse, a revoke with a commit that failed since the last one that did not, or
  fails before the next assign, ends it as "refused".
  A delivery without any assign opens a period of its own (clients that take partitions by hand).
- A delivery in no running period belongs to the period that ended: its actor is a **zombie**.
- A period remembers `base`, the last committed offset (commit-ok) at its assign, and `ceiling`, the
  highest offset that an unknown commit may have made of it.
- A **delivery** runs from its start to its end; one without an end runs to the end of its period.
- A9 is judged here, because it needs the state at the moment of the commit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from .anomalies import Findings
from .events import Kind
from .history import Event
from .truth import Truth

NEVER = 2**62
UNCLEAN = frozenset({"crash", "lost", "expiry", "refused"})


@dataclass(slots=True)
class Period:
    """One actor's ownership of one partition; `how` is "" while it runs."""

    actor: str
    partition: int
    start: int
    base: int | None
    ceiling: int | None
    end: int = NEVER
    how: str = ""


@dataclass(slots=True)
class Delivery:
    """One delivery: event indices of its start and end (NEVER: none).

    `sought` is the index of the partition's last declared seek, if that one led here; -1 otherwise. The
    seek may be a former owner's: its commit of the new position makes the next owner read again.
    """

    vid: int
    partition: int
    offset: int
    period: Period
    start: int
    sought: int
    end: int = NEVER

    @property
    def until(self) -> int:
        """Where the application was certainly no longer inside it."""
        return self.end if self.end < NEVER else max(self.period.end, self.start)

    @property
    def zombie(self) -> bool:
        """Started after its period had ended."""
        return self.start > self.period.end


@dataclass(slots=True)
class GroupView:
    """All deliveries of a group in the order of their starts, and all periods per (actor, partition)."""

    group: str
    starts: Mapping[int, int]  # the group's first offsets; what lies below is not its duty
    deliveries: list[Delivery] = field(default_factory=list)
    periods: dict[tuple[str, int], list[Period]] = field(default_factory=dict)


def read_groups(
    truth: Truth, findings: Findings, starts: Mapping[str, Mapping[int, int]], *, refusals_excuse: bool = False
) -> dict[str, GroupView]:
    """All groups of the history; reports A9 and A9' as it goes. refusals_excuse: "refused" periods are told apart."""
    offsets = {partition: sorted(row) for partition, row in truth.at.items()}
    readers = {
        g: _Reader(truth, findings, g, starts.get(g, {}), offsets, refusals_excuse) for g in truth.history.groups()
    }
    for event in truth.history.events():
        if event.kind in (Kind.CRASH, Kind.RESTART):
            for reader in readers.values():
                reader.life_ends(event)
        elif event.group:
            readers[event.group].take(event)
    return {group: reader.view for group, reader in readers.items()}


class _Reader:
    def __init__(
        self,
        truth: Truth,
        findings: Findings,
        group: str,
        starts: Mapping[int, int],
        offsets: Mapping[int, list[int]],
        refusals_excuse: bool,
    ) -> None:
        self.view = GroupView(group, starts)
        self._truth = truth
        self._findings = findings
        self._offsets = offsets
        self._owners: dict[int, dict[str, Period]] = {}
        self._flying: dict[tuple[str, int, int], Delivery] = {}
        self._seeks: dict[int, tuple[int, int]] = {}  # partition -> (index, offset) of the last seek
        self._done: dict[int, set[int]] = {}
        self._next: dict[int, int] = {}  # per partition: the first place in `offsets` that is not done
        self._overrun: set[tuple[int, int]] = set()  # already reported
        self._committed: dict[int, int] = {}
        self._ceiling: dict[int, int] = {}
        self._refusals_excuse = refusals_excuse
        self._refused: set[tuple[str, int]] = set()  # (actor, partition) whose newest commit failed

    def take(self, event: Event) -> None:
        """One event of this group."""
        kind, partition = event.kind, event.partition
        if kind is Kind.DELIVER_START:
            self._start(event)
        elif kind is Kind.DELIVER_END:
            self._finish(event)
        elif kind is Kind.ASSIGN:
            self._assign(event)
        elif kind is Kind.REVOKE or kind is Kind.LOST:
            self._end(event, partition, "revoke" if kind is Kind.REVOKE else "lost")
        elif kind is Kind.COMMIT_OK:
            self._commit(event)
        elif kind is Kind.COMMIT_UNKNOWN:
            self._ceiling[partition] = max(self._ceiling.get(partition, 0), event.offset)
            self._refuse(event)
        elif kind is Kind.SEEK:
            self._seeks[partition] = (event.at, event.offset)
        elif kind is Kind.OPEN:
            self.life_ends(event)

    def life_ends(self, event: Event) -> None:
        """The actor is gone: its periods end as by a crash, and nothing of it is being delivered."""
        for partition in list(self._owners):
            self._end(event, partition, "crash")
        for place in [place for place in self._flying if place[0] == event.actor]:
            del self._flying[place]

    def _refuse(self, event: Event) -> None:
        """A commit failed. It may be told after the revoke for which it was made."""
        self._refused.add((event.actor, event.partition))
        past = self.view.periods.get((event.actor, event.partition))
        if self._refusals_excuse and past and past[-1].how == "revoke":
            past[-1].how = "refused"

    def _open(self, event: Event) -> Period:
        partition = event.partition
        self._refused.discard((event.actor, partition))
        period = Period(event.actor, partition, event.at, self._committed.get(partition), self._ceiling.get(partition))
        self._owners.setdefault(partition, {})[event.actor] = period
        self.view.periods.setdefault((event.actor, partition), []).append(period)
        return period

    def _assign(self, event: Event) -> None:
        owners = self._owners.setdefault(event.partition, {})
        for actor in [actor for actor in owners if actor != event.actor]:
            period = owners.pop(actor)
            period.end, period.how = event.at, "expiry"
        if event.actor not in owners:
            self._open(event)

    def _end(self, event: Event, partition: int, how: str) -> None:
        period = self._owners.get(partition, {}).pop(event.actor, None)
        if period is not None:
            if how == "revoke" and self._refusals_excuse and (event.actor, partition) in self._refused:
                how = "refused"
            period.end, period.how = event.at, how

    def _start(self, event: Event) -> None:
        period = self._owners.get(event.partition, {}).get(event.actor)
        if period is None:
            past = self.view.periods.get((event.actor, event.partition))
            period = past[-1] if past else self._open(event)
        sought, since = self._seeks.get(event.partition, (-1, 0))
        if event.offset < since:
            sought = -1
        delivery = Delivery(event.vid, event.partition, event.offset, period, event.at, sought)
        self._flying[event.actor, event.partition, event.offset] = delivery
        self.view.deliveries.append(delivery)

    def _finish(self, event: Event) -> None:
        place = (event.actor, event.partition, event.offset)
        if place not in self._flying:
            self._start(event)  # a harness that records ends only
        self._flying.pop(place).end = event.at
        self._done.setdefault(event.partition, set()).add(event.offset)

    def _commit(self, event: Event) -> None:
        partition, offset = event.partition, event.offset
        owners = self._owners.get(partition, {})
        if owners and event.actor not in owners and (event.actor, partition) in self.view.periods:
            detail = f"{event.actor} commits; the owner is {'/'.join(owners)}"
            self._findings.add("A9'", "", partition, offset, detail, self.view.group)
        self._committed[partition] = self._ceiling[partition] = offset
        self._refused.discard((event.actor, partition))
        missing = self._first_undone(partition)
        if missing is not None and missing < offset and (partition, missing) not in self._overrun:
            self._overrun.add((partition, missing))
            vid = self._truth.at[partition][missing]
            key = self._truth.key(vid) if vid >= 0 else ""
            detail = f"{event.actor} commits {offset}, and {missing} is not done"
            self._findings.add("A9", key, partition, missing, detail, self.view.group)

    def _first_undone(self, partition: int) -> int | None:
        row, done = self._offsets.get(partition, []), self._done.get(partition, set())
        number = self._next.get(partition)
        if number is None:
            number = bisect_left(row, self.view.starts.get(partition, 0))
        while number < len(row) and row[number] in done:
            number += 1
        self._next[partition] = number
        return row[number] if number < len(row) else None
