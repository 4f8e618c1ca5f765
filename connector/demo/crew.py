"""The worker processes: started, listened to, killed on purpose, and never left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from .. import clock
from .errors import DemoStalledError, WorkerFailedError

_TAIL = 2_000
_PACKAGE = __package__


class Worker:
    """One process. `facts` is the newest of everything that it told; `holds` collects what it told of holds."""

    def __init__(self, name: str, module: str, spec: dict[str, Any], folder: Path) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        self.holds: list[float] = []
        self.killed = False
        self._errors = folder / f"{name}.err"
        with self._errors.open("wb") as errors:
            # The run's folder as working directory: `-m` looks there first, and it holds no module.
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{_PACKAGE}.{module}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=_environment(),
                start_new_session=True,
                text=True,
            )
        self.say(json.dumps(spec))
        assert self._process.stdout is not None
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), name=name, daemon=True)
        self._listener.start()

    def say(self, line: str) -> None:
        """Give an order. A worker that has gone hears nothing; `check` tells of that."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            pass

    def kill(self) -> None:
        """SIGKILL; the process has gone when this returns."""
        self.killed = True
        self._process.kill()
        self._process.wait()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def hear_out(self) -> None:
        """Take in what an ended process said last."""
        self._listener.join(5)

    def check(self) -> None:
        """Raises WorkerFailedError when the process ended with an error."""
        code = self._process.poll()
        if code and not self.killed:
            said = self._errors.read_text("utf-8", "replace")[-_TAIL:].strip()
            raise WorkerFailedError(f"the process {self.name} ended with exit code {code}: {said}")

    def _listen(self, stdout: IO[str]) -> None:
        for line in stdout:
            try:
                facts = json.loads(line)
            except ValueError:
                continue  # a line cut short by a kill
            self.holds.extend(facts.pop("holds", ()))
            self.facts.update(facts)


class Crew:
    """All workers of a run. Leaving the `with` block ends them, whatever they are doing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.workers: dict[str, Worker] = {}

    def start(self, name: str, module: str, spec: dict[str, Any]) -> Worker:
        """Start a worker: a module of this package, with its spec."""
        worker = self.workers[name] = Worker(name, module, {"name": name, **spec}, self._folder)
        return worker

    def check(self) -> None:
        """Raises WorkerFailedError when one of them ended with an error."""
        for worker in self.workers.values():
            worker.check()

    def await_all(self, what: str, met: Callable[[], bool], timeout: float, meanwhile: Callable[[], None]) -> None:
        """Wait until `met`. Raises WorkerFailedError, or DemoStalledError after `timeout` seconds."""
        deadline = clock.now() + timeout
        while not met():
            self.check()
            if clock.now() >= deadline:
                raise DemoStalledError(f"{what}: not within {timeout:.0f} s; is this machine very busy?")
            meanwhile()
            threading.Event().wait(0.05)

    def stop(self, workers: Iterable[Worker], timeout: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Ask these to finish and wait until they have."""
        chosen = list(workers)
        for worker in chosen:
            worker.say("stop")
        what = f"the end of {', '.join(worker.name for worker in chosen)}"
        self.await_all(what, lambda: not any(worker.running for worker in chosen), timeout, meanwhile)
        self.check()
        for worker in chosen:
            worker.hear_out()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers.values():
            if worker.running:
                worker.kill()


def _environment() -> dict[str, str]:
    """Ours. A search path that is relative to our working directory would lead elsewhere in the worker's."""
    environment = dict(os.environ)
    if paths := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep) if path)
    return environment
