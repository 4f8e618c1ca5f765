"""Readers and starting groups that obey the gates never reorder a key, never skip one's middle and never get stuck."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.gates.gate import Gate, GateDependency, Gates, Opened, consistent_starts
from support.dumb import World, timeline_of


class _NoChain(Opened):
    """The gate without its second line."""

    def _kept_closed(self, dependency: GateDependency, gate: Gate) -> int:
        return len(dependency.epochs)


class _Stuck(AssertionError):
    """Records are left and no partition may be read."""


class _Reordered(AssertionError):
    """A key's record came after a newer one of it."""


def _read(world: World, random: Random, look: type[Opened] = Opened, crashes: int = 0) -> list[tuple[int, int]]:
    """Deliver all that is left, partitions in any order, each up to its first closed gate; (key, number) as delivered.

    Positions are committed late, and a crash goes back to them. A partition is read to its end in one go or record by
    record, as the dice say.
    """
    gates = Gates(world.timeline)
    position = [0] * len(world.logs)
    committed = [0] * len(world.logs)
    delivered: list[tuple[int, int]] = []
    newest: dict[int, int] = {}
    while any(at < len(log) for at, log in zip(position, world.logs, strict=True)):
        if crashes and random.random() < 0.1:
            crashes -= 1
            position = committed.copy()
            newest.clear()
        behind = [p for p, log in enumerate(world.logs) if position[p] < len(log)]
        readable = {}
        opened = look(gates, committed.__getitem__)
        for p in behind:
            closed = opened.first_closed(p)
            upto = len(world.logs[p]) if closed is None else min(closed.begins, len(world.logs[p]))
            if upto > position[p]:
                readable[p] = upto
        if not readable and committed == position:
            raise _Stuck
        if readable and (committed == position or random.random() < 0.7):
            p = random.choice(sorted(readable))
            for _ in range(random.randint(1, readable[p] - position[p])):
                record = world.logs[p][position[p]]
                position[p] += 1
                if record is not None:
                    key, number = record
                    if newest.get(key, 0) > number:
                        raise _Reordered((key, number))
                    newest[key] = number
                    delivered.append(record)
        else:
            p = random.randrange(len(world.logs))
            committed[p] = max(committed[p], random.randint(committed[p], position[p]))
    return delivered


COUNTS = st.tuples(st.integers(1, 2), st.lists(st.integers(0, 4), min_size=1, max_size=5)).map(
    lambda shape: [shape[0], *(shape[0] + more for more in shape[1])]
)


@pytest.mark.slow
@pytest.mark.kip("K253-01", "K253-54", "K253-59", "K253-30", "K253-35", "K253-33")
@settings(max_examples=400, deadline=None)
@given(COUNTS, st.integers(0, 10**9), st.sampled_from([0.0, 0.0, 0.3, 0.7]))
def test_no_key_is_reordered_and_everything_arrives(counts: list[int], seed: int, removed: float) -> None:
    """Any counts, any history, any order of reading, any records removed: each key comes in order, all of it."""
    random = Random(seed)
    world = World(random, counts)
    world.remove_some(removed)
    left = {record for log in world.logs for record in log if record is not None}
    delivered = _read(world, random)
    assert len(delivered) == len(left)
    assert set(delivered) == left


@pytest.mark.kip("C-10")
@settings(max_examples=120, deadline=None)
@given(COUNTS, st.integers(0, 10**9))
def test_after_crashes_the_last_delivery_of_a_key_is_its_newest(counts: list[int], seed: int) -> None:
    """Readers that crash read again from what was committed: the application's last word on a key is never an old one."""
    random = Random(seed)
    world = World(random, counts)
    last = dict(_read(world, random, crashes=3))
    assert last == {key: len(places) for key, places in world.written.items() if places}


def _first_reorder(look: type[Opened], worlds: int) -> int | None:
    """The first of so many random worlds in which some reader reorders a key."""
    for seed in range(worlds):
        random = Random(seed)
        world = World(random, [1, *(random.randint(1, 4) for _ in range(3))], keys=2, writes=2)
        try:
            _read(world, random, look)
        except _Reordered:
            return seed
    return None


def test_the_chain_is_needed() -> None:
    """Without it the same readers reorder a key somewhere among a few hundred worlds; with it nowhere among them."""
    assert _first_reorder(_NoChain, 400) is not None
    assert _first_reorder(Opened, 400) is None


def test_starts_that_were_listed_one_after_another_are_clipped() -> None:
    """End of 0 listed; a record to 0; the change; the key's next record to 1; end of 1 listed: 1 goes back to its cut."""
    timeline = timeline_of(1, [(2, {0: 1}, {1: 0})])
    gates = Gates(timeline)
    assert consistent_starts(gates, {0: 0, 1: 1}) == {0: 0, 1: 0}
    assert consistent_starts(gates, {0: 1, 1: 1}) == {0: 1, 1: 1}
    assert consistent_starts(gates, {0: 0, 1: 1}, waived=[(1, 1)]) == {0: 0, 1: 1}


def test_a_clip_closes_what_waits_for_it() -> None:
    """Once partition 1 goes back, partition 3, whose keys came from there, goes back too."""
    timeline = timeline_of(1, [(2, {0: 1}, {1: 0}), (4, {0: 1, 1: 1}, {2: 0, 3: 0})])
    starts = {0: 0, 1: 1, 2: 5, 3: 5}
    assert consistent_starts(Gates(timeline), starts) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert starts == {0: 0, 1: 1, 2: 5, 3: 5}


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(COUNTS, st.integers(0, 10**9), st.booleans())
def test_consistent_starts_skip_no_record_in_the_middle(counts: list[int], seed: int, by_time: bool) -> None:
    """Whatever the starts: of every key a first part is skipped and all the rest delivered, never a gap; none is raised."""
    random = Random(seed)
    world = World(random, counts)
    starts = {}
    for p, log in enumerate(world.logs):
        seen = random.choice(world.ends_seen)[p] if by_time and world.ends_seen else random.randint(0, len(log))
        starts[p] = seen
    clipped = consistent_starts(Gates(world.timeline), starts)
    assert all(clipped[p] <= starts[p] for p in starts)
    for places in world.written.values():
        delivered = [offset >= clipped[p] for p, offset in places]
        assert delivered == sorted(delivered)
    assert consistent_starts(Gates(world.timeline), clipped) == clipped
