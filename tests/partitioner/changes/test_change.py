"""A change of the partition count, step by step: what the controller writes, when, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from keyorder.partitioner.changes.change import ChangeMachine
from keyorder.partitioner.changes.events import (
    Action,
    CutsRead,
    EnsurePartitions,
    Expel,
    Fail,
    Finish,
    LookAtWriters,
    PartitionsReady,
    Phase,
    ReadCuts,
    Started,
    WriteTimeline,
)
from keyorder.partitioner.changes.terms import ChangeTerms
from keyorder.partitioner.epochs import ChangePhase, Epoch
from keyorder.partitioner.errors import (
    ChangeLateError,
    CountError,
    TimelineTooLargeError,
    TruncationError,
    WriterLateError,
)
from keyorder.partitioner.records.control_records import LeaseState
from keyorder.partitioner.writers.members import WriterSet
from support.change_rig import RETIRED, START, Rig
from support.dumb import timeline_of


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
    assert partitions == EnsurePartitions(4, (0, 1, 2, 3))
    assert rig.visible() == []
    prepared = START.opened(4, ChangePhase.PLAN, 1).prepared(deadline_ms=5_000)
    assert _only(rig.step(PartitionsReady()), WriteTimeline).timeline == prepared
    assert _only(rig.visible(), LookAtWriters) == LookAtWriters()
    rig.now += 0.03
    assert _only(rig.looked(), ReadCuts).partitions == (0, 1, 2, 3)
    commit = _only(rig.step(CutsRead({0: 10, 1: 20, 2: 30, 3: 0}, at_ms=5)), WriteTimeline).timeline
    assert commit.newest == Epoch(1, 4, {0: 10, 1: 20}, {2: 30, 3: 0}, 5, held_ms=30)
    assert commit.change is None
    assert _only(rig.visible(), Finish) == Finish(commit, changed=True)
    assert rig.machine.phase is Phase.DONE


@pytest.mark.kip("K253-26", "K253-31", "K253-57", "K694-21")
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
    assert EnsurePartitions(8, (1, 3)) in Rig(target=4, timeline=shrunk).started()


@pytest.mark.kip("K253-25")
def test_plan_and_partitions_come_in_any_order() -> None:
    """PREPARE waits for both."""
    rig = Rig()
    rig.started()
    assert rig.step(PartitionsReady()) == []
    assert _only(rig.visible(), WriteTimeline).timeline.change.phase is ChangePhase.PREPARE


@pytest.mark.kip("K253-02", "K253-67")
@pytest.mark.parametrize(("target", "left"), [(3, []), (4, [])])
def test_a_topic_grows_while_retired_partitions_hold_records(target: int, left: list[int]) -> None:
    """2 -> 3 -> 2 with partition 2 not emptied: the growth commits, and a partition in use is no longer to be emptied."""
    rig = Rig(target=target, timeline=RETIRED)
    assert [d.partition for d in RETIRED.drains] == [2]
    rig.started()
    rig.announced()
    rig.visible()
    rig.looked()
    commit = _only(rig.step(CutsRead(dict.fromkeys(range(target), 40), 1)), WriteTimeline).timeline
    assert (commit.newest.count, [d.partition for d in commit.drains]) == (target, left)


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
    """Making them took longer than the whole change was allowed to: that is named, and no writer is."""
    rig = Rig(terms=ChangeTerms(timeout=30))
    rig.started()
    rig.visible()
    rig.read(later=30)
    assert rig.step(PartitionsReady()) == []
    error = _only(rig.visible(), Fail).error
    assert isinstance(error, ChangeLateError)
    assert error.writers == ()
    assert error.awaited == "the new partitions have no leaders that answer"


@pytest.mark.kip("K903-06")
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


@pytest.mark.kip("K903-17")
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


@pytest.mark.kip("K903-07", "K903-08", "K903-06")
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
    assert rig.machine.late == ()


def test_what_kept_the_last_attempt_is_named_when_all_time_is_over() -> None:
    """Leaders that do not tell their ends, and no writer: each attempt is given up, and at last the change."""
    rig = Rig(terms=ChangeTerms(5, 20, 12)).collecting("a")
    rig.ready("a", rig.epoch)
    rig.read()
    assert rig.machine.phase is Phase.CUTTING
    assert _only(rig.read(later=5), WriteTimeline).timeline.change is None
    rig.lease("a")
    rig.visible()
    rig.lease("a")
    rig.announced()
    rig.visible()
    rig.looked()
    rig.ready("a", rig.epoch)
    rig.read()
    rig.read(later=10)
    error = _only(rig.visible(), Fail).error
    assert isinstance(error, ChangeLateError)
    assert error.writers == ()
    assert error.awaited == "a leader of the partitions that keys leave or enter does not answer"


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


def test_a_record_that_would_be_too_large_is_refused_before_anything_is_written() -> None:
    """The size of the COMMIT that would follow is known before PREPARE, and before the first partition is made."""
    machine = ChangeMachine(500, WriterSet(), ChangeTerms(), 0.0, 0.0, record_limit=2_000)

    (action,) = machine.step(Started(START), 0.0)

    assert isinstance(action, Fail)
    assert isinstance(action.error, TimelineTooLargeError)
    assert machine.phase is Phase.FAILED
    fits = ChangeMachine(500, WriterSet(), ChangeTerms(), 0.0, 0.0, record_limit=40_000)
    assert [type(a) for a in fits.step(Started(START), 0.0)] == [WriteTimeline, EnsurePartitions]
