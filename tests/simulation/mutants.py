"""The real code with one guard taken out each. The simulation has to find what comes of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from keyorder.partitioner.changes import change as machine
from keyorder.partitioner.changes.change import ChangeMachine
from keyorder.partitioner.changes.events import TimelineVisible
from keyorder.partitioner.gates import gate as gates
from keyorder.partitioner.gates import starts
from keyorder.partitioner.gates.ahead import Ahead
from keyorder.partitioner.gates.gate import Gate, GateDependency, Gates, Opened
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.events import Action, LeaseLapsed
from keyorder.partitioner.writers.fast_path import InFlight
from keyorder.partitioner.writers.lease import LeaseKeeper, Standing
from keyorder.partitioner.writers.members import Member as JoinedWriter
from keyorder.partitioner.writers.members import WriterSet
from keyorder.partitioner.writers.sending import TopicSending
from keyorder.partitioner.writers.writer import Writer
from simulation.member import Member

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Registers it under its name."""
    MUTANTS[function.__name__] = function
    return function


# Writers.


def _sends_until(patch: Patch, moment: Callable[[LeaseKeeper], float]) -> None:
    """Once a record of its lease was read back, a writer sends until this moment."""
    original = LeaseKeeper.read

    def read(self: LeaseKeeper, *args: Any) -> None:
        original(self, *args)
        if self.standing is Standing.LIVE:
            self.send_until = moment(self)

    patch.setattr(LeaseKeeper, "read", read)


@mutant
def ready_without_acknowledgements(patch: Patch) -> None:
    """READY is said while records of moving keys are on their way."""

    def ready_epoch(self: TopicSending[Any], now: float) -> int | None:
        change = self.timeline.change
        return None if change is None or self.answered else change.epoch

    patch.setattr(TopicSending, "ready_epoch", ready_epoch)


@mutant
def moving_keys_are_not_held(patch: Patch) -> None:
    """Records of moving keys flow on under PREPARE."""
    patch.setattr(Routing, "waits", lambda self, key, route: False)


@mutant
def a_record_overtakes_held_ones(patch: Patch) -> None:
    """A record is sent although an earlier one of its key is still held."""

    def must_wait(self: TopicSending[Any], key: bytes | None, route: Any) -> bool:
        return key is not None and route is not None and self.routing.waits(key, route)

    patch.setattr(TopicSending, "must_wait", must_wait)


@mutant
def a_timed_out_record_counts_as_gone(patch: Patch) -> None:
    """A record that timed out counts as resolved at once; it may still be appended."""
    patch.setattr(InFlight, "resolved", lambda self, now: self.unresolved == 0)


@mutant
def the_lease_is_not_checked(patch: Patch) -> None:
    """A writer sends on, however long it was away."""
    _sends_until(patch, lambda lease: inf)
    patch.setattr(LeaseKeeper, "tick", lambda self, now: None)


@mutant
def no_look_after_the_join(patch: Patch) -> None:
    """A writer sends by whatever it knows of the timeline when its JOIN is read back."""

    def look(self: Writer[Any], now: float) -> list[Action]:
        self._looked = self.lease.confirmed
        return []

    patch.setattr(Writer, "_look", look)


@mutant
def a_join_with_records_on_the_way(patch: Patch) -> None:
    """A writer whose lease has lapsed joins again before the fate of its records is known."""
    patch.setattr(Writer, "_clear", lambda self, now: True)


@mutant
def records_go_out_until_the_lease_ends(patch: Patch) -> None:
    """A record may be on its way for a delivery timeout after the lease has ended."""
    _sends_until(patch, lambda lease: lease._ends)


@mutant
def a_failed_key_goes_on(patch: Patch) -> None:
    """What is held of a key goes out although an earlier record of it was given up."""
    patch.setattr(TopicSending, "drop_key", lambda self, key, telling=None: [])


@mutant
def records_before_the_prepare_are_not_waited_for(patch: Patch) -> None:
    """READY waits only for what is sent from PREPARE on."""
    original = TopicSending.apply

    def apply(self: TopicSending[Any], timeline: Timeline, now: float = -inf) -> bool:
        changed = original(self, timeline, now)
        self._draining.clear()
        return changed

    patch.setattr(TopicSending, "apply", apply)


@mutant
def records_go_out_before_the_join_is_read(patch: Patch) -> None:
    """A writer sends as soon as it has sent its JOIN: a controller may not have seen it yet."""
    original = LeaseKeeper.join

    def join(self: LeaseKeeper, nonce: str, topics: Any, now: float) -> Any:
        record = original(self, nonce, topics, now)
        self.standing, self.confirmed, self._ends = Standing.LIVE, frozenset(topics), now + self.terms.lease
        self.send_until = self._ends - self.terms.delivery_timeout - self.terms.margin
        return record

    patch.setattr(LeaseKeeper, "join", join)


@mutant
def a_look_counts_for_the_next_join(patch: Patch) -> None:
    """A writer whose lease has lapsed sends under its next join by what it had read before."""

    def lapse(self: Writer[Any]) -> list[Action]:
        sent, self.send_until = self.send_until > -inf, -inf
        return [LeaseLapsed()] if sent else []

    patch.setattr(Writer, "_lapse", lapse)


@mutant
def held_records_are_released_under_prepare(patch: Patch) -> None:
    """What is held goes out to its old home while the change is still being prepared."""

    def release(self: TopicSending[Any], send: Callable[[Any, Any], bool]) -> int:
        sent = 0
        while self.held and send(self.held[0], self.routing.of(self.held[0].key or b"")):
            self._forget(self.held.popleft())
            sent += 1
        return sent

    patch.setattr(TopicSending, "release", release)


@mutant
def ready_waits_for_one_partition_alone(patch: Patch) -> None:
    """READY is said when the records of one of the moving keys' homes have arrived."""
    original = TopicSending.apply

    def apply(self: TopicSending[Any], timeline: Timeline, now: float = -inf) -> bool:
        changed = original(self, timeline, now)
        del self._draining[1:]
        return changed

    patch.setattr(TopicSending, "apply", apply)


# Controllers.


@mutant
def nobody_has_to_be_ready(patch: Patch) -> None:
    """The cuts are read as soon as the writers were looked at."""
    patch.setattr(WriterSet, "is_ready", lambda self, nonce, topic, epoch: True)


@mutant
def writers_counted_by_an_old_look(patch: Patch) -> None:
    """The in-sync set comes from before PREPARE was read back: a writer that joins just then is left out."""
    original = ChangeMachine._prepared

    def prepared(self: ChangeMachine, event: TimelineVisible, now: float) -> Any:
        self._in_sync = frozenset(m.lease.nonce for m in self.writers.live(self.topic))
        before = self._in_sync
        actions = original(self, event, now)
        self._in_sync = before
        return actions

    patch.setitem(machine._TRANSITIONS, (machine.Phase.PREPARING, TimelineVisible), prepared)


@mutant
def a_stale_ready_counts(patch: Patch) -> None:
    """A READY of an earlier attempt completes this one."""

    def is_ready(self: WriterSet, nonce: str, topic: str, epoch: int) -> bool:
        member = self.get(nonce)
        return member is None or topic in member.ready

    patch.setattr(WriterSet, "is_ready", is_ready)


@mutant
def expelled_before_the_lease_is_over(patch: Patch) -> None:
    """A silent writer is taken out at once."""
    original = WriterSet._apply_lease

    def apply(self: WriterSet, lease: Any, offset: int, now: float) -> None:
        original(self, lease, offset, now)
        member = self.get(lease.nonce)
        if member is not None:
            member.renewed_at = min(member.renewed_at, now - lease.lease_ms / 1000 + 0.5)

    patch.setattr(WriterSet, "_apply_lease", apply)


@mutant
def nobody_is_called(patch: Patch) -> None:
    """Records are held at once, and a dead writer is never expelled."""
    patch.setattr(ChangeMachine, "_silent", lambda self: [])


@mutant
def an_attempt_is_never_given_up(patch: Patch) -> None:
    """A writer that died after the roll call is waited for, and records are held, for ever."""
    patch.setattr(ChangeMachine, "_patience", lambda self: 1e6)


@mutant
def one_clock_tells_that_a_lease_is_over(patch: Patch) -> None:
    """The leader's stamps alone, which a clock that jumped has made."""

    def was_over(self: JoinedWriter, at: Any, wall_ms: int) -> bool:
        elapsed = None if self.stamp is None else self.stamp.seconds_until(at)
        return elapsed is not None and elapsed >= self.lease.lease_ms / 1000

    patch.setattr(JoinedWriter, "was_over", was_over)


def _cuts(patch: Patch, ends: int, begins: int) -> None:
    """Cuts that lie so much beside the logs' ends."""
    original = Timeline.committed

    def committed(self: Timeline, found: Any, entering: Any, *args: Any) -> Timeline:
        lower = {q: max(0, offset + ends) for q, offset in found.items()}
        return original(self, lower, {p: offset + begins for p, offset in entering.items()}, *args)

    patch.setattr(Timeline, "committed", committed)


@mutant
def the_last_record_is_left_out_of_a_cut(patch: Patch) -> None:
    """Gates open when all but one of the leaving records are done with."""
    _cuts(patch, -1, 0)


@mutant
def a_cut_lets_one_record_in(patch: Patch) -> None:
    """The first record of an entering key lies before its gate."""
    _cuts(patch, 0, 1)


@mutant
def commits_at_once_and_no_second_look(patch: Patch) -> None:
    """Two commits lie close together, and readers look at neither hint nor hash: only a view's age is left to them."""
    original = ChangeMachine.__init__

    def init(self: ChangeMachine, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        self._may_commit_from = -inf

    patch.setattr(ChangeMachine, "__init__", init)
    views_are_judged_by_age_alone(patch)


# Readers.


@mutant
def gates_are_open(patch: Patch) -> None:
    """Nothing waits."""
    patch.setattr(Opened, "first_closed", lambda self, partition: None)


@mutant
def gates_without_the_chain(patch: Patch) -> None:
    """A gate does not wait for the older gates of its origin."""

    def alone(self: Opened, dependency: GateDependency, gate: Any) -> int:
        return len(dependency.epochs)

    patch.setattr(Opened, "_kept_closed", alone)


@mutant
def the_oldest_gate_alone(patch: Patch) -> None:
    """Only the first gate of each partition is ever looked at."""
    original = Gates.__init__

    def init(self: Gates, timeline: Timeline) -> None:
        original(self, timeline)
        for dependency in self._dependencies.values():
            del dependency.epochs[1:], dependency.ends[1:]

    patch.setattr(Gates, "__init__", init)


@mutant
def gate_opened_by_what_was_read(patch: Patch) -> None:
    """A position counts what was fetched, not what was committed."""

    def position(self: Any, q: int) -> int:
        owned = self._owned.get(q)
        if owned is not None:
            return owned.cursor.at if owned.cursor else 0
        commit = self._others.get(q)
        return 0 if commit is None else int(commit.offset)

    patch.setattr(Member, "gate_position", position)


@mutant
def a_gate_opens_one_record_early(patch: Patch) -> None:
    """The origin's last record before the cut need not be done with."""

    def closed(self: GateDependency, position: int, proven: float = inf) -> int:
        return bisect_right(self.ends, position + 1)

    patch.setattr(GateDependency, "closed_by_position", closed)


def _first_closed(patch: Patch, chosen: Callable[[Opened, Gate], Gate]) -> None:
    """The partition is read up to this gate, which is made of its first closed one."""
    original = Opened.first_closed

    def first_closed(self: Opened, partition: int) -> Gate | None:
        found = original(self, partition)
        return None if found is None else chosen(self, found)

    patch.setattr(Opened, "first_closed", first_closed)


@mutant
def a_gate_holds_one_record_late(patch: Patch) -> None:
    """The first record behind it goes through."""
    _first_closed(patch, lambda _, gate: replace(gate, begins=gate.begins + 1))


@mutant
def a_partition_is_read_to_its_last_closed_gate(patch: Patch) -> None:
    """The ones before it hold nothing."""

    def last(opened: Opened, first: Gate) -> Gate:
        return [gate for gate in opened._gates.of(first.partition) if not opened.is_open(gate)][-1]

    _first_closed(patch, last)


@mutant
def the_newest_gate_alone(patch: Patch) -> None:
    """Only the last gate of each origin is ever looked at."""
    original = Gates.__init__

    def init(self: Gates, timeline: Timeline) -> None:
        original(self, timeline)
        for dependency in self._dependencies.values():
            del dependency.epochs[:-1], dependency.ends[:-1]

    patch.setattr(Gates, "__init__", init)


@mutant
def a_shrink_has_no_gates(patch: Patch) -> None:
    """What moves to a lower partition is read at once."""
    original = gates.crossings
    patch.setattr(gates, "crossings", lambda n, before, after: [] if after < before else original(n, before, after))


@mutant
def a_closed_gate_keeps_the_older_ones_closed(patch: Patch) -> None:
    """The chain goes by offsets alone, and so in circles."""
    patch.setattr(GateDependency, "closed_by_gate", lambda self, closed: bisect_left(self.ends, closed.begins))


@mutant
def positions_count_before_they_are_acknowledged(patch: Patch) -> None:
    """What a member has done opens its own gates; a crash before the commit repeats the old behind the new."""

    def position(self: Member, q: int) -> int:
        owned = self._owned.get(q)
        if owned is not None:
            return owned.position
        commit = self._others.get(q)
        return 0 if commit is None else commit.offset

    patch.setattr(Member, "gate_position", position)


@mutant
def a_partition_without_a_commit_counts_as_read(patch: Patch) -> None:
    """Nobody has said where the group is: so nothing is waited for."""

    def position(self: Member, q: int) -> int:
        owned = self._owned.get(q)
        if owned is not None:
            return owned.committed or 0
        commit = self._others.get(q)
        return 2**60 if commit is None else commit.offset

    patch.setattr(Member, "gate_position", position)


@mutant
def views_are_judged_by_age_alone(patch: Patch) -> None:
    """Neither hint nor hash makes a reader look at the timeline again."""

    def judged(self: Member, owned: Any, offset: int, row: Any, fetched_at: float) -> bool:
        assert self._timeline is not None
        if self._as_of < fetched_at - self._timeline.view_age_s:
            self._look()
            return False
        return True

    patch.setattr(Member, "_judged", judged)


@mutant
def a_partition_is_given_up_without_a_commit(patch: Patch) -> None:
    """The next owner begins at an older position, and repeats what was done."""

    def give(self: Member) -> None:
        giving, self._giving = self._giving, []
        self._going |= set(giving)
        self._gave(giving)

    patch.setattr(Member, "_give", give)


@mutant
def starts_are_not_clipped(patch: Patch) -> None:
    """A group that begins at the ends begins behind closed gates."""
    patch.setattr(starts, "consistent_starts", lambda gates, offsets, waived=(): dict(offsets))


@mutant
def records_are_judged_by_any_view(patch: Patch) -> None:
    """Neither age, hint nor hash makes a reader look at the timeline again."""
    patch.setattr(Member, "_judged", lambda self, owned, offset, row, fetched_at: True)


@mutant
def all_is_processed_ahead(patch: Patch) -> None:
    """The next owner takes everything below the mark for processed, also what had waited."""
    patch.setattr(Ahead, "covers", lambda self, offset: offset < self.upto)


@mutant
def nothing_is_processed_ahead(patch: Patch) -> None:
    """The next owner does not hear what overtook waiting records."""
    patch.setattr(Ahead, "covers", lambda self, offset: False)
