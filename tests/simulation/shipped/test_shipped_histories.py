"""Simulated histories of the shipped clients: nothing lost, reordered, repeated against the rules, or stuck.

Each runs in a process of its own, on simulated threads, time and client library. `make simulate` runs many of them,
`SEED=n make simulate` repeats one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SEEDS = int(os.environ.get("KEYORDER_SIMULATIONS", "24"))
ONLY = os.environ.get("KEYORDER_SEED")
RUN = Path(__file__).with_name("run.py")


def run(first: int, count: int, mutant: str = "") -> list[dict[str, Any]]:
    """The outcomes of some seeds."""
    done = subprocess.run(
        [sys.executable, "-s", str(RUN), str(first), str(count), mutant], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert outcomes, done.stderr
    assert mutant or len(outcomes) == count, done.stderr
    return outcomes


@pytest.mark.timeout(0 if SEEDS > 24 else 600)
def test_every_history_is_good() -> None:
    """Members, writers and controllers die, freeze, stall and come back while a topic grows and shrinks."""
    outcomes = run(0, SEEDS) if ONLY is None else run(int(ONLY), 1)
    bad = [f"repeat it: make simulate SEED={o['seed']}\n{o['said']}" for o in outcomes if not o["good"]]
    assert not bad, "\n\n".join([*bad[:3], f"{len(bad)} of {len(outcomes)}"])
    if ONLY is None:
        assert sum(o["changes"] for o in outcomes) > SEEDS
        assert sum(o["moved"] for o in outcomes) > SEEDS
        assert sum(o["records"] for o in outcomes) > 50 * SEEDS


@pytest.mark.timeout(300)
@pytest.mark.skipif(ONLY is not None, reason="one seed alone")
def test_a_seed_gives_one_history() -> None:
    """The same seed, the same events, in another process too: what was found can be looked at."""
    first, second = run(5, 3), run(5, 3)
    assert [o["digest"] for o in first] == [o["digest"] for o in second]
    assert len({o["digest"] for o in first}) == 3
