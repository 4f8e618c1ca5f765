"""The tasks of one worker: started and stopped until they are those that the assignment says."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ... import clock
from ..api.errors import NotFoundError
from ..config.providers import Resolver
from .group.state import ClusterState, Target
from .metrics import Moves, TaskMetrics
from .offsets import OffsetStore
from .plugins import Plugins
from .settings import connector_definition
from .tasks.sink_task import WorkerSinkTask
from .tasks.source_task import WorkerSourceTask
from .tasks.task_base import State, StateListener, TaskId, TaskSpec, WorkerTask

_MOST_AGAIN = 3
_LOG = logging.getLogger("keyorder.connect.worker")


class Worker:
    """Runs tasks. Used by the herder's thread alone; tasks report their states through `listener` from their own."""

    def __init__(
        self,
        settings: Mapping[str, str],
        parsed: Mapping[str, Any],
        plugins: Plugins,
        resolver: Resolver,
        offsets: OffsetStore,
        offsets_topic: str | None,
        parking_topic: str,
        listener: StateListener,
    ) -> None:
        self.settings, self.parsed, self.plugins, self.resolver = settings, parsed, plugins, resolver
        self.offsets, self.parking_topic = offsets, parking_topic
        self._offsets_topic, self._listener = offsets_topic, listener
        self._tasks: dict[tuple[str, int], WorkerTask] = {}
        self._ended: set[TaskId] = set()
        self._told: set[TaskId] = set()
        self._again: Counter[TaskId] = Counter()
        self._used: dict[str, set[str]] = {}  # by tasks that have ended since this was asked for
        self.moves = Moves()
        self.startups = Counter(attempts=0, failure=0)

    def follow(self, state: ClusterState, member: str) -> None:
        """Start, stop, pause and resume until what runs here is what the assignment says. Waits for nothing."""
        wanted = state.wanted()
        mine = {
            key: TaskId(*key, slot.run)
            for key, slot in state.assignment.slots.items()
            if slot.member == member and key in wanted
        }
        for key, task in list(self._tasks.items()):
            if mine.get(key) != task.spec.id:
                task.stopping.set()
            else:
                task.wanted_paused = wanted[key] is Target.PAUSED
            if not task.is_alive() and task.ident is not None:
                if task.displaced and mine.get(key) == task.spec.id and self._again[task.spec.id] < _MOST_AGAIN:
                    # By a run that was ours no more: it had stood still, and joined before it heard of that.
                    self._again[task.spec.id] += 1
                    _LOG.warning("task %s was displaced by an older run, and begins again", task.where)
                    self._forget(key)
                    continue
                self._ended.add(task.spec.id)
                if mine.get(key) != task.spec.id:
                    self._forget(key)
        for key, number in mine.items():
            if key not in self._tasks and number not in self._ended:
                self._start(number, state, wanted[key] is Target.PAUSED)
        self._let_go(state, member)
        going = any(task.is_alive() for key, task in self._tasks.items() if mine.get(key) != task.spec.id)
        begun = all(key in self._tasks or number in self._ended for key, number in mine.items())
        self.moves.follow(state.assignment.epoch, begun and not going)
        self._ended = {done for done in self._ended if mine.get((done.connector, done.number)) == done}
        self._again = Counter({n: c for n, c in self._again.items() if mine.get((n.connector, n.number)) == n})

    def _forget(self, key: tuple[str, int]) -> None:
        task = self._tasks.pop(key)
        self._used.setdefault(key[0], set()).update(task.topics)

    def _let_go(self, state: ClusterState, member: str) -> None:
        """Tell of runs that were taken away before they had begun here: somebody waits for their end."""
        for key, slot in state.assignment.slots.items():
            number = TaskId(*key, slot.run)
            if slot.was == member and key not in self._tasks and number not in self._told:
                self._told.add(number)
                self._listener(number, State.UNASSIGNED, None)
        self._told &= {TaskId(*key, slot.run) for key, slot in state.assignment.slots.items()}

    @property
    def displaced(self) -> bool:
        """Whether a task has just ended because another process joined as its writer: whose is it now?"""
        return any(task.displaced and task.spec.id not in self._ended for task in self._tasks.values())

    def stop(self, timeout: float) -> list[str]:
        """End all tasks gracefully, waiting up to `timeout` seconds. Returns the names of those that still run."""
        for task in self._tasks.values():
            task.stopping.set()
        deadline = clock.now() + timeout
        for task in self._tasks.values():
            if task.is_alive():
                task.join(max(0.0, deadline - clock.now()))
        return [task.where for task in self._tasks.values() if task.is_alive()]

    def metrics(self) -> dict[tuple[str, int], TaskMetrics]:
        """The counters of the tasks that run here."""
        return {key: task.metrics for key, task in list(self._tasks.items())}

    def kinds(self) -> dict[str, str]:
        """source or sink, of the connectors whose tasks run here."""
        return {name: task.spec.kind for (name, _), task in list(self._tasks.items())}

    def topics(self) -> dict[str, set[str]]:
        """The topics that the tasks here have used since this was asked last, by connector."""
        found, self._used = self._used, {}
        for (name, _), task in self._tasks.items():
            for topic in list(task.topics):
                found.setdefault(name, set()).add(topic)
                task.topics.discard(topic)  # one that is used again comes again: the list may have been reset
        return found

    def alive(self) -> int:
        """How many tasks run here."""
        return sum(task.is_alive() for task in list(self._tasks.values()))

    def _start(self, number: TaskId, state: ClusterState, paused: bool) -> None:
        self._ended.add(number)  # if it cannot even be made, it has ended
        self.startups["attempts"] += 1
        try:
            task = self._make(number, state, paused)
        except Exception as error:  # of a plugin's code: anything
            self._listener(number, State.FAILED, self.resolver.trace(error))
            self.startups["failure"] += 1
            return
        self._ended.discard(number)
        self._tasks[number.connector, number.number] = task
        task.start()

    def _make(self, number: TaskId, state: ClusterState, paused: bool) -> WorkerTask:
        raw = state.configs[number.connector]
        self.resolver.keep_secret(raw)
        connector = self.resolver.resolve(raw)
        config = self.resolver.resolve(state.tasks[number.connector][0][number.number])
        kind = self.plugins.connector(connector["connector.class"])
        parsed = connector_definition(kind.kind).parse(connector)
        parsed["offset.flush.interval.ms"] = self.parsed["offset.flush.interval.ms"]
        parsed["internal.replication.factor"] = self.parsed["internal.replication.factor"]
        spec = TaskSpec(number, kind.kind, kind.task_class(), config, connector, parsed, self.settings, paused)
        if kind.kind == "sink":
            return WorkerSinkTask(spec, self.plugins, self.parking_topic, self._listener, self.resolver.redact)
        if kind.kind != "source":
            raise NotFoundError(f"{kind.__name__} is neither a sink nor a source connector")
        exact = self._offsets_topic if exactly_once(self.parsed, kind, connector) else None
        return WorkerSourceTask(spec, self.plugins, self.offsets, exact, self._listener, self.resolver.redact)


def exactly_once(parsed_worker: Mapping[str, Any], kind: Any, connector: Mapping[str, str]) -> bool:
    """Whether a source connector's tasks write records and offsets in one transaction."""
    return (
        kind.kind == "source"
        and parsed_worker["exactly.once.source.support"] == "enabled"
        and bool(kind().exactly_once_support(dict(connector)))
    )
