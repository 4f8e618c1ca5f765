"""Every interleaving of early release over small histories: nothing reordered, nothing lost, no old last word, no wedge."""

from __future__ import annotations

import pytest
from model.early import GUARDS, Bounds, EarlyModel
from model.histories import History, family
from model.search import LARGE, search


def _all(counts: tuple[int, ...], alphabet: str, most: int, each: int) -> tuple[History, ...]:
    return tuple(family(counts, alphabet, most, each))


def _some(counts: tuple[int, ...], *scripts: str) -> tuple[History, ...]:
    return tuple(History(counts, script) for script in scripts)


#: what: (quick bounds, larger bounds)
WORLDS = {
    "grow": (
        Bounds(_all((1, 2), "af", 3, 2), crashes=1),
        Bounds(_all((1, 2), "abf", 4, 3), crashes=1, unread=True),
    ),
    "grow twice": (
        Bounds(_all((1, 2, 4), "ae", 3, 1), crashes=1),
        Bounds(_all((1, 2, 4), "aef", 3, 1), crashes=1),
    ),
    "there, back, there": (
        Bounds(_all((1, 2, 1, 2), "a", 4, 2)),
        Bounds(_all((1, 2, 1, 2), "af", 3, 2), crashes=1),
    ),
    "shrink": (
        Bounds(_all((2, 1), "af", 3, 2), crashes=1),
        Bounds(_all((4, 2, 1), "ae", 4, 2), crashes=1),
    ),
    "positions go back": (
        Bounds(_some((1, 2), "a+a", "af+af", "aa+a"), rewinds=1, unread=True),
        Bounds(_all((1, 2), "af", 4, 2), rewinds=1, crashes=1, unread=True),
    ),
    "open transactions": (
        Bounds(_some((1, 2), "at+ac", "t+afc", "ft+ac"), crashes=1),
        Bounds(_some((1, 2, 4), "at+ac+a", "t+a+ac", "ft++ac"), crashes=1),
    ),
    "deleted records": (
        Bounds(_some((1, 2), "a+aD", "af+Da"), prefetch=True, crashes=1),
        Bounds(_some((1, 2), "a+aD", "aa+aDa", "af+Da") + _some((1, 2, 4), "a++aD"), prefetch=True, crashes=1),
    ),
    "cleaned records": (
        Bounds(_some((1, 2), "a+ak", "af+ka"), prefetch=True, crashes=1),
        Bounds(_some((1, 2), "a+ak", "aa+aka", "af+ka"), prefetch=True, crashes=1),
    ),
}


@pytest.mark.parametrize("what", WORLDS)
def test_all_orders_of_events_keep_the_order_of_keys(what: str) -> None:
    """With every guard on nothing is found, and the search has been everywhere within its bounds."""
    result = search(EarlyModel(WORLDS[what][LARGE]))
    print(f"{what}: {result}")
    assert result.fault is None, str(result)
    assert result.exhaustive


A = _some((1, 2), "a+a")

#: (guards switched off, where, what has to be found; None: implied by the others)
REMOVED = [
    ("absent_only", Bounds(A, overlap=False), "REORDER"),
    ("to_the_cut", Bounds(A, overlap=False), "REORDER"),
    ("stable_end", Bounds(_some((1, 2), "t+ac"), overlap=False), "REORDER"),
    ("whole_trail", Bounds(_some((1, 2, 4), "af++a"), overlap=False), "REORDER"),
    # A tail that begins above the committed position shows nothing: each of the two does the other's work here.
    ("from_committed", Bounds(A, crashes=1), None),
    ("from_committed start_at_or_below_position", Bounds(A), "OVERLAP"),
    ("from_committed start_at_or_below_position", Bounds(A, crashes=1, overlap=False), "STALE"),
    ("log_start_is_no_position", Bounds(_some((1, 2), "a+aD"), prefetch=True, overlap=False), "REORDER"),
    ("start_at_or_below_position", Bounds(_some((1, 2), "af+a"), rewinds=1, unread=True), "UNREAD"),
    ("not_compacted", Bounds(_some((1, 2), "af+ka"), prefetch=True, overlap=False), "REORDER"),
]


@pytest.mark.parametrize(("off", "bounds", "found"), REMOVED, ids=[f"{row[0]} {row[2]}" for row in REMOVED])
def test_each_guard_is_needed(off: str, bounds: Bounds, found: str | None) -> None:
    """Without it the named violation is found; with all guards on none, in the same bounds."""
    result = search(EarlyModel(bounds, frozenset(off.split())))
    print(f"without {off}: {result}")
    assert found == result.fault, str(result)
    assert search(EarlyModel(bounds)).fault is None


def test_records_do_go_early() -> None:
    """The searches are not of a gate that never lets anything through: a record is given out while its origin stands still."""
    model = EarlyModel(Bounds(_some((1, 2), "f+a")))
    state = next(iter(model.initial()))
    seen, todo, early = {state}, [state], False
    while todo:
        for label, after in model.steps(todo.pop()):
            assert isinstance(after, tuple), after
            early |= "delivers a#1" in str(label[0]) and after.commits == (0, 0) and not after.ever & 1
            if after not in seen:
                seen.add(after)
                todo.append(after)
    assert early


def test_every_guard_is_in_the_table() -> None:
    """None is forgotten."""
    assert GUARDS.keys() == {name for off, _, _ in REMOVED for name in off.split()}
