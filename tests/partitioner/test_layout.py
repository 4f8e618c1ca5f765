"""Linear hashing: homes, parents, origins and shares, against vectors and against one split at a time."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.errors import KeyTypeError, LayoutError
from keyorder.partitioner.layout import Layout, same_routing
from keyorder.partitioner.timeline import crossings
from support.dumb import cells, dumb_home, dumb_moves, hash_space

COUNTS_3 = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
HOMES_3 = {
    0: "0 0 0 0 0 0 0 0 0 0",
    1: "1 1 1 1 1 1 1 1 1 1",
    2: "2 2 2 2 2 2 2 2 2 2",
    3: "0 3 3 3 3 3 3 3 3 3",
    4: "1 1 4 4 4 4 4 4 4 4",
    5: "2 2 2 5 5 5 5 5 5 5",
    6: "0 0 0 0 6 6 6 6 6 6",
    7: "1 1 1 1 1 7 7 7 7 7",
    8: "2 2 2 2 2 2 8 8 8 8",
    9: "0 3 3 3 3 3 3 9 9 9",
    10: "1 1 4 4 4 4 4 4 10 10",
    11: "2 2 2 5 5 5 5 5 5 11",
}
KEYS = {
    "21": (0, 0, 0, 0, 0, 0),
    "foobar": (0, 0, 0, 0, 6, 6),
    "abc": (0, 3, 3, 3, 3, 3),
    "a-little-bit-long-string": (2, 2, 2, 2, 2, 8),
    "a-little-bit-longer-string": (2, 2, 2, 5, 5, 11),
    "": (0, 3, 3, 3, 3, 9),
    "K1": (2, 2, 2, 5, 5, 11),
}
PARENTS = {
    3: dict(enumerate((0, 1, 2, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 3)),
    1: dict(enumerate((0, 0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7), 1)),
}
LAYOUTS = st.integers(1, 7).flatmap(lambda initial: st.tuples(st.just(initial), st.integers(initial, 60)))


@pytest.mark.kip("K253-38", "T-1")
def test_low_and_split() -> None:
    """With 3 at first: which doubling a count is in, and how many partitions of it are split."""
    expected = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 0)]
    found = [Layout(3, count) for count in COUNTS_3]
    assert [(layout.low, layout.split) for layout in found] == [(3 * 2**level, split) for level, split in expected]


@pytest.mark.kip("K253-38", "T-2")
@pytest.mark.parametrize("h", range(24))
def test_homes_of_hashes(h: int) -> None:
    """The home of each hash at each count; from 12 on the rows repeat."""
    row = [int(p) for p in HOMES_3[h % 12].split()]
    assert [Layout(3, count).home_of_hash(h) for count in COUNTS_3] == row


@pytest.mark.kip("K253-38", "K253-10", "T-3")
@pytest.mark.parametrize("initial", [1, 2, 3, 4])
def test_equal_to_the_default_partitioner_at_doublings_only(initial: int) -> None:
    """hash % count gives the same homes at initial * 2**k, at no other count."""
    same = {
        count
        for count in range(initial, 33)
        if all(Layout(initial, count).home_of_hash(h) == h % count for h in range(4 * 32 * 27))
    }
    assert same == {initial * 2**k for k in range(6) if initial * 2**k <= 32}


@pytest.mark.kip("K253-38", "T-4")
@pytest.mark.parametrize(("key", "homes"), KEYS.items())
def test_homes_of_keys(key: str, homes: tuple[int, ...]) -> None:
    """Kafka's test keys, as text and as bytes, at counts 3, 4, 5, 6, 8 and 12."""
    layouts = [Layout(3, count) for count in (3, 4, 5, 6, 8, 12)]
    assert tuple(layout.home(key) for layout in layouts) == homes
    assert tuple(layout.home(key.encode()) for layout in layouts) == homes


@pytest.mark.kip("K253-52", "T-5")
@pytest.mark.parametrize("initial", [1, 3])
def test_parents(initial: int) -> None:
    """Which partition each later one was split from."""
    layout = Layout(initial, initial)
    assert {p: layout.parent(p) for p in PARENTS[initial]} == PARENTS[initial]


@pytest.mark.kip("K253-41", "K253-43", "C-05", "T-5")
@pytest.mark.parametrize(
    ("initial", "before", "after", "gates"),
    [
        (3, 3, 5, {3: {0}, 4: {1}}),
        (3, 5, 8, {5: {2}, 6: {0}, 7: {1}}),
        (3, 8, 4, {0: {6}, 1: {4, 7}, 2: {5}}),
        (3, 4, 12, {4: {1}, 5: {2}, 6: {0}, 7: {1}, 8: {2}, 9: {3}, 10: {1}, 11: {2}}),
        (3, 12, 7, {1: {7}, 2: {8}, 3: {9}, 4: {10}, 5: {11}}),
        (3, 12, 3, {0: {3, 6, 9}, 1: {4, 7, 10}, 2: {5, 8, 11}}),
        (1, 8, 1, {0: {1, 2, 3, 4, 5, 6, 7}}),
        (1, 8, 6, {2: {6}, 3: {7}}),
        (1, 6, 3, {1: {3, 5}, 0: {4}}),
        (3, 5, 5, {}),
    ],
)
def test_who_waits_for_whom(initial: int, before: int, after: int, gates: dict[int, set[int]]) -> None:
    """A new partition has one origin; a partition that takes retired ones in has one or more."""
    found: dict[int, set[int]] = {}
    for q, p in crossings(initial, before, after):
        found.setdefault(p, set()).add(q)
    assert found == gates


@pytest.mark.kip("T-5", "K253-55")
def test_retired_partitions_name_their_place_at_every_lower_count() -> None:
    """With 1 at first: where 6 and 7 go at 6, and where 3 to 7 go at 3."""
    layout = Layout(1, 8)
    assert [layout.origin(p, 6) for p in (6, 7)] == [2, 3]
    assert [layout.origin(p, 3) for p in (3, 4, 5, 6, 7)] == [1, 0, 1, 2, 1]


@pytest.mark.kip("K253-44", "T-6")
@pytest.mark.parametrize(
    ("initial", "before", "after", "share"),
    [(3, 3, 4, ".1667"), (3, 3, 5, ".3333"), (3, 3, 6, ".5000"), (3, 6, 7, ".0833"), (1, 8, 9, ".0625"),
     (3, 12, 13, ".0417"), (3, 3, 12, ".7500")],
)  # fmt: skip
def test_share_that_moves(initial: int, before: int, after: int, share: str) -> None:
    """The part of the keys that a change moves, the same both ways."""
    one, two = Layout(initial, before), Layout(initial, after)
    assert f"{float(one.share_moved(two)):.4f}"[1:] == share
    assert one.share_moved(two) == two.share_moved(one)


@pytest.mark.kip("K253-44", "T-6")
def test_load_between_doublings_is_uneven() -> None:
    """Three at first, four now: the split pair hold a sixth each, the others a third."""
    sixth, third = Fraction(1, 6), Fraction(1, 3)
    assert [Layout(3, 4).share(p) for p in range(4)] == [sixth, third, third, sixth]


@pytest.mark.kip("K253-38")
@settings(max_examples=100, deadline=None)
@given(LAYOUTS, st.integers(0, 2**31 - 1))
def test_homes_agree_with_one_split_at_a_time(shape: tuple[int, int], h: int) -> None:
    """Any count, any hash: the home is the cell that splitting partitions one by one leads to."""
    initial, count = shape
    layout = Layout(initial, count)
    assert layout.home_of_hash(h) == layout.home_of_hash(h % layout.period) == dumb_home(initial, count, h)


@settings(max_examples=60, deadline=None)
@given(LAYOUTS, st.binary(max_size=12))
def test_a_key_and_its_hash_have_one_home(shape: tuple[int, int], key: bytes) -> None:
    """The fast way through the client library gives what the hash gives, or its remainder by the period."""
    from keyorder.partitioner.hashing import key_hash

    layout = Layout(*shape)
    assert layout.home(key) == layout.home_of_hash(key_hash(key))


@pytest.mark.kip("K253-41", "K253-42", "K253-43")
@settings(max_examples=80, deadline=None)
@given(st.integers(1, 5), st.integers(0, 30), st.integers(0, 30))
def test_keys_move_between_an_outer_partition_and_its_origin_only(initial: int, more: int, other: int) -> None:
    """Whatever the two counts: growth takes from origin(p), a shrink gives to origin(d), and nothing else moves."""
    before, after = initial + more, initial + other
    layout = Layout(initial, before)
    found = list(layout.moves_to(Layout(initial, after)))
    assert len(found) == len(set(found)) == abs(before - after)
    assert set(found) == dumb_moves(initial, before, after)
    low, high = min(before, after), max(before, after)
    outer = [(p, layout.origin(p, low)) for p in range(low, high)]
    assert found == [(q, p) if before < after else (p, q) for p, q in outer]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 20))
def test_shares_agree_with_counting(initial: int, more: int, other: int) -> None:
    """Shares of partitions and of what moves, counted over the whole hash space; they add up to one."""
    before, after = initial + more, initial + other
    layout, target = Layout(initial, before), Layout(initial, after)
    space = hash_space(initial, before, after)
    homes = Counter(dumb_home(initial, before, h) for h in space)
    assert {p: layout.share(p) for p in range(before)} == {p: Fraction(n, len(space)) for p, n in homes.items()}
    moved = sum(dumb_home(initial, before, h) != dumb_home(initial, after, h) for h in space)
    assert layout.share_moved(target) == Fraction(moved, len(space))
    assert layout.period == max(modulus for _, modulus in cells(initial, before))


@pytest.mark.kip("K253-08")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(12, 60))
def test_a_lower_initial_that_divides_by_doublings_routes_the_same(h: int, count: int) -> None:
    """Twelve partitions may be adopted as 12, 6 or 3: from twelve on every key has the same home."""
    assert len({Layout(initial, count).home_of_hash(h) for initial in (12, 6, 3)}) == 1


@pytest.mark.kip("K253-09")
@pytest.mark.parametrize(("initial", "count"), [(0, 0), (0, 1), (-1, 3), (4, 3), (1, 0)])
def test_counts_that_make_no_layout(initial: int, count: int) -> None:
    """A layout needs 1 <= initial <= count."""
    with pytest.raises(LayoutError, match="1 <= initial <= count"):
        Layout(initial, count)


@pytest.mark.kip("K253-09", "K253-31")
def test_questions_that_have_no_answer_are_refused() -> None:
    """No parent of a first partition, no origin or layout below the first count, no moves between two topics."""
    layout = Layout(3, 6)
    with pytest.raises(LayoutError, match="no parent"):
        layout.parent(2)
    with pytest.raises(LayoutError, match="below the initial"):
        layout.origin(5, 2)
    with pytest.raises(LayoutError):
        layout.resized(2)
    with pytest.raises(LayoutError, match="different topics"):
        list(layout.moves_to(Layout(2, 8)))
    with pytest.raises(KeyTypeError):
        layout.home(5)  # type: ignore[arg-type]
    assert layout.resized(9) == Layout(3, 9)


@pytest.mark.kip("K253-08")
def test_a_lower_initial_count_is_taken_only_where_no_key_moves() -> None:
    """12 partitions may be 12, 6 or 3; nothing else, and the error names what may be."""
    for initial in (12, 6, 3):
        layout = same_routing(initial, 12)
        assert [layout.home_of_hash(h) for h in range(200)] == [h % 12 for h in range(200)]
    for initial in (1, 2, 4, 5, 7, 8, 9, 11):
        with pytest.raises(LayoutError, match="12, 6, 3"):
            same_routing(initial, 12)
