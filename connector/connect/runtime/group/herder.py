"""The herder: one thread that follows what was agreed, and on the leader decides it. REST threads ask it by `call`."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack
from typing import TypeVar

from .....partitioner.errors import KeyorderError, PeerError
from ...api.errors import NotFoundError, RebalanceInProgressError
from ..loggers import Loggers
from ..tasks.task_base import State, TaskId
from ..worker import Worker
from .leader import Leader
from .place import WorkerPlace
from .state import Target
from .stores import FencedError, Status, task_status, topic_status

T = TypeVar("T")
_LOG = logging.getLogger("keyorder.connect.herder")
_TURN = 0.1


class NotLeaderError(RebalanceInProgressError):
    """Only the leader can do this. url: its REST."""

    def __init__(self, url: str) -> None:
        super().__init__("this worker does not lead")
        self.url = url


class Herder(threading.Thread):
    """One worker's part in its group; a standalone worker is a group of its own."""

    def __init__(
        self, place: WorkerPlace, make_worker: Callable[[Callable[[TaskId, State, str | None], None]], Worker]
    ) -> None:
        super().__init__(name="connect-herder", daemon=True)
        self.worker_id, self.settings, self.parsed = place.worker_id, place.settings, place.parsed
        self.state, self.configs, self.known, self.statuses = place.state, place.configs, place.known, place.statuses
        self.membership, self.loggers = place.membership, Loggers()
        self._requests: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.worker = make_worker(self._task_state)
        self.leader = Leader(place, self.worker, self.wake)
        self._reports: queue.Queue[tuple[TaskId, State, str | None]] = queue.Queue()
        self._untold: dict[str, bytes | None] = {}
        self._used: dict[str, set[str]] = {}
        self._ending = threading.Event()
        self.failure: Exception | None = None
        self.ready = threading.Event()

    # -- asked from other threads --------------------------------------------------------------------------------

    def call(self, work: Callable[[], T], lead: bool = False, timeout: float = 90.0) -> T:
        """Run `work` on the herder's thread. lead: only where this worker leads.

        Raises what it raises; NotLeaderError; RebalanceInProgressError when nobody leads or it takes too long.
        """
        future: Future[T] = Future()

        def run() -> None:
            try:
                if lead and not self.leader.leading:
                    url = (
                        self.state.assignment.url
                        if self.state.assignment.leader in (self.leader.members_seen() or ())
                        else ""
                    )
                    raise NotLeaderError(url)
                future.set_result(work())
            except FencedError as error:
                self.leader.step_down(error)
                future.set_exception(
                    RebalanceInProgressError("Cannot complete request momentarily: the leader changes.")
                )
            except BaseException as error:
                future.set_exception(error)

        if self.failure is not None or self._ending.is_set():
            raise RebalanceInProgressError("Cannot complete request momentarily: this worker is ending.")
        self._requests.put(run)
        try:
            return future.result(timeout)
        except FutureTimeout:
            raise RebalanceInProgressError("Cannot complete request momentarily: the worker is busy.") from None

    def wake(self) -> None:
        """Take the next turn at once."""
        self._requests.put(None)

    def stop(self, timeout: float = 60.0) -> None:
        """End gracefully: tasks finish, their states are told, the group is left."""
        self._ending.set()
        if self.ident is None:  # it has never started
            self._close()
            return
        self.wake()
        self.join(timeout)

    @property
    def leading(self) -> bool:
        """Whether this worker leads."""
        return self.leader.leading

    # -- the thread ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The thread."""
        try:
            self.configs.read_to_end()
            self.statuses.read_to_end()
            self.state.levels.clear()  # asked of those who were there then
            self.ready.set()
            while not self._ending.is_set():
                try:
                    self._turn()
                except FencedError as error:
                    self.leader.step_down(error)
                except PeerError as error:
                    if not error.retriable:
                        raise
                    _LOG.warning("worker %s: %s", self.worker_id, error)
                self._serve(_TURN)  # after a turn that failed, too: whoever asks is answered
        except Exception as error:
            # Not `exception`: a trace may show secrets.
            _LOG.error("worker %s ends: %s", self.worker_id, self.worker.resolver.trace(error))
            self.failure = error
        finally:
            self.ready.set()
            self._end()

    def _end(self) -> None:
        patience: float = self.parsed["task.shutdown.graceful.timeout.ms"] / 1000
        left = self.worker.stop(patience)
        if left:
            _LOG.warning("worker %s ends while these tasks still run: %s", self.worker_id, ", ".join(left))
        with ExitStack() as opened:
            opened.callback(self._close)
            opened.callback(self.leader.connectors.close)
            try:
                self._tell()
            except KeyorderError as error:
                _LOG.warning("worker %s could not tell its last states: %s", self.worker_id, error)

    def _close(self) -> None:
        with ExitStack() as opened:  # each, though another one fails
            for each in (self.worker.offsets, self.statuses, self.configs):
                opened.callback(each.close)
            opened.callback(self.membership.leave)

    def _turn(self) -> None:
        self.membership.check()
        self.configs.poll()
        self.statuses.poll()
        while self.state.levels:
            self.loggers.set(*self.state.levels.pop(0))
        self.leader.turn()
        if self.worker.displaced:
            self.configs.read_to_end()
        self.worker.follow(self.state, self.membership.member)
        self._tell()

    def _serve(self, wait: float) -> None:
        try:
            work = self._requests.get(timeout=wait)
            while True:
                if work is not None:
                    work()
                work = self._requests.get_nowait()
        except queue.Empty:
            pass

    def _tell(self) -> None:
        """Report what the tasks have become and the topics that they use; again if it cannot be written."""
        try:
            while True:
                number, state, trace = self._reports.get_nowait()
                status = Status(state.value, self.worker_id, trace, number.run)
                self._untold.update(task_status(number.connector, number.number, status))
        except queue.Empty:
            pass
        for name, topics in self.worker.topics().items():
            self._used.setdefault(name, set()).update(topics)
        records = dict(self._untold)
        for name, topics in self._used.items():
            if name in self.state.configs:  # else it was deleted, and its tasks end
                for topic in topics - self.known.topics.get(name, set()):
                    records.update(topic_status(name, topic, True))
        if records:
            self.statuses.write(records)
        self._untold.clear()
        self._used.clear()

    def _task_state(self, number: TaskId, state: State, trace: str | None) -> None:
        self._reports.put((number, state, trace))
        self.wake()

    # -- facts, on the herder's thread ----------------------------------------------------------------------------

    def config_of(self, name: str) -> dict[str, str]:
        """A connector's configuration as it was given. Raises NotFoundError."""
        if name not in self.state.configs:
            raise NotFoundError(f"Connector {name} not found")
        return self.state.configs[name]

    def stopped(self, name: str) -> bool:
        """Whether a connector is STOPPED and nothing of it runs any more."""
        slots = self.state.assignment.slots
        return self.state.target(name) is Target.STOPPED and not any(key[0] == name for key in slots)
