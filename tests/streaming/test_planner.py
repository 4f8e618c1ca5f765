"""The planner against a second, dumb one, and its invariants over random worlds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.modes import Mode
from keyorder.streaming.source.offsets import Place, Range, from_dict, to_dict
from keyorder.streaming.source.planner import Situation, admit, consistent, plan, stuck
from keyorder.streaming.source.tasks import pack, split
from support.dumb import DumbGates, World, timeline_of

COUNTS = st.tuples(st.integers(1, 2), st.lists(st.integers(0, 4), min_size=1, max_size=5)).map(
    lambda shape: [shape[0], *(shape[0] + more for more in shape[1])]
)
Offsets = dict[Place, int]


def seen(world: World, ends: list[int]) -> Situation:
    """The world, as its logs end now."""
    places = {("t", p): end for p, end in enumerate(ends)}
    return Situation(places, dict.fromkeys(places, 0), {"t": world.timeline})


def rows(world: World, start: Offsets, end: Offsets) -> dict[int, list[tuple[int, int]]]:
    """The (key, number) of each partition in a batch."""
    found: dict[int, list[tuple[int, int]]] = {}
    for (topic, p), upto in end.items():
        begin = start.get((topic, p), 0)
        found[p] = [record for record in world.logs[p][begin:upto] if record is not None]
    return found


def check_batch(batch: dict[int, list[tuple[int, int]]], newest: dict[int, int]) -> None:
    """Each key in one partition, and its numbers grow on from earlier batches. `newest` is brought up to date."""
    homes: dict[int, int] = {}
    for partition, records in batch.items():
        for key, number in records:
            assert homes.setdefault(key, partition) == partition, "a key in two partitions of one batch"
            assert number > newest.get(key, 0), "a key's record after a newer one"
            newest[key] = number


@pytest.mark.slow
@pytest.mark.kip("K253-01")
@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(0, 10**9), st.sampled_from([None, 1, 2, 5]), st.booleans())
def test_every_batch_keeps_order_and_everything_arrives(
    counts: list[int], seed: int, limit: int | None, skipped: bool
) -> None:
    """Any history, any limit, ends seen late and one after another: 0 reordered, 0 lost, and the query never hangs."""
    random = Random(seed)
    world = World(random, counts)
    world.remove_some(0.3 if skipped else 0.0)
    full = [len(log) for log in world.logs]
    start: Offsets = {("t", p): 0 for p in range(counts[0])}
    newest: dict[int, int] = {}
    arrived = 0
    while True:
        ends = [random.randint(start.get(("t", p), 0), end) for p, end in enumerate(full)]
        planned = plan(start, seen(world, ends), limit)
        batch = rows(world, start, planned.ends)
        check_batch(batch, newest)
        arrived += sum(map(len, batch.values()))
        if limit is not None:
            taken = sum(end - start.get(place, 0) for place, end in planned.ends.items())
            assert taken <= limit + len(full)
        if planned.ends == start:
            # Nothing in this view; with the whole view there must be something, or all is read.
            planned = plan(start, seen(world, full), limit)
            if planned.ends == start:
                break
            batch = rows(world, start, planned.ends)
            check_batch(batch, newest)
            arrived += sum(map(len, batch.values()))
        start = from_dict(to_dict(planned.ends))

    assert start == {("t", p): end for p, end in enumerate(full)}
    assert arrived == sum(record is not None for log in world.logs for record in log)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(0, 10**9))
def test_without_a_limit_it_ends_where_the_dumb_planner_ends(counts: list[int], seed: int) -> None:
    """Each partition up to its end or its first closed gate; the closed gates name what they wait for."""
    random = Random(seed)
    world = World(random, counts)
    ends = [len(log) for log in world.logs]
    start = {("t", p): random.randint(0, end) for p, end in enumerate(ends)}
    dumb = DumbGates(world.timeline, {p: start["t", p] for p in range(len(ends))}, set())
    expected, waiting = {}, {}
    for p, end in enumerate(ends):
        closed = dumb.first_closed(p)
        expected["t", p] = end if closed is None else max(start["t", p], min(end, closed[0]))
        if closed is not None and closed[0] < end:
            waiting[p] = dumb.blockers((p, closed[1]))
    planned = plan(start, seen(world, ends))

    assert planned.ends == expected
    assert {g.partition: {(q, needed) for q, needed, _ in g.blockers} for g in planned.closed} == waiting


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(0, 10**9), st.sampled_from([None, 1, 3]))
def test_available_now_ends_at_its_targets(counts: list[int], seed: int, limit: int | None) -> None:
    """Targets that were listed at different moments are made consistent; every one is reached, through all gates between."""
    random = Random(seed)
    world = World(random, counts)
    listed = [random.choice(world.ends_seen)[p] if world.ends_seen else 0 for p in range(len(world.logs))]
    targets = consistent({("t", p): end for p, end in enumerate(listed)}, seen(world, listed))
    within = Situation(targets, dict.fromkeys(targets, 0), {"t": world.timeline})
    start: Offsets = {}
    newest: dict[int, int] = {}
    for _ in range(sum(listed) + len(listed) + 2):
        planned = plan(start, within, limit)
        check_batch(rows(world, start, planned.ends), newest)
        if planned.ends == start:
            break
        start = planned.ends

    assert start == targets


def test_a_log_start_counts_as_read() -> None:
    """Retention took the origin's records: nobody will ever read them, and the gate opens."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0})])
    ends = {("t", 0): 8, ("t", 1): 3}
    closed = plan({("t", 0): 2, ("t", 1): 0}, Situation(ends, {("t", 0): 4, ("t", 1): 0}, {"t": timeline}))
    opened = plan({("t", 0): 2, ("t", 1): 0}, Situation(ends, {("t", 0): 5, ("t", 1): 0}, {"t": timeline}))

    assert closed.ends == {("t", 0): 8, ("t", 1): 0}
    assert str(closed.closed[0]) == "epoch 1: from offset 0 on it waits for partition 0 to 5 (at 4)"
    assert opened.ends == {("t", 0): 8, ("t", 1): 3}


@pytest.mark.kip("K694-14", "C-12")
def test_a_partition_with_none_is_read_no_further_than_its_cut() -> None:
    """ReadOnly is read to its end; with None a batch ends at the cut, and one that is past it stays where it is."""
    prepared = timeline_of(1, [], start=2).opened(1, ChangePhase.PLAN).prepared()
    retired = prepared.committed({1: 4}, {0: 9})
    ends = {("t", 0): 9, ("t", 1): 7}

    def planned(mode: Mode, begin: int) -> int:
        """Where a batch of partition 1 ends that begins at `begin`."""
        situation = Situation(ends, dict.fromkeys(ends, 0), {"t": retired.drained(1, mode)})
        return plan({("t", 0): 0, ("t", 1): begin}, situation, None).ends["t", 1]

    assert (planned(Mode.READ_ONLY, 0), planned(Mode.NONE, 0), planned(Mode.NONE, 5)) == (7, 4, 5)


def test_a_waived_gate_is_open() -> None:
    """An operator let it go for this query's group."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0})])
    situation = Situation(
        {("t", 0): 8, ("t", 1): 3}, {("t", 0): 0, ("t", 1): 0}, {"t": timeline}, waived={"t": {(1, 1)}}
    )

    assert plan({("t", 0): 0, ("t", 1): 0}, situation).ends == {("t", 0): 8, ("t", 1): 3}


def test_a_gate_whose_origin_is_not_assigned_is_named() -> None:
    """It would never open; unless the origin's records are gone anyway."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0})])
    here: Offsets = {("t", 1): 3}
    found = stuck(Situation(here, {("t", 1): 0}, {"t": timeline}, outside={("t", 0): 0}), {})

    assert found is not None
    assert found.blockers == ((0, 5, 0),)
    assert stuck(Situation(here, {("t", 1): 0}, {"t": timeline}, outside={("t", 0): 5}), {}) is None


def test_shares_go_to_what_gates_wait_for_first() -> None:
    """Then to all in proportion to their backlog, one record at least."""
    begins: Offsets = {("t", 0): 0, ("t", 1): 0, ("t", 2): 10}
    ends: Offsets = {("t", 0): 100, ("t", 1): 900, ("t", 2): 11}

    assert admit(begins, ends, 100, {}) == {("t", 0): 9, ("t", 1): 89, ("t", 2): 11}
    assert admit(begins, ends, 40, {("t", 0): 60}) == {("t", 0): 40, ("t", 1): 0, ("t", 2): 10}
    assert admit(begins, ends, 100, {("t", 0): 60}) == {("t", 0): 61, ("t", 1): 38, ("t", 2): 11}


def test_small_ranges_share_a_task_and_big_ones_do_not() -> None:
    """In their order, nothing lost."""
    ranges = [Range("t", p, 0, size) for p, size in enumerate([10, 20, 0, 5_000, 30, 30])]

    assert [[r.partition for r in task] for task in pack(ranges, 50)] == [[0, 1], [3], [4], [5]]
    assert [r for task in pack(ranges, 50) for r in task] == [r for r in ranges if r.size]
    assert [[r.partition for r in task] for task in pack(ranges, 0)] == [[0], [1], [3], [4], [5]]


@given(st.lists(st.integers(0, 50), max_size=5), st.integers(1, 20), st.integers(1, 20))
def test_split_ranges_hold_the_same_offsets(sizes: list[int], parts: int, most: int) -> None:
    """Every offset once, no piece above the most, as many pieces as asked for where there is enough."""
    ranges = [Range("t", p, 7, 7 + size) for p, size in enumerate(sizes)]
    for pieces in (split(ranges, parts, None), split(ranges, None, most), split(ranges, parts, most)):
        offsets = sorted((r.partition, o) for r in pieces for o in range(r.start, r.end))
        assert offsets == [(r.partition, o) for r in ranges for o in range(r.start, r.end)]
    assert all(r.size <= most for r in split(ranges, parts, most))
