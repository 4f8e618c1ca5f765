"""Findings on the way to a consumer group. Each group is judged by itself.

x and y are records of one key; first(x) is the earliest deliver-start of x. **Obliged** are the records
that the group must get: in the log or trimmed, not compacted away, at or above the group's first offset.

| id | found when |
|---|---|
| A1 | an obliged x was never delivered, and a y with pos(y) > pos(x) was |
| A1' | after the final drain an obliged x was never delivered |
| A2 | a record reported as failed was delivered, or one that was not acknowledged and is not in the log (aborted) |
| A3 | a record that nobody invoked, or bytes that are no value of this run, was delivered |
| A4 | pos(x) < pos(y) and first(y) < first(x); rebalances excuse nothing. Once per such x |
| A4w | the same along each writer's own order |
| A5 | while an actor's ownership goes on without a gap, pos does not rise, it has not sought, and the place is no R6' |
| A6 | in the same frame an obliged record is jumped over that lay in a partition the actor owned throughout; or the first delivery of a key in a period passes over a record of it at or above the committed offset that nobody has finished |
| A7 | the deliver intervals of two records of a key by different actors intersect |
| A7z | the same, and the one that started first had lost its partition before the other started |
| A8 | the first record of a segment of the key's chain starts before every obliged record of the earlier segments ended for the first time |
| A9 | commit-ok(p, o) while a record of p below o has no deliver-end (see `deliveries`) |
| A10 | a second deliver-end of x, unless legal |
| A13 | after quiescence the last delivery that ended is not the key's newest delivered record |

**Never delivered** is: no deliver-end, or, in a run that was not drained, no deliver-start.

**A legal duplicate**: the mode is at-least-once, x's offset is at or above the last commit-ok of its
partition at the assign of the period that delivers it again, and the period that delivered it before
ended by crash, lost or expiry. A clean rebalance excuses nothing: `revoke` comes after the commit of all
that was done, so what is delivered again after a revoke is illegal, also if that commit failed (unless the
caller of `judge` excuses refused commits).
Redeliveries after a declared seek are counted apart, and legal in at-least-once mode. In exactly-once
mode no duplicate is legal. A value at two places of the log is R6 and not counted here a second time.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from .anomalies import Findings
from .deliveries import NEVER, UNCLEAN, Delivery, GroupView
from .events import Kind
from .truth import Order, Truth

Report = Callable[[str, int, str], None]


@dataclass(slots=True)
class Tally:
    """What the verdict counts for a group."""

    deliveries: int = 0
    delivered: set[int] = field(default_factory=set)
    reordered: set[str] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    illegal: int = 0
    legal: int = 0
    sought: int = 0
    zombie_overlaps: int = 0


class GroupChecks:
    """The checks of one group; `report` calls go to the findings under the group's name."""

    def __init__(self, truth: Truth, view: GroupView, findings: Findings, *, quiesced: bool) -> None:
        self.tally = Tally(deliveries=len(view.deliveries))
        self._truth = truth
        self._view = view
        self._findings = findings
        self._quiesced = quiesced
        self._first_start: dict[int, int] = {}
        self._first_end: dict[int, int] = {}
        for delivery in view.deliveries:
            self._first_start.setdefault(delivery.vid, delivery.start)
            if delivery.end < NEVER:
                end = self._first_end.get(delivery.vid, NEVER)
                self._first_end[delivery.vid] = min(end, delivery.end)
        self._seen = self._first_end if quiesced else self._first_start
        self.tally.delivered = {vid for vid in self._first_end if vid >= 0}

    def _report(self, id: str, vid: int, place: tuple[int, int], detail: str) -> None:
        key = self._truth.key(vid) if vid >= 0 else ""
        self._findings.add(id, key, *place, detail, self._view.group)

    def _obliged(self, vid: int) -> bool:
        if vid in self._truth.ghosts:
            return False
        partition, offset = self._truth.place[vid]
        return offset >= self._view.starts.get(partition, 0)

    def losses(self, order: Order) -> None:
        """A1 and A1'."""
        name, place = self._truth.name, self._truth.place
        for row in order.members.values():
            newest = -1
            for here in range(len(row) - 1, -1, -1):
                if row[here] in self._seen:
                    newest = max(newest, here)
                elif newest >= 0 and self._obliged(row[here]):
                    vid = row[here]
                    detail = f"{name(vid)} was passed by {name(row[newest])}: lost on the way"
                    self._report("A1", vid, place[vid], detail)
                    self.tally.lost.add(vid)
        if self._quiesced:
            for vid, at in place.items():
                if vid not in self._seen and self._obliged(vid):
                    self._report("A1'", vid, at, f"{name(vid)} never came: lost on the way")
                    self.tally.lost.add(vid)

    def phantoms(self) -> None:
        """A2 and A3, once per place."""
        reported: set[tuple[int, int]] = set()
        for delivery in self._view.deliveries:
            vid, place = delivery.vid, (delivery.partition, delivery.offset)
            if place in reported:
                continue
            send = self._truth.sends.get(vid)
            if send is None:
                self._report("A3", vid, place, "nobody sent this")
            elif send.outcome is Kind.SEND_FAIL:
                self._report("A2", vid, place, f"{self._truth.name(vid)} was reported as failed")
            elif vid not in self._truth.place and send.outcome is not Kind.SEND_OK:
                self._report("A2", vid, place, f"{self._truth.name(vid)} is not in the log")
            else:
                continue
            reported.add(place)

    def order(self, id: str, order: Order) -> None:
        """A4 by L_k, A4w by the writers' order."""
        for row in order.members.values():
            soonest, whose = NEVER, -1
            for vid in reversed(row):
                start = self._first_start.get(vid)
                if start is None:
                    continue
                if soonest < start:
                    detail = f"{self._truth.name(vid)} came after {self._truth.name(whose)}"
                    self._report(id, vid, self._truth.place[vid], detail)
                    self.tally.reordered.add(self._truth.key(vid))
                else:
                    soonest, whose = start, vid

    def continuity(self, order: Order) -> None:
        """A5 and A6."""
        last: dict[tuple[str, Hashable], Delivery] = {}
        for delivery in self._view.deliveries:
            here = order.pos.get(delivery.vid)
            if here is None or delivery.zombie:
                continue
            stream = order.stream_of[delivery.vid]
            previous = last.get((delivery.period.actor, stream))
            last[delivery.period.actor, stream] = delivery
            if previous is None or not self._goes_on(previous, delivery):
                self._first_of_period(order, stream, here, delivery)
                continue
            there = order.pos[previous.vid]
            place = (delivery.partition, delivery.offset)
            falls = here < there and place not in self._truth.rewritten
            if falls or (here == there and place == (previous.partition, previous.offset)):
                detail = f"{self._truth.name(delivery.vid)} after {self._truth.name(previous.vid)}"
                self._report("A5", delivery.vid, place, detail)
            for vid in order.members[stream][there + 1 : here]:
                if self._obliged(vid) and self._owned(vid, previous, delivery):
                    detail = f"{self._truth.name(vid)} was jumped over by {self._truth.name(delivery.vid)}"
                    self._report("A6", vid, self._truth.place[vid], detail)

    def _goes_on(self, previous: Delivery, delivery: Delivery) -> bool:
        return (
            previous.period.end > delivery.start
            and delivery.period.start <= previous.start
            and delivery.sought < previous.start
        )

    def _owned(self, vid: int, previous: Delivery, delivery: Delivery) -> bool:
        """Did the actor own the record's partition from one delivery to the other?"""
        periods = self._view.periods.get((delivery.period.actor, self._truth.place[vid][0]), [])
        return any(p.start <= previous.start and p.end > delivery.start for p in periods)

    def _first_of_period(self, order: Order, stream: Hashable, here: int, delivery: Delivery) -> None:
        ceiling = delivery.period.ceiling
        if ceiling is None or delivery.sought > delivery.period.start:
            return
        for vid in reversed(order.members[stream][:here]):
            partition, offset = self._truth.place[vid]
            if partition != delivery.partition or offset < ceiling:
                return
            if self._obliged(vid) and self._first_end.get(vid, NEVER) > delivery.start:
                detail = f"{self._truth.name(vid)} lies between the commit {ceiling} and {delivery.offset}"
                self._report("A6", vid, (partition, offset), detail)

    def overlaps(self, order: Order) -> None:
        """A7 and A7z: a sweep over each key's deliveries by start.

        Per actor the delivery that lasts longest is enough, and, where that is the same record, the one
        that lasts longest of another record.
        """
        inside: dict[Hashable, dict[str, list[Delivery]]] = {}
        for delivery in self._view.deliveries:
            stream = order.stream_of.get(delivery.vid)
            if stream is None:
                continue
            actors = inside.setdefault(stream, {})
            for actor, longest in actors.items():
                other = next((d for d in longest if d.vid != delivery.vid), None)
                if actor != delivery.period.actor and other is not None and other.until > delivery.start:
                    self._overlap(other, delivery)
            mine = [*actors.get(delivery.period.actor, ()), delivery]
            mine.sort(key=lambda d: -d.until)
            second = next((d for d in mine if d.vid != mine[0].vid), None)
            actors[delivery.period.actor] = [mine[0]] if second is None else [mine[0], second]

    def _overlap(self, other: Delivery, delivery: Delivery) -> None:
        zombie = other.period.end < delivery.start
        self.tally.zombie_overlaps += zombie
        detail = f"{self._truth.name(delivery.vid)} starts while {other.period.actor} is inside "
        detail += self._truth.name(other.vid)
        place = (delivery.partition, delivery.offset)
        self._report("A7z" if zombie else "A7", delivery.vid, place, detail)

    def gates(self, order: Order) -> None:
        """A8: for each segment after the first, its first start against the earlier segments' last end."""
        for row in order.members.values():
            if order.segment.get(row[-1], 0) == order.segment.get(row[0], 0):
                continue
            segment, unfinished, last_end = order.segment.get(row[0], 0), -1, -1
            before: tuple[int, int] = (-1, -1)  # (latest first end, its vid) of the earlier segments
            reported = False
            for vid in row:
                if order.segment.get(vid, 0) != segment:
                    segment, before, reported = order.segment.get(vid, 0), (last_end, unfinished), False
                start = self._first_start.get(vid)
                if start is not None and start < before[0] and not reported:
                    reported = True
                    detail = f"{self._truth.name(vid)} starts before {self._truth.name(before[1])} ended"
                    self._report("A8", vid, self._truth.place[vid], detail)
                    self.tally.reordered.add(self._truth.key(vid))
                if self._obliged(vid):
                    end = self._first_end.get(vid, NEVER)
                    if end > last_end:
                        last_end, unfinished = end, vid

    def duplicates(self, mode: str) -> None:
        """A10, and the counts of legal duplicates."""
        before: dict[tuple[int, int, int], Delivery] = {}
        for delivery in self._view.deliveries:
            if delivery.vid < 0 or delivery.end == NEVER:
                continue
            x = (delivery.vid, delivery.partition, delivery.offset)
            previous = before.get(x)
            before[x] = delivery
            if previous is None:
                continue
            reason = _illegal(previous, delivery, mode)
            if reason is None and delivery.sought > previous.start:
                self.tally.sought += 1
            elif reason is None:
                self.tally.legal += 1
            else:
                self.tally.illegal += 1
                self._report("A10", delivery.vid, x[1:], f"{self._truth.name(delivery.vid)}: {reason}")

    def final(self, order: Order) -> None:
        """A13."""
        newest: dict[Hashable, int] = {}
        latest: dict[Hashable, Delivery] = {}
        for delivery in self._view.deliveries:
            here = order.pos.get(delivery.vid)
            if here is None or delivery.end == NEVER:
                continue
            stream = order.stream_of[delivery.vid]
            newest[stream] = max(newest.get(stream, -1), here)
            if stream not in latest or delivery.end > latest[stream].end:
                latest[stream] = delivery
        for stream, delivery in latest.items():
            if order.pos[delivery.vid] < newest[stream]:
                newer = order.members[stream][newest[stream]]
                detail = f"{self._truth.name(delivery.vid)} came last, {self._truth.name(newer)} is newer"
                self._report("A13", delivery.vid, (delivery.partition, delivery.offset), detail)


def _illegal(previous: Delivery, delivery: Delivery, mode: str) -> str | None:
    """Why a second delivery is illegal; None when it is legal."""
    if mode != "at-least-once":
        return f"delivered again in {mode} mode"
    if delivery.sought > previous.start:
        return None
    if previous.period is delivery.period:
        return "delivered again in one period"
    if previous.period.how not in UNCLEAN or previous.period.end > delivery.start:
        return f"delivered again after {previous.period.actor} ended by {previous.period.how or 'nothing'}"
    if delivery.offset < (delivery.period.base or 0):
        return f"delivered again below the commit {delivery.period.base}"
    return None
