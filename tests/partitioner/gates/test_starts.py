"""Where a group starts: born, migrating from stock clients, or resuming; and what its commits prove."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.errors import GroupResetError, NoOffsetError
from keyorder.partitioner.gates.starts import (
    Commit,
    GroupState,
    check_consistent,
    checked,
    epoch_of,
    flushed_epoch,
    founded,
    initial_offsets,
    metadata_of,
    proven_position,
    state_of,
)
from support.dumb import World, timeline_of

GROWN = timeline_of(1, [(2, {0: 1}, {1: 0})])


def test_metadata_tells_the_flushed_epoch() -> None:
    """Both ways; further fields may follow it one day."""
    assert epoch_of(metadata_of(12)) == 12
    assert epoch_of("ko1:3;more=x") == 3


@pytest.mark.parametrize(
    "metadata", [None, "", "3", "ko1:", "ko1:x", "ko1:-1", "ko2:3", "ko1:\u00b2", "ko1:\u0661", "xko1:3"]
)
def test_other_metadata_proves_nothing(metadata: str | None) -> None:
    """Stock clients and tools write what they like: digits of other scripts too, which must not raise."""
    assert epoch_of(metadata) is None


def test_commits_tell_a_groups_past() -> None:
    """None at all: born now. None of ours: a stock group. One of ours: ours, whatever the others say."""
    assert state_of({}) is GroupState.BIRTH
    assert state_of({0: Commit(5, None)}) is GroupState.MIGRATING
    assert state_of({0: Commit(5, None), 1: Commit(0, 0)}) is GroupState.RESUMING


def test_a_group_is_founded_when_all_first_partitions_have_a_commit() -> None:
    """Later ones are made as they are found, and do not hold it up."""
    timeline = timeline_of(2, [(4, {}, {})])
    assert not founded(timeline, {0: Commit(1, 1), 2: Commit(1, 1)})
    assert founded(timeline, {0: Commit(1, 1), 1: Commit(0, 1)})


@pytest.mark.kip("K253-50")
@pytest.mark.parametrize(("from_latest", "starts"), [(True, {0: 9, 1: 7}), (False, {0: 2, 1: 1})])
def test_a_group_is_born_where_the_policy_says(from_latest: bool, starts: dict[int, int]) -> None:
    """All partitions at once; at their ends as far as these are consistent, or at their starts."""
    assert initial_offsets("g", GROWN, {}, {0: 2, 1: 1}, {0: 9, 1: 7}, from_latest) == starts


def test_without_offsets_and_policy_there_is_no_start() -> None:
    """`auto.offset.reset=error` is obeyed, with the setting's name."""
    with pytest.raises(NoOffsetError, match=r"auto\.offset\.reset"):
        initial_offsets("g", GROWN, {}, {0: 0, 1: 0}, {0: 1, 1: 1}, None)


def test_each_partition_whose_record_was_deleted_is_named() -> None:
    """Commits below the log starts count as none with `auto.offset.reset=error`, and as the log start with another policy."""
    commits = {0: Commit(1, None), 1: Commit(2, None)}
    with pytest.raises(NoOffsetError) as raised:
        initial_offsets("g", GROWN, commits, {0: 2, 1: 3}, {0: 9, 1: 7}, None)
    assert raised.value.partitions == (0, 1)
    assert initial_offsets("g", GROWN, commits, {0: 2, 1: 3}, {0: 9, 1: 7}, False) == {0: 2, 1: 3}


@pytest.mark.kip("C-09")
def test_a_birth_at_the_latest_skips_nothing_in_the_middle() -> None:
    """0 was listed before a record, 1 after the key's next one: 1 begins at its cut."""
    assert initial_offsets("g", GROWN, {}, {0: 0, 1: 0}, {0: 0, 1: 1}, True) == {0: 0, 1: 0}


@pytest.mark.kip("K253-50")
def test_a_stock_group_keeps_its_commits() -> None:
    """First partitions without one follow the policy, later ones begin at their log start: they were made since."""
    timeline = timeline_of(2, [(3, {0: 3}, {2: 0})])
    commits = {0: Commit(4, None)}
    assert initial_offsets("g", timeline, commits, {0: 0, 1: 1, 2: 2}, {0: 9, 1: 9, 2: 9}, True) == {0: 4, 1: 9, 2: 2}


def test_a_stock_groups_latest_partition_skips_nothing_in_the_middle() -> None:
    """2 -> 1 -> with partition 1's records unread: the policy's latest for partition 0 lies behind a closed gate."""
    timeline = timeline_of(1, [(1, {1: 5}, {0: 3})], start=2)
    commits = {1: Commit(4, None)}
    assert initial_offsets("g", timeline, commits, {0: 0, 1: 0}, {0: 9, 1: 5}, True) == {0: 3, 1: 4}
    commits = {1: Commit(5, None)}
    assert initial_offsets("g", timeline, commits, {0: 0, 1: 0}, {0: 9, 1: 5}, True) == {0: 9, 1: 5}


@pytest.mark.parametrize(("offset", "start"), [(0, 3), (3, 3), (5, 5), (9, 9)])
def test_a_commit_below_the_log_start_begins_there(offset: int, start: int) -> None:
    """Never at the end: the records of a generation that began since would be lost."""
    assert checked("g", "t", 0, offset, 3, 9) == start


def test_a_commit_above_the_end_is_an_error() -> None:
    """The broker accepts it; reading on from there would skip records unseen."""
    with pytest.raises(GroupResetError, match="committed at 10, its log ends at 9"):
        checked("g", "t", 0, 10, 3, 9)


@pytest.mark.kip("C-11")
def test_a_lost_commit_of_an_origin_is_an_error() -> None:
    """The group is past the gate, so the origin would be read again, old after new. An origin without records is fine."""
    with pytest.raises(GroupResetError, match="origin 0 has no commit"):
        check_consistent("g", GROWN, {1: Commit(1, 1)})
    check_consistent("g", GROWN, {1: Commit(0, 1)})
    check_consistent("g", GROWN, {0: Commit(0, 1), 1: Commit(1, 1)})
    check_consistent("g", timeline_of(1, [(2, {0: 0}, {1: 0})]), {1: Commit(1, 1)})


@pytest.mark.kip("C-11")
def test_a_commit_that_knew_nothing_of_the_gate_lost_nothing() -> None:
    """1 -> 3 -> 1 while nobody owned the new partitions: 0 went on past the second cut before its view knew of it."""
    timeline = timeline_of(1, [(3, {0: 1}, {1: 0, 2: 0}), (1, {1: 4, 2: 4}, {0: 5})])
    check_consistent("g", timeline, {0: Commit(9, 1)})
    check_consistent("g", timeline, {0: Commit(9, 2), 1: Commit(4, 2), 2: Commit(0, 2)})
    for epoch in (2, None):
        with pytest.raises(GroupResetError, match="origin 1 has no commit"):
            check_consistent("g", timeline, {0: Commit(9, epoch), 2: Commit(4, 2)})


def test_a_position_proves_the_epochs_whose_cuts_it_has_passed() -> None:
    """The newest one with all before it; epochs that did not cut the partition are passed by itself."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0}), (1, {1: 4}, {0: 8}), (2, {0: 9}, {1: 6})])
    assert [flushed_epoch(timeline, 0, position) for position in (4, 5, 8, 9)] == [0, 2, 2, 3]
    assert [flushed_epoch(timeline, 1, position) for position in (3, 4)] == [1, 3]


@pytest.mark.kip("K253-49", "C-11")
def test_a_commit_proves_only_what_was_flushed_before_it() -> None:
    """The offset may have been there before the change was: until the epoch stands in it, it counts as below the cut."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0})])
    assert proven_position(timeline, 0, None) == 0
    assert proven_position(timeline, 0, Commit(5, 0)) == 4
    assert proven_position(timeline, 0, Commit(5, None)) == 4
    assert proven_position(timeline, 0, Commit(3, 0)) == 3
    assert proven_position(timeline, 0, Commit(9, 1)) == 9
    assert proven_position(timeline, 1, Commit(9, 0)) == 9


COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=120, deadline=None)
@given(COUNTS, st.integers(0, 10**9))
def test_no_birth_skips_a_record_in_the_middle(counts: list[int], seed: int) -> None:
    """Ends that were listed while records were written and the count changed: of each key a first part is skipped, no more."""
    random = Random(seed)
    world = World(random, [1, *counts])
    seen = sorted(random.randrange(len(world.ends_seen) + 1) for _ in world.logs)
    ends = {p: world.ends_seen[at - 1][p] if at else 0 for p, at in enumerate(seen)}
    starts = initial_offsets("g", world.timeline, {}, dict.fromkeys(ends, 0), ends, True)
    for places in world.written.values():
        delivered = [offset >= starts[p] for p, offset in places]
        assert delivered == sorted(delivered)
