"""Every interleaving of a writer's lease with a controller that expels it: nothing lands behind a cut."""

from __future__ import annotations

import pytest
from model.leases import GUARDS, Bounds, LeaseModel
from model.search import LARGE, search

#: what: (quick bounds, larger bounds)
WORLDS = {
    "one renewal": (Bounds(), Bounds(ticks=8, renewals=2)),
    "two attempts": (Bounds(ticks=5, attempts=2), Bounds(ticks=7, attempts=2)),
}


@pytest.mark.parametrize("what", WORLDS)
def test_no_record_lands_behind_a_cut(what: str) -> None:
    """With every guard on nothing is found, and the search has been everywhere within its bounds."""
    result = search(LeaseModel(WORLDS[what][LARGE]))
    print(f"{what}: {result}")
    assert result.fault is None, str(result)
    assert result.exhaustive


@pytest.mark.parametrize("off", GUARDS)
def test_each_guard_is_needed(off: str) -> None:
    """Without any one of them a record lands behind the cut."""
    result = search(LeaseModel(Bounds(), frozenset({off})))
    print(f"without {off}: {result}")
    assert result.fault == "STRAY", str(result)
