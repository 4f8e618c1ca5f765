"""Distributed workers as processes of their own, which can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.connect_rig import RestClient


class WorkerGroup:
    """Workers of one group, numbered from 0. Use as a context manager: nothing is left running."""

    def __init__(self, settings: Mapping[str, str], folder: Path, count: int) -> None:
        self._folder = folder
        self._file = folder / "worker.properties"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._processes: list[subprocess.Popen[str]] = []
        self.rests: list[RestClient] = []
        self._count = count

    def __enter__(self) -> WorkerGroup:
        for number in range(self._count):
            process, rest = self._start(number)
            self._processes.append(process)
            self.rests.append(rest)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def kill(self, number: int) -> None:
        """SIGKILL."""
        self._processes[number].kill()
        self._processes[number].wait()

    def stand_still(self, number: int) -> None:
        """SIGSTOP: it does nothing more, and keeps its connections."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        """SIGCONT."""
        self._processes[number].send_signal(signal.SIGCONT)

    def pid(self, number: int) -> int:
        """Its process."""
        return self._processes[number].pid

    def start(self, number: int) -> None:
        """Start a killed one again."""
        self._processes[number], self.rests[number] = self._start(number)

    def stop(self, number: int) -> int:
        """SIGTERM: a graceful end. Returns the exit status."""
        self._processes[number].terminate()
        return self._processes[number].wait(120)

    def log(self, number: int) -> str:
        """The end of a worker's stderr."""
        return (self._folder / f"worker-{number}.log").read_text()[-3000:]

    def _start(self, number: int) -> tuple[subprocess.Popen[str], RestClient]:
        with (self._folder / f"worker-{number}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "keyorder", "connect", "distributed", str(self._file), "--output", "json"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"worker {number} did not start: {self.log(number)}"
        return process, RestClient(json.loads(line)["url"])
