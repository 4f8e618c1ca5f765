"""What a retired partition still holds under a version strategy: against a dumb replay of everything that was ever written."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.changes.rehoming import Fate, Survivors
from keyorder.partitioner.changes.rehoming_by_version import RankedSurvivors
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.hashing import key_hash
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.version_order import ABSENT
from support.dumb import World, dumb_home, key_of_hash

CHAINS = [(1, 2, 1), (2, 4, 2), (1, 2, 4, 1), (1, 2, 4, 2), (1, 2, 1, 2, 1), (2, 3, 6, 4, 2), (1, 4, 2, 3, 1)]
# (partition, offset, key, version, value, is a move tombstone)
Record = tuple[int, int, int, int, bytes | None, bool]


def history(world: World, random: Random) -> list[Record]:
    """The world's records with versions, in time; move tombstones at the end of homes that keys have left."""
    found: list[Record] = []
    for key, row in world.written.items():
        for p, offset in row:
            value = None if random.random() < 0.25 else b"v"
            found.append((p, offset, key, random.choice([ABSENT, 1, 2, 3]), value, False))
        for p in {p for p, _ in row} - {world.home(key)}:
            if random.random() < 0.4:
                found.append((p, len(world.logs[p]), key, 0, None, True))
                world.logs[p].append((key, -1))
    return found


def dumb_fate(records: list[Record], partition: int) -> tuple[Fate, int] | None:
    """By looking at all records of one key, in the order of time."""
    cleared = {p for p, _, _, _, _, moved in records if moved}
    # A move tombstone is the last record of its partition here.
    versions = [r for r in records if not r[5] and (r[0] == partition or r[0] not in cleared)]
    here = [r for r in versions if r[0] == partition]
    if not here:
        return None
    ranked = sorted(range(len(versions)), key=lambda i: (versions[i][3], i))
    best = next(versions[i] for i in reversed(ranked) if versions[i][0] == partition)
    winner = versions[ranked[-1]]
    holds_a_value = partition not in cleared and here[-1][4] is not None
    if winner is best and (winner[4] is not None or len(here) < len(versions)):
        return Fate.COPY, best[1]
    return (Fate.CLEAR, best[1]) if holds_a_value else None


def noted(timeline: Timeline, partition: int, records: list[Record], period: int) -> RankedSurvivors:
    """All of the partition, then of the others, read as an adapter would."""
    survivors = RankedSurvivors(timeline, partition)
    kept: dict[bytes, int] = {}
    for p, since in [(partition, 0), *survivors.later().items()]:
        for _, offset, slot, version, value, moved in sorted(r for r in records if r[0] == p and r[1] >= since):
            key = key_of_hash(slot, period)
            hint = survivors._routing.of(key).hint if moved else None
            if survivors.note(p, offset, key, None if value is None else 5, hint, version):
                kept[key] = offset
    fates = survivors.fates(list(kept), ())
    assert all(kept[key] == offset for key, (_, offset) in fates.items())  # what was kept is what would be copied
    return survivors


@pytest.mark.kip("C-19", "C-22", "K280-08")
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(CHAINS))
def test_a_version_is_copied_exactly_when_it_is_its_keys_highest(seed: int, counts: tuple[int, ...]) -> None:
    """Wherever the key has lived, however often it was here, over values and deletions."""
    random = Random(seed)
    world = World(random, counts, keys=4, writes=4)
    records = history(world, random)
    period = Survivors(world.timeline, 0)._routing.period
    for partition in range(world.timeline.newest.count, world.timeline.highest_count):
        survivors = noted(world.timeline, partition, records, period)
        pending = 0
        for slot in world.written:
            mine = [r for r in records if r[2] == slot]
            key, expected = key_of_hash(slot, period), dumb_fate(mine, partition)
            assert survivors.fates([key], ()).get(key) == expected, (mine, partition, world.timeline)
            pending += expected is not None
            if expected is not None and expected[0] is Fate.COPY:
                assert survivors.fates([key], [key])[key][0] is Fate.LEAVE
        assert len(survivors) == pending
        assert sorted(k for _, row in survivors.slices(2, 10**6) for k in row) == sorted(
            key for key in (key_of_hash(slot, period) for slot in world.written) if survivors.fates([key], ())
        )


_TWO = World(Random(0), (1,), writes=0).timeline.opened(2, ChangePhase.PLAN).prepared().committed({0: 10}, {1: 0})
#: 1 -> 2 -> 1: partition 1 retired at 30, its keys came home at 20.
RETIRED = _TWO.opened(1, ChangePhase.PLAN).prepared().committed({1: 30}, {0: 20})
MOVED = next(key for key in (b"m%d" % i for i in range(99)) if dumb_home(1, 2, key_hash(key)) == 1)
Note = tuple[int, int, int | None, int | None, int, tuple[int, int] | None]


@pytest.mark.parametrize(
    ("records", "fate"),
    [
        (
            [(1, 3, 9, 1, 5, None), (1, 4, 9, 1, 3, None), (0, 25, 9, 2, 4, None)],
            (Fate.COPY, 3),
        ),  # by place it would go
        ([(1, 3, 9, 1, 5, None), (0, 25, 9, 2, 5, None)], (Fate.CLEAR, 3)),  # a tie goes to the later stay
        ([(1, 3, 9, 1, 5, None), (0, 5, 9, None, 6, None)], (Fate.CLEAR, 3)),  # from before the key ever left
        ([(1, 3, 9, 1, 5, None), (1, 33, None, 2, 0, None), (0, 25, 9, 2, 4, None)], (Fate.COPY, 3)),
        ([(1, 3, 9, 1, 5, None), (1, 33, None, 2, 0, None), (0, 25, 9, 2, 5, (1, 3))], None),  # a compactor was here
        ([(1, 3, 9, 1, 5, None), (1, 4, 9, 1, 5, None), (0, 25, 9, 2, 5, (1, 3))], (Fate.COPY, 4)),  # of the older one
        (
            [(1, 3, 9, 1, 3, None), (1, 4, None, 1, 5, None), (0, 25, 9, 2, 4, None)],
            (Fate.COPY, 4),
        ),  # a deletion has won
        ([(1, 3, 9, 1, 3, None), (1, 4, None, 1, 5, None)], None),  # over nothing elsewhere
        ([(1, 4, None, 1, 5, None), (1, 5, 9, 1, 3, None)], (Fate.CLEAR, 4)),
    ],
)
def test_what_the_versions_say(records: list[Note], fate: tuple[Fate, int] | None) -> None:
    """Ties, copies of compactors, deletions."""
    survivors = RankedSurvivors(RETIRED, 1)
    for partition, offset, size, hint, version, original in records:
        survivors.note(partition, offset, MOVED, size, hint, version, original)
    assert survivors.fates([MOVED], ()).get(MOVED) == fate


def test_done_is_done() -> None:
    """What was copied or cleared is not looked at again, whether its tombstone shows or not."""
    survivors = RankedSurvivors(RETIRED, 1)
    survivors.note(1, 3, MOVED, 9, 1, 5)
    survivors.forget([MOVED])
    survivors.note(1, 34, MOVED, None, 2)
    survivors.note(0, 26, MOVED, 9, 2, 5)
    assert len(survivors) == 0
    again = RankedSurvivors(RETIRED, 1)
    for partition, offset, size, hint, version in [(1, 3, 9, 1, 5), (1, 34, None, 2, 0), (0, 26, 9, 2, 5)]:
        again.note(partition, offset, MOVED, size, hint, version)
    assert len(again) == 0
