"""Members that wait for each other's proofs: nothing is read too early, and from everywhere all of them get on."""

from __future__ import annotations

import pytest
from model.histories import History, family
from model.proofs import GUARDS, Bounds, ProofModel
from model.search import LARGE, WEDGE, search


def _some(counts: tuple[int, ...], *scripts: str) -> tuple[History, ...]:
    return tuple(History(counts, script) for script in scripts)


BACK = _some((1, 2, 1), "ab+a+b", "a+a+ba", "+ab+ba")
THERE = _some((1, 2, 1, 2), "a+++ba")
THERE_AGAIN = _some((1, 2, 1, 2), "a+++ba", "+a++ba", "+a+b+ba")
WIDE = _some((1, 2, 4), "a++ea", "a+e+ab")

#: what: (quick bounds, larger bounds)
GROUPS = {
    "handed over": (
        Bounds(BACK[:1] + THERE, handovers=1, together=True),
        Bounds(BACK + THERE_AGAIN + WIDE, handovers=2, together=True),
    ),
    "crashes": (Bounds(BACK[1:2], crashes=1), Bounds(tuple(family((1, 2, 1), "ab", 3, 2)) + THERE_AGAIN, crashes=1)),
    "wide": (Bounds(WIDE[:1]), Bounds(WIDE, handovers=1)),
    "reset": (
        Bounds(_some((1, 2), "a+a"), resets=1, slow=True),
        Bounds(_some((1, 2), "ab+aa") + BACK[1:2], resets=1, slow=True),
    ),
}


@pytest.mark.parametrize("what", GROUPS)
def test_every_group_gets_on_from_everywhere(what: str) -> None:
    """With every guard on nothing is found, and the search has been everywhere within its bounds."""
    result = search(ProofModel(GROUPS[what][LARGE]))
    print(f"{what}: {result}")
    assert result.fault is None, str(result)
    assert result.exhaustive


#: (guard switched off, where, what has to be found)
REMOVED = [
    ("acknowledged_decides", Bounds(THERE, handovers=1, together=True), WEDGE),
    ("epoch_not_offset", Bounds(THERE), WEDGE),
    ("proof", Bounds(_some((1, 2), "a+a")), "UNFLUSHED"),
    ("after_the_flush", Bounds(_some((1, 2), "a+a")), "UNFLUSHED"),
    ("answers_since_assignment", Bounds(_some((1, 2), "a+a"), resets=1, slow=True), "UNREAD"),
]


@pytest.mark.parametrize(("off", "bounds", "found"), REMOVED, ids=[row[0] for row in REMOVED])
def test_each_guard_is_needed(off: str, bounds: Bounds, found: str) -> None:
    """Without it the named violation is found; with all guards on none, in the same bounds."""
    result = search(ProofModel(bounds, frozenset({off})))
    print(f"without {off}: {result}")
    assert found == result.fault, str(result)
    assert search(ProofModel(bounds)).fault is None


def test_every_guard_is_in_the_table() -> None:
    """None is forgotten."""
    assert GUARDS.keys() == {off for off, _, _ in REMOVED}
