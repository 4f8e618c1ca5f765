"""The herder: one thread that follows what was agreed, and on the leader decides it. REST threads ask it by `call`."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer

from ....partitioner.errors import KeyorderError, PeerError
from ... import clock
from ..api.errors import NotFoundError, RebalanceInProgressError
from .clients import transactional_id, worker_connection
from .connectors import Connectors
from .membership import Membership
from .planning import plan
from .state import Assignment, ClusterState, Slot, Target, digest, encode_assignment
from .stores import FencedError, Log, Status, Statuses, connector_status, task_status, topic_status
from .task_base import State, TaskId
from .worker import Worker, exactly_once

T = TypeVar("T")
_LOG = logging.getLogger("keyorder.connect.herder")
_TURN = 0.1
_LOOK = 0.5
_RETRY_LEAD = 1.0


class NotLeaderError(RebalanceInProgressError):
    """Only the leader can do this. url: its REST."""

    def __init__(self, url: str) -> None:
        super().__init__("this worker does not lead")
        self.url = url


class Herder(threading.Thread):
    """One worker's part in its group; a standalone worker is a group of its own.

    configs, statuses: the logs, made with `state.apply` and `known.apply` as their folds.
    """

    def __init__(
        self,
        worker_id: str,
        url: str,
        settings: Mapping[str, str],
        parsed: Mapping[str, Any],
        state: ClusterState,
        configs: Log,
        known: Statuses,
        statuses: Log,
        membership: Membership,
        make_worker: Callable[[Callable[[TaskId, State, str | None], None]], Worker],
    ) -> None:
        super().__init__(name="connect-herder", daemon=True)
        self.worker_id, self.url, self.settings, self.parsed = worker_id, url, settings, parsed
        self.state, self.configs, self.known, self.statuses = state, configs, known, statuses
        self.membership = membership
        self._requests: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.worker = make_worker(self._task_state)
        self.connectors = Connectors(self.worker.plugins, self.worker.resolver, worker_id, self.wake)
        self._reports: queue.Queue[tuple[TaskId, State, str | None]] = queue.Queue()
        self._leading = False
        self._lead_again_at = 0.0
        self._next_look = 0.0
        self._members: set[str] | None = None
        self._left: dict[str, float] = {}
        self._restart: set[tuple[str, int]] = set()
        self._restarts: dict[tuple[str, int], tuple[int, float]] = {}
        self._topics_told: dict[str, set[str]] = {}
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
                if lead and not self._leading:
                    url = (
                        self.state.assignment.url
                        if self.state.assignment.leader in (self._members_seen() or ())
                        else ""
                    )
                    raise NotLeaderError(url)
                future.set_result(work())
            except FencedError as error:
                self._step_down(error)
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
        self.wake()
        self.join(timeout)

    @property
    def leading(self) -> bool:
        """Whether this worker leads."""
        return self._leading

    # -- the thread ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The thread."""
        try:
            self.configs.read_to_end()
            self.statuses.read_to_end()
            self.ready.set()
            while not self._ending.is_set():
                try:
                    self._turn()
                except FencedError as error:
                    self._step_down(error)
                except PeerError as error:
                    if not error.retriable:
                        raise
                    _LOG.warning("worker %s: %s", self.worker_id, error)
        except Exception as error:
            _LOG.exception("worker %s ends", self.worker_id)
            self.failure = error
        finally:
            self.ready.set()
            self._end()

    def _end(self) -> None:
        patience: float = self.parsed["task.shutdown.graceful.timeout.ms"] / 1000
        left = self.worker.stop(patience)
        if left:
            _LOG.warning("worker %s ends while these tasks still run: %s", self.worker_id, ", ".join(left))
        try:
            self._tell()
        except KeyorderError as error:
            _LOG.warning("worker %s could not tell its last states: %s", self.worker_id, error)
        self.connectors.stop_all()
        self.membership.leave()
        self.configs.close()
        self.statuses.close()
        self.worker.offsets.close()

    def _turn(self) -> None:
        self.configs.poll()
        self.statuses.poll()
        if self.membership.leads and not self._leading and clock.now() >= self._lead_again_at:
            self._take_over()
        elif self._leading and not self.membership.leads:
            self._step_down(None)
        if self._leading:
            self._lead()
        self.worker.follow(self.state, self.membership.member)
        self._tell()
        self._serve(_TURN)

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
        """Report what the tasks have become."""
        records: dict[str, bytes | None] = {}
        try:
            while True:
                number, state, trace = self._reports.get_nowait()
                status = Status(state.value, self.worker_id, trace, number.run)
                records.update(task_status(number.connector, number.number, status))
        except queue.Empty:
            pass
        for name, topics in self.worker.topics().items():
            told = self._topics_told.setdefault(name, set())
            for topic in topics - told:
                told.add(topic)
                records.update(topic_status(name, topic, True))
        if records:
            self.statuses.write(records)

    def _task_state(self, number: TaskId, state: State, trace: str | None) -> None:
        self._reports.put((number, state, trace))
        self.wake()

    # -- leading -------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        try:
            self.configs.lead()
            self._leading = True
            assignment = self.state.assignment
            self._assign(dict(assignment.slots))
            _LOG.info("worker %s leads from epoch %d on", self.worker_id, self.state.assignment.epoch)
        except PeerError as error:
            self._step_down(error)

    def _step_down(self, error: Exception | None) -> None:
        if error is not None:
            _LOG.warning("worker %s does not lead: %s", self.worker_id, error)
        self._leading = False
        self._lead_again_at = clock.now() + _RETRY_LEAD
        self.connectors.stop_all()

    def _lead(self) -> None:
        self._follow_connectors()
        self._restart_failed()
        now = clock.now()
        members = self._members_seen()
        if members is None:
            return
        slots = self.state.assignment.slots
        made = plan(
            slots, self.state.wanted().keys(), members, self._has_ended, self._awaited(members, now), self._restart
        )
        self._restart.clear()
        if made != dict(slots):
            self._assign(made)

    def _members_seen(self) -> set[str] | None:
        now = clock.now()
        if now >= self._next_look:
            self._next_look = now + _LOOK
            self._members = self.membership.members()
        return self._members

    def _awaited(self, members: set[str], now: float) -> set[str]:
        """Members that have left a moment ago: a worker that comes back under its name gets its tasks again."""
        patience = self.parsed.get("scheduled.rebalance.max.delay.ms", 0) / 1000
        holders = {slot.member for slot in self.state.assignment.slots.values() if slot.member is not None}
        back = {member.partition("|")[0] for member in members}
        for gone in holders - members:
            self._left.setdefault(gone, now)
        self._left = {gone: since for gone, since in self._left.items() if gone in holders and gone not in members}
        return {g for g, since in self._left.items() if now - since < patience and g.partition("|")[0] not in back}

    def _has_ended(self, key: tuple[str, int], run: int) -> bool:
        status = self.known.tasks.get(key)
        return status is not None and (
            status.run > run or (status.run == run and status.state in ("UNASSIGNED", "FAILED"))
        )

    def _assign(self, slots: Mapping[tuple[str, int], Slot]) -> None:
        epoch = self.state.assignment.epoch + 1
        made = Assignment(epoch, self.membership.member, self.url, slots)
        self.configs.write({"assignment": encode_assignment(made)})

    def _follow_connectors(self) -> None:
        tasks, statuses = self.connectors.follow(self.state)
        for name, configs in tasks.items():
            self._fence_surplus(name, len(configs))
            self.write_tasks(name, configs)
        changed: dict[str, bytes | None] = {}
        for name, status in statuses.items():
            if self.known.connectors.get(name) != status:
                changed.update(connector_status(name, status))
        for name in self.known.connectors.keys() - self.state.configs.keys():
            changed.update(connector_status(name, None))
        live = self.state.assignment.slots.keys()
        for key in self.known.tasks.keys() - live:
            if key not in self.state.wanted():
                changed.update(task_status(*key, None))
        if changed:
            self.statuses.write(changed)
            self.statuses.read_to_end()

    def write_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Store a connector's task configurations; its tasks begin new runs."""
        of = digest(self.state.configs[name])
        self.configs.write({f"tasks-{name}": json.dumps({"tasks": configs, "of": of}).encode()})
        self._restart.update(key for key in self.state.wanted() if key[0] == name)

    def _fence_surplus(self, name: str, count: int) -> None:
        """Before a connector has fewer tasks: end what the surplus ones may still be writing (KIP-618)."""
        before = len(self.state.tasks.get(name, ([], ""))[0])
        config = self.state.configs[name]
        kind = self.worker.plugins.connector(config["connector.class"])
        if before <= count or not exactly_once(self.parsed, kind, config):
            return
        group = self.settings.get("group.id", "standalone")
        for number in range(count, before):
            own = {"transactional.id": transactional_id(group, name, number)}
            producer = Producer({**worker_connection(self.settings), **own})
            try:
                producer.init_transactions(30)
            except KafkaException as raised:
                raise RebalanceInProgressError(f"task {number} of {name} cannot be fenced: {raised}") from raised
            finally:
                producer.close()

    def _restart_failed(self) -> None:
        """The policy restart.failed.tasks.*; off by default."""
        most: int = self.parsed["restart.failed.tasks.max"]
        if not most:
            return
        now = clock.now()
        for key, slot in self.state.assignment.slots.items():
            status = self.known.tasks.get(key)
            if status is None or status.run != slot.run or status.state != "FAILED" or slot.member is None:
                continue
            count, due = self._restarts.get(key, (0, now + self.parsed["restart.failed.tasks.delay.ms"] / 1000))
            if count < most and now >= due:
                self._restart.add(key)
                delay = self.parsed["restart.failed.tasks.delay.ms"] / 1000 * 2 ** (count + 1)
                self._restarts[key] = (count + 1, now + delay)
                _LOG.warning("task %s-%d is started again, %d of %d", *key, count + 1, most)
            else:
                self._restarts[key] = (count, due)

    # -- decided on the leader, asked by REST --------------------------------------------------------------------

    def restart_tasks(self, keys: set[tuple[str, int]]) -> None:
        """Begin new runs. On the herder's thread."""
        self._restart |= keys
        for key in keys:
            self._restarts.pop(key, None)

    def config_of(self, name: str) -> dict[str, str]:
        """A connector's configuration as it was given. Raises NotFoundError."""
        if name not in self.state.configs:
            raise NotFoundError(f"Connector {name} not found")
        return self.state.configs[name]

    def stopped(self, name: str) -> bool:
        """Whether a connector is STOPPED and nothing of it runs any more."""
        slots = self.state.assignment.slots
        return self.state.target(name) is Target.STOPPED and not any(key[0] == name for key in slots)
