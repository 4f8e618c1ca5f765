"""Early release: a record goes before its gate opens only when nothing older of its key is left, whatever happens meanwhile."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.gates.early import Collector, EarlyRelease, Scan, Slots, Span, Tail, Trail, trails
from keyorder.partitioner.gates.gate import Gate, Gates
from keyorder.partitioner.routing import Routing
from support.dumb import World, dumb_home, hash_space, timeline_of

COUNTS = st.tuples(st.integers(1, 2), st.lists(st.integers(0, 4), min_size=1, max_size=4)).map(
    lambda shape: [shape[0], *(shape[0] + more for more in shape[1])]
)


class Readers:
    """One owner per partition, each with its own memory; judged record by record against what was really written.

    delivered[p]: offsets given out since the start that counts. committed[p]: what a new owner starts with: an offset, and
    what was processed beyond it. fetched[p]: up to here the owner has records in memory. starts[p]: where the log begins.
    """

    def __init__(self, world: World, random: Random, limit: int, going_back: bool) -> None:
        self.world, self.random, self.going_back = world, random, going_back
        self.gates, self.routing = Gates(world.timeline), Routing(world.timeline)
        self.early = EarlyRelease(limit)
        width = range(len(world.logs))
        self.delivered: list[set[int]] = [set() for _ in width]
        self.committed: list[tuple[int, frozenset[int]]] = [(0, frozenset()) for _ in width]
        self.fetched = [0 for _ in width]
        self.starts = [0 for _ in width]
        self.scan: Scan | None = None
        self.reading: tuple[Collector, list[tuple[int, int]]] | None = None
        self.last: dict[int, int] = {}
        self.ahead = Counter[str]()

    def position(self, q: int) -> int:
        return self.committed[q][0]

    def trails(self) -> dict[tuple[int, int], Trail]:
        opened = self.gates.open_now(self.position)
        return trails(self.routing, [gate for gate in self.gates.all() if not opened.is_open(gate)])

    def entry(self, p: int, offset: int, key: int) -> Gate | None:
        """The gate of the record, found by trying all."""
        epochs = self.world.timeline.epochs
        for before, after in reversed(list(pairwise(epochs))):
            came = self._home(after.count, key) == p != self._home(before.count, key)
            if came and after.begins[p] <= offset:
                return next(gate for gate in self.gates.of(p) if gate.epoch == after.number)
        return None

    def _home(self, count: int, key: int) -> int:
        return dumb_home(self.world.initial, count, key)

    def deliverable(self) -> list[tuple[int, int]]:
        """(partition, offset) of all that may be given out next."""
        opened, found, wanted = self.gates.open_now(self.position), [], self.trails()
        for p, log in enumerate(self.world.logs):
            waiting: set[int] = set()
            for offset in range(self.committed[p][0], self.fetched[p]):
                record = log[offset]
                if record is None or offset in self.delivered[p]:
                    continue
                key, _ = record
                gate = self.entry(p, offset, key)
                free = gate is None or opened.is_open(gate)
                if not free and gate is not None:
                    free = self.early.may_go(key, wanted[gate.partition, gate.epoch], self.position)
                    self.ahead["early"] += free
                if free and key not in waiting:
                    found.append((p, offset))
                waiting.add(key)
        return found

    def deliver(self, p: int, offset: int) -> None:
        record = self.world.logs[p][offset]
        assert record is not None
        key, number = record
        for q, older in self.world.written[key][: number - 1]:
            inside = p == q and (older in self.delivered[p] or older < self.committed[p][0])
            gone = older < self.starts[q] and older >= self.fetched[q]  # the log has lost it, and nobody holds it
            assert inside or gone or older < self.committed[q][0], f"{record} before {q}@{older}"
        self.delivered[p].add(offset)
        self.last[key] = number

    def commit(self, p: int) -> None:
        log = self.world.logs[p]
        upto = self.committed[p][0]
        while upto < self.fetched[p] and (log[upto] is None or upto in self.delivered[p]):
            upto += 1
        self.committed[p] = upto, frozenset(offset for offset in self.delivered[p] if offset >= upto)

    def step(self) -> bool:
        """Something happens; False when nothing is left to do."""
        dice = self.random.random()
        p = self.random.randrange(len(self.world.logs))
        if dice < 0.1:
            self.fetched[p] = max(self.fetched[p], self.random.randint(0, len(self.world.logs[p])))
            self._jump(p)
        elif dice < 0.15:  # a crash: the next owner has nothing in memory
            self.delivered[p] = set(self.committed[p][1])
            self.fetched[p] = self.committed[p][0]
            self._jump(p)
        elif dice < 0.17:  # the member that scans is another one
            self.early, self.scan, self.reading = EarlyRelease(self.early._limit), None, None
        elif dice < 0.19:
            self.starts[p] = max(self.starts[p], self.random.randint(0, len(self.world.logs[p])))
        elif dice < 0.21 and self.going_back:
            back = self.random.randint(0, self.committed[p][0])
            self.committed[p], self.delivered[p], self.fetched[p] = (back, frozenset()), set(), back
            self._jump(p)
        elif dice < 0.5:
            self._scan()
        elif dice < 0.6:
            self.commit(p)
        elif ready := self.deliverable():
            self.deliver(*self.random.choice(ready))
        else:
            return self._settle()
        return True

    def _jump(self, p: int) -> None:
        """Below the log start an owner without records in memory goes on at the log start; it commits that later."""
        if self.fetched[p] < self.starts[p]:
            self.delivered[p] |= set(range(self.committed[p][0], self.starts[p]))
            self.fetched[p] = self.starts[p]

    def _settle(self) -> bool:
        """All is fetched and committed; False when even that lets nothing more go."""
        before = [*self.committed], [*self.fetched]
        for p in range(len(self.world.logs)):
            self.fetched[p] = len(self.world.logs[p])
            self.commit(p)
        return before != (self.committed, self.fetched)

    def _scan(self) -> None:
        self.early.want(self.trails(), self.position, 0.0)
        if self.early.scan is not self.scan:
            self.scan, self.reading = self.early.scan, None
        if self.scan is None:
            return
        if self.reading is None:
            collector = Collector(self.scan, dict(enumerate(self.starts)))
            places = [(q, o) for q, span in self.scan.spans.items() for o in range(collector.starts[q], span.until)]
            self.reading = collector, places
        collector, places = self.reading
        for q, offset in places[:2]:
            if offset < self.starts[q]:  # the log was cut off in front of the scan
                self.early.failed(self.scan.number, "out of range", -inf, again=True)
                self.reading = None
                return
            record = self.world.logs[q][offset]
            if record is not None:
                collector.add(q, record[0], offset)
        del places[:2]
        if not places:
            self.early.done(self.scan.number, collector.tails())


def _play(counts: list[int], seed: int, limit: int = 1000, going_back: bool = False) -> Readers:
    random = Random(seed)
    world = World(random, counts, keys=5, writes=6)
    world.remove_some(random.choice([0.0, 0.0, 0.3]))
    for key, places in world.written.items():  # numbers as they are left
        for number, (p, offset) in enumerate(places, 1):
            world.logs[p][offset] = key, number
    readers = Readers(world, random, limit, going_back)
    for _ in range(4000):
        if not readers.step():
            break
    else:
        raise AssertionError("it never ends")
    return readers


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(0, 10**9), st.sampled_from([0, 1, 3, 1000]))
def test_nothing_goes_before_what_is_older_and_all_arrives(counts: list[int], seed: int, limit: int) -> None:
    """Crashes, logs cut off, scans begun anew: none leaves before an older one of its key; the last word is the newest."""
    readers = _play(counts, seed, limit)
    world = readers.world
    for p, log in enumerate(world.logs):
        left = {offset for offset, record in enumerate(log) if record is not None}
        assert left - readers.delivered[p] <= set(range(readers.committed[p][0]))
    expected = {key: len(places) for key, places in world.written.items() if places}
    lost = {key for key, places in world.written.items() if places and places[-1][1] < readers.starts[places[-1][0]]}
    assert {key: number for key, number in expected.items() if key not in lost} == {
        key: number for key, number in readers.last.items() if key not in lost
    }


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(0, 10**9))
def test_a_position_that_goes_back_takes_the_permission_back(counts: list[int], seed: int) -> None:
    """What lies between the new position and the old one counts as unread again; the tail is read anew from there."""
    random = Random(seed)
    readers = Readers(World(random, counts, keys=5, writes=6), random, 1000, going_back=True)
    for _ in range(600):
        readers.step()


def test_early_release_happens() -> None:
    """The walks above are not empty: in them records go before their gates open."""
    assert sum(_play([1, 4, 2], seed).ahead["early"] for seed in range(30)) > 20


@settings(max_examples=200, deadline=None)
@given(COUNTS)
def test_a_trail_names_every_place_where_a_key_lived_before(counts: list[int]) -> None:
    """Against enumeration: for each gate and hash, the earlier homes and their cuts."""
    steps = [(count, {q: 10 * i + q for q in range(9)}, {}) for i, count in enumerate(counts[1:], 1)]
    timeline = timeline_of(counts[0], steps)
    gates = Gates(timeline)
    found = trails(Routing(timeline), list(gates.all()))
    assert found.keys() == {(gate.partition, gate.epoch) for gate in gates.all()}
    homes = {h: [dumb_home(counts[0], count, h) for count in counts] for h in hash_space(counts[0], *counts)}
    for (p, e), trail in found.items():
        for h, lived in homes.items():
            if not (lived[e] == p != lived[e - 1]):
                continue
            until: dict[int, int] = {}
            for number in range(1, e + 1):
                if lived[number] != lived[number - 1]:
                    q = lived[number - 1]
                    until[q] = max(until.get(q, 0), timeline.epochs[number].ends[q])
            assert {q for q, span in trail.items() if h in span.slots} == until.keys()
            assert all(trail[q].until >= cut for q, cut in until.items())


ALL = Slots(1, frozenset({0}))
TRAIL: Trail = {0: Span(10, ALL)}
NAMED = {(1, 1): TRAIL}


def _scanned(early: EarlyRelease, at: int, log_start: int, *keys: tuple[int, int]) -> None:
    early.want(NAMED, lambda q: at, 0.0)
    assert early.scan is not None
    collector = Collector(early.scan, {0: log_start})
    for key, offset in keys:
        collector.add(0, key, offset)
    early.done(early.scan.number, collector.tails())


def test_a_key_goes_when_its_last_unread_record_is_processed() -> None:
    """Absent keys at once, the others when the position has passed them; both before the gate opens."""
    early = EarlyRelease(10)
    assert not early.may_go(1, TRAIL, lambda q: 3)
    _scanned(early, 3, 0, (7, 4), (7, 6), (8, 9))
    assert [early.may_go(key, TRAIL, lambda q: 3) for key in (1, 7, 8)] == [True, False, False]
    assert [early.may_go(key, TRAIL, lambda q: 7) for key in (1, 7, 8)] == [True, True, False]
    assert early.may_go(8, TRAIL, lambda q: 10)
    assert early.progress(TRAIL, lambda q: 3) == early.progress(TRAIL, lambda q: 4)
    assert early.progress(TRAIL, lambda q: 4) != early.progress(TRAIL, lambda q: 7)


def test_below_the_start_of_the_scan_nothing_is_known() -> None:
    """A position that went back holds everything, and the tail is read again from there."""
    early = EarlyRelease(10)
    _scanned(early, 5, 0)
    assert early.may_go(1, TRAIL, lambda q: 5)
    assert not early.may_go(1, TRAIL, lambda q: 4)
    early.want(NAMED, lambda q: 4, 0.0)
    assert early.scan is not None
    assert early.scan.positions == {0: 4}


def test_a_log_start_proves_nothing_by_itself() -> None:
    """The origin's owner may hold in memory what the log has lost: all wait for its position; nothing is read twice for it."""
    early = EarlyRelease(10)
    _scanned(early, 2, 6)
    assert not early.may_go(1, TRAIL, lambda q: 2)
    assert "where its log began" in early.note(TRAIL, lambda q: 2)
    early.want(NAMED, lambda q: 2, 0.0)
    assert early.scan is None
    assert early.may_go(1, TRAIL, lambda q: 6)


def test_too_many_keys_are_given_up() -> None:
    """Past the limit nothing is kept, all of the gate's keys wait as ever, and it says so."""
    early = EarlyRelease(2)
    _scanned(early, 0, 0, (1, 1), (2, 2), (3, 3))
    assert not early.may_go(9, TRAIL, lambda q: 0)
    assert early.note(TRAIL, lambda q: 0).startswith("given up: more than 2 keys")
    assert early.may_go(9, TRAIL, lambda q: 10)
    early.want(NAMED, lambda q: 1, 0.0)
    assert early.scan is None


@pytest.mark.parametrize("again", [True, False])
def test_a_scan_that_fails_is_begun_again_or_given_up(again: bool) -> None:
    """Passing trouble after a pause; the rest not before another gate closes."""
    early = EarlyRelease(10)
    early.want(NAMED, lambda q: 0, 0.0)
    assert early.scan is not None
    early.failed(early.scan.number, "no", 0.0, again)
    early.want(NAMED, lambda q: 0, 0.5)
    assert early.scan is None
    assert early.note(TRAIL, lambda q: 0) == ("tries again: no" if again else "given up: no")
    early.want(NAMED, lambda q: 0, 60.0)
    assert (early.scan is not None) is again
    early.want({**NAMED, (2, 1): TRAIL}, lambda q: 0, 61.0)
    assert early.scan is not None


def test_answers_of_an_older_scan_do_not_count() -> None:
    """Nobody wants it any more, or a newer one runs."""
    early = EarlyRelease(10)
    early.want(NAMED, lambda q: 0, 0.0)
    assert early.scan is not None
    number = early.scan.number
    early.want({}, lambda q: 0, 0.0)
    assert early.scan is None
    early.done(number, {0: Tail(0, 0, 10, ALL, {})})
    assert not early.may_go(1, TRAIL, lambda q: 0)


def test_nothing_is_scanned_while_a_position_is_not_known() -> None:
    """Read from 0 it would be a whole log for nothing."""
    early = EarlyRelease(10)
    early.want(NAMED, lambda q: None, 0.0)
    assert early.scan is None
    assert not early.may_go(1, TRAIL, lambda q: None)


def test_slots_of_different_periods_compare() -> None:
    """A later layout may have a longer period; the keys are the same."""
    half = Slots(2, frozenset({1}))
    assert half.covers(Slots(4, frozenset({1, 3})))
    assert not half.covers(Slots(4, frozenset({1, 2})))
    assert Slots(4, frozenset({1, 3})).covers(half)
    assert 7 in (half | Slots(4, frozenset({2})))
    assert 6 in (half | Slots(4, frozenset({2})))
    assert 4 not in (half | Slots(4, frozenset({2})))
