"""Routes by table, against a walk over all epochs; and the hint header, whatever bytes it holds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.routing import Move, Routing, parse_hint
from support.dumb import World, dumb_home, key_of_hash, timeline_of

SHAPES = st.tuples(st.integers(1, 3), st.lists(st.integers(0, 8), max_size=6), st.integers(0, 8))


@pytest.mark.kip("K253-10", "K253-38", "K253-12")
@settings(max_examples=60, deadline=None)
@given(SHAPES, st.integers(0, 63), st.sampled_from([None, ChangePhase.PLAN, ChangePhase.PREPARE]))
def test_a_route_is_what_a_walk_over_the_epochs_finds(
    shape: tuple[int, list[int], int], slot: int, phase: ChangePhase | None
) -> None:
    """Home, hint, moves and the home after an open PREPARE; a PLAN moves nothing yet."""
    initial, more, target = shape
    timeline = timeline_of(initial, [(initial + extra, {}, {}) for extra in more], first=5)
    if phase is not None:
        timeline = timeline.opened(initial + target, phase)
    key = key_of_hash(slot, 64 * initial)
    homes = [dumb_home(initial, epoch.count, slot) for epoch in timeline.epochs]
    numbers = [epoch.number for epoch in timeline.epochs]
    moves = [Move(numbers[i], homes[i - 1], homes[i]) for i in range(1, len(homes)) if homes[i] != homes[i - 1]]
    routing = Routing(timeline)
    route = routing.of(key)
    after = dumb_home(initial, initial + target, slot) if phase is ChangePhase.PREPARE else homes[-1]
    assert (route.home, route.moves, route.next_home) == (homes[-1], tuple(moves), after)
    assert route.moving == (after != homes[-1])
    assert route.hint == (moves[-1].epoch if moves else 0)
    assert parse_hint(route.header) == (route.hint if moves else None)
    assert routing.preparing == (phase is ChangePhase.PREPARE)
    assert routing.of(key) is route


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.integers(0, 6), st.integers(0, 12), st.booleans())
def test_routes_that_follow_known_ones_are_the_same(
    shape: tuple[int, list[int], int], cut: int, given_up: int, asked: bool
) -> None:
    """Whatever part of the timeline was known, with an open attempt that may have been given up: as worked out anew."""
    initial, more, target = shape
    changes = [(initial + extra, {}, {}) for extra in more]
    known = Routing(timeline_of(initial, changes[:cut], first=5).opened(initial + given_up, ChangePhase.PREPARE))
    timeline = timeline_of(initial, changes, first=5).opened(initial + target, ChangePhase.PREPARE)
    if asked:
        assert len(list(known.all())) == known.period
    assert list(Routing(timeline, known).all()) == list(Routing(timeline).all())


def test_routes_of_another_timeline_are_not_followed() -> None:
    """A topic that was made again begins anew: its epochs are not those that were known."""
    known = Routing(timeline_of(2, [(4, {}, {})]))
    other = timeline_of(2, [(3, {}, {}), (4, {}, {})])
    assert list(known.all()) != list(Routing(other, known).all()) == list(Routing(other).all())


@pytest.mark.kip("K903-12")
def test_a_topic_that_never_changed_costs_nothing() -> None:
    """No move, no hint, no header."""
    route = Routing(timeline_of(4, [])).of(b"any")
    assert (route.hint, route.header, route.moves, route.moving) == (0, None, (), False)


@pytest.mark.kip("K253-30")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_records_of_obedient_writers_are_no_strays(seed: int, counts: list[int]) -> None:
    """Whatever was written under the cuts lies where and when its key was at home; elsewhere at that offset it is stray."""
    world = World(Random(seed), [1, *counts], keys=3)
    routing = Routing(world.timeline)
    for slot, places in world.written.items():
        key = key_of_hash(slot, 8)
        for p, offset in places:
            assert not routing.is_stray(key, p, offset)


@pytest.mark.kip("K253-30", "C-20")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 7))
def test_a_stray_is_outside_every_stay_of_its_key(seed: int, counts: list[int], slot: int) -> None:
    """Every place of the topic, judged against the list of the key's stays: [came, left) at each home."""
    world = World(Random(seed), [1, *counts], keys=3)
    epochs = world.timeline.epochs
    homes = [dumb_home(1, epoch.count, slot) for epoch in epochs]
    stays, since = [], 0
    for at in range(1, len(epochs)):
        if homes[at] != homes[at - 1]:
            stays.append((homes[at - 1], range(since, epochs[at].ends[homes[at - 1]])))
            since = epochs[at].begins[homes[at]]
    stays.append((homes[-1], range(since, 10**9)))
    routing, key = Routing(world.timeline), key_of_hash(slot, 8)
    for p, log in enumerate(world.logs):
        for offset in range(len(log) + 2):
            at_home = any(home == p and offset in stay for home, stay in stays)
            assert routing.is_stray(key, p, offset) == (not at_home)


@pytest.mark.parametrize(
    ("value", "epoch"),
    [(b"0", 0), (b"7", 7), (b"1234567890", 1234567890), ("12", 12), (b"007", 7)],
)
def test_hints(value: bytes | str, epoch: int) -> None:
    """A hint is a decimal number, as bytes or as text."""
    assert parse_hint(value) == epoch


@pytest.mark.parametrize(
    "value",
    [None, b"", "", b"-1", b"+1", b" 1", b"1\n", b"1.0", b"0x1", b"1_0", b"12345678901", b"\xff\xfe", b"\xc2\xb2",
     "\u00b2", "\u0661", "\u2460".encode(), "1" * 5000, b"\x00"],
)  # fmt: skip
def test_whatever_else_is_no_hint(value: bytes | str | None) -> None:
    """Signs, spaces, too many digits, foreign digits (a superscript two counts as a digit elsewhere), no UTF-8."""
    assert parse_hint(value) is None


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=16), st.text(max_size=16)))
@example("\u0ce7")
def test_no_bytes_make_it_raise(value: bytes | str) -> None:
    """Anybody can write headers: any value is a number or none."""
    hint = parse_hint(value)
    assert hint is None or 0 <= hint < 10**10
