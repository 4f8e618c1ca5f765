"""Hard applications on stock clients and on ours, beside each other: nothing lost, reordered or skipped, and nobody stands still.

A few seeds run in `make test`. `make applications SEEDS=200` runs many, `SEED=n` one. KEYORDER_STOCK=0 leaves the stock side out.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from integration.applications.plan import HABITS, KINDS, plan_of
from integration.applications.run import Outcome, coverage_report, run_seed
from support.cluster import KafkaUnderTest

SEEDS = int(os.environ.get("KEYORDER_APPLICATIONS", "0"))
ONE = os.environ.get("KEYORDER_SEED")
STOCK = os.environ.get("KEYORDER_STOCK") != "0"
AT_ONCE = int(os.environ.get("KEYORDER_JOBS", "3"))
# Seeds that keep the quick run to about a minute.
QUICK = (4, 7, 9, 10, 11, 15, 45, 47, 54, 116, 154)


def test_a_row_of_seeds_has_every_kind_and_every_habit() -> None:
    """What two hundred seeds do is no matter of luck; a seed means the same application each time."""
    plans = [plan_of(seed) for seed in range(1, 201)]
    had = {(plan.kind, habit.name) for plan in plans for habit in plan.habits}

    assert {(kind, name) for kind in KINDS for name in HABITS[kind]} - had == set()
    assert plans == [plan_of(seed) for seed in range(1, 201)]


@pytest.mark.timeout(0)  # each part of a scenario has its limit, which follows its progress
@pytest.mark.kip("K253-01")
def test_hard_applications_lose_nothing(quick_groups: KafkaUnderTest, tmp_path: Path) -> None:
    """0 lost, 0 reordered, 0 skipped for ours under every seed; what the stock client does is printed beside it."""
    seeds = [int(ONE)] if ONE is not None else list(range(1, SEEDS + 1)) if SEEDS else QUICK
    coverage: Counter[str] = Counter()
    bad: list[Outcome] = []
    stock = [0, 0, 0]

    def run(seed: int) -> Outcome:
        return run_seed(quick_groups.client_config(), seed, tmp_path, stock=STOCK)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for outcome in pool.map(run, seeds):
            print(outcome, flush=True)
            coverage += outcome.coverage
            if outcome.stock is not None:
                stock = [a + b for a, b in zip(stock, outcome.stock.figures(), strict=True)]
            if outcome.ours.problems:
                bad.append(outcome)
            else:
                shutil.rmtree(tmp_path / str(outcome.plan.seed))

    print(coverage_report(coverage))
    print(
        f"stock clients beside: {stock[0]} records lost or skipped, {stock[1]} keys reordered, {stock[2]} standstills"
    )
    assert not bad, "\n\n".join(
        [f"{outcome}\n  again: make applications SEED={outcome.plan.seed}" for outcome in bad]
        + [f"{len(bad)} of {len(seeds)}"]
    )
