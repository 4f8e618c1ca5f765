"""Every interleaving of a few writers, controllers and faults: the cuts hold, order is kept, every change can end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from model.search import LARGE, search
from model.states import GUARDS, Bounds
from model.writers import WriterModel

PAIR = Bounds(("k", "k"))
ALONE = Bounds(("kk",), joined=(True,))
ONE = replace(ALONE, scripts=("k",))
LATE = Bounds(("k", "k"), joined=(True, False))

#: what: (quick bounds, larger bounds)
WORLDS = {
    "two writers": (Bounds(("kk", "k")), Bounds(("kk", "kk"))),
    "with a key that stays": (Bounds(("ks", "k")), Bounds(("ksk", "ks"))),
    "both join meanwhile": (replace(PAIR, joined=(False, False)), Bounds(("kk", "k"), joined=(False, False))),
    "there and back": (replace(PAIR, counts=(1, 2, 1)), Bounds(("kk", "k"), counts=(1, 2, 1, 2))),
    "an attempt given up": (replace(PAIR, aborts=1), Bounds(("kk", "k"), aborts=1)),
    "a controller taken over": (replace(PAIR, takeovers=1), replace(PAIR, aborts=1, takeovers=1)),
    "a writer crashes": (replace(ALONE, crashes=1), Bounds(("k", ""), crashes=1)),
    "crash, there and back": (replace(ONE, crashes=1, counts=(1, 2, 1)), replace(ALONE, crashes=1, counts=(1, 2, 1))),
    "crash while joining": (replace(ONE, joined=(False,), crashes=1), replace(ALONE, joined=(False,), crashes=1)),
    "a lease lapses": (replace(ALONE, lapses=1), Bounds(("k", ""), lapses=1)),
    "crash and abort": (replace(ONE, crashes=1, aborts=1), replace(ALONE, crashes=1, aborts=1)),
    "crash and take-over": (replace(ONE, crashes=1, takeovers=1), replace(ALONE, crashes=1, takeovers=1)),
}


@pytest.mark.parametrize("what", WORLDS)
def test_all_orders_of_events_keep_the_cuts(what: str) -> None:
    """With every guard on nothing is found, and the search has been everywhere within its bounds."""
    result = search(WriterModel(WORLDS[what][LARGE]))
    print(f"{what}: {result}")
    assert result.fault is None, str(result)
    assert result.exhaustive


#: (guards switched off, where, what has to be found; None: implied by the others within these bounds)
REMOVED = [
    ("hold", PAIR, "STRAY"),
    ("ready_waits_in_flight", PAIR, "STRAY"),
    ("ready_from_all", PAIR, "STRAY"),
    ("cuts_after_ready", PAIR, "STRAY"),
    ("fifo_release", ALONE, "ORDER"),
    ("self_fencing", replace(ALONE, lapses=1), "STRAY"),
    ("requests_resolved_before_expel", replace(ALONE, crashes=1), "STRAY"),
    ("replicated_before_expel", replace(ALONE, crashes=1), "STRAY"),
    ("controller_fence", replace(ALONE, takeovers=1), "FORK"),
    ("read_after_init", replace(ALONE, takeovers=1), "FORK"),
    ("attempt_number_on_ready", replace(ALONE, aborts=1), "STRAY"),
    ("superseded_lease", replace(ALONE, crashes=1), "STRAY"),
    ("clean_rejoin superseded_lease", replace(ALONE, lapses=1), "STRAY"),
    ("read_past_join", LATE, "STRAY"),
    ("hold_after_join", LATE, "STRAY"),
    ("set_includes_prepare", LATE, "STRAY"),
    ("deadline", replace(ONE, crashes=1), "WEDGE"),
    ("expel", replace(ONE, crashes=1), "WEDGE"),
    # Each of these two alone covers a lapse: what the older join left on the wire is waited for by one or by the other.
    ("superseded_lease", replace(ALONE, lapses=1), None),
    ("clean_rejoin", replace(ALONE, lapses=1), None),
    # Who is superseded said READY with nothing in flight, and has held the moving keys since.
    ("incarnation_on_ready", replace(ONE, crashes=1, aborts=1), None),
]


@pytest.mark.parametrize(("off", "bounds", "found"), REMOVED, ids=[f"{row[0]} {row[2]}" for row in REMOVED])
def test_each_guard_is_needed(off: str, bounds: Bounds, found: str | None) -> None:
    """Without it the named violation is found (or none, where others imply it); with all guards on none, in the same bounds."""
    result = search(WriterModel(bounds, frozenset(off.split())))
    print(f"without {off}: {result}")
    assert found == result.fault, str(result)
    assert found is None or search(WriterModel(bounds)).fault is None


def test_every_guard_is_in_the_table() -> None:
    """None is forgotten."""
    assert GUARDS.keys() == {name for off, _, _ in REMOVED for name in off.split()}
