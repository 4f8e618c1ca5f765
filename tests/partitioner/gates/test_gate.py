"""The gate: what opens it, the chain behind it, and that readers who obey it never reorder a key and never get stuck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.epochs import Epoch
from keyorder.partitioner.gates.gate import Gate, Gates, consistent_starts
from keyorder.partitioner.timeline import Timeline
from support.dumb import DumbGates, World, timeline_of


def _at(**positions: int) -> Callable[[int], int]:
    """`_at(p0=3)`: the position of partition 0 is 3, of any other 0."""
    return lambda q: positions.get(f"p{q}", 0)


def _is_open(timeline: Timeline, partition: int, epoch: int, waived: Sequence[tuple[int, int]] = (), **at: int) -> bool:
    gates = Gates(timeline)
    (gate,) = [gate for gate in gates.of(partition) if gate.epoch == epoch]
    return gates.open_now(_at(**at), waived).is_open(gate)


# --- one gate -------------------------------------------------------------------------------------------------


@pytest.mark.kip("K253-51", "K253-53", "K253-54", "C-03", "T-7")
def test_growth_opens_at_the_cut() -> None:
    """Partition 0 holds 0..99 before the cut: position 99 leaves the new partition closed, 100 opens it."""
    timeline = timeline_of(3, [(4, {0: 100}, {3: 0})])
    assert not _is_open(timeline, 3, 1, p0=99)
    assert _is_open(timeline, 3, 1, p0=100)


@pytest.mark.kip("C-03", "T-7")
def test_an_empty_origin_opens_at_once() -> None:
    """Nothing was written before the change: there is nothing to wait for."""
    assert _is_open(timeline_of(3, [(4, {0: 0}, {3: 0})]), 3, 1)


@pytest.mark.kip("K253-51", "T-7")
def test_first_partitions_are_never_gated_by_growth() -> None:
    """Partitions that were there at first take no keys in while a topic grows."""
    gates = Gates(timeline_of(3, [(4, {}, {}), (9, {}, {})]))
    assert [gates.of(p) for p in range(3)] == [(), (), ()]
    assert gates.open_now(_at()).first_closed(0) is None


@pytest.mark.kip("K253-55", "K253-57", "K253-58", "K253-59", "K253-35", "K694-02", "T-8")
def test_a_shrink_holds_the_taking_partition_from_its_cut_on() -> None:
    """4 -> 3: partition 0 may be read up to 150 while partition 3 is at 39 of 40; at 40 nothing holds it."""
    timeline = timeline_of(3, [(3, {3: 40}, {0: 150})], start=4)
    gates = Gates(timeline)
    closed = gates.open_now(_at(p3=39)).first_closed(0)
    assert closed == Gate(0, 1, 150, ((3, 40),))
    assert gates.open_now(_at(p3=40)).first_closed(0) is None
    assert gates.open_now(_at(p3=39)).first_closed(1) is None


@pytest.mark.kip("K253-55", "C-05", "T-5", "T-8")
@pytest.mark.parametrize(
    ("initial", "before", "after", "waits"),
    [
        (3, 8, 4, {0: {6}, 1: {4, 7}, 2: {5}}),
        (3, 12, 7, {1: {7}, 2: {8}, 3: {9}, 4: {10}, 5: {11}}),
        (3, 12, 3, {0: {3, 6, 9}, 1: {4, 7, 10}, 2: {5, 8, 11}}),
        (1, 8, 1, {0: {1, 2, 3, 4, 5, 6, 7}}),
    ],
)
def test_a_shrink_waits_for_every_retired_origin(
    initial: int, before: int, after: int, waits: dict[int, set[int]]
) -> None:
    """Several retired partitions may lead into one: each of them alone keeps it closed."""
    timeline = timeline_of(initial, [(after, dict.fromkeys(range(before), 10), {})], start=before)
    gates = Gates(timeline)
    assert {g.partition: {q for q, _ in g.origins} for g in gates.all()} == waits
    for gate in gates.all():
        full = {q: 10 for q, _ in gate.origins}
        assert gates.open_now(lambda q, at=full: at.get(q, 0)).is_open(gate)  # type: ignore[misc]
        for q in full:
            look = gates.open_now(lambda p, at={**full, q: 9}: at.get(p, 0))  # type: ignore[misc]
            assert not look.is_open(gate)
            assert look.blockers(gate) == {(q, 10)}


@pytest.mark.kip("K253-22", "K253-61", "C-16")
def test_ordered_delivery_off_means_no_gates() -> None:
    """The routing stays, the waiting goes."""
    timeline = timeline_of(3, [(6, {0: 5}, {})])
    off = Timeline("t", "i", "c", 3, timeline.epochs, ordered=False)
    assert list(Gates(off).all()) == []
    assert Gates(off).open_now(_at()).first_closed(3) is None


@pytest.mark.kip("C-11")
def test_an_open_waiver_lets_one_gate_go() -> None:
    """An operator's waiver opens that gate of that epoch, and what waited only for it; no other."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0}), (1, {1: 3}, {0: 8})])
    assert not _is_open(timeline, 1, 1)
    assert _is_open(timeline, 1, 1, waived=[(1, 1)])
    assert not _is_open(timeline, 1, 1, waived=[(1, 2), (0, 1)])
    assert not _is_open(timeline, 0, 2, waived=[(1, 1)], p1=2)
    assert _is_open(timeline, 0, 2, waived=[(1, 1)], p1=3)


def test_the_first_closed_gate_has_the_lowest_cut() -> None:
    """A partition is read up to its first closed gate; an open one before it does not matter."""
    timeline = timeline_of(1, [(2, {0: 5}, {1: 0}), (1, {1: 3}, {0: 8}), (2, {0: 9}, {1: 4}), (1, {1: 6}, {0: 12})])
    gates = Gates(timeline)
    first = gates.open_now(_at(p0=0)).first_closed(1)
    assert first is not None
    assert (first.epoch, first.begins) == (1, 0)
    later = gates.open_now(_at(p0=8, p1=3)).first_closed(1)
    assert later is not None
    assert (later.epoch, later.begins) == (3, 4)
    assert gates.open_now(_at(p0=9, p1=3)).first_closed(1) is None


# --- the chain ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1])
def test_a_key_that_skipped_a_generation_still_waits_for_the_one_before(position: int) -> None:
    """1 -> 2 -> 4 with nothing written to partition 1: its cut is 0 and reached at once, the key's record is in 0."""
    timeline = timeline_of(1, [(2, {0: 1}, {1: 0}), (4, {0: 1, 1: 0}, {2: 0, 3: 0})])
    gates = Gates(timeline)
    (gate,) = gates.of(3)
    look = gates.open_now(_at(p0=position))
    assert look.is_open(gate) == (position == 1)
    assert look.blockers(gate) == (set() if position else {(0, 1)})


@pytest.mark.parametrize("position", [0, 1])
def test_a_shrink_waits_along_the_chain_too(position: int) -> None:
    """4 -> 2 -> 1: the key's only record lies in 3, nothing was written to 1, and now it goes to 0."""
    timeline = timeline_of(1, [(2, {2: 0, 3: 1}, {0: 0, 1: 0}), (1, {1: 0}, {0: 0})], start=4)
    gates = Gates(timeline)
    gate = gates.of(0)[-1]
    assert gate.epoch == 2
    look = gates.open_now(_at(p3=position))
    assert look.is_open(gate) == (position == 1)
    assert look.blockers(gate) == (set() if position else {(3, 1)})


@pytest.mark.kip("C-10")
def test_a_middle_generation_that_was_removed_does_not_open_the_gate() -> None:
    """Retention took the middle records: the origin's position is past its cut, the oldest record is still unread."""
    timeline = timeline_of(1, [(2, {0: 3}, {1: 0}), (4, {0: 3, 1: 2}, {2: 0, 3: 0})])
    assert not _is_open(timeline, 3, 2, p1=2)
    assert _is_open(timeline, 3, 2, p1=2, p0=3)


def test_an_entry_behind_the_cut_is_no_part_of_the_chain() -> None:
    """A gate of the origin that begins above the cut holds keys that came after: they did not leave with this epoch."""
    timeline = timeline_of(1, [(2, {0: 3}, {1: 5}), (4, {0: 3, 1: 4}, {2: 0, 3: 0})])
    assert _is_open(timeline, 3, 2, p1=4)


def test_blockers_name_all_that_is_missing_along_the_chain() -> None:
    """Every (partition, offset) still to be reached, however far back; what is reached is not named."""
    timeline = timeline_of(1, [(2, {0: 3}, {1: 0}), (4, {0: 9, 1: 2}, {2: 0, 3: 0}), (8, {3: 7}, {})])
    gates = Gates(timeline)
    (gate,) = gates.of(7)
    assert gates.open_now(_at()).blockers(gate) == {(3, 7), (1, 2), (0, 3)}
    assert gates.open_now(_at(p1=2, p3=6)).blockers(gate) == {(3, 7), (0, 3)}
    assert gates.open_now(_at(p1=2, p3=7)).blockers(gate) == {(0, 3)}
    assert gates.open_now(_at(p1=2, p3=7), [(1, 1)]).blockers(gate) == set()
    assert gates.open_now(_at(p1=2, p3=7, p0=3)).blockers(gate) == set()


def _seesaw(epochs: int) -> Timeline:
    """1 -> 2 -> 1 -> 2 ...: every epoch one record was written at the key's home."""
    made = [Epoch(0, 1)]
    length = [1, 0]
    for number in range(1, epochs + 1):
        q, p = (0, 1) if number % 2 else (1, 0)
        made.append(Epoch(number, 1 + number % 2, {q: length[q]}, {p: length[p]}))
        length[p] += 1
    return Timeline("t", "i", "c", 1, tuple(made))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(1, 2), st.lists(st.integers(0, 5), min_size=2, max_size=7), st.integers(0, 10**9))
def test_a_look_agrees_with_the_rule_word_by_word(initial: int, more: list[int], seed: int) -> None:
    """Any history, positions and waivers: each gate, the first closed one of each partition, and all that they wait for."""
    random = Random(seed)
    world = World(random, [initial, *(initial + m for m in more)])
    position = {p: random.randint(0, len(log) + 1) for p, log in enumerate(world.logs)}
    gates = Gates(world.timeline)
    waived = {(g.partition, g.epoch) for g in gates.all() if random.random() < 0.2}
    dumb = DumbGates(world.timeline, position, waived)
    look = gates.open_now(position.__getitem__, waived)
    for p in random.sample(range(len(world.logs)), len(world.logs)):
        first = look.first_closed(p)
        assert dumb.first_closed(p) == (None if first is None else (first.begins, first.epoch))
    for gate in gates.all():
        assert dumb.is_open((gate.partition, gate.epoch)) == look.is_open(gate)
        assert dumb.blockers((gate.partition, gate.epoch)) == look.blockers(gate)


def test_a_cut_that_falls_keeps_its_gate_closed_for_longer_and_never_shorter() -> None:
    """Only a log that lost records has cuts that fall: the gate then waits for the higher end, and holds from the lower begin."""
    timeline = timeline_of(1, [(2, {0: 9}, {1: 7}), (1, {1: 7}, {0: 9}), (2, {0: 5}, {1: 3})])
    gates = Gates(timeline)
    assert [(g.begins, g.origins) for g in gates.of(1)] == [(3, ((0, 9),)), (3, ((0, 9),))]
    assert gates.open_now(_at(p0=8, p1=9)).first_closed(1) == gates.of(1)[0]


def _position_lookups(epochs: int) -> tuple[int, int]:
    """How often one look at both partitions of a seesaw asks for a position, and how many gates it then holds closed."""
    asked = 0

    def position(q: int) -> int:
        nonlocal asked
        asked += 1
        return epochs // 4 if q else 10**9

    gates = Gates(_seesaw(epochs))
    look = gates.open_now(position)
    first = look.first_closed(0), look.first_closed(1)
    assert first[0] is not None
    assert first[1] is not None
    assert (first[0].epoch, first[1].epoch) == (epochs // 2 + 2, epochs // 2 + 3)
    return asked, sum(not look.is_open(gate) for gate in gates.all())


def test_the_work_of_a_look_does_not_grow_with_the_timeline() -> None:
    """20 epochs or 20,000: one position for each partition, no recursion, no walk along the chain."""
    assert _position_lookups(20) == (2, 9)
    assert _position_lookups(20_000) == (2, 9_999)


def test_consistent_starts_of_a_long_timeline_go_back_to_the_first_closed_gate() -> None:
    """20,000 epochs, every start at its log's end, one record unread at the very beginning or nothing unread."""
    gates = Gates(_seesaw(20_000))
    assert consistent_starts(gates, {0: 10_001, 1: 10_001}) == {0: 10_001, 1: 10_001}
    assert consistent_starts(gates, {0: 0, 1: 10_001}) == {0: 0, 1: 0}
