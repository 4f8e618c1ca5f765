"""An attempt that re-homes values: as a change up to the cuts, then copies; it commits no epoch and moves no key."""

from __future__ import annotations

from dataclasses import replace

from keyorder.partitioner.changes.events import (
    CopySlice,
    CopyTooLate,
    CutsRead,
    Fail,
    Finish,
    LookAtWriters,
    Phase,
    ReadCuts,
    WriteTimeline,
)
from keyorder.partitioner.changes.terms import ChangeTerms
from keyorder.partitioner.epochs import ChangePhase, Slice
from keyorder.partitioner.errors import ChangeLateError, TruncationError
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.timeline import Timeline
from support.change_rig import RETIRED, TERMS, Rig

PIECE = Slice(2, 0, 2**30)


def _rig(timeline: Timeline = RETIRED, terms: ChangeTerms = TERMS) -> Rig:
    return Rig(2, timeline, terms, wait=True, piece=PIECE)


def test_copies_are_made_when_all_writers_hold_the_slice() -> None:
    """PLAN, PREPARE, READY of everybody, the home's end, then the copies and the release in one."""
    rig = _rig().collecting("a", "b")
    assert rig.machine.timeline is not None
    assert rig.machine.timeline.change is not None
    assert (rig.machine.timeline.change.slice, rig.machine.timeline.change.phase) == (PIECE, ChangePhase.PREPARE)
    rig.ready("a", rig.epoch)
    assert rig.read() == []
    rig.ready("b", rig.epoch, {0: 40})
    assert rig.read() == [ReadCuts((0,))]

    (copy,) = rig.step(CutsRead({0: 41}, 1))

    assert isinstance(copy, CopySlice)
    assert (copy.piece, copy.marks) == (PIECE, {0: 41})
    assert copy.timeline == replace(RETIRED, last_number=RETIRED.last_number + 1)
    rig.log.append(WriteTimeline(copy.timeline))
    assert rig.visible() == [Finish(copy.timeline, changed=True)]


def test_what_copies_cannot_be_proven_by_is_not_written() -> None:
    """A home whose end lies below what a writer has had acknowledged has lost records: nothing is copied."""
    rig = _rig().collecting("a")
    rig.ready("a", rig.epoch, {0: 50})
    rig.read()
    (given_up,) = rig.step(CutsRead({0: 49}, 1))
    assert isinstance(given_up, WriteTimeline)
    (failed,) = rig.visible()
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, TruncationError)


def test_a_slice_that_is_late_is_tried_again_with_more_time_and_then_given_up() -> None:
    """Held records do not wait for ever: the attempt is released, and when all time is over that is an error."""
    rig = _rig(terms=ChangeTerms(5, 20, 30)).collecting("a")
    deadlines = []
    while rig.machine.phase is not Phase.FAILED:
        rig.ready("a", rig.epoch)
        rig.read()
        (copy,) = rig.step(CutsRead({0: 20}, 1))
        assert isinstance(copy, CopySlice)
        deadlines.append(copy.deadline - rig.now)
        rig.now = copy.deadline
        rig.step(CopyTooLate())
        rig.lease("a")
        after = rig.visible()
        if rig.machine.phase is not Phase.FAILED:
            rig.lease("a")
            rig.announced()
            assert rig.visible() == [LookAtWriters()]
            rig.looked()
    assert deadlines == [5, 10, 20]
    (failed,) = after
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, ChangeLateError)
    assert failed.error.awaited == "the values of a slice could not be read in time"


def test_a_growth_that_uses_the_partition_again_calls_it_off() -> None:
    """Its values belong to a live partition then; the same when it was emptied already."""
    again = RETIRED.opened(3, ChangePhase.PLAN).prepared().committed({0: 50}, {2: 60})
    assert Rig(3, again, piece=PIECE).started() == [Finish(again, changed=False)]
    emptied = RETIRED.drained(2, Mode.NONE, emptied=True)
    assert _rig(emptied).started() == [Finish(emptied, changed=False)]


def test_what_a_killed_re_homing_left_open_is_given_up_by_any_controller() -> None:
    """The next growth, shrink or re-homing releases what writers hold for it, and begins its own attempt."""
    left = RETIRED.rehoming(PIECE).prepared()
    rig = Rig(3, left)
    assert rig.started() == [WriteTimeline(left.given_up())]
    (planned, _) = rig.visible()
    assert isinstance(planned, WriteTimeline)
    assert planned.timeline.change is not None
    assert (planned.timeline.change.count, planned.timeline.change.slice) == (3, None)
