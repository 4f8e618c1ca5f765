"""Runs histories, each in a process of its own: `python run.py FIRST COUNT [MUTANT] [JOBS]`. Prints a line of JSON per seed.

JOBS histories run beside each other, one by default; their lines come as they end. With a mutant it ends at the first seed
that shows it. With KEYORDER_SIMULATION_LOG=1 the events of each history are printed too.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

_SEED_OF_HASHES = "0"


def main(first: int, count: int, mutant: str, jobs: int) -> None:
    """See above."""
    if os.environ.get("PYTHONHASHSEED") != _SEED_OF_HASHES:
        os.execve(sys.executable, [sys.executable, "-s", *sys.argv], {**os.environ, "PYTHONHASHSEED": _SEED_OF_HASHES})
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from simulation.shipped.install import install

    install(mutant)
    from simulation.shipped.coverage import watch

    watch()
    gc.disable()
    gc.freeze()
    running: dict[int, tuple[int, IO[bytes]]] = {}
    for seed in range(first, first + count):
        if len(running) >= jobs and not _ended(running) and mutant:
            break
        said = TemporaryFile()  # noqa: SIM115  # a pipe could be full before anybody reads it
        child = os.fork()
        if not child:
            _play(seed, said)
        running[child] = seed, said
    while running:
        _ended(running)


def _ended(running: dict[int, tuple[int, IO[bytes]]]) -> bool:
    """Wait for one of them, and hand on what it said. Whether its history was good."""
    child, status = os.wait()
    seed, said = running.pop(child)
    with said:
        said.seek(0)
        outcome = said.read().decode()
    # One that could not begin, or was killed, is a bad one too.
    row = {"seed": seed, "good": False, "said": f"SEED={seed}: ended by {status}, before its verdict"}
    sys.stdout.write(outcome or json.dumps(row) + "\n")
    sys.stdout.flush()
    return not status


def _play(seed: int, said: IO[bytes]) -> None:
    """One history, to its end and that of this process."""
    from simulation.shipped.coverage import taken
    from simulation.shipped.scenario import Scenario

    log: list[str] | None = [] if os.environ.get("KEYORDER_SIMULATION_LOG") else None
    began = time.monotonic()
    outcome = Scenario(seed, log).run()
    row = {
        "seed": seed,
        "good": outcome.good,
        "digest": outcome.digest,
        "faults": outcome.faults,
        "changes": outcome.changes,
        "records": 0 if outcome.verdict is None else outcome.verdict.records,
        "moved": 0 if outcome.verdict is None else outcome.verdict.keys_moved,
        "pairs": sorted(taken),
        "steps": outcome.steps,
        "took": round(time.monotonic() - began, 2),
        "cpu": round(time.process_time(), 3),
        "said": "" if outcome.good else str(outcome),
    }
    said.write("".join(f"{line}\n" for line in [*(log or ()), json.dumps(row)]).encode())
    said.flush()
    os._exit(not outcome.good)


if __name__ == "__main__":
    mutant = sys.argv[3] if len(sys.argv) > 3 else ""
    main(int(sys.argv[1]), int(sys.argv[2]), mutant, int(sys.argv[4]) if len(sys.argv) > 4 else 1)
