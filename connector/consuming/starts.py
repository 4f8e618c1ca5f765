"""The driver of `partitioner.gates.start_machine`: the cluster's and the group's answers, and reading from the starts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Set

from ...partitioner.errors import KeyorderError
from ...partitioner.gates import starts as offsets
from ...partitioner.gates.start_events import (
    Action,
    Assigned,
    Begin,
    Begun,
    CommitsRead,
    CommitStarts,
    Committed,
    Event,
    Failed,
    Follow,
    Identified,
    Identify,
    Kept,
    LogsRead,
    Look,
    Looked,
    NoteCount,
    ReadCommits,
    ReadLogs,
    Stop,
    Turn,
    Warn,
)
from ...partitioner.gates.start_machine import StartMachine, StartTerms
from .. import clock
from ..config import ConsumerSettings
from ..guarded_logger import GuardedLogger
from ..messages import Place
from .assignment import Assignment
from .gates.gating import Gatekeeper
from .partition_state import PartitionState
from .starting import Starter
from .stopped import StoppedTopics
from .view import View

_LOG = GuardedLogger("keyorder.consumer")


class Starts:
    """The partitions of one member that have not started yet. Used by the polling thread alone."""

    def __init__(
        self,
        settings: ConsumerSettings,
        assignment: Assignment,
        starter: Starter,
        stopped: StoppedTopics,
        gates: Gatekeeper,
    ) -> None:
        self._assignment, self._starter, self._stopped, self._gates = assignment, starter, stopped, gates
        terms = StartTerms(
            settings.group, settings.ordered, settings.start_at_latest, settings.control_timeout, settings.propagation
        )
        self._machine: StartMachine[PartitionState] = StartMachine(terms, assignment.owned)

    @property
    def waiting(self) -> bool:
        """Whether a start is awaited."""
        return bool(self._machine.waiting)

    def add(self, topic: str) -> None:
        """A partition of it is owned from now on."""
        self._stopped.goes_on(topic)
        self._step(Assigned(topic))
        self._gates.assigned(topic)

    def keep(self, topics: Set[str]) -> None:
        """Forget all other topics: nothing of them is owned any more."""
        self._step(Kept(topics))
        self._stopped.keep(topics)

    def find(self) -> None:
        """Find the starts of newly assigned partitions; what cannot be known yet is tried again soon."""
        if not self._machine.due(clock.now()):
            return
        remade = {topic for topic in self._machine.waiting if self._stopped.begins_anew(topic)}
        by_hand = self._assignment.fetching.has_no_group(self._machine.waiting)
        self._step(Turn(by_hand, frozenset(self._assignment.views.failures), remade))

    def resolved(self, place: Place, offset: int) -> int:
        """An offset that the application gave, with OFFSET_BEGINNING and OFFSET_END asked of the leader."""
        return offset if offset >= 0 else offsets.resolved(offset, *self._starter.log(*place))

    # -- actions ---------------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        """Tell the machine, and do what it asks for; a request's answer is told before what comes behind it."""
        actions = deque(self._machine.step(event, clock.now()))
        while actions:
            actions.extend(self._perform(actions.popleft()))

    def _perform(self, action: Action[PartitionState]) -> list[Action[PartitionState]]:
        """Do it. Returns what the machine asks for next."""
        match action:
            case Follow(topic):
                self._assignment.views.follow(topic, anew=True)
            case NoteCount(topic, partitions):
                self._assignment.counted(topic, partitions)
            case Stop(topic, error):
                self._stopped.failed(topic, error)
            case Warn(topic, seconds, error):
                _LOG.warning(
                    "%s: its partitions could not be started for %d s, and are tried on: %s",
                    topic,
                    round(seconds),
                    error,
                )
            case _:
                try:
                    answer = self._answer(action)
                except KeyorderError as error:
                    answer = Failed(error)
                return self._machine.step(answer, clock.now())
        return []

    def _answer(self, request: Action[PartitionState]) -> Event:
        """What comes of a request. Raises what stands in its way."""
        match request:
            case Look(since, wait):
                return Looked(self._views(self._seen(since, wait)))
            case Identify(topics):
                return Identified(self._starter.identities(topics), self._views(topics))
            case ReadCommits(partitions):
                commits = self._starter.committed((topic, p) for topic, some in partitions.items() for p in some)
                waived = {topic: self._assignment.views.waived(topic) for topic in partitions}
                return CommitsRead(commits, self._views(partitions), waived)
            case ReadLogs(at_least):
                return LogsRead(self._starter.logs_reaching(at_least))
            case CommitStarts(made):
                self._starter.commit(made, alone=self._assignment.fetching.manual)
                return Committed()
            case Begin():
                self._begin(request)
                return Begun()
        raise AssertionError(f"{request} is no request")

    def _views(self, topics: Iterable[str]) -> Mapping[str, View]:
        return {topic: self._assignment.view(topic) for topic in topics}

    def _seen(self, since: Mapping[str, float], wait: float) -> list[str]:
        until = clock.now() + wait
        return [
            topic
            for topic, began in since.items()
            if self._assignment.views.await_look(topic, began, max(0.0, until - clock.now()))
        ]

    def _begin(self, begin: Begin[PartitionState]) -> None:
        for state, start in begin.starts:
            state.start_at(start.offset)
            state.started = False  # until all of it is known: an exception may come at any line
            state.earlier.inherited = start.ahead
            state.commits.learned(start.committed, start.epoch, start.note)
            state.gates.flushed = start.epoch
            state.seen.end, state.seen.end_at = start.end, begin.asked
            state.started = True
        if begin.look_soon:
            self._assignment.views.await_look(begin.topic, begin.asked, 0)  # see Intake's look at hints
        self._gates.changed(begin.topic)
        self._stopped.goes_on(begin.topic)
