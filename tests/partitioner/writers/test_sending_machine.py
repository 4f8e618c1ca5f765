"""A writer's side of any row of changes, against plain lists of what was offered, sent and resolved."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.routing import Route
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.fast_path import InFlight
from keyorder.partitioner.writers.sending import Held, TopicSending
from support.dumb import dumb_home, dumb_moves, key_of_hash, timeline_of

START = timeline_of(2, [])


def _prepare(timeline: Timeline, count: int) -> Timeline:
    return timeline.opened(count, ChangePhase.PLAN).prepared()


def _commit(timeline: Timeline) -> Timeline:
    change = timeline.change
    assert change is not None
    moves = dumb_moves(timeline.initial, timeline.newest.count, change.count)
    return timeline.committed({q: 0 for q, _ in moves}, {p: 0 for _, p in moves})


class SendingMachine(RuleBasedStateMachine):
    """Random producers, brokers and controllers against lists: what was offered, what was sent, what is unresolved."""

    SLOTS = (0, 1, 2, 3, 5, 6)

    def __init__(self) -> None:
        super().__init__()
        self.sending: TopicSending[int] = TopicSending(START)
        self.now = 0.0
        self.offered: dict[int, int] = dict.fromkeys(self.SLOTS, 0)
        self.sent: dict[int, int] = dict.fromkeys(self.SLOTS, 0)
        self.waiting: list[tuple[int, int]] = []
        self.on_the_way: list[tuple[InFlight, int, int]] = []  # in_flight, slot, serial
        self.settling: list[tuple[float, int, int]] = []  # until, partition, serial
        self.waited_for: set[int] = set()
        self.said: int | None = None
        self.serial = 0

    # what the dumb side knows
    def _home(self, slot: int) -> int:
        return dumb_home(2, self.sending.timeline.newest.count, slot)

    def _moving(self, slot: int) -> bool:
        change = self.sending.timeline.change
        if change is None or change.phase is not ChangePhase.PREPARE:
            return False
        return dumb_home(2, change.count, slot) != self._home(slot)

    def _send(self, slot: int, record: int) -> None:
        assert not self._moving(slot)
        assert record == self.sent[slot] + 1
        assert self.sending.routing.of(key_of_hash(slot, 8)).home == self._home(slot)
        self.sent[slot] = record
        self.serial += 1
        in_flight = self.sending.in_flight(self._home(slot))
        assert in_flight.partition == self._home(slot)
        in_flight.unresolved += 1
        self.on_the_way.append((in_flight, slot, self.serial))

    @rule(slot=st.sampled_from(SLOTS))
    def produce(self, slot: int) -> None:
        """The application offers the next record of a key."""
        key = key_of_hash(slot, 8)
        self.offered[slot] += 1
        expected = self._moving(slot) or any(s == slot for s, _ in self.waiting)
        assert self.sending.must_wait(key, self.sending.routing.of(key)) == expected
        if expected:
            self.sending.hold(key, self.offered[slot])
            self.waiting.append((slot, self.offered[slot]))
        else:
            self._send(slot, self.offered[slot])

    @rule(room=st.integers(0, 5))
    def release(self, room: int) -> None:
        """The client library has room for so many; then it refuses."""
        taken: list[tuple[int, int]] = []

        def send(held: Held[int], route: Route | None) -> bool:
            if len(taken) == room:
                return False
            (slot,) = [s for s in self.SLOTS if key_of_hash(s, 8) == held.key]
            taken.append((slot, held.record))
            self._send(slot, held.record)
            return True

        may_go = [(slot, record) for slot, record in self.waiting if not self._moving(slot)]
        assert self.sending.release(send) == len(taken)
        assert taken == may_go[:room]
        self.waiting = [entry for entry in self.waiting if entry not in taken]

    @precondition(lambda self: self.on_the_way)
    @rule(which=st.integers(0, 99), timed_out=st.booleans())
    def resolve(self, which: int, timed_out: bool) -> None:
        """The broker answers, or the library gives up on one."""
        in_flight, _, serial = self.on_the_way.pop(which % len(self.on_the_way))
        in_flight.unresolved -= 1
        if timed_out:
            in_flight.settles_at = self.now + 3
            self.settling.append((self.now + 3, in_flight.partition, serial))

    @rule(step=st.sampled_from([1.0, 5.0]))
    def wait(self, step: float) -> None:
        """Time passes."""
        self.now += step
        self.settling = [entry for entry in self.settling if entry[0] > self.now]

    @rule(count=st.integers(2, 6))
    def prepare(self, count: int) -> None:
        """A PREPARE is read; the end of an earlier attempt may never have been."""
        timeline = _prepare(self.sending.timeline.given_up(), count)
        self.sending.apply(timeline)
        origins = {q for q, _ in dumb_moves(2, timeline.newest.count, count)}
        unresolved = [(in_flight.partition, serial) for in_flight, _, serial in self.on_the_way]
        unresolved += [(partition, serial) for _, partition, serial in self.settling]
        self.waited_for |= {serial for partition, serial in unresolved if partition in origins}

    @precondition(lambda self: self.sending.preparing)
    @rule(commits=st.booleans())
    def end(self, commits: bool) -> None:
        """COMMIT or ABORT is read."""
        timeline = self.sending.timeline
        self.sending.apply(_commit(timeline) if commits else timeline.given_up())

    @rule()
    def ask(self) -> None:
        """The session asks whether it may say READY."""
        change = self.sending.timeline.change
        missing = self.waited_for & {
            *(serial for _, _, serial in self.on_the_way),
            *(serial for _, _, serial in self.settling),
        }
        expected = None
        if self.sending.preparing and change is not None and self.said != change.epoch and not missing:
            expected = change.epoch
            assert not any(self._moving(slot) for _, slot, _ in self.on_the_way)
        assert self.sending.ready_epoch(self.now) == expected
        if expected is not None:
            self.sending.said_ready(expected)
            self.said = expected

    @invariant()
    def counts_agree(self) -> None:
        """Held, unresolved and settled are what the lists say; nothing is lost."""
        assert [held.record for held in self.sending.held] == [record for _, record in self.waiting]
        assert self.sending.unresolved() == len(self.on_the_way)
        assert sum(self.offered.values()) == sum(self.sent.values()) + len(self.waiting)


SendingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSendingMachine = SendingMachine.TestCase
TestSendingMachine.__doc__ = "A writer's side of any row of changes agrees with plain lists."
