"""Folding: epochs leave the timeline when nothing of them is left to wait for, and nothing that is left changes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.epochs import ChangePhase, Epoch, Folded
from keyorder.partitioner.errors import TimelineRegressionError
from keyorder.partitioner.folding import FOLD_AFTER_S, folded, origins_to_fold
from keyorder.partitioner.gates.gate import Gates, consistent_starts
from keyorder.partitioner.gates.starts import Commit, flushed_epoch, founded, initial_offsets, proven_position
from keyorder.partitioner.records.control_records import encode_timeline
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline
from support.dumb import World, key_of_hash, timeline_of

# 2 -> 3 -> 4 -> 2, each partition cut at a round number.
LONG = timeline_of(2, [(3, {0: 10}, {2: 0}), (4, {1: 20}, {3: 0}), (2, {2: 30, 3: 40}, {0: 50, 1: 60})])
ALL_GONE = {0: 50, 1: 60, 2: 30, 3: 40}
LATER = FOLD_AFTER_S * 1000


def aged(timeline: Timeline, log_starts: dict[int, int]) -> Timeline:
    """Noted at one look, folded at another one late enough."""
    return folded(folded(timeline, log_starts, 1_000), log_starts, 1_000 + LATER)


def test_what_is_over_is_noted_first_and_folds_later() -> None:
    """One look notes the epochs whose origins hold nothing below their cuts; they stay, gated, until the time is over."""
    noted = folded(LONG, {0: 10, 1: 20, 2: 29, 3: 40}, 1_000)

    assert (noted.epochs, noted.foldable) == (LONG.epochs, {1: 1_000, 2: 1_000})
    assert folded(noted, ALL_GONE, 999 + LATER).epochs == LONG.epochs
    done = folded(noted, ALL_GONE, 1_000 + LATER)
    assert [e.number for e in done.epochs] == [2, 3]
    assert (done.epochs[0].ends, done.epochs[0].begins, done.epochs[0].count) == ({}, {}, 4)
    assert done.epochs[1] is LONG.epochs[3]
    assert done.foldable == {3: 1_000 + LATER}
    assert done.folded == Folded(2, 4)


def test_an_epoch_folds_behind_all_older_ones() -> None:
    """The second epoch's origin is empty, the first's is not: nothing folds, and nothing is noted."""
    assert folded(LONG, {0: 9, 1: 20, 2: 30, 3: 40}, 1_000) == LONG
    assert folded(LONG, {1: 20}, 1_000) == LONG
    # Two controllers' clocks noted them: the older epoch bears the later note, and both wait for it.
    noted = replace(LONG, foldable={1: 5_000, 2: 1_000})
    assert folded(noted, ALL_GONE, 1_000 + LATER).epochs == LONG.epochs
    assert [e.number for e in folded(noted, ALL_GONE, 5_000 + LATER).epochs] == [2, 3]


def test_a_clock_that_went_back_waits_longer() -> None:
    """A note from the future counts from now, and a log start that fell takes the note away."""
    noted = folded(LONG, ALL_GONE, 10 * LATER)
    again = folded(noted, ALL_GONE, 1_000)
    assert again.foldable == {1: 1_000, 2: 1_000, 3: 1_000}
    assert folded(again, {**ALL_GONE, 0: 9}, 2_000).foldable == {}


def test_everything_may_fold() -> None:
    """Then one epoch is left, and the topic is as one that was adopted at that count; it knows how large it was."""
    done = aged(LONG, ALL_GONE)

    assert [(e.number, e.count) for e in done.epochs] == [(3, 2)]
    assert (done.layout, done.highest_count, done.first_count, done.last_number) == (LONG.layout, 4, 2, 3)
    assert list(Gates(done).all()) == []
    assert origins_to_fold(done) == frozenset()
    grown = done.opened(5, ChangePhase.PLAN).prepared().committed({0: 70, 1: 80}, {2: 30, 3: 40, 4: 0})
    assert (grown.newest.number, grown.highest_count, grown.first_count) == (4, 5, 2)


@pytest.mark.parametrize("known", [LONG, folded(LONG, ALL_GONE, 1_000), LONG.folded_to(1), LONG.folded_to(2)])
def test_a_folded_timeline_is_no_regression(known: Timeline) -> None:
    """A reader or writer that holds an older one goes on with it; also one that knows nothing of what is left."""
    done = LONG.folded_to(2)
    known.check_successor(done)
    known.check_successor(LONG.folded_to(3))
    grown = LONG.folded_to(3).opened(3, ChangePhase.PLAN).prepared().committed({0: 90}, {2: 30})
    known.check_successor(grown)
    known.check_successor(grown.folded_to(4))


@pytest.mark.parametrize(
    "newer",
    [
        LONG,  # unfolded again
        replace(LONG.folded_to(3), folded=Folded(4, 4)),  # another adoption
        replace(LONG.folded_to(2), epochs=(replace(LONG.epochs[2], ends={}, begins={}, count=3),)),
        replace(LONG.folded_to(3), epochs=(Epoch(3, 3),)),
        replace(LONG, epochs=LONG.epochs[:1], last_number=3),
        replace(LONG.folded_to(2), folded=None),
    ],
)
def test_epochs_that_vanish_otherwise_are_a_regression(newer: Timeline) -> None:
    """What both list has to be the same, and only the oldest may be missing."""
    with pytest.raises(TimelineRegressionError):
        LONG.folded_to(2).check_successor(newer)


def test_a_group_is_founded_by_the_count_at_adoption() -> None:
    """A group that was made under two partitions has two commits for sure; folding to four asks for no more of it."""
    done = timeline_of(2, [(3, {0: 10}, {2: 0}), (4, {1: 20}, {3: 0})]).folded_to(2)
    commits = {0: Commit(100, 0), 1: Commit(100, 0)}
    logs = dict.fromkeys(range(4), 50)

    assert founded(done, commits)
    stock = {0: Commit(60, None)}
    ends = dict.fromkeys(range(4), 500)
    assert initial_offsets("g", done, stock, logs, ends, True) == {0: 60, 1: 500, 2: 50, 3: 50}


def test_what_commits_prove_counts_from_the_base() -> None:
    """A commit of a folded epoch proves what is left as far as it did."""
    done = LONG.folded_to(2)
    assert flushed_epoch(done, 2, 29) == 2
    assert flushed_epoch(done, 2, 30) == 3
    assert proven_position(done, 2, Commit(35, 1)) == proven_position(LONG, 2, Commit(35, 1)) == 29
    assert proven_position(done, 0, Commit(55, 0)) == 55


@given(seed=st.integers(0, 2**32), data=st.data())
def test_whoever_reads_what_is_left_sees_no_difference(seed: int, data: st.DataObject) -> None:
    """Random topics, retention and folding: homes, misplaced records, open gates and starts are those of the whole timeline."""
    random = Random(seed)
    counts = [2, *random.choices(range(2, 9), k=random.randint(1, 5))]
    counts = [c for at, c in enumerate(counts) if at == 0 or c != counts[at - 1]]
    world = World(random, counts)
    whole = world.timeline
    starts = {p: data.draw(st.integers(0, len(log))) for p, log in enumerate(world.logs)}
    done = aged(whole, starts)

    gone = [e for e in whole.epochs[1:] if e.number <= done.epochs[0].number]
    assert all(starts[q] >= end for e in gone for q, end in e.ends.items())
    routes, left = Routing(whole), Routing(done)
    for slot in range(routes.period):
        key = key_of_hash(slot, routes.period)
        assert left.of(key).home == routes.of(key).home
        kept = tuple(m for m in routes.of(key).moves if m.epoch > done.epochs[0].number)
        assert left.of(key).moves == kept
        for p, log in enumerate(world.logs):
            for offset in range(starts[p], len(log) + 1):
                if left.is_stray(key, p, offset):
                    assert routes.is_stray(key, p, offset)
    for key in world.keys:
        for p, log in enumerate(world.logs):
            for offset in range(starts[p], len(log)):
                if log[offset] is not None and log[offset][0] == key:
                    assert not left.is_stray(key_of_hash(key, routes.period), p, offset)
    positions = {p: data.draw(st.integers(starts[p], len(log))) for p, log in enumerate(world.logs)}
    of_all, of_left = (Gates(t).open_now(positions.__getitem__) for t in (whole, done))
    still = {(g.partition, g.epoch) for g in Gates(done).all()}
    for gate in Gates(whole).all():
        if (gate.partition, gate.epoch) in still:
            assert of_left.is_open(gate) == of_all.is_open(gate)
        else:
            assert of_all.is_open(gate)
            assert of_left.is_open(gate)
    assert consistent_starts(Gates(done), positions) == consistent_starts(Gates(whole), positions)


def test_a_timeline_that_folds_stays_short_however_often_it_changes() -> None:
    """A thousand changes six hours apart, records kept for three days: each follows the one before, and none grows."""
    timeline, sizes = timeline_of(2, []), []
    for number in range(1, 1_001):
        count = 4 if timeline.newest.count == 2 else 2
        prepared = timeline.opened(count, ChangePhase.PLAN).prepared()
        cut = number * 100
        ends, begins = ((0, 1), (2, 3)) if count == 4 else ((2, 3), (0, 1))
        after = prepared.committed(dict.fromkeys(ends, cut), dict.fromkeys(begins, cut))
        after = folded(after, dict.fromkeys(range(4), max(0, cut - 1_200)), number * 6 * 3_600_000)
        timeline.check_successor(after)
        timeline = after
        sizes.append(len(encode_timeline(timeline)))

    # Twelve changes until the records are gone, and five of a day more.
    assert len(timeline.epochs) <= 12 + 5 + 2
    assert max(sizes[500:]) <= max(sizes[:100]) + 100
    assert (timeline.newest.number, timeline.first_count, timeline.highest_count) == (1_000, 2, 4)
