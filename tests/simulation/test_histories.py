"""Simulated histories of the real state machines: nothing lost, reordered, repeated against the rules, or stuck.

`make simulate-machines` runs a hundred thousand; with `SEED=n` it repeats one and prints what it was.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import pytest
from simulation.scenario import Outcome, simulate

SEEDS = int(os.environ.get("KEYORDER_SIMULATIONS", "400"))
ONLY = os.environ.get("KEYORDER_SEED")
CHUNK = max(100, SEEDS // 100)


def bad_ones(first: int) -> list[str]:
    """What is wrong with each bad history of a chunk."""
    outcomes = map(simulate, range(first, first + CHUNK))
    return [str(outcome) for outcome in outcomes if not outcome.good]


@pytest.mark.timeout(0 if SEEDS > 1000 else 1200)
@pytest.mark.skipif(ONLY is not None, reason="one seed alone")
@pytest.mark.kip("K253-01")
def test_every_history_is_good() -> None:
    """Writers, readers and controllers die, freeze and are cut off in the middle of chains of growths and shrinks."""
    if SEEDS <= 1000:
        bad = [text for first in range(0, SEEDS, CHUNK) for text in bad_ones(first)]
    else:
        with ProcessPoolExecutor() as pool:
            bad = [text for found in pool.map(bad_ones, range(0, SEEDS, CHUNK)) for text in found]
    assert not bad, "\n\n".join([*bad[:5], f"{len(bad)} of {SEEDS}"])


@pytest.mark.skipif(ONLY is None, reason="no seed was named")
def test_one_history() -> None:
    """The history of KEYORDER_SEED."""
    outcome = simulate(int(ONLY or 0))
    print(outcome)
    assert outcome.good, str(outcome)


def test_a_seed_gives_one_history() -> None:
    """The same seed, the same events: what was found can be looked at."""
    assert [str(simulate(7)), str(simulate(6))] == [str(simulate(7)), str(simulate(6))]


@pytest.mark.skipif(ONLY is not None, reason="one seed alone")
def test_the_histories_have_what_they_are_about() -> None:
    """In a hundred of them: changes, moved keys, and every kind of fault."""
    found: list[Outcome] = [simulate(seed) for seed in range(1000, 1100)]

    struck = {fault for outcome in found for fault in outcome.faults}
    assert struck >= {
        "controller frozen",
        "controller killed",
        "control record lost",
        "control record twice",
        "leader away",
        "lease cut off",
        "member frozen",
        "member killed",
        "rebalance",
        "transaction without a result",
        "writer cut off",
        "writer expelled",
        "writer frozen",
        "writer id used twice",
        "writer joins before PREPARE",
        "writer joins under PREPARE",
        "writer killed",
        "writer restarted",
        "writers stamped",
    }
    assert sum(outcome.changes for outcome in found) > 200
    assert sum(outcome.verdict.keys_moved for outcome in found) > 200
    assert sum(outcome.verdict.acknowledged for outcome in found) > 4000


@pytest.mark.skipif(ONLY is not None, reason="one seed alone")
def test_clocks_that_lie_together_break_nothing_unseen() -> None:
    """The leader's clock is set while it leads, and the controllers' clocks with it: a living writer may be expelled.

    Whatever that breaks is a misplaced record, which readers find: no key is out of order without one.
    """
    outcomes = [simulate(seed, lying=True) for seed in range(200)]

    assert sum(outcome.faults.get("writers stamped", 0) for outcome in outcomes) > 20
    unseen = [str(outcome) for outcome in outcomes if not outcome.verdict.valid and not outcome.strays]
    assert not unseen, "\n\n".join(unseen[:3])
