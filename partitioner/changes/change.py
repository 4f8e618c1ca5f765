"""The controller's side of a change, as a table: `step(event, now) -> actions`.

    BEGIN -> (CLEARING ->) ROLL_CALL -> PREPARING -> COLLECTING -> CUTTING -> COMMITTING -> DONE
                               ^                          |           |
                               +--------- ABORTING <------+-----------+        ABORTING -> FAILED

ROLL_CALL announces a PLAN, which holds nothing: every writer answers by renewing its lease, so a dead one is found (and
expelled when its lease is over) before any record has to wait. PREPARE then makes the writers hold moving keys; they are
held for two round trips of the control topics, or until the short deadline, after which the attempt is given up, the
records are released, and the next attempt begins under a new epoch number with twice the deadline.

An attempt that re-homes the values of a retired partition of a compacted topic (`piece`) goes the same way up to the cuts:

    CUTTING -> COPYING -> DONE

The writers hold the slice's keys and have nothing of them on the way, so whatever lies at their homes lies below the cuts.
Copies, tombstones and the release are one transaction of the controller: all of it happens or nothing, and not after
another controller has taken over.

The adapter carries the actions out in order and feeds back what it sees. A killed controller leaves a timeline with an
open change: the next one gives that attempt up and begins its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..epochs import ChangePhase, Retirement, Slice
from ..errors import (
    ChangeLateError,
    CountError,
    KeyorderError,
    TimelineTooLargeError,
    TruncationError,
    WriterLateError,
)
from ..modes import Mode
from ..records.timeline_record import encode_timeline
from ..routing import Routing
from ..stamps import Stamp
from ..timeline import Timeline, crossings
from ..writers.members import Member, WriterSet
from .events import (
    Action,
    CopySlice,
    CopyTooLate,
    CutsRead,
    EnsurePartitions,
    Event,
    Expel,
    Fail,
    Finish,
    IllegalEventError,
    LookAtWriters,
    PartitionsReady,
    Phase,
    ReadCuts,
    StampWriters,
    Started,
    TimelineVisible,
    WritersLooked,
    WritersRead,
    WritersStamped,
    WriterWait,
    WriteTimeline,
)
from .terms import ChangeTerms, longest_hold

# Longer than any log gets. In turn with 0: where only the differences of offsets are written, they are long too.
_LONG_OFFSET = 2**47
# How long after its stamp a timeline may become visible: the `transaction.timeout.ms` of controllers, in seconds.
STAMP_TO_VISIBLE_S = 5.0
_NO_CUTS = "a leader of the partitions that keys leave or enter does not answer"


class ChangeMachine:
    """One change of one topic to `target` partitions. `writers` is folded by the adapter and only read here.

    piece: a slice of values to re-home instead; `target` then has to be the present count.
    record_limit: how many bytes the timeline's record may have; None for any number.
    """

    def __init__(
        self,
        target: int,
        writers: WriterSet,
        terms: ChangeTerms,
        now: float,
        may_commit_from: float | None = None,
        retirement: Retirement | None = None,
        piece: Slice | None = None,
        record_limit: int | None = None,
    ) -> None:
        self.target, self.writers, self.terms, self.piece = target, writers, terms, piece
        self.phase = Phase.BEGIN
        self._retirement = retirement or Retirement()
        self.timeline: Timeline | None = None
        self.attempt = 0
        self.late: tuple[str, ...] = ()
        self._record_limit = record_limit
        self._began = now
        self._may_commit_from = may_commit_from
        self._last_record: Stamp | None = None
        self._roll_call_since = now
        self._partitions_ready = False
        self._expelling: set[str] = set()
        self._looking_for: set[str] = set()
        self._over: dict[str, tuple[Stamp | None, float]] = {}  # by nonce: its stamp that was judged, and when
        self._in_sync: frozenset[str] | None = None
        self._look_from = now
        self._deadline = now
        self._prepared_at = now
        self._failure: KeyorderError | None = None
        self._awaited = "two view ages since the epoch before are not over"

    def step(self, event: Event, now: float) -> list[Action]:
        """Take one event. Raises IllegalEventError, with nothing changed, for one that the phase does not know."""
        handler = _TRANSITIONS.get((self.phase, type(event)))
        if handler is None:
            raise IllegalEventError(f"{type(event).__name__} in phase {self.phase.value}")
        return handler(self, event, now)

    @property
    def topic(self) -> str:
        """The topic's name, once the timeline is known."""
        return self.timeline.topic if self.timeline else "?"

    @property
    def waits(self) -> tuple[WriterWait, ...]:
        """The writers that it waits for now, since when, and until when at most."""
        if self.phase is Phase.ROLL_CALL and self.timeline is not None and self.timeline.change is not None:
            silent = [(m.lease.writer, m.renewed_at, m.ends_at) for m in self._silent()]
            return tuple(WriterWait(writer, False, since, until) for writer, since, until in sorted(silent))
        if self.phase is Phase.COLLECTING and self._in_sync is not None:
            names = sorted(m.lease.writer for m in self._missing())
            return tuple(WriterWait(name, True, self._look_from, self._deadline) for name in names)
        return ()

    def _missing(self) -> list[Member]:
        """The members of the in-sync set that are not READY for the open attempt."""
        assert self.timeline is not None
        assert self.timeline.change is not None
        epoch = self.timeline.change.epoch
        found = [nonce for nonce in self._in_sync or () if not self.writers.is_ready(nonce, self.topic, epoch)]
        members = [self.writers.get(nonce) for nonce in found]
        return [m for m in members if m is not None]

    def _started(self, event: Started, now: float) -> list[Action]:
        self.timeline = event.timeline
        if self.piece is not None:
            self._may_commit_from = now  # no epoch is committed, so none is too near
        if self._may_commit_from is None:
            # A new controller does not know when the last COMMIT was: it waits as if it had been just now, unless the
            # broker's stamps tell more when its own first record has one (`_last_commit_was`).
            self._may_commit_from = now + 2 * event.timeline.view_age_s
            self._last_record = event.stamp
        if event.timeline.change is not None:
            self.phase = Phase.CLEARING
            return [WriteTimeline(event.timeline.given_up())]
        return self._begin_attempt(now)

    def _cleared(self, event: TimelineVisible, now: float) -> list[Action]:
        self.timeline = event.timeline
        return self._begin_attempt(now)

    def _begin_attempt(self, now: float) -> list[Action]:
        assert self.timeline is not None
        current = self.timeline.newest.count
        # A growth may have used the partition again: its values are not to be taken out of it any more.
        called_off = self.piece is not None and self.timeline.mode(self.piece.partition) is not Mode.READ_ONLY
        if (current == self.target and self.piece is None) or called_off:
            self.phase = Phase.DONE
            return [Finish(self.timeline, changed=self.attempt > 0 and not called_off)]
        if self.target < self.timeline.initial:
            return self._fail(
                CountError(
                    self.topic,
                    current,
                    self.target,
                    f"it cannot go below its initial {self.timeline.initial}",
                )
            )
        size = 0 if self.piece is not None else self._largest_record()
        if self._record_limit is not None and size > self._record_limit:
            # A COMMIT that is refused would come when the writers hold records already.
            epochs = len(self.timeline.epochs)
            return self._fail(TimelineTooLargeError(self.topic, size, self._record_limit, epochs))
        self.attempt += 1
        self.phase = Phase.ROLL_CALL
        self._partitions_ready = False
        self._in_sync = None
        self._expelling, self._looking_for, self._over = set(), set(), {}
        self._roll_call_since = now
        if self.piece is not None:
            planned = self.timeline.rehoming(self.piece, self.attempt)
        else:
            planned = self.timeline.opened(self.target, ChangePhase.PLAN, self.attempt, self._retirement)
        asked = () if self.piece is not None else self._cut_partitions()
        return [WriteTimeline(planned), EnsurePartitions(max(self.target, self.timeline.highest_count), asked)]

    def _cut_partitions(self) -> tuple[int, ...]:
        """The partitions that keys leave or enter."""
        assert self.timeline is not None
        moves = crossings(self.timeline.initial, self.timeline.newest.count, self.target)
        return tuple(sorted({p for move in moves for p in move}))

    def _largest_record(self) -> int:
        """The bytes of the timeline after the change, with cuts as long as they come."""
        assert self.timeline is not None
        planned = self.timeline.opened(self.target, ChangePhase.PLAN, 1, self._retirement).prepared()
        moves = crossings(self.timeline.initial, self.timeline.newest.count, self.target)
        ends = {q: _LONG_OFFSET * (q % 2) for q, _ in moves}
        begins = {p: _LONG_OFFSET * (p % 2) for _, p in moves}
        return len(encode_timeline(planned.committed(ends, begins, _LONG_OFFSET, 1)))

    def _planned(self, event: TimelineVisible, now: float) -> list[Action]:
        self.timeline = event.timeline
        self._last_commit_was(event.stamp, now)
        return self._ask_for_stamps(event.stamp) + self._call_roll(now)

    def _last_commit_was(self, stamp: Stamp | None, now: float) -> None:
        """Two commits lie two view ages apart, from when the first could be read: at most a transaction's time-out after
        its stamp. The timeline's newest record is that commit, or came after it."""
        assert self.timeline is not None
        assert self._may_commit_from is not None
        elapsed = None if self._last_record is None else self._last_record.seconds_until(stamp)
        self._last_record = None  # once: later attempts have waited already
        if elapsed is not None:
            left = 2 * self.timeline.view_age_s + STAMP_TO_VISIBLE_S - elapsed
            self._may_commit_from = min(self._may_commit_from, now + max(0.0, left))

    def _ask_for_stamps(self, planned: Stamp | None) -> list[Action]:
        """A lease that was over before the change began need not be waited for: its partition's leader can tell."""
        if planned is None:
            return []
        # The PLAN's stamp is another leader's. It only tells whom it is worth asking about.
        suspects = {
            m.stamp.partition
            for m in self._silent()
            if m.stamp is not None and planned.at_ms - m.stamp.at_ms >= m.lease.lease_ms
        }
        return [StampWriters(tuple(sorted(suspects)))] if suspects else []

    def _stamped(self, event: WritersStamped, now: float) -> list[Action]:
        for m in self._silent():
            if m.stamp is not None and m.was_over(event.stamps.get(m.stamp.partition), event.wall_ms):
                self._over[m.lease.nonce] = m.stamp, now
        return self._call_roll(now)

    def _silent(self) -> list[Member]:
        """The members that have not renewed since the roll call began."""
        return [m for m in self.writers.live(self.topic) if m.renewed_at < self._roll_call_since]

    def _partitions(self, _: PartitionsReady, now: float) -> list[Action]:
        self._partitions_ready = True
        return self._call_roll(now)

    def _roll_read(self, _: WritersRead, now: float) -> list[Action]:
        return self._call_roll(now)

    def _roll_looked(self, event: WritersLooked, now: float) -> list[Action]:
        """Expel whose lease was over before this look began and who still did not show up.

        An earlier look does not count: a renewal may have been on its way.
        """
        actions: list[Action] = []
        for nonce in sorted(self._looking_for):
            member = self.writers.get(nonce)
            stamp, since = self._over.get(nonce, (None, event.began + 1))
            was_over = member is not None and since <= event.began and member.stamp == stamp
            if member is not None and (member.ends_at <= event.began or was_over):
                self._expelling.add(nonce)
                actions.append(Expel(nonce, was_over))
            elif not was_over:
                self._over.pop(nonce, None)  # it has renewed since, or the look began too early: its lease decides
        self._looking_for.clear()
        return actions + self._call_roll(now)

    def _call_roll(self, now: float) -> list[Action]:
        if self.timeline is None or self.timeline.change is None:
            return []
        silent = self._silent()
        self.late = tuple(sorted(m.lease.writer for m in silent))
        expired = {m.lease.nonce for m in silent if m.ends_at <= now or m.lease.nonce in self._over} - self._expelling
        if expired - self._looking_for:
            self._looking_for |= expired
            return [LookAtWriters()]
        if now - self._began >= self.terms.timeout:
            return self._abandon(
                now, "" if self._partitions_ready else "the new partitions have no leaders that answer"
            )
        assert self._may_commit_from is not None
        if silent or not self._partitions_ready or now < self._may_commit_from:
            return []
        self.phase = Phase.PREPARING
        self._prepared_at = now
        return [WriteTimeline(self.timeline.prepared(round(self._patience() * 1000)))]

    def _prepared(self, event: TimelineVisible, now: float) -> list[Action]:
        self.timeline = event.timeline
        self.phase = Phase.COLLECTING
        self._look_from = now
        self._deadline = now + self._patience()
        return [LookAtWriters()]

    def _patience(self) -> float:
        """How long this attempt may hold records, in seconds."""
        return longest_hold(self.writers.live(self.topic), self.terms, self.attempt)

    def _looked(self, event: WritersLooked, now: float) -> list[Action]:
        """The in-sync set counts only from a look that began after this controller had read its PREPARE back."""
        if event.began >= self._look_from and self._in_sync is None:
            self._in_sync = frozenset(m.lease.nonce for m in self.writers.live(self.topic))
        return self._collect(now)

    def _collected(self, _: WritersRead, now: float) -> list[Action]:
        return self._collect(now)

    def _collect(self, now: float) -> list[Action]:
        assert self.timeline is not None
        assert self.timeline.change is not None
        epoch = self.timeline.change.epoch
        waiting = set(self._in_sync or ())
        missing = {nonce for nonce in waiting if not self.writers.is_ready(nonce, self.topic, epoch)}
        if self._in_sync is not None and not missing:
            self.phase = Phase.CUTTING
            if self.piece is not None:
                return [ReadCuts(tuple(sorted(Routing(self.timeline).settling())))]
            return [ReadCuts(self._cut_partitions())]
        if now >= self._deadline:
            members = [self.writers.get(nonce) for nonce in missing]
            self.late = tuple(sorted(m.lease.writer for m in members if m is not None))
            return self._abandon(now, "the writers' control topic could not be read to its end")
        return []

    def _cutting(self, _: Event, now: float) -> list[Action]:
        """No leader answered yet; the held records do not wait for ever."""
        return self._abandon(now, _NO_CUTS) if now >= self._deadline else []

    def _cut(self, event: CutsRead, now: float) -> list[Action]:
        """`ends` = max(high watermark, what READY reports); a watermark below that is truncation: stop and alarm."""
        assert self.timeline is not None
        assert self.timeline.change is not None
        acknowledged = self.writers.acknowledged(self.topic, self.timeline.change.epoch)
        marks = event.high_watermarks
        for q, offset in sorted(acknowledged.items()):
            if marks.get(q, offset) < offset:
                return self._abort(TruncationError(self.topic, q, marks[q], offset))
        if now >= self._deadline:
            return self._abandon(now, _NO_CUTS)
        if self.piece is not None:
            self.phase = Phase.COPYING
            return [CopySlice(self.piece, marks, self.timeline.given_up(), self._deadline)]
        moves = crossings(self.timeline.initial, self.timeline.newest.count, self.target)
        ends = {q: marks[q] for q, _ in moves}
        begins = {p: marks[p] for _, p in moves}
        self.phase = Phase.COMMITTING
        held_ms = max(1, round((now - self._prepared_at) * 1000))
        return [WriteTimeline(self.timeline.committed(ends, begins, event.at_ms, held_ms))]

    def _too_late(self, _: CopyTooLate, now: float) -> list[Action]:
        """The next attempt has more time; when all of it is over, the slice is what was late."""
        return self._abandon(now, "the values of a slice could not be read in time")

    def _committed(self, event: TimelineVisible, now: float) -> list[Action]:
        self.timeline = event.timeline
        self.phase = Phase.DONE
        return [Finish(event.timeline, changed=True)]

    def _abandon(self, now: float, awaited: str) -> list[Action]:
        """Give a late attempt up. When all the time is over that is an error, of the writers that are late.

        awaited: what it waited for where no writer is late; "" for what kept the attempt before it.
        """
        self._awaited = awaited or self._awaited
        seconds = now - self._began
        if seconds < self.terms.timeout:
            return self._abort(None)
        if self.late:
            return self._abort(WriterLateError(self.topic, self.late, seconds))
        return self._abort(ChangeLateError(self.topic, self._awaited, seconds))

    def _abort(self, failure: KeyorderError | None) -> list[Action]:
        """Give the attempt up; with a failure this is the end, without one the next attempt follows."""
        assert self.timeline is not None
        self.phase = Phase.ABORTING
        self._failure = failure
        return [WriteTimeline(self.timeline.given_up())]

    def _aborted(self, event: TimelineVisible, now: float) -> list[Action]:
        self.timeline = event.timeline
        return self._fail(self._failure) if self._failure is not None else self._begin_attempt(now)

    def _fail(self, error: KeyorderError) -> list[Action]:
        self.phase = Phase.FAILED
        return [Fail(error)]

    def _late_news(self, _: Event, now: float) -> list[Action]:
        """Writers' records keep arriving while something else is awaited: they are folded, nothing follows."""
        return []


_TRANSITIONS: dict[tuple[Phase, type], Callable[[ChangeMachine, Any, float], list[Action]]] = {
    (Phase.BEGIN, Started): ChangeMachine._started,
    (Phase.CLEARING, TimelineVisible): ChangeMachine._cleared,
    (Phase.ROLL_CALL, TimelineVisible): ChangeMachine._planned,
    (Phase.ROLL_CALL, PartitionsReady): ChangeMachine._partitions,
    (Phase.ROLL_CALL, WritersRead): ChangeMachine._roll_read,
    (Phase.ROLL_CALL, WritersLooked): ChangeMachine._roll_looked,
    (Phase.ROLL_CALL, WritersStamped): ChangeMachine._stamped,
    (Phase.PREPARING, TimelineVisible): ChangeMachine._prepared,
    (Phase.COLLECTING, WritersLooked): ChangeMachine._looked,
    (Phase.COLLECTING, WritersRead): ChangeMachine._collected,
    (Phase.CUTTING, CutsRead): ChangeMachine._cut,
    (Phase.COMMITTING, TimelineVisible): ChangeMachine._committed,
    (Phase.COPYING, TimelineVisible): ChangeMachine._committed,
    (Phase.COPYING, CopyTooLate): ChangeMachine._too_late,
    (Phase.ABORTING, TimelineVisible): ChangeMachine._aborted,
}
_TRANSITIONS[Phase.CUTTING, WritersRead] = ChangeMachine._cutting
_TRANSITIONS[Phase.CUTTING, WritersLooked] = ChangeMachine._cutting
for _phase in (Phase.CLEARING, Phase.PREPARING, Phase.COMMITTING, Phase.COPYING, Phase.ABORTING):
    _TRANSITIONS[_phase, WritersRead] = ChangeMachine._late_news
    _TRANSITIONS[_phase, WritersLooked] = ChangeMachine._late_news
for _phase in (Phase.PREPARING, Phase.COLLECTING, Phase.CUTTING, Phase.COMMITTING, Phase.COPYING, Phase.ABORTING):
    _TRANSITIONS[_phase, WritersStamped] = ChangeMachine._late_news
# A roll call that ran out of time may have been waiting for the partitions.
_TRANSITIONS[Phase.ABORTING, PartitionsReady] = ChangeMachine._late_news


def transitions() -> list[tuple[str, str]]:
    """The table as (phase, event) names, for the diagram and its test."""
    return [(phase.value, event.__name__) for phase, event in _TRANSITIONS]
