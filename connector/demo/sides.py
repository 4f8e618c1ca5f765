"""One side of the demonstration: a topic, its consumer group, and the files that its clients record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..verify.recorder import Recorder, now_ns
from .crew import Crew, Worker
from .live import SideState
from .watching import OrderWatch

# Another member's file may be this much behind when the files are read one after the other.
_SETTLED_NS = 200_000_000


class Side:
    """keyorder's side or the stock clients'."""

    def __init__(self, name: str, run: str, topic: str, folder: Path, crew: Crew, state: SideState) -> None:
        self.name, self.run, self.topic, self.state = name, run, topic, state
        self.group = f"{topic}-group"
        self.folder = folder / name
        self.folder.mkdir()
        self.partitions = 0
        self._crew = crew
        self._readers: dict[int, Worker] = {}
        self._watch = OrderWatch()
        # A crash is told by whoever is certain of it, in a file of their own.
        self._witness = Recorder(self.folder / "witness.jsonl", "witness", run=run)

    def writer_file(self, writer: str) -> Path:
        """Where a writer records what it sent to this side."""
        return self.folder / f"{writer}.jsonl"

    def files(self) -> list[Path]:
        """Everything that was recorded."""
        return sorted(self.folder.glob("*.jsonl"))

    def add_reader(self, number: int, bootstrap_servers: str, work_ms: float) -> None:
        """Start a member of the group."""
        name = f"reader-{number}"
        spec = {
            "side": self.name,
            "run": self.run,
            "topic": self.topic,
            "group": self.group,
            "file": str(self._reader_file(number)),
            "bootstrap_servers": bootstrap_servers,
            "work_ms": work_ms,
        }
        worker = self._crew.start(f"{self.name}-{name}", "reader", spec)
        self._readers[number] = worker

    def kill_reader(self, number: int) -> None:
        """SIGKILL for a member, recorded once it is certain."""
        worker = self._readers.pop(number)
        worker.kill()
        self._witness.crash(worker.name)

    @property
    def readers(self) -> list[Worker]:
        """The members that are meant to run."""
        return list(self._readers.values())

    @property
    def covered(self) -> bool:
        """Whether every partition has an owner."""
        return self._owned() == set(range(self.partitions))

    def look(self) -> None:
        """Bring what is shown up to date."""
        self._watch.look((self._reader_file(number) for number in range(1, 100)), now_ns() - _SETTLED_NS)
        state = self.state
        state.members = sum(worker.running for worker in self.readers)
        state.partitions = self.partitions
        state.delivered = self._watch.deliveries
        state.late_records, state.late_keys = self._watch.late.records, len(self._watch.late.keys)
        state.gates = [_gate(gate) for worker in self.readers for gate in worker.facts.get("gates", ())]

    def judge(self, bootstrap_servers: str, start: int) -> Worker:
        """Start the judge of this side."""
        spec = {
            "side": self.name,
            "topic": self.topic,
            "partitions": self.partitions,
            "files": [str(path) for path in self.files()],
            "bootstrap_servers": bootstrap_servers,
            "start": start,
        }
        return self._crew.start(f"{self.name}-judge", "judging", spec)

    def close(self) -> None:
        """Nothing more is recorded."""
        self._witness.close()

    def _reader_file(self, number: int) -> Path:
        return self.folder / f"reader-{number}.jsonl"

    def _owned(self) -> set[int]:
        return {p for worker in self.readers for p in worker.facts.get("partitions", ())}


def _gate(facts: dict[str, Any]) -> str:
    return f"p{facts['partition']} waits for p{facts['waits_for']} ({facts['missing']} to go)"
