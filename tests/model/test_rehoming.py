"""Every interleaving of a re-homing with writers, a second controller, a growth and a reader: the last word stays right."""

from __future__ import annotations

import pytest
from model.rehoming import GUARDS, Bounds, RehomingModel
from model.search import LARGE, search

#: what: (quick bounds, larger bounds)
WORLDS = {
    "nobody writes": (Bounds(("",)), Bounds(("",), "re-home")),
    "a value": (Bounds(("w", "")), Bounds(("ww", "w"))),
    "a delete": (Bounds(("x", "")), Bounds(("xw", "x"))),
    "a transaction": (Bounds(("t", "")), Bounds(("tt", "t"))),
    "two writers": (Bounds(("w", "x")), Bounds(("wx", "t"))),
    "taken over": (Bounds(("w",), "re-home"), Bounds(("wx", "t"), "re-home")),
    "taken over in a transaction": (Bounds(("t",), "re-home"), Bounds(("tx", "w"), "re-home")),
    "a growth": (Bounds(("w",), "grow"), Bounds(("wx", "t"), "grow")),
    "a growth, then another try": (Bounds(("w",), "grow, re-home"), Bounds(("wx", "t"), "grow, re-home")),
    "a growth and a transaction": (Bounds(("t",), "grow"), Bounds(("tw", "x"), "grow")),
}


@pytest.mark.kip("C-22")
@pytest.mark.parametrize("what", WORLDS)
def test_all_orders_of_events_keep_the_last_word(what: str) -> None:
    """With every guard on nothing is found, and the search has been everywhere within its bounds."""
    result = search(RehomingModel(WORLDS[what][LARGE]))
    print(f"{what}: {result}")
    assert result.fault is None, str(result)
    assert result.exhaustive


#: (guard switched off, where, what has to be found)
REMOVED = [
    ("hold", Bounds(("w",)), "TABLE"),
    ("ready_waits_in_flight", Bounds(("w",)), "TABLE"),
    ("ready_from_all", Bounds(("w", "")), "TABLE"),
    ("look_after_ready", Bounds(("w",)), "TABLE"),
    ("one_transaction", Bounds(("w",), "re-home"), "TABLE"),
    ("one_transaction", Bounds(("w",), "grow"), "TABLE"),
    ("tombstone_with_copy", Bounds(("t",)), "TABLE"),
    ("undecided_is_left", Bounds(("t",)), "TABLE"),
    ("aborted_is_none", Bounds(("t",)), "TABLE"),
    ("delete_supersedes", Bounds(("x",)), "TABLE"),
    ("only_while_retired", Bounds(("w",), "grow, re-home"), "TABLE"),
    # What lies below its position need not have been there when it came by.
    ("copies_are_delivered", Bounds(("",)), "READER"),
]


@pytest.mark.parametrize(("off", "bounds", "found"), REMOVED, ids=[f"{row[0]} {row[1].second}" for row in REMOVED])
def test_each_guard_is_needed(off: str, bounds: Bounds, found: str) -> None:
    """Without it the named violation is found; with all guards on none, in the same bounds."""
    result = search(RehomingModel(bounds, frozenset({off})))
    print(f"without {off}: {result}")
    assert found == result.fault, str(result)
    assert search(RehomingModel(bounds)).fault is None


def test_every_guard_is_in_the_table() -> None:
    """None is forgotten."""
    assert GUARDS.keys() == {off for off, _, _ in REMOVED}
