"""What a retired partition still holds: against a dumb replay of everything that was ever written."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.changes.rehoming import Fate, Survivors, origin_of_copy
from keyorder.partitioner.epochs import ChangePhase, Slice
from keyorder.partitioner.hashing import HASHES, key_hash
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.sending import TopicSending
from support.dumb import World, dumb_home, key_of_hash

CHAINS = [(1, 2, 1), (2, 4, 2), (1, 2, 4, 1), (1, 2, 4, 2), (1, 2, 1, 2, 1), (2, 3, 6, 4, 2), (1, 4, 2, 3, 1)]


def _retired(timeline: Timeline) -> range:
    return range(timeline.newest.count, timeline.highest_count)


def _survivors(world: World, partition: int, period: int) -> Survivors:
    """All of the partition, then of the later homes, read as an adapter would."""
    survivors = Survivors(world.timeline, partition)
    for p, since in [(partition, 0), *survivors.later().items()]:
        for offset, record in enumerate(world.logs[p]):
            if record is not None and offset >= since:
                survivors.note(p, offset, key_of_hash(record[0], period), 1, None)
    return survivors


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(CHAINS), st.sampled_from([0.0, 0.4]))
def test_a_value_is_copied_exactly_when_it_is_its_keys_newest(seed: int, counts: tuple[int, ...], gone: float) -> None:
    """Whatever came before and after, however often the key was here, and with the cleaner's holes in the logs."""
    world = World(Random(seed), counts, keys=4, writes=3)
    if gone:
        # The cleaner keeps the newest record of a key in each partition.
        newest = {(key, p): max(o for q, o in row if q == p) for key, row in world.written.items() for p, _ in row}
        for key, row in world.written.items():
            for p, offset in list(row):
                if offset != newest[key, p] and world.random.random() < gone:
                    world.logs[p][offset] = None
                    row.remove((p, offset))
    period = Survivors(world.timeline, 0)._routing.period
    for partition in _retired(world.timeline):
        survivors = _survivors(world, partition, period)
        (whole,) = list(survivors.slices(100, 10**6)) or [(Slice(partition, 0, 0), ())]
        fates = survivors.fates(whole[1], ())
        for key, row in world.written.items():
            here = [offset for p, offset in row if p == partition]
            expected = None
            if here:
                expected = (Fate.COPY if row[-1] == (partition, max(here)) else Fate.CLEAR, max(here))
            name = key_of_hash(key, period)
            assert fates.get(name) == expected, (key, row, world.timeline)
            assert survivors.home(name)[0] == world.home(key)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 40), st.sampled_from(list(HASHES)))
def test_slices_hold_every_key_once_and_no_more_than_they_may(seed: int, keys: int, size: int, hash_name: str) -> None:
    """Ranges of hashes in order that do not meet; a slice is over its bounds only by its last value."""
    hash_of = HASHES[hash_name].of
    timeline = replace(RETIRED, hash=hash_name)
    survivors = Survivors(timeline, 1)
    random = Random(seed)
    names = [b"n%d" % i for i in range(40) if dumb_home(1, 2, hash_of(b"n%d" % i)) == 1]
    sizes = {name: random.randint(1, 9) for name in names}
    for offset, name in enumerate(names):
        survivors.note(1, offset, name, sizes[name], None)
    found = list(survivors.slices(keys, size))
    assert sorted(key for _, row in found for key in row) == sorted(names)
    for piece, row in found:
        routing = Routing(timeline.rehoming(piece).prepared())
        assert row == tuple(
            key for key in sorted(names, key=lambda key: (hash_of(key), key)) if routing.waits(key, routing.of(key))
        )
        assert len(row) <= keys
        assert sum(sizes[key] for key in row[:-1]) < size
    assert all(a.last < b.first for (a, _), (b, _) in pairwise(found))


_ADOPTED = World(Random(0), (1,), writes=0).timeline
_TWO = _ADOPTED.opened(2, ChangePhase.PLAN).prepared().committed({0: 10}, {1: 0})
#: 1 -> 2 -> 1: partition 1 retired at 30, its keys came home at 20.
RETIRED = _TWO.opened(1, ChangePhase.PLAN).prepared().committed({1: 30}, {0: 20})
MOVED = next(key for key in (b"m%d" % i for i in range(99)) if dumb_home(1, 2, key_hash(key)) == 1)
STAYED = next(key for key in (b"s%d" % i for i in range(99)) if dumb_home(1, 2, key_hash(key)) == 0)


def _fate(*records: tuple[int, int, int | None, int | None], undecided: bool = False) -> Fate | None:
    """The fate of MOVED after these (partition, offset, size, hint)."""
    survivors = Survivors(RETIRED, 1)
    for partition, offset, size, hint in records:
        survivors.note(partition, offset, MOVED, size, hint)
    found = survivors.fates([MOVED], {MOVED} if undecided else ())
    return found[MOVED][0] if found else None


@pytest.mark.parametrize(
    ("records", "fate"),
    [
        ([(1, 3, 9, 1)], Fate.COPY),
        ([(1, 3, 9, 1), (1, 4, None, 1)], None),  # deleted while it lived here
        ([(1, 3, 9, 1), (1, 33, None, 2)], None),  # cleared by a writer's move tombstone
        ([(1, 3, 9, 1), (1, 33, 9, None)], Fate.COPY),  # a foreign writer's last word
        ([(1, 3, 9, 1), (0, 9, 9, None)], Fate.COPY),  # at home, from before the key ever left
        ([(1, 3, 9, 1), (0, 15, None, 1)], Fate.COPY),  # the tombstone of its first move
        ([(1, 3, 9, 1), (0, 20, 9, 2)], Fate.CLEAR),  # written again at home
        ([(1, 3, 9, 1), (0, 25, None, 2)], Fate.CLEAR),  # deleted at home
        ([(1, 3, 9, 1), (0, 25, None, None)], Fate.CLEAR),
        ([(1, 3, 9, 1), (0, 25, None, 1)], Fate.COPY),  # a move tombstone that came late deletes nothing that is here
    ],
)
def test_what_counts_as_a_later_record(records: list[tuple[int, int, int | None, int | None]], fate: Fate) -> None:
    """Deletes do, move tombstones and what is older do not."""
    assert _fate(*records) == fate


def test_a_key_with_an_open_transaction_at_home_waits() -> None:
    """Whether that record is the newer one is not known before the transaction ends."""
    assert _fate((1, 3, 9, 1), undecided=True) is Fate.LEAVE
    assert _fate((1, 3, 9, 1), (0, 20, 9, 2), undecided=True) is Fate.CLEAR


def test_a_foreign_writers_key_stays() -> None:
    """A key that never lived here is held by nobody: it is counted and left."""
    survivors = Survivors(RETIRED, 1)
    survivors.note(1, 0, STAYED, 5, None)
    assert (len(survivors), survivors.foreign) == (0, 1)


@pytest.mark.parametrize(
    ("header", "origin"),
    [
        (b"4:17", (4, 17)),
        ("4:17", (4, 17)),
        (b"4", None),
        (b":1", None),
        (b"4:-1", None),
        (b"\xff:1", None),
        (None, None),
    ],
)
def test_the_header_of_a_copy_is_read_with_care(header: bytes | str | None, origin: tuple[int, int] | None) -> None:
    """It may come from anybody."""
    assert origin_of_copy(header) == origin


# --- the writers' side ------------------------------------------------------------------------------------------


def test_a_writer_holds_the_slice_and_nothing_else() -> None:
    """Keys that lived in the partition and whose hash is in the range wait; READY waits for what is on its way home."""
    sending: TopicSending[str] = TopicSending(RETIRED)
    on_its_way = sending.in_flight(0)
    on_its_way.unresolved = 1
    piece = Slice(1, key_hash(MOVED), key_hash(MOVED))
    attempt = RETIRED.rehoming(piece).prepared()
    sending.apply(attempt)
    sending.acknowledged[0] = 44
    waits = {key: sending.must_wait(key, sending.routing.of(key)) for key in (MOVED, STAYED)}
    assert waits == {MOVED: True, STAYED: False}
    other = next(key for key in (b"o%d" % i for i in range(99)) if dumb_home(1, 2, key_hash(key)) == 1)
    assert not sending.must_wait(other, sending.routing.of(other))
    assert sending.ready_epoch(0) is None
    on_its_way.unresolved = 0
    assert attempt.change is not None
    assert sending.ready_epoch(0) == attempt.change.epoch
    assert sending.acknowledged_origins() == {0: 44}
    sending.said_ready(attempt.change.epoch)
    sending.hold(MOVED, "value")
    assert sending.release(lambda held, route: True) == 0
    sending.apply(attempt.given_up())
    assert sending.release(lambda held, route: route is not None and route.home == 0) == 1
