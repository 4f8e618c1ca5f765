"""A change of the partition count, step by step: what the controller writes, when, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner import change as machine
from keyorder.partitioner.change import (
    Action,
    ChangeMachine,
    ChangeTerms,
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
    Started,
    TimelineVisible,
    WritersLooked,
    WritersRead,
    WriteTimeline,
)
from keyorder.partitioner.errors import CountError, TruncationError, WriterLateError
from keyorder.partitioner.members import WriterSet
from keyorder.partitioner.records import Lease, LeaseState, Ready
from keyorder.partitioner.timeline import ChangePhase, Epoch, Timeline
from support.dumb import timeline_of

START = timeline_of(2, [])
TERMS = ChangeTerms(attempt_deadline=5, max_deadline=20, timeout=120)


class Rig:
    """A machine, its writers' log and a clock. Each step's actions are returned and kept."""

    def __init__(
        self, target: int = 3, timeline: Timeline = START, terms: ChangeTerms = TERMS, wait: bool = False
    ) -> None:
        self.now = 1000.0
        self.timeline = timeline
        self.writers = WriterSet()
        self.offset = 0
        self.log: list[Action] = []
        self.sequences: dict[str, int] = {}
        self.machine = ChangeMachine(target, self.writers, terms, self.now, None if wait else self.now)

    def step(self, event: Event) -> list[Action]:
        actions = self.machine.step(event, self.now)
        self.log += actions
        return actions

    def lease(self, nonce: str, state: LeaseState = LeaseState.LIVE, writer: str = "", **more: Any) -> None:
        """A lease record lands and is read."""
        self.sequences[nonce] = sequence = self.sequences.get(nonce, 0) + 1
        first = LeaseState.JOIN if sequence == 1 and state is LeaseState.LIVE else state
        fields: dict[str, Any] = {"lease_ms": 45_000, "topics": ("t",), **more}
        self.writers.apply(
            Lease(writer or f"w-{nonce}", nonce, first, None, sequence=sequence, **fields), self.offset, self.now
        )
        self.offset += 1

    def ready(self, nonce: str, epoch: int, acknowledged: Mapping[int, int] | None = None, writer: str = "") -> None:
        """A READY lands and is read."""
        self.writers.apply(Ready("t", writer or f"w-{nonce}", nonce, epoch, acknowledged or {}), self.offset, self.now)
        self.offset += 1

    def started(self) -> list[Action]:
        return self.step(Started(self.timeline))

    def visible(self) -> list[Action]:
        """What was written last was read back."""
        written = [action.timeline for action in self.log if isinstance(action, WriteTimeline)]
        self.timeline = written[-1]
        return self.step(TimelineVisible(self.timeline))

    def announced(self) -> list[Action]:
        """PLAN is out and read back, the partitions exist."""
        return [*self.visible(), *self.step(PartitionsReady())]

    def looked(self, ago: float = 0.0) -> list[Action]:
        return self.step(WritersLooked(self.now - ago))

    def read(self, later: float = 0.0) -> list[Action]:
        self.now += later
        return self.step(WritersRead())

    def collecting(self, *nonces: str) -> Rig:
        """Up to COLLECTING with these writers, all of them awake, none READY, the set known."""
        for nonce in nonces:
            self.lease(nonce)
        self.started()
        for nonce in nonces:
            self.lease(nonce)
        self.announced()
        self.visible()
        assert self.machine.phase is Phase.COLLECTING
        self.looked()
        return self

    @property
    def epoch(self) -> int:
        assert self.machine.timeline is not None
        assert self.machine.timeline.change is not None
        return self.machine.timeline.change.epoch


def _only(actions: list[Action], kind: type) -> Any:
    (action,) = actions
    assert isinstance(action, kind), action
    return action


# --- the way through ------------------------------------------------------------------------------------------


@pytest.mark.kip("K253-24", "K253-25", "K253-26", "K253-27", "K253-37")
def test_growth_without_writers() -> None:
    """PLAN and partitions, PREPARE, a look, the cuts, COMMIT: each a record of its own, in this order."""
    rig = Rig(target=4)
    plan, partitions = rig.started()
    assert plan == WriteTimeline(START.opened(4, ChangePhase.PLAN, 1))
    assert partitions == EnsurePartitions(4)
    assert rig.visible() == []
    assert _only(rig.step(PartitionsReady()), WriteTimeline).timeline == START.opened(4, ChangePhase.PLAN, 1).prepared()
    assert _only(rig.visible(), LookAtWriters) == LookAtWriters()
    assert _only(rig.looked(), ReadCuts).partitions == (0, 1, 2, 3)
    commit = _only(rig.step(CutsRead({0: 10, 1: 20, 2: 30, 3: 0}, at_ms=5)), WriteTimeline).timeline
    assert commit.newest == Epoch(1, 4, {0: 10, 1: 20}, {2: 30, 3: 0}, 5)
    assert commit.change is None
    assert _only(rig.visible(), Finish) == Finish(commit, changed=True)
    assert rig.machine.phase is Phase.DONE


@pytest.mark.kip("K253-26", "K253-31", "K694-21")
@pytest.mark.parametrize("nonces", [("a",), ("a", "b", "c")])
def test_a_shrink_with_writers(nonces: tuple[str, ...]) -> None:
    """All that were there at the look have to be READY; the last READY, and only it, leads to the cuts."""
    rig = Rig(target=2, timeline=timeline_of(2, [], start=4)).collecting(*nonces)
    for nonce in nonces[:-1]:
        rig.ready(nonce, rig.epoch, {2: 5})
        assert rig.read() == []
    rig.ready(nonces[-1], rig.epoch)
    assert _only(rig.read(), ReadCuts).partitions == (0, 1, 2, 3)
    commit = _only(rig.step(CutsRead({0: 7, 1: 8, 2: 5, 3: 0}, 1)), WriteTimeline).timeline
    assert (commit.newest.ends, commit.newest.begins) == ({2: 5, 3: 0}, {0: 7, 1: 8})
    assert _only(rig.visible(), Finish).changed


def test_partitions_are_made_up_to_the_highest_count_ever() -> None:
    """A retired partition is used again, never made smaller."""
    shrunk = timeline_of(2, [(8, {}, {}), (3, {}, {})])
    assert EnsurePartitions(8) in Rig(target=4, timeline=shrunk).started()


def test_plan_and_partitions_come_in_any_order() -> None:
    """PREPARE waits for both."""
    rig = Rig()
    rig.started()
    assert rig.step(PartitionsReady()) == []
    assert _only(rig.visible(), WriteTimeline).timeline.change.phase is ChangePhase.PREPARE


@pytest.mark.kip("K253-29")
def test_a_count_that_is_reached_already_is_done() -> None:
    """The same command again: nothing is written."""
    rig = Rig(target=2)
    assert rig.started() == [Finish(START, changed=False)]
    assert rig.machine.phase is Phase.DONE


@pytest.mark.kip("K253-09", "K253-31", "C-15")
def test_a_count_below_the_initial_one_is_refused() -> None:
    """Before anything is written; the text says why."""
    rig = Rig(target=1)
    failed = _only(rig.started(), Fail)
    assert isinstance(failed.error, CountError)
    assert "below its initial 2" in str(failed.error)
    assert rig.machine.phase is Phase.FAILED


@pytest.mark.kip("K253-29")
@pytest.mark.parametrize("phase", list(ChangePhase))
@pytest.mark.parametrize("target", [2, 3, 1])
def test_what_a_killed_controller_left_open_is_given_up_first(phase: ChangePhase, target: int) -> None:
    """Whatever is to be done next: its writers are released; its number stays spent."""
    left = START.opened(4, phase)
    rig = Rig(target=target, timeline=left)
    assert rig.started() == [WriteTimeline(left.given_up())]
    actions = rig.visible()
    if target == 3:
        assert actions[0] == WriteTimeline(left.given_up().opened(3, ChangePhase.PLAN, 1))
        assert actions[0].timeline.change.epoch == 2
    else:
        assert isinstance(actions[0], Finish if target == 2 else Fail)


def test_a_new_controller_waits_before_its_first_change() -> None:
    """It does not know when the last COMMIT was: twice the longest age of a view, from its start on."""
    rig = Rig(wait=True)
    rig.started()
    assert rig.announced() == []
    assert rig.read(later=3.9) == []
    assert _only(rig.read(later=0.1), WriteTimeline).timeline.change.phase is ChangePhase.PREPARE


# --- roll call ------------------------------------------------------------------------------------------------


def test_prepare_waits_until_every_writer_has_answered_the_plan() -> None:
    """A renewal from before the PLAN is no answer. Nobody's records are held meanwhile."""
    rig = Rig()
    rig.lease("a")
    rig.lease("b")
    rig.now += 1
    rig.started()
    rig.lease("a")
    assert rig.announced() == []
    assert rig.machine.late == ("w-b",)
    assert rig.read(later=1) == []
    rig.lease("b")
    assert _only(rig.read(), WriteTimeline).timeline.change.phase is ChangePhase.PREPARE


def test_a_dead_writer_is_expelled_after_a_look_that_began_after_its_leases_end() -> None:
    """Its renewal may be on the way: only a look at the log's end that began when the lease was over proves that it is not."""
    rig = Rig()
    rig.lease("a")
    rig.now += 1
    rig.started()
    assert rig.announced() == []
    assert rig.read(later=43.9) == []
    assert rig.read(later=0.1) == [LookAtWriters()]
    assert rig.read() == []
    assert rig.looked(ago=0.5) == [LookAtWriters()]
    assert rig.looked() == [Expel("a")]
    assert rig.read(later=1) == []
    rig.lease("a", LeaseState.EXPELLED)
    assert _only(rig.read(), WriteTimeline).timeline.change.phase is ChangePhase.PREPARE


def test_a_writer_that_shows_up_during_the_look_stays() -> None:
    """The look finds its renewal: nobody is expelled, and the change goes on with it."""
    rig = Rig()
    rig.lease("a")
    rig.now += 1
    rig.started()
    rig.announced()
    assert rig.read(later=44) == [LookAtWriters()]
    rig.lease("a")
    assert _only(rig.looked(), WriteTimeline).timeline.change.phase is ChangePhase.PREPARE


@pytest.mark.kip("K903-01", "K903-16")
def test_a_restarted_writers_old_join_is_waited_for() -> None:
    """Its dead process may have a request on the wire: the old join holds the change until its own lease is over."""
    rig = Rig()
    rig.lease("old", writer="M")
    rig.now += 10
    rig.lease("new", writer="M")
    rig.started()
    rig.lease("new", writer="M")
    assert rig.announced() == []
    assert rig.read(later=34) == []
    rig.lease("new", writer="M")
    assert rig.read(later=1) == [LookAtWriters()]
    assert rig.looked() == [Expel("old")]
    rig.lease("old", LeaseState.EXPELLED, writer="M")
    assert _only(rig.read(), WriteTimeline).timeline.change.phase is ChangePhase.PREPARE


def test_a_roll_call_that_does_not_end_is_given_up_at_the_timeout() -> None:
    """The PLAN is taken back; the error names who did not answer, and that one may try again."""
    rig = Rig(terms=ChangeTerms(timeout=30))
    rig.lease("a")
    rig.now += 1
    rig.started()
    rig.announced()
    assert rig.read(later=28) == []
    given_up = _only(rig.read(later=1), WriteTimeline).timeline
    assert (given_up.change, given_up.last_number) == (None, 1)
    error = _only(rig.visible(), Fail).error
    assert isinstance(error, WriterLateError)
    assert error.retriable
    assert "w-a" in str(error)
    assert rig.machine.phase is Phase.FAILED


# --- collecting -----------------------------------------------------------------------------------------------


def test_partitions_that_come_after_the_roll_call_was_given_up_change_nothing() -> None:
    """Making them took longer than the whole change was allowed to."""
    rig = Rig(terms=ChangeTerms(timeout=30))
    rig.started()
    rig.visible()
    rig.read(later=30)
    assert rig.step(PartitionsReady()) == []
    assert "(partitions)" in str(_only(rig.visible(), Fail).error)


def test_a_look_that_began_before_prepare_was_read_back_gives_no_set() -> None:
    """A writer that joined in between saw no PREPARE, and would be missed: only a later look counts."""
    rig = Rig()
    rig.started()
    rig.announced()
    rig.now += 1
    rig.visible()
    assert rig.looked(ago=0.5) == []
    rig.lease("late")
    assert rig.looked() == []
    assert rig.machine.phase is Phase.COLLECTING
    rig.ready("late", rig.epoch)
    assert isinstance(_only(rig.read(), ReadCuts), ReadCuts)


def test_a_writer_that_joins_after_the_look_is_not_waited_for() -> None:
    """It reads the PREPARE after its own JOIN, and holds from its first record."""
    rig = Rig().collecting("a")
    rig.lease("b")
    rig.ready("a", rig.epoch)
    assert isinstance(_only(rig.read(), ReadCuts), ReadCuts)


def test_ready_of_an_earlier_attempt_does_not_count() -> None:
    """It was delayed, its attempt was given up, its writer sends again: the next attempt wants its own."""
    rig = Rig().collecting("a")
    first = rig.epoch
    rig.now += 5
    assert _only(rig.read(), WriteTimeline).timeline.change is None
    rig.visible()
    rig.lease("a")
    rig.announced()
    rig.visible()
    rig.looked()
    assert rig.epoch == first + 1
    rig.ready("a", first)
    assert rig.read() == []
    rig.ready("a", first + 1)
    assert isinstance(_only(rig.read(), ReadCuts), ReadCuts)


@pytest.mark.kip("K903-07", "K903-08")
def test_ready_of_a_superseded_join_does_not_count() -> None:
    """The writer restarted after the look: the old READY completes nothing, and the attempt is given up."""
    rig = Rig().collecting("old")
    rig.ready("old", rig.epoch)
    rig.lease("new", writer="w-old")
    assert rig.read() == []
    assert _only(rig.read(later=5), WriteTimeline).timeline.change is None


def test_a_writer_that_leaves_is_not_waited_for() -> None:
    """It leaves with nothing in flight."""
    rig = Rig().collecting("a")
    rig.lease("a", LeaseState.LEFT)
    assert isinstance(_only(rig.read(), ReadCuts), ReadCuts)


@pytest.mark.kip("K253-26")
def test_a_late_writer_costs_an_attempt_and_the_next_has_twice_the_deadline() -> None:
    """5, 10, 20, 20 seconds, each under a new epoch number; at the timeout the change is given up and names the writer."""
    rig = Rig().collecting("a", "b")
    for number, deadline in enumerate((5, 10, 20, 20), 1):
        assert (rig.epoch, rig.machine.attempt) == (number, number)
        rig.ready("a", rig.epoch)
        assert rig.read(later=deadline - 0.1) == []
        given_up = _only(rig.read(later=0.1), WriteTimeline).timeline
        assert (given_up.change, given_up.last_number) == (None, number)
        assert rig.machine.late == ("w-b",)
        plan, _ = rig.visible()
        assert plan.timeline.change.attempt == number + 1
        rig.lease("a")
        rig.lease("b")
        rig.announced()
        rig.visible()
        rig.looked()
    rig.now += 65
    rig.read()
    error = _only(rig.visible(), Fail).error
    assert isinstance(error, WriterLateError)
    assert error.writers == ("w-a", "w-b")


def test_no_look_by_the_deadline_ends_the_attempt_too() -> None:
    """The writers' topic could not be read: the held records are released."""
    rig = Rig()
    rig.started()
    rig.announced()
    rig.visible()
    assert rig.read(later=4.9) == []
    assert _only(rig.read(later=0.1), WriteTimeline).timeline.change is None
    assert rig.machine.late == ("(no look finished)",)


def test_the_deadline_stays_below_every_transactional_writers_timeout() -> None:
    """Held records would outlive their transaction: half its timeout bounds the attempt, however often it was doubled."""
    rig = Rig()
    rig.lease("a", transactional_id="tx", transaction_timeout_ms=4000)
    rig.started()
    rig.lease("a", transactional_id="tx", transaction_timeout_ms=4000)
    rig.announced()
    rig.visible()
    rig.looked()
    assert rig.read(later=1.9) == []
    assert _only(rig.read(later=0.1), WriteTimeline).timeline.change is None


# --- cuts -----------------------------------------------------------------------------------------------------


def _cutting(acknowledged: Mapping[int, int] | None = None) -> Rig:
    rig = Rig().collecting("a")
    rig.ready("a", rig.epoch, acknowledged)
    assert isinstance(_only(rig.read(), ReadCuts), ReadCuts)
    return rig


@pytest.mark.parametrize("mark", [10, 11])
def test_a_cut_at_or_above_what_was_acknowledged_is_taken(mark: int) -> None:
    """The high watermark covers all that writers were told is safe."""
    rig = _cutting({0: 10})
    assert _only(rig.step(CutsRead({0: mark, 2: 0}, 1)), WriteTimeline).timeline.newest.ends == {0: mark}


def test_a_watermark_below_what_was_acknowledged_is_truncation() -> None:
    """Records were lost: the attempt is taken back first, so that nobody's records stay held; then it fails loudly."""
    rig = _cutting({0: 10})
    assert _only(rig.step(CutsRead({0: 9, 2: 0}, 1)), WriteTimeline).timeline.change is None
    error = _only(rig.visible(), Fail).error
    assert isinstance(error, TruncationError)
    assert (error.partition, error.high_watermark, error.acknowledged) == (0, 9, 10)
    assert not error.retriable


def test_cuts_that_come_after_the_deadline_are_not_used() -> None:
    """A new attempt is made; its number is new too."""
    rig = _cutting()
    rig.now += 5
    assert _only(rig.step(CutsRead({0: 10, 2: 0}, 1)), WriteTimeline).timeline.change is None
    assert rig.visible()[0].timeline.change.epoch == 2  # type: ignore[union-attr]


def test_a_leader_that_does_not_answer_ends_the_attempt() -> None:
    """The held records do not wait for it."""
    rig = _cutting()
    assert rig.read(later=4.9) == []
    assert _only(rig.read(later=0.1), WriteTimeline).timeline.change is None


# --- the table ------------------------------------------------------------------------------------------------

EVENTS: tuple[Event, ...] = (
    Started(START),
    TimelineVisible(START),
    PartitionsReady(),
    WritersLooked(0.0),
    WritersRead(),
    CutsRead({}, 0),
)


def _in_phase(phase: Phase) -> Rig:
    """A machine that has come to `phase` by legal steps."""
    if phase is Phase.CLEARING:
        rig = Rig(timeline=START.opened(4, ChangePhase.PREPARE))
        rig.started()
        return rig
    if phase in (Phase.DONE, Phase.FAILED):
        rig = Rig(target=2 if phase is Phase.DONE else 1)
        rig.started()
        return rig
    rig = Rig()
    if phase is Phase.ABORTING:
        rig.collecting("a")
        rig.read(later=5)
    for reached in (
        rig.started,
        rig.announced,
        rig.visible,
        rig.looked,
        lambda: rig.step(CutsRead({0: 0, 2: 0}, 1)),
    ):
        if rig.machine.phase is phase:
            break
        reached()
    return rig


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_that_cannot_happen_is_refused_and_changes_nothing(phase: Phase, event: Event) -> None:
    """Every pair of phase and event: it stands in the table, or it raises and the machine is as it was."""
    rig = _in_phase(phase)
    assert rig.machine.phase is phase
    before = dict(vars(rig.machine))
    if (phase.value, type(event).__name__) in machine.transitions():
        return
    with pytest.raises(IllegalEventError, match=f"{type(event).__name__} in phase {phase.value}"):
        rig.step(event)
    assert vars(rig.machine) == before


@pytest.mark.parametrize("phase", [Phase.CLEARING, Phase.PREPARING, Phase.COMMITTING, Phase.ABORTING])
def test_writers_news_at_other_times_lead_to_nothing(phase: Phase) -> None:
    """They are folded in; while a timeline is on its way out there is nothing to decide."""
    rig = _in_phase(phase)
    before = dict(vars(rig.machine))
    assert rig.read() == rig.looked() == []
    assert vars(rig.machine) == before


def test_nothing_follows_an_end() -> None:
    """DONE and FAILED know no event."""
    assert not [pair for pair in machine.transitions() if pair[0] in ("DONE", "FAILED")]


def test_a_rehearsal_writes_nothing() -> None:
    """The timeline as it would be PREPAREd, under the next number, with whatever is open left out."""
    rehearsed = machine.rehearse(START.opened(5, ChangePhase.PREPARE), 4)
    assert rehearsed.change is not None
    assert (rehearsed.change.epoch, rehearsed.change.count, rehearsed.change.phase) == (2, 4, ChangePhase.PREPARE)
    assert rehearsed.epochs == START.epochs


# --- whatever happens -----------------------------------------------------------------------------------------


def _random_run(seed: int) -> tuple[int, int]:
    """Random news in random order. Asserts at each COMMIT and each EXPEL; returns how many of each there were."""
    random = Random(seed)
    rig = Rig(target=random.choice([3, 4]), terms=ChangeTerms(5, 20, 200), wait=random.random() < 0.3)
    nonces = [("a", "A"), ("b", "B"), ("c", "A")][: random.randint(1, 3)]
    slow = random.choice([0.01, 0.1])
    rig.lease("a", writer="A", lease_ms=15_000)
    pending: list[Action] = rig.started()
    looks: list[float] = []
    prepared_at: float | None = None
    in_sync: set[str] | None = None
    said: dict[str, set[int]] = {nonce: set() for nonce, _ in nonces}
    gone: set[str] = set()
    commits = expulsions = 0
    for _ in range(250):
        if rig.machine.phase in (Phase.DONE, Phase.FAILED):
            break
        rig.now += 6.0 if random.random() < slow else random.choice([0.0, 0.1, 0.2])
        what = random.randrange(9)
        actions: list[Action] = []
        nonce, writer = random.choice(nonces)
        collecting = rig.machine.phase is Phase.COLLECTING
        open_change = rig.machine.timeline.change if rig.machine.timeline else None
        if what <= 1:
            rig.lease(nonce, writer=writer, lease_ms=15_000)
        elif what == 2 and open_change is not None:
            epoch = open_change.epoch - (random.random() < 0.2)
            superseded = nonce == "a" and "c" in rig.sequences
            rig.ready(nonce, epoch, writer=writer)
            if rig.writers.get(nonce) is not None and not superseded:
                said[nonce].add(epoch)
        elif what == 3 and random.random() < 0.1:
            if nonce in rig.sequences:
                rig.lease(nonce, LeaseState.LEFT, writer=writer)
                gone.add(nonce)
        elif what == 4 and looks:
            began = looks.pop(random.randrange(len(looks)))
            if collecting and prepared_at is not None and began >= prepared_at and in_sync is None:
                in_sync = {member.lease.nonce for member in rig.writers.live("t")}
            if (rig.machine.phase.value, "WritersLooked") in machine.transitions():
                actions = rig.step(WritersLooked(began))
        elif what in (5, 8) and pending:
            doing = pending.pop(0)
            if isinstance(doing, WriteTimeline):
                rig.timeline = doing.timeline
                if doing.timeline.change is not None and doing.timeline.change.phase is ChangePhase.PREPARE:
                    prepared_at, in_sync = rig.now, None
                actions = rig.step(TimelineVisible(doing.timeline))
            elif isinstance(doing, EnsurePartitions):
                actions = rig.step(PartitionsReady())
            elif isinstance(doing, LookAtWriters):
                looks.append(rig.now)
            elif isinstance(doing, Expel):
                rig.lease(doing.nonce, LeaseState.EXPELLED, writer=dict(nonces)[doing.nonce])
                gone.add(doing.nonce)
            elif isinstance(doing, ReadCuts) and rig.machine.phase is Phase.CUTTING:
                actions = rig.step(CutsRead(dict.fromkeys(doing.partitions, 9), 1))
        elif what in (6, 7) and rig.machine.phase is not Phase.BEGIN:
            actions = rig.read()
        for action in actions:
            if isinstance(action, Expel):
                expulsions += 1
                member = rig.writers.get(action.nonce)
                assert member is not None
                assert member.ends_at <= rig.now
            if isinstance(action, WriteTimeline) and len(action.timeline.epochs) > len(rig.timeline.epochs):
                commits += 1
                assert in_sync is not None
                epoch = action.timeline.newest.number
                assert all(epoch in said[nonce] or nonce in gone for nonce in in_sync), seed
        pending += actions
    return commits, expulsions


@pytest.mark.kip("K253-26", "K253-29", "K903-08")
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_a_commit_needs_ready_from_the_whole_set_for_exactly_that_epoch(seed: int) -> None:
    """Whatever the order of renewals, READYs, restarts, ends, looks and delays."""
    _random_run(seed)


def test_the_random_runs_reach_what_they_are_for() -> None:
    """They commit, they expel, and some do neither."""
    runs = [_random_run(seed) for seed in range(150)]
    assert sum(commits for commits, _ in runs) > 30
    assert sum(expulsions for _, expulsions in runs) > 3
    assert any(commits == 0 for commits, _ in runs)
