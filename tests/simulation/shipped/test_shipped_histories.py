"""Simulated histories of the shipped clients: nothing lost, reordered, repeated against the rules, or stuck.

Each runs in a process of its own, on simulated threads, time and client library. `make simulate` runs many of them,
`make simulate FIRST=n` begins with another seed, and `make simulate SEED=n` repeats one; `KEEP=1` adds the run to the record.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from typing import Any

import pytest
from simulation.shipped import record
from simulation.shipped.coverage import all_pairs

SEEDS = int(os.environ.get("KEYORDER_SIMULATIONS", "24"))
FIRST = int(os.environ.get("KEYORDER_FIRST_SEED", "0"))
ONLY = os.environ.get("KEYORDER_SEED")
KEEP = bool(os.environ.get("KEYORDER_KEEP"))
RUN = Path(__file__).with_name("run.py")


def play(first: int, count: int, mutant: str = "", jobs: int = 1) -> Iterator[dict[str, Any]]:
    """The outcomes of some seeds, as their histories end."""
    command = [sys.executable, "-s", str(RUN), str(first), str(count), mutant, str(jobs)]
    with TemporaryFile("w+") as errors, subprocess.Popen(command, stdout=PIPE, stderr=errors, text=True) as running:
        assert running.stdout is not None
        try:
            yield from (json.loads(line) for line in running.stdout if line.startswith("{"))
        finally:
            running.stdout.close()  # to one that is left early this is the end
        errors.seek(0)
        assert not running.wait(), errors.read()


def run(first: int, count: int, mutant: str = "") -> list[dict[str, Any]]:
    """The outcomes of some seeds."""
    outcomes = list(play(first, count, mutant))
    assert outcomes
    assert mutant or len(outcomes) == count
    return outcomes


class Tally:
    """What many histories have shown. Tells from time to time how far they are, and of a bad one at once."""

    def __init__(self, told: int) -> None:
        self.sums, self.faults, self.pairs = Counter[str](), Counter[str](), set[str]()
        self.bad: list[str] = []
        self._told, self._began = told, time.monotonic()

    def add(self, outcome: dict[str, Any]) -> None:
        """One more."""
        if not outcome["good"]:
            self.bad.append(f"repeat it: make simulate SEED={outcome['seed']}\n{outcome['said']}")
            print(f"\n{self.bad[-1]}", flush=True)
        self.sums["histories"] += 1
        self.sums.update({name: outcome.get(name, 0) for name in ("changes", "moved", "records", "cpu")})
        self.faults.update(outcome.get("faults", {}))
        self.pairs.update(outcome.get("pairs", ()))
        if self.sums["histories"] % self._told == 0:
            print(f"\n{self}", end="", flush=True)

    def kept(self, code: str) -> dict[str, Any]:
        """As the record has it. code: what was driven."""
        sums = {name: self.sums[name] for name in ("histories", "changes", "records")}
        return {"code": code, "first": FIRST, **sums, "bad": len(self.bad), "faults": sum(self.faults.values())}

    def __str__(self) -> str:
        s = self.sums
        return (
            f"{s['histories']} histories, {len(self.bad)} bad, {s['records']} records, {s['changes']} changes, "
            f"{s['moved']} moved keys, {sum(self.faults.values())} faults; {s['cpu'] / s['histories']:.2f} CPU seconds each, "
            f"{time.monotonic() - self._began:.0f} s"
        )


@pytest.mark.timeout(0 if SEEDS > 24 else 600)
def test_every_history_is_good() -> None:
    """Members, writers and controllers die, freeze, stall and come back while a topic grows and shrinks."""
    tally, code = Tally(max(24, SEEDS // 50)), record.code()
    jobs = len(os.sched_getaffinity(0)) if SEEDS > 24 and ONLY is None else 1
    for outcome in play(FIRST, SEEDS, jobs=jobs) if ONLY is None else play(int(ONLY), 1):
        tally.add(outcome)
    if KEEP and ONLY is None:
        assert code == record.code(), "the code was changed meanwhile: nothing is kept of this run"
        record.add(record.RECORD, tally.kept(code))
        record.update_page(record.PAGE, record.load())
    assert not tally.bad, "\n\n".join([*tally.bad[:3], f"{len(tally.bad)} of {tally.sums['histories']}"])
    if ONLY is None:
        assert tally.sums["histories"] == SEEDS
        assert tally.sums["changes"] > SEEDS
        assert tally.sums["moved"] > SEEDS
        assert tally.sums["records"] > 50 * SEEDS
        print("\n\nfaults:", *(f"{count} x {fault}" for fault, count in tally.faults.most_common()), sep="\n  ")
        assert tally.pairs <= all_pairs()
        never = sorted(all_pairs() - tally.pairs)
        print(f"\nstates x events: {len(tally.pairs)} of {len(all_pairs())} pairs; never seen:", *never, sep="\n  ")


@pytest.mark.timeout(300)
@pytest.mark.skipif(ONLY is not None, reason="one seed alone")
def test_a_seed_gives_one_history() -> None:
    """The same seed, the same events, in another process too: what was found can be looked at."""
    first, second = run(5, 3), run(5, 3)
    assert [o["digest"] for o in first] == [o["digest"] for o in second]
    assert len({o["digest"] for o in first}) == 3
