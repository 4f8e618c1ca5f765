"""Every interleaving of a small group over small histories: nothing reordered, nothing lost, no old last word, no wedge."""

from __future__ import annotations

import pytest
from model.histories import History, family
from model.readers import GUARDS, Bounds, ReaderModel
from model.search import LARGE, search


def _all(counts: tuple[int, ...], alphabet: str, most: int, each: int) -> tuple[History, ...]:
    return tuple(family(counts, alphabet, most, each))


def _some(counts: tuple[int, ...], *scripts: str) -> tuple[History, ...]:
    return tuple(History(counts, script) for script in scripts)


RETAINED = _some((1, 2), "a+aD", "aa+aDa", "ab+Da") + _some((1, 2, 1), "a+aD+a", "a+a+Da", "+a+aD")
RETAINED += _some((1, 2, 4), "a+a+aD", "a++aD", "a+aD+a", "a+Da+a") + _some((1, 2, 1, 2), "a+a+Da+a", "a+a+aD+a")
UNDECIDED = _some((1, 2), "at+ac", "atc+a", "t+ac", "bt+aca")
UNDECIDED += _some((1, 2, 1), "+t+ac", "at+a+ac") + _some((1, 2, 4), "at++ac")

#: what: (quick bounds, larger bounds)
GROUPS = {
    "grow": (
        Bounds(_all((1, 2), "ab", 3, 2), crashes=1, handovers=1, together=True),
        Bounds(_all((1, 2), "ab.", 4, 3), crashes=1, handovers=1, together=True),
    ),
    "grow twice": (
        Bounds(_all((1, 2, 4), "ae", 3, 2), crashes=1, together=True),
        Bounds(_all((1, 2, 4), "ae.", 4, 2), crashes=1, together=True),
    ),
    "there and back": (
        Bounds(_all((1, 2, 1), "ab", 3, 2), crashes=1, together=True),
        Bounds(_all((1, 2, 1), "ab.", 4, 2), crashes=1, together=True),
    ),
    "there, back, there": (
        Bounds(_all((1, 2, 1, 2), "a", 4, 2), crashes=1),
        Bounds(_all((1, 2, 1, 2), "ab", 4, 2), crashes=1),
    ),
    "shrink twice": (
        Bounds(_all((4, 2, 1), "ae", 3, 2), crashes=1),
        Bounds(_all((4, 2, 1), "ae", 4, 2), crashes=1, together=True),
    ),
    "handed over": (
        Bounds(_all((1, 2, 4), "a.", 3, 1), handovers=1),
        Bounds(_all((1, 2, 4), "ae.", 3, 2), handovers=1, crashes=1),
    ),
    "markers": (
        Bounds(_all((1, 2), "a.", 4, 2), crashes=1),
        Bounds(_all((1, 2, 1), "a.", 5, 2), crashes=1),
    ),
    "open transactions": (Bounds(UNDECIDED, crashes=1), Bounds(UNDECIDED, crashes=1, handovers=1, together=True)),
    "deleted records": (
        Bounds(RETAINED[:6], crashes=1, prefetch=True),
        Bounds(RETAINED, crashes=1, handovers=1, prefetch=True),
    ),
    "late partitions": (
        Bounds(_all((1, 2), "ab", 3, 2) + _all((1, 2, 4), "a", 3, 1), crashes=1, late=True),
        Bounds(_all((1, 2, 4), "ae", 3, 2), crashes=1, late=True),
    ),
    "begins at the ends": (
        Bounds(_all((1, 2, 4), "a", 3, 1) + _all((1, 2, 1), "a", 3, 2), crashes=1, latest=True),
        Bounds(_all((1, 2, 4), "ae", 4, 2) + _all((1, 2, 1, 2), "a", 4, 2), crashes=1, latest=True),
    ),
}


@pytest.mark.parametrize("what", GROUPS)
def test_all_orders_of_events_keep_the_order_of_keys(what: str) -> None:
    """With every guard on nothing is found, and the search has been everywhere within its bounds."""
    result = search(ReaderModel(GROUPS[what][LARGE]))
    print(f"{what}: {result}")
    assert result.fault is None, str(result)
    assert result.exhaustive


A = _some((1, 2), "a+a")
RETENTION = Bounds(_some((1, 2), "a+aD"), prefetch=True)

#: (guards switched off, where, what has to be found; None: implied by the others within these bounds)
REMOVED = [
    ("gate", Bounds(A, overlap=False), "REORDER"),
    ("gate", Bounds(A), "OVERLAP"),
    ("chain", Bounds(_some((1, 2, 4), "a++a"), overlap=False), "REORDER"),
    ("position_is_processed", Bounds(A), "OVERLAP"),
    ("position_is_processed", Bounds(A, crashes=1, overlap=False), "STALE"),
    ("position_is_committed", Bounds(A, crashes=1, apart=False, together=True, overlap=False), "STALE"),
    ("hint", Bounds(_some((1, 2, 1), "+a+a"), overlap=False), "REORDER"),
    # The second line, the age of the view, does the hint's work together with the hash.
    ("hint", Bounds(_all((1, 2, 1), "ab", 3, 1) + _all((1, 2, 4), "ae", 3, 1), crashes=1, fresh=True), None),
    ("hash hint", Bounds(_some((1, 2, 1), "+a+a"), overlap=False, fresh=True), "REORDER"),
    ("hint hash", Bounds(A, overlap=False), "REORDER"),
    ("gap_jump", Bounds(_some((1, 2), "a.+a")), "WEDGE"),
    ("eof_not_high_watermark", Bounds(_some((1, 2), "at+ac")), "LOSS"),
    ("new_partitions_from_log_start", Bounds(A, late=True), "LOSS"),
    ("consistent_starts", Bounds(A, latest=True), "LOSS"),
    ("log_start_opens_no_gate", RETENTION, "OVERLAP"),
    ("log_start_opens_no_gate", Bounds(RETENTION.histories, prefetch=True, overlap=False), "REORDER"),
    ("prefetch_drop", Bounds(RETENTION.histories, prefetch=True, overlap=False), "REORDER"),
    # A moved key's records carry the hint, so the hash has only foreign writers' records to find.
    ("hash", Bounds(_all((1, 2, 1), "ab", 3, 1) + _all((1, 2, 4), "ae", 3, 1), crashes=1), None),
]


@pytest.mark.parametrize(("off", "bounds", "found"), REMOVED, ids=[f"{row[0]} {row[2]}" for row in REMOVED])
def test_each_guard_is_needed(off: str, bounds: Bounds, found: str | None) -> None:
    """Without it the named violation is found (or none, where others imply it); with all guards on none, in the same bounds."""
    result = search(ReaderModel(bounds, frozenset(off.split())))
    print(f"without {off}: {result}")
    assert found == result.fault, str(result)
    assert found is None or search(ReaderModel(bounds)).fault is None


def test_every_guard_is_in_the_table() -> None:
    """None is forgotten."""
    assert GUARDS.keys() == {name for off, _, _ in REMOVED for name in off.split()}
