"""What sink and source tasks have in common: one thread, a state, a way to stop."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .....partitioner.errors import IneligibleWriterError
from ...config.providers import shown_trace
from ..metrics import TaskMetrics
from .tolerance import Tolerance

_LOG = logging.getLogger("keyorder.connect.task")


class State(Enum):
    """Connect's states of connectors and tasks."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


@dataclass(frozen=True)
class TaskId:
    """A task, and which of its runs. Each start anywhere in the cluster is a run of its own, with a higher number."""

    connector: str
    number: int
    run: int


@dataclass(frozen=True)
class TaskSpec:
    """All that a task needs. config: the task's settings, connector: its connector's; placeholders are resolved.

    parsed: the settings that every connector has, typed. worker: the worker's settings.
    """

    id: TaskId
    kind: str
    task_class: type[Any]
    config: Mapping[str, str]
    connector: Mapping[str, str]
    parsed: Mapping[str, Any]
    worker: Mapping[str, str]
    paused: bool


StateListener = Callable[[TaskId, State, "str | None"], None]


class WorkerTask(threading.Thread):
    """Runs one task. `execute` does the work and returns when `stopping` is set; what it raises makes the task FAILED.

    What it opens goes on its stack at once, and ends with the run: a FAILED task is kept, and must keep no client open.

    displaced: another process has joined as the same writer, be it an older run that woke late.
    """

    def __init__(self, spec: TaskSpec, listener: StateListener, redact: Callable[[str], str]) -> None:
        super().__init__(name=f"{spec.id.connector}-{spec.id.number}", daemon=True)
        self.spec, self._listener, self._redact = spec, listener, redact
        self.stopping = threading.Event()
        self.wanted_paused = spec.paused
        self.metrics = TaskMetrics()
        self.tolerance = Tolerance.of(spec.parsed, self.stopping, self.metrics)
        self.failed = self.displaced = False
        self.topics: set[str] = set()
        self._told: State | None = None

    @property
    def where(self) -> str:
        """The task's name in texts."""
        return f"{self.spec.id.connector}-{self.spec.id.number}"

    def run(self) -> None:
        """The thread."""
        try:
            self.tell(State.PAUSED if self.wanted_paused else State.RUNNING)
            with ExitStack() as opened:
                self.execute(opened)
        except BaseException as error:
            self.failed = True
            self.displaced = any(isinstance(e, IneligibleWriterError) for e in (error, error.__cause__))
            _LOG.error("task %s failed: %s", self.where, self._redact(str(error)))
            self.tell(State.FAILED, shown_trace(error, self._redact))
        else:
            self.tell(State.UNASSIGNED)

    @abstractmethod
    def execute(self, opened: ExitStack) -> None:
        """The work. opened: what has to end, the last one first."""

    def tell(self, state: State, trace: str | None = None) -> None:
        """Report a state, once per change."""
        if state is not self._told:
            self._told = state
            self.metrics.state(state.value)
            self._listener(self.spec.id, state, trace)
