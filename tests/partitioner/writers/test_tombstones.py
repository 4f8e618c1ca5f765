"""Move tombstones go to every earlier home that may still hold a value, oldest last."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.tombstones import beginnings, homes_to_clear
from support.dumb import dumb_home, key_of_hash, timeline_of

KEY_9 = key_of_hash(9, 12)  # home 0 at count 3, 3 at count 6, 9 at count 12


@pytest.mark.kip("K253-64", "C-02", "T-13")
@pytest.mark.parametrize(("log_start", "sent"), [(0, [0]), (99, [0]), (100, []), (101, [])])
def test_it_is_sent_while_something_old_may_be_left(log_start: int, sent: list[int]) -> None:
    """With a cut at 100, a log start of 99 still needs the tombstone; at 100 nothing old is left."""
    timeline = timeline_of(3, [(6, {0: 100, 1: 0, 2: 0}, {3: 0, 4: 0, 5: 0})])
    assert homes_to_clear(timeline, key_of_hash(3, 6), {0: log_start}) == sent


@pytest.mark.kip("K253-63", "C-08", "T-13")
def test_every_earlier_home_is_cleared_the_oldest_last() -> None:
    """A key that went 0, 3, 9 may have its only old value in 0: both get one, and 0 is the last."""
    timeline = timeline_of(3, [(6, dict.fromkeys(range(3), 7), {}), (12, dict.fromkeys(range(6), 8), {})])
    assert homes_to_clear(timeline, KEY_9, {}) == [3, 0]
    assert homes_to_clear(timeline, KEY_9, {0: 0, 3: 8}) == [0]
    assert homes_to_clear(timeline, KEY_9, {0: 7, 3: 7}) == [3]
    assert homes_to_clear(Routing(timeline), KEY_9, {0: 7, 3: 8}) == []


@pytest.mark.kip("C-08")
def test_the_present_home_is_never_cleared() -> None:
    """A key that left and came back has its live value at an earlier home: no tombstone may go there."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0}), (1, {1: 4}, {0: 9})])
    key = key_of_hash(1, 2)
    assert homes_to_clear(timeline, key, {}) == [1]


@pytest.mark.kip("C-08")
def test_a_home_that_was_left_twice_counts_with_its_newest_cut() -> None:
    """0 -> 1 -> 0 -> 1 -> 3: what lies in 0 and 1 below their last cuts may be the key's, so those cuts decide."""
    grow, shrink = {0: 5}, {1: 4}
    timeline = timeline_of(
        1, [(2, grow, {1: 0}), (1, shrink, {0: 9}), (2, {0: 20}, {1: 4}), (4, {0: 21, 1: 30}, {2: 0, 3: 0})]
    )
    key = key_of_hash(3, 4)
    assert homes_to_clear(timeline, key, {0: 6, 1: 5}) == [1, 0]
    assert homes_to_clear(timeline, key, {0: 20, 1: 29}) == [1]


def test_a_key_that_never_moved_needs_none() -> None:
    """No move, no tombstone, whatever the log starts are."""
    timeline = timeline_of(3, [(6, {}, {})])
    assert homes_to_clear(timeline, key_of_hash(0, 6), {}) == []
    assert homes_to_clear(timeline_of(3, []), "any", {}) == []


COUNTS = st.lists(st.integers(1, 12), min_size=0, max_size=6)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(0, 15), st.dictionaries(st.integers(0, 11), st.integers(0, 9)))
def test_it_agrees_with_a_walk_over_all_epochs(counts: list[int], slot: int, log_starts: dict[int, int]) -> None:
    """Exactly the partitions that were the key's home before, are not now, and hold something below their last cut."""
    timeline: Timeline = timeline_of(1, [(count, dict.fromkeys(range(12), 5), {}) for count in counts])
    key = key_of_hash(slot, 16)
    homes = [dumb_home(1, epoch.count, slot) for epoch in timeline.epochs]
    expected = {q for q in homes if q != homes[-1] and log_starts.get(q, 0) < 5}
    found = homes_to_clear(timeline, key, log_starts)
    assert set(found) == expected
    assert sorted(found, key=homes.index, reverse=True) == found


@pytest.mark.kip("C-02")
def test_a_purge_watermark_counts_where_the_log_start_stays() -> None:
    """The higher of the two; a log that is only compacted keeps the start that it had."""
    assert beginnings({0: 0, 1: 9}, {0: 100, 2: 4, 1: 3}) == {0: 100, 1: 9, 2: 4}
    timeline = timeline_of(1, [(2, {0: 100}, {1: 0})])
    key = key_of_hash(1, 2)
    assert homes_to_clear(timeline, key, beginnings({0: 0}, {0: 99})) == [0]
    assert homes_to_clear(timeline, key, beginnings({0: 0}, {0: 100})) == []
