"""What stands against giving a topic back to stock clients, from facts alone."""

from __future__ import annotations

from dataclasses import replace

from keyorder.connector.operations.releasing import moved, obstacles, warnings
from keyorder.partitioner.epochs import ChangePhase
from support.dumb import timeline_of

FOUR = timeline_of(4, [])
SIX = timeline_of(4, [(6, {0: 1, 1: 1}, {4: 0, 5: 0})])
EIGHT = timeline_of(4, [(8, {0: 1, 1: 1, 2: 1, 3: 1}, {4: 0, 5: 0, 6: 0, 7: 0})])


def codes(*facts: object, **more: object) -> list[str]:
    """The obstacles' names."""
    return [each.code for each in obstacles(*facts, **more)]  # type: ignore[arg-type]


def test_nothing_is_in_the_way_at_a_count_of_stock_hashing() -> None:
    """Whether the topic was ever changed or not; only then are there older records out of their place."""
    assert codes(FOUR, 4, False) == codes(EIGHT, 8, False) == []
    assert (moved(FOUR), moved(EIGHT)) == (False, True)
    assert warnings(FOUR) == ()
    assert "in order" in warnings(EIGHT)[0]


def test_a_count_at_which_stock_producers_place_keys_elsewhere() -> None:
    """The next right one is named: retired partitions and those that somebody else has added count as partitions."""
    (found,) = obstacles(SIX, 6, False)
    assert (found.code, "--partitions 8`" in found.text) == ("count", True)
    shrunk = timeline_of(4, [(6, {0: 1, 1: 1}, {4: 0, 5: 0}), (4, {4: 9, 5: 9}, {0: 9, 1: 9})])
    (found,) = obstacles(shrunk, 6, False)
    assert "--partitions 8`" in found.text
    assert codes(FOUR, 8, False) == ["count"]


def test_all_that_is_in_the_way_is_told_at_once() -> None:
    """An open change, live writers, groups before closed gates."""
    found = obstacles(EIGHT.opened(9, ChangePhase.PLAN), 8, False, ["billing-1"], {"b": [5], "a": [7, 5, 5]})
    assert [each.code for each in found] == ["change", "writer", "gate", "gate"]
    assert "'billing-1'" in found[1].text
    assert "'a' has a closed gate at partition 5, 7" in found[2].text


def test_values_of_a_compacted_topic_stay_behind() -> None:
    """Where its keys have moved; before the first change nothing lies elsewhere."""
    assert codes(EIGHT, 8, True) == ["compacted"]
    assert codes(FOUR, 4, True) == []


def test_the_mark_is_all_that_is_taken_back() -> None:
    """Other settings stay."""
    released = replace(EIGHT, settings={"a": "b"}).given_back("then by them")
    assert released.released == "then by them"
    assert released.taken_back() == replace(EIGHT, settings={"a": "b"})
    assert released.taken_back().released is None
