"""The dry run: which keys would move, in exact shares."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.changes.plan import KeyMove, plan_change
from keyorder.partitioner.errors import LayoutError
from keyorder.partitioner.layout import Layout


@st.composite
def changes(draw: st.DrawFn) -> tuple[Layout, int]:
    """A layout and a count that it can be brought to."""
    initial = draw(st.integers(1, 7))
    return Layout(initial, draw(st.integers(initial, 40))), draw(st.integers(initial, 40))


def test_growing_four_to_six_moves_a_quarter() -> None:
    """Each new partition takes half of one old one; all other keys stay."""
    plan = plan_change(Layout(4, 4), 6)

    assert plan.moves == (KeyMove(0, 4, Fraction(1, 8)), KeyMove(1, 5, Fraction(1, 8)))
    assert plan.share_moved == Fraction(1, 4)
    assert (list(plan.added), list(plan.retired)) == ([4, 5], [])


def test_shrinking_is_growing_backwards() -> None:
    """The way back moves the same keys the other way."""
    plan = plan_change(Layout(4, 6), 4)

    assert plan.moves == (KeyMove(4, 0, Fraction(1, 8)), KeyMove(5, 1, Fraction(1, 8)))
    assert (list(plan.added), list(plan.retired)) == ([], [4, 5])


def test_the_same_count_moves_nothing() -> None:
    """A change to the present count is no change."""
    plan = plan_change(Layout(3, 5), 5)

    assert plan.moves == ()
    assert plan.share_moved == 0 == plan.share_moved_by_stock


def test_a_count_below_the_initial_one_has_no_plan() -> None:
    """What cannot be done cannot be planned."""
    with pytest.raises(LayoutError, match="initial"):
        plan_change(Layout(4, 6), 3)


@pytest.mark.kip("K253-44")
@given(changes())
def test_the_shares_are_those_of_counted_hashes(change: tuple[Layout, int]) -> None:
    """Sorting every residue by its two homes gives the same moves and shares as the plan."""
    current, count = change
    target = Layout(current.initial, count)
    period = max(current.period, target.period)
    counted = Counter((current.home_of_hash(h), target.home_of_hash(h)) for h in range(period))
    plan = plan_change(current, count)

    assert {(q, p): Fraction(n, period) for (q, p), n in counted.items() if q != p} == {
        (move.source, move.target): move.share for move in plan.moves
    }


@pytest.mark.kip("K253-44")
@given(changes())
def test_the_stock_share_is_that_of_counted_hashes(change: tuple[Layout, int]) -> None:
    """Counting `h % before != h % after` over all residues gives the stock partitioner's share."""
    current, count = change
    residues = range(current.count * count)
    moved = sum(h % current.count != h % count for h in residues)

    assert plan_change(current, count).share_moved_by_stock == Fraction(moved, len(residues))


@given(st.integers(1, 7), st.integers(0, 3), st.integers(0, 3))
def test_at_doublings_both_move_the_same(initial: int, before: int, after: int) -> None:
    """Between counts of initial * 2**k linear hashing and the stock partitioner agree on every key."""
    plan = plan_change(Layout(initial, initial * 2**before), initial * 2**after)

    assert plan.share_moved == plan.share_moved_by_stock
