"""What the worker that leads decides: task configurations, who runs what, which failed tasks begin again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from confluent_kafka import KafkaException, Producer

from .....partitioner.errors import NotAuthorizedError, PeerError
from .... import clock
from ...api.errors import RebalanceInProgressError
from ..clients import transactional_id, worker_connection
from ..worker import Worker, exactly_once
from .connectors import Connectors
from .place import WorkerPlace
from .planning import plan
from .state import Assignment, Slot, digest, encode_assignment
from .stores import connector_status, task_status

_LOG = logging.getLogger("keyorder.connect.herder")
_LOOK = 0.5
_RETRY_LEAD = 1.0


class Leader:
    """The leading part of one worker; idle where another one leads. Used by the herder's thread alone.

    wake: called when a connector wants another turn.
    """

    def __init__(self, place: WorkerPlace, worker: Worker, wake: Callable[[], None]) -> None:
        self._worker_id, self._url = place.worker_id, place.url
        self._settings, self._parsed = place.settings, place.parsed
        self._state, self._configs = place.state, place.configs
        self._known, self._statuses = place.known, place.statuses
        self._membership, self._worker = place.membership, worker
        patience: float = self._parsed["task.shutdown.graceful.timeout.ms"] / 1000
        self.connectors = Connectors(worker.plugins, worker.resolver, place.worker_id, wake, patience)
        self.leading = False
        self._lead_again_at = 0.0
        self._next_look = 0.0
        self._members: set[str] | None = None
        self._left: dict[str, float] = {}
        self._restart: set[tuple[str, int]] = set()
        self._restarts: dict[tuple[str, int], tuple[int, float]] = {}

    def turn(self) -> None:
        """Follow the group: take the lead, lay it down, or lead. Raises FencedError when somebody else leads."""
        if self._membership.leads and not self.leading and clock.now() >= self._lead_again_at:
            self.take_over()
        elif self.leading and not self._membership.leads:
            self.step_down(None)
        if self.leading:
            self.lead()

    def take_over(self) -> None:
        """Fence whoever led before, and say who leads now. Raises NotAuthorizedError: another worker may have the right."""
        try:
            self._configs.lead()
            self.leading = True
            assignment = self._state.assignment
            self._assign(dict(assignment.slots))
            _LOG.info("worker %s leads from epoch %d on", self._worker_id, self._state.assignment.epoch)
        except NotAuthorizedError:
            raise
        except PeerError as error:
            self.step_down(error)

    def step_down(self, error: Exception | None) -> None:
        """Lead no more, at least for a moment. error: why, if it was not asked for."""
        if error is not None:
            _LOG.warning("worker %s does not lead: %s", self._worker_id, error)
        self.leading = False
        self._lead_again_at = clock.now() + _RETRY_LEAD
        self.connectors.stop_all()

    def lead(self) -> None:
        """One turn: connectors, task configurations, who runs what. Raises FencedError when somebody else leads."""
        self._follow_connectors()
        self._restart_failed()
        now = clock.now()
        members = self.members_seen()
        if members is None:
            return
        slots, awaited = self._state.assignment.slots, self._awaited(members, now)
        epoch = self._state.assignment.epoch
        made = plan(slots, self._state.wanted().keys(), members, self._has_ended, awaited, self._restart, epoch)
        self._restart.clear()
        if made != dict(slots):
            self._assign(made)

    def members_seen(self) -> set[str] | None:
        """Who is in the group, asked twice a second; None while that cannot be said."""
        now = clock.now()
        if now >= self._next_look:
            self._next_look = now + _LOOK
            self._members = self._membership.members()
        return self._members

    def _awaited(self, members: set[str], now: float) -> set[str]:
        """Members that have left a moment ago: a worker that comes back under its name gets its tasks again."""
        patience = self._parsed.get("scheduled.rebalance.max.delay.ms", 0) / 1000
        holders = {slot.member for slot in self._state.assignment.slots.values() if slot.member is not None}
        back = {member.partition("|")[0] for member in members}
        for gone in holders - members:
            self._left.setdefault(gone, now)
        self._left = {gone: since for gone, since in self._left.items() if gone in holders and gone not in members}
        return {g for g, since in self._left.items() if now - since < patience and g.partition("|")[0] not in back}

    def _has_ended(self, key: tuple[str, int], run: int) -> bool:
        status = self._known.tasks.get(key)
        return status is not None and (
            status.run > run or (status.run == run and status.state in ("UNASSIGNED", "FAILED"))
        )

    def _assign(self, slots: Mapping[tuple[str, int], Slot], tasks: Mapping[str, bytes] | None = None) -> None:
        """tasks: records of task configurations, which go before it in its transaction."""
        epoch = self._state.assignment.epoch + 1
        made = Assignment(epoch, self._membership.member, self._url, slots)
        self._configs.write({**(tasks or {}), "assignment": encode_assignment(made)})

    def _follow_connectors(self) -> None:
        tasks, statuses = self.connectors.follow(self._state)
        for name, configs in tasks.items():
            try:
                self.fence(name, len(configs))
            except RebalanceInProgressError:
                raise
            except Exception as error:  # of the connector's own code
                statuses[name] = self.connectors.fail(name, self._state.configs[name], error)
            else:
                self._write_tasks(name, configs)
        changed: dict[str, bytes | None] = {}
        for name, status in statuses.items():
            if self._known.connectors.get(name) != status:
                changed.update(connector_status(name, status))
        for name in self._known.connectors.keys() - self._state.configs.keys():
            changed.update(connector_status(name, None))
        live = self._state.assignment.slots.keys()
        for key in self._known.tasks.keys() - live:
            if key not in self._state.wanted():
                changed.update(task_status(*key, None))
        if changed:
            self._statuses.write(changed)
            self._statuses.read_to_end()

    def _write_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Store a connector's task configurations, and that its tasks begin new runs.

        Both or neither: a leader that comes next sees no difference between what is stored and what tasks run with.
        """
        stored = {"tasks": configs, "of": digest(self._state.configs[name])}
        slots = {
            key: replace(slot, run=slot.run + 1)
            if key[0] == name and key[1] < len(configs) and slot.member is not None
            else slot
            for key, slot in self._state.assignment.slots.items()
        }
        self._assign(slots, {f"tasks-{name}": json.dumps(stored).encode()})

    def fence(self, name: str, kept: int = 0) -> None:
        """End what a connector's tasks from number `kept` on may still be writing in transactions, offsets included.

        Before it has fewer tasks (KIP-618), and before its offsets are changed (KIP-875): a worker that had stood still comes
        back with them. Raises RebalanceInProgressError where that cannot be done now.
        """
        before = len(self._state.tasks.get(name, ([], ""))[0])
        if before <= kept:
            return
        config = self._worker.resolver.resolve(self._state.configs[name])
        kind = self._worker.plugins.connector(config["connector.class"])
        if not exactly_once(self._parsed, kind, config):
            return
        group = self._settings.get("group.id", "standalone")
        for number in range(kept, before):
            own = {"transactional.id": transactional_id(group, name, number)}
            producer = Producer({**worker_connection(self._settings), **own})
            try:
                producer.init_transactions(30)
            except KafkaException as raised:
                raise RebalanceInProgressError(f"task {number} of {name} cannot be fenced: {raised}") from raised
            finally:
                producer.close()

    def _restart_failed(self) -> None:
        """The policy restart.failed.tasks.*; off by default."""
        most: int = self._parsed["restart.failed.tasks.max"]
        if not most:
            return
        now = clock.now()
        for key, slot in self._state.assignment.slots.items():
            status = self._known.tasks.get(key)
            if status is None or status.run != slot.run or status.state != "FAILED" or slot.member is None:
                continue
            count, due = self._restarts.get(key, (0, now + self._parsed["restart.failed.tasks.delay.ms"] / 1000))
            if count < most and now >= due:
                self._restart.add(key)
                delay = self._parsed["restart.failed.tasks.delay.ms"] / 1000 * 2 ** (count + 1)
                self._restarts[key] = (count + 1, now + delay)
                _LOG.warning("task %s-%d is started again, %d of %d", *key, count + 1, most)
            else:
                self._restarts[key] = (count, due)

    def restart_tasks(self, keys: set[tuple[str, int]]) -> None:
        """Begin new runs."""
        self._restart |= keys
        for key in keys:
            self._restarts.pop(key, None)
