"""Runs histories, each in a process of its own: `python run.py FIRST COUNT [MUTANT]`. Prints one line of JSON per seed.

With a mutant it ends at the first seed that shows it.

With KEYORDER_SIMULATION_LOG=1 the events of each history are printed too.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

_SEED_OF_HASHES = "0"


def main(first: int, count: int, mutant: str) -> None:
    """See above."""
    if os.environ.get("PYTHONHASHSEED") != _SEED_OF_HASHES:
        os.execve(sys.executable, [sys.executable, "-s", *sys.argv], {**os.environ, "PYTHONHASHSEED": _SEED_OF_HASHES})
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from simulation.shipped.install import install

    install(mutant)
    from simulation.shipped.scenario import Scenario

    gc.disable()
    gc.freeze()
    for seed in range(first, first + count):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            log: list[str] | None = [] if os.environ.get("KEYORDER_SIMULATION_LOG") else None
            began = time.monotonic()
            outcome = Scenario(seed, log).run()
            for line in log or ():
                print(line)
            row = {
                "seed": seed,
                "good": outcome.good,
                "digest": outcome.digest,
                "faults": outcome.faults,
                "changes": outcome.changes,
                "records": 0 if outcome.verdict is None else outcome.verdict.records,
                "moved": 0 if outcome.verdict is None else outcome.verdict.keys_moved,
                "steps": outcome.steps,
                "took": round(time.monotonic() - began, 2),
                "said": "" if outcome.good else str(outcome),
            }
            print(json.dumps(row), flush=True)
            os._exit(not outcome.good)
        _, status = os.waitpid(child, 0)
        if mutant and status:
            break
        if status and status != 256:
            print(json.dumps({"seed": seed, "good": False, "said": f"SEED={seed}: ended by {status}"}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
