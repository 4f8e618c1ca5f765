"""A change of a topic's count in a process of its own, which tells its phases and can be stopped in some.

python change.py '{"config": {...}, "topic": "orders", "count": 6, "stops": ["collecting"]}'
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keyorder import TopicAdmin
from keyorder.connector import clock

# In their order. The last begins when the change is done, while groups pass its gates.
PHASES = ("clearing", "roll call", "preparing", "collecting", "cutting", "committing", "hand-over")
OVER = "hand-over"


@dataclass(frozen=True)
class Step:
    """A phase that a change entered. at: seconds of keyorder's clock."""

    phase: str
    at: float


class ChangeProcess:
    """A change that runs. In each of the phases in `stops`, when it enters it first, it waits until `go_on`."""

    def __init__(self, config: Mapping[str, str], topic: str, count: int, stops: Iterable[str] = ()) -> None:
        spec = {"config": dict(config), "topic": topic, "count": count, "stops": list(stops)}
        self.process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self.heard = clock.now()
        """When it said something for the last time."""
        self._stopped: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            facts = json.loads(line)
            self.heard = clock.now()
            if "stopped" in facts:
                self._stopped.put(facts["stopped"])
            elif facts["step"] in PHASES:
                self.steps.append(Step(facts["step"], facts["at"]))
            else:
                self.notes.append(facts["step"])
        self._stopped.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.notes.append(line.rstrip())

    def reached(self, patience: float) -> str | None:
        """Wait until it stands in a phase, which is returned; None if it has ended."""
        deadline = clock.now() + patience
        while True:
            try:
                return self._stopped.get(timeout=1)
            except queue.Empty:
                deadline = max(deadline, self.heard + patience)
                assert clock.now() < deadline, f"the change is stuck: {self.notes[-5:]}"

    def go_on(self) -> None:
        """Let it leave the phase in which it stands."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it was killed, as the fault would have it

    def succeeded(self, patience: float) -> bool:
        """Wait for its end. The limit counts from the last word that it said."""
        while True:
            try:
                status = self.process.wait(1)
                break
            except subprocess.TimeoutExpired:
                assert clock.now() < self.heard + patience, f"the change is stuck: {self.notes[-5:]}"
        self._reader.join()
        self._errors.join()
        return status == 0

    def kill(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()


def _main(spec: dict[str, Any]) -> None:
    stops = set(spec["stops"])

    def progress(step: str) -> None:
        step = OVER if step == "done" else step
        print(json.dumps({"step": step, "at": clock.now()}), flush=True)
        if step in stops:
            stops.remove(step)
            print(json.dumps({"stopped": step}), flush=True)
            sys.stdin.readline()

    with TopicAdmin(spec["config"], progress) as admin:
        grows = spec["count"] >= admin.timeline(spec["topic"]).newest.count
        (admin.expand if grows else admin.shrink)(spec["topic"], spec["count"])


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
