"""A timeline: what may stand in it, how it grows, and what may follow it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.epochs import ChangePhase, Epoch, Slice
from keyorder.partitioner.errors import IdentityMismatchError, LayoutError, TimelineRegressionError
from keyorder.partitioner.layout import Layout
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.timeline import Timeline, crossings
from support.dumb import dumb_moves, timeline_of

ADOPTED = Timeline("t", "topic-id", "cluster-id", 2, (Epoch(0, 2),))
GROWN = ADOPTED.opened(3, ChangePhase.PLAN).prepared().committed({0: 10}, {2: 0})


def test_the_first_epoch_is_the_adoption() -> None:
    """One epoch without cuts makes a timeline; its layout is in force."""
    assert ADOPTED.newest == Epoch(0, 2)
    assert ADOPTED.layout == Layout(2, 2)
    assert (ADOPTED.last_number, ADOPTED.highest_count, ADOPTED.change) == (0, 2, None)


def test_a_topic_may_be_adopted_above_its_initial_count() -> None:
    """Twelve partitions may come under management with an initial count of 3."""
    adopted = Timeline("t", "i", "c", 3, (Epoch(0, 12),))
    assert adopted.layout == Layout(3, 12)


def test_a_timeline_needs_an_epoch() -> None:
    """Without an epoch there is no layout to route by."""
    with pytest.raises(LayoutError, match="no epoch"):
        Timeline("t", "i", "c", 1, ())


@pytest.mark.kip("K253-09")
@pytest.mark.parametrize(
    ("initial", "epochs"),
    [
        (0, (Epoch(0, 1),)),
        (4, (Epoch(0, 2),)),
        (2, (Epoch(0, 2), Epoch(1, 1, {1: 0}, {0: 0}))),
    ],
)
def test_no_count_lies_below_the_initial_one(initial: int, epochs: tuple[Epoch, ...]) -> None:
    """1 <= initial <= count holds for every epoch, the first one too."""
    with pytest.raises(LayoutError):
        Timeline("t", "i", "c", initial, epochs)


@pytest.mark.parametrize("numbers", [(1, 1), (2, 1)])
def test_epoch_numbers_grow(numbers: tuple[int, int]) -> None:
    """The same number twice, or a lower one after a higher one, is no timeline."""
    with pytest.raises(TimelineRegressionError, match="do not grow"):
        Timeline("t", "i", "c", 1, (Epoch(numbers[0], 1), Epoch(numbers[1], 2, {0: 0}, {1: 0})))


@pytest.mark.kip("K253-07", "K253-27")
@pytest.mark.parametrize(
    ("ends", "begins"),
    [({}, {2: 0}), ({0: 0}, {}), ({1: 0}, {2: 0}), ({0: 0, 1: 0}, {2: 0}), ({0: 0}, {2: 0, 3: 0}), ({0: 0}, {3: 0})],
)
def test_an_epoch_has_exactly_the_cuts_of_its_moves(ends: dict[int, int], begins: dict[int, int]) -> None:
    """A missing cut, one too many, or one of another partition: the epoch is refused."""
    with pytest.raises(TimelineRegressionError, match="lacks cuts"):
        Timeline("t", "i", "c", 2, (Epoch(0, 2), Epoch(1, 3, ends, begins)))


def test_an_absurd_count_is_refused_without_counting_to_it() -> None:
    """A damaged record may name 2**40 partitions: that is an error at once, not an hour of work."""
    with pytest.raises(TimelineRegressionError, match="lacks cuts"):
        Timeline("t", "i", "c", 2, (Epoch(0, 2), Epoch(1, 2**40, {0: 0}, {2: 0})))
    with pytest.raises(TimelineRegressionError, match="lacks cuts"):
        Timeline("t", "i", "c", 2, (Epoch(0, 2**40), Epoch(1, 2, {0: 0}, {2: 0})))


@pytest.mark.kip("K253-25")
def test_a_change_is_planned_prepared_and_committed() -> None:
    """Each step gives a new timeline; the committed one has the attempt's number, count and cuts."""
    planned = ADOPTED.opened(3, ChangePhase.PLAN, attempt=2)
    assert planned.change is not None
    assert (planned.change.epoch, planned.change.count, planned.change.attempt) == (1, 3, 2)
    assert planned.change.phase is ChangePhase.PLAN
    assert planned.layout == ADOPTED.layout
    prepared = planned.prepared()
    assert prepared.change == replace(planned.change, phase=ChangePhase.PREPARE)
    done = prepared.committed({0: 10}, {2: 3}, at_ms=77)
    assert done.newest == Epoch(1, 3, {0: 10}, {2: 3}, 77)
    assert (done.change, done.last_number, done.highest_count) == (None, 1, 3)
    assert ADOPTED.change is None


@pytest.mark.kip("K253-25")
def test_steps_out_of_order_are_refused() -> None:
    """Only a planned change can be prepared, only a prepared one committed."""
    planned = ADOPTED.opened(3, ChangePhase.PLAN)
    for timeline in (ADOPTED, planned.prepared()):
        with pytest.raises(LayoutError, match="only a planned change"):
            timeline.prepared()
    for timeline in (ADOPTED, planned):
        with pytest.raises(LayoutError, match="only a prepared change"):
            timeline.committed({0: 0}, {2: 0})
    with pytest.raises(TimelineRegressionError, match="lacks cuts"):
        planned.prepared().committed({}, {2: 0})


def test_the_cuts_are_copied() -> None:
    """What the caller does with its maps afterwards does not change an epoch."""
    ends = {0: 10}
    done = ADOPTED.opened(3, ChangePhase.PREPARE).committed(ends, {2: 0})
    ends[0] = 99
    assert done.newest.ends == {0: 10}


@pytest.mark.kip("K253-29")
def test_the_number_of_an_attempt_that_was_given_up_is_spent() -> None:
    """It appears nowhere among the epochs, is never used again, and the epoch before the next one is a committed one."""
    aborted = ADOPTED.opened(3, ChangePhase.PLAN).prepared().given_up()
    assert (aborted.epochs, aborted.last_number, aborted.change) == (ADOPTED.epochs, 1, None)
    done = aborted.opened(3, ChangePhase.PLAN).prepared().committed({0: 4}, {2: 0})
    assert [epoch.number for epoch in done.epochs] == [0, 2]
    ADOPTED.check_successor(aborted)
    aborted.check_successor(done)


def test_the_highest_count_is_remembered_after_a_shrink() -> None:
    """Retired partitions may hold records, so they are still to be read."""
    shrunk = GROWN.opened(2, ChangePhase.PLAN).prepared().committed({2: 5}, {0: 12})
    assert (shrunk.layout.count, shrunk.highest_count) == (2, 3)


@pytest.mark.parametrize(
    "newer",
    [
        GROWN,
        GROWN.opened(4, ChangePhase.PLAN),
        GROWN.opened(4, ChangePhase.PLAN).given_up(),
        GROWN.opened(4, ChangePhase.PREPARE).committed({1: 3}, {3: 0}),
        replace(GROWN, ordered=False, view_age_s=5.0, settings={"a": "b"}),
    ],
)
def test_what_may_follow(newer: Timeline) -> None:
    """The same timeline, more epochs, an attempt opened or given up, other settings."""
    GROWN.check_successor(newer)


@pytest.mark.parametrize(
    "newer",
    [
        ADOPTED,
        replace(GROWN, epochs=(GROWN.epochs[0], replace(GROWN.newest, ends={0: 11}))),
        replace(GROWN, epochs=(GROWN.epochs[0], replace(GROWN.newest, begins={2: 1}))),
        replace(GROWN, initial=1, epochs=(Epoch(0, 2), Epoch(1, 3, {0: 10}, {2: 0}))),
    ],
)
def test_a_rewritten_timeline_stops_everything(newer: Timeline) -> None:
    """Epochs that vanished or changed mean that the control topic was lost: nothing is guessed over it."""
    with pytest.raises(TimelineRegressionError, match="went from epoch 1"):
        GROWN.check_successor(newer)


def test_a_spent_number_may_not_come_back() -> None:
    """A READY of an attempt that was given up would count for the next one if numbers were used again."""
    spent = GROWN.opened(4, ChangePhase.PLAN).given_up()
    with pytest.raises(TimelineRegressionError):
        spent.check_successor(GROWN)


@pytest.mark.parametrize("what", ["topic_id", "cluster_id"])
def test_another_topic_or_cluster_stops_everything(what: str) -> None:
    """A topic that was deleted and made again, or a copied control topic, is not this one."""
    other = replace(GROWN, **{what: "another"})
    with pytest.raises(IdentityMismatchError, match="another") as raised:
        GROWN.check_successor(other)
    assert raised.value.what == what
    with pytest.raises(IdentityMismatchError):
        GROWN.check_identity(other.topic_id, other.cluster_id)
    GROWN.check_identity("topic-id", "cluster-id")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 9), max_size=6))
def test_any_row_of_counts_makes_a_timeline(initial: int, more: list[int]) -> None:
    """Growth, shrink or neither: the cuts are those of the moves, every prefix may precede, none may follow."""
    timeline = timeline_of(initial, [(initial + extra, {}, {}) for extra in more])
    for at in range(1, len(timeline.epochs)):
        before, after = timeline.epochs[at - 1], timeline.epochs[at]
        assert set(crossings(initial, before.count, after.count)) == dumb_moves(initial, before.count, after.count)
        prefix = replace(timeline, epochs=timeline.epochs[:at], last_number=timeline.epochs[at - 1].number)
        prefix.check_successor(timeline)
        with pytest.raises(TimelineRegressionError):
            timeline.check_successor(prefix)


def test_a_cleared_partition_is_emptied_and_purged() -> None:
    """KIP-694's None, and a watermark that outlives the drain: a growth uses the partition again, the watermark stays."""
    shrunk = GROWN.opened(2, ChangePhase.PLAN).prepared().committed({2: 30}, {0: 9})

    cleared = shrunk.cleared(2, shrunk.newest.number)

    (drain,) = cleared.drains
    assert (drain.mode, drain.emptied, cleared.purged) == (Mode.NONE, True, {2: 30})
    again = cleared.opened(3, ChangePhase.PLAN).prepared().committed({0: 9}, {2: 33})
    assert (again.drains, again.purged) == ((), {2: 30})
    # Only the generation that was worked on is cleared.
    assert shrunk.cleared(2, shrunk.newest.number - 1) == shrunk
    assert again.cleared(2, shrunk.newest.number) == again


def test_re_homing_moves_no_key_and_commits_no_epoch() -> None:
    """Its attempt has a number of its own and the present count; it can only be given up, which releases."""
    attempt = GROWN.rehoming(Slice(2, 0, 100)).prepared()
    assert attempt.change is not None
    assert (attempt.change.count, attempt.change.epoch) == (GROWN.newest.count, GROWN.last_number + 1)
    with pytest.raises(LayoutError, match="prepared change"):
        attempt.committed({}, {})
    assert attempt.given_up().epochs == GROWN.epochs
