"""Bringing newly assigned partitions to their starts, all topics together; what cannot be known yet is tried again soon."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from ...partitioner.errors import AssignmentError, KeyorderError, NoOffsetError, StaleViewError, TopicNotFoundError
from ...partitioner.gates.gate import Gates
from ...partitioner.gates.starts import Commit, is_gone
from ...partitioner.timeline import Timeline
from .. import clock
from ..config import ConsumerSettings
from ..kafka_errors import is_passing
from ..messages import Place
from .assignment import Assignment
from .gates.gating import Gatekeeper
from .partition_state import PartitionState
from .starting import Start, Starter
from .stopped import StoppedTopics

_LOG = logging.getLogger("keyorder.consumer")
_RETRY = 0.02
_BACKLOG = 1_000
_FAILED_RETRY = 0.5
_UNHEARD_RETRY = 0.1
# Where a request for all topics has failed: how long each is asked for by itself, and how long one turn goes on with it.
_APART, _PATIENCE = 10.0, 1.0


class _Attempt:
    """One attempt to start topics. topics: those that are still in it. timelines: by which each is started.

    logs: (log start, end) of the partitions of groups that it has made.
    """

    def __init__(self, topics: list[str]) -> None:
        self.topics = list(topics)
        self.started: set[str] = set()
        self.errors: dict[str, KeyorderError] = {}
        self.timelines: dict[str, Timeline] = {}
        self.logs: dict[Place, tuple[int, int]] = {}

    @contextmanager
    def of(self, topic: str) -> Iterator[None]:
        """What is raised inside concerns this topic, which leaves the attempt."""
        try:
            yield
        except KeyorderError as error:
            self.refuse({topic: error})

    def refuse(self, errors: Mapping[str, KeyorderError]) -> None:
        """These topics leave the attempt."""
        self.errors.update(errors)
        self.topics = [topic for topic in self.topics if topic not in errors]


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
        self._settings, self._assignment, self._starter = settings, assignment, starter
        self._stopped, self._gates = stopped, gates
        self._waiting: dict[str, float] = {}
        self._retry_at = self._apart_until = 0.0
        self._again_at: dict[str, float] = {}
        self._warned_at: dict[str, float] = {}

    @property
    def waiting(self) -> bool:
        """Whether a start is awaited."""
        return bool(self._waiting)

    def add(self, place: Place, now: float) -> None:
        """A partition that is owned from `now` on."""
        self._again_at.pop(place[0], None)
        self._warned_at.pop(place[0], None)
        self._stopped.goes_on(place[0])
        self._assignment.views.follow(place[0], anew=True)
        self._gates.assigned(place[0])
        self._waiting[place[0]] = max(now, clock.now())

    def keep(self, topics: Set[str]) -> None:
        """Forget all other topics: nothing of them is owned any more."""
        for topic in self._waiting.keys() - topics:
            del self._waiting[topic]
        self._stopped.keep(topics)

    def find(self) -> None:
        """Find the starts of newly assigned partitions; what cannot be known yet is tried again soon.

        All topics are asked for together. What one topic's start raises concerns that topic: its revocation may be on its
        way, and the others go on. Where a request for all of them fails, each is asked for by itself for a while.
        """
        if not self._waiting or clock.now() < self._retry_at:
            return
        due = [topic for topic in list(self._waiting) if self._due(topic)]
        if len(due) > 1 and clock.now() >= self._apart_until:
            try:
                self._find(due)
                due = []
            except KeyorderError:
                self._apart_until = clock.now() + _APART
        until = clock.now() + _PATIENCE
        for topic in due:
            began = clock.now()
            if began >= until:
                break
            since = self._waiting.pop(topic)
            self._waiting[topic] = since  # behind the others: each gets its turn
            try:
                self._find([topic])
            except KeyorderError as error:
                took = clock.now() - began
                if is_passing(error):
                    # A broker is away: nothing was decided, so nothing is lost by asking again. However long that takes, the
                    # client library is silent as well, and goes on when the broker is back.
                    self._again_at[topic] = clock.now() + took
                    self._warn(topic, since, error)
                else:
                    # What takes long and leads nowhere is not to keep the others waiting.
                    self._failed(topic, error, took)
        if self._waiting:
            self._retry_at = clock.now() + _RETRY

    def _due(self, topic: str) -> bool:
        if self._stopped.begins_anew(topic):
            self._assignment.views.follow(topic, anew=True)
            self._waiting[topic] = clock.now()
        return topic not in self._assignment.views.failures and clock.now() >= self._again_at.get(topic, 0.0)

    def _late(self, since: float) -> bool:
        return clock.now() - since > self._settings.control_timeout

    def _warn(self, topic: str, since: float, error: KeyorderError) -> None:
        """Where an operator would look: the application is told nothing, as long as it may pass."""
        if self._late(max(since, self._warned_at.get(topic, since))):
            self._warned_at[topic] = clock.now()
            seconds = round(clock.now() - since)
            _LOG.warning(
                "%s: its partitions could not be started for %d s, and are tried on: %s", topic, seconds, error
            )

    def _failed(self, topic: str, error: KeyorderError, took: float = 0.0) -> None:
        self._stopped.failed(topic, error)
        self._again_at[topic] = clock.now() + max(_FAILED_RETRY, 10 * took)

    def _find(self, topics: list[str]) -> None:
        """Start what can be started of these topics. Raises what concerns a request for all of them."""
        attempt = _Attempt(topics)
        self._start(attempt)
        for topic in topics:
            if topic in attempt.errors:
                if len(topics) == 1:
                    raise attempt.errors[topic]
                self._failed(topic, attempt.errors[topic])
            elif topic in attempt.started:
                self._waiting.pop(topic, None)
                self._stopped.goes_on(topic)
            else:
                since = self._waiting[topic]
                if self._late(since) and not self._assignment.views.await_look(topic, since, 0):
                    error = StaleViewError(topic, clock.now() - since)
                    if len(topics) == 1:
                        raise error
                    self._failed(topic, error)

    def _start(self, attempt: _Attempt) -> None:
        """One request of each kind for all topics, however many."""
        self._seen(attempt)
        if not attempt.topics:
            return
        cluster_id = self._count_partitions(attempt)
        managed = [topic for topic in attempt.topics if self._assignment.view(topic).managed]
        attempt.refuse(
            self._starter.misidentified([self._assignment.view(topic).timeline for topic in managed], cluster_id)
        )
        commits = self._starter.committed(
            (topic, p) for topic in attempt.topics for p in self._assignment.partitions(topic)
        )
        new: dict[str, list[int]] = {topic: [] for topic in attempt.topics}
        owned: dict[str, set[int]] = {topic: set() for topic in attempt.topics}
        for each in self._assignment.owned.values():
            if each.topic in owned:
                owned[each.topic].add(each.partition)
                if not each.started:
                    new[each.topic].append(each.partition)
        self._found(attempt, commits, new, owned)
        timelines = {
            topic: attempt.timelines.get(topic) or self._assignment.view(topic).timeline for topic in attempt.topics
        }
        if self._assignment.fetching.manual:
            for topic in list(attempt.topics):
                with attempt.of(topic):
                    self._refuse_without_origins(timelines[topic], commits[topic], set(new[topic]), owned[topic])
        wanted = [(timelines[topic], commits[topic], sorted(new[topic])) for topic in attempt.topics]
        found, errors = self._starter.starts(wanted, attempt.logs)
        attempt.refuse(errors)
        asked = clock.now()
        for topic in list(attempt.topics):
            with attempt.of(topic):
                self._refuse_what_is_gone(timelines[topic], found[topic])
                for start in found[topic]:
                    self._begin_at(start, self._assignment.owned[topic, start.partition], asked)
                if any(start.end - start.offset >= _BACKLOG for start in found[topic]):
                    self._assignment.views.await_look(topic, asked, 0)  # soon: see Intake's look at hints
                self._gates.changed(topic)
                attempt.started.add(topic)

    def _refuse_what_is_gone(self, timeline: Timeline, starts: list[Start]) -> None:
        """With auto.offset.reset=error, unless the application says where to begin."""
        if self._settings.start_at_latest is not None:
            return
        gone = tuple(
            start.partition
            for start in starts
            if start.committed is not None
            and is_gone(timeline, start.partition, start.committed, start.offset)
            and self._assignment.owned[timeline.topic, start.partition].fetch.wanted is None
        )
        if gone:
            raise NoOffsetError(self._settings.group, timeline.topic, gone)

    def _begin_at(self, start: Start, state: PartitionState, asked: float) -> None:
        state.start_at(start.offset if state.fetch.wanted is None else self.resolved(state.place, state.fetch.wanted))
        state.started = False  # until all of it is known: an exception may come at any line
        state.earlier.inherited = start.ahead if state.fetch.wanted is None else None
        state.commits.learned(start.committed, start.epoch, start.note)
        state.gates.flushed = start.epoch
        state.seen.end, state.seen.end_at = start.end, asked
        state.started = True

    def _seen(self, attempt: _Attempt) -> None:
        """Leave out those of which no look is new enough yet."""
        since = {topic: self._waiting[topic] for topic in attempt.topics}
        first = next(iter(since))
        self._assignment.views.await_look(first, since[first], _RETRY)
        attempt.topics = [
            topic for topic in attempt.topics if self._assignment.views.await_look(topic, since[topic], 0)
        ]

    def _found(
        self,
        attempt: _Attempt,
        commits: dict[str, dict[int, Commit]],
        new: dict[str, list[int]],
        owned: dict[str, set[int]],
    ) -> None:
        """Make the group where it has no commits yet, or leave out the topics where another member has to."""
        wanting: list[str] = []
        for topic in list(attempt.topics):
            timeline = self._assignment.view(topic).timeline
            attempt.timelines[topic] = timeline
            # With auto.offset.reset=error a group can only begin where its application says.
            wanted = (self._assignment.owned[topic, p].fetch.wanted is not None for p in new[topic])
            told = self._settings.start_at_latest is None and all(wanted)
            if not (told or self._assignment.fetching.manual) and self._starter.waits_for_founder(
                timeline, commits[topic], owned[topic]
            ):
                attempt.topics.remove(topic)
                continue
            founds = not told and (0 in new[topic] or self._assignment.fetching.manual)
            if founds and self._starter.needs_initial_commit(timeline, commits[topic]):
                wanting.append(topic)
        if not wanting:
            return
        logs = attempt.logs = self._starter.logs(
            (topic, p) for topic in wanting for p in self._assignment.partitions(topic)
        )
        asked = clock.now()
        founding: list[tuple[Timeline, dict[int, Commit], dict[int, int]]] = []
        for topic in wanting:
            with attempt.of(topic):
                if not self._assignment.views.await_look(topic, asked, self._settings.control_timeout):
                    raise StaleViewError(topic, self._settings.control_timeout)
                timeline = attempt.timelines[topic] = self._assignment.view(topic).timeline
                own = {p: logs[topic, p] for p in self._assignment.partitions(topic)}
                founding.append((timeline, commits[topic], self._starter.founding(timeline, commits[topic], own)))
        made = self._starter.commit(founding)
        for timeline, known, _ in founding:
            known.update(made[timeline.topic])

    def resolved(self, place: Place, offset: int) -> int:
        """An offset that the application gave, with OFFSET_BEGINNING and OFFSET_END asked of the leader."""
        if offset >= 0:
            return offset
        low, high = self._starter.log(*place)
        if offset == OFFSET_BEGINNING:
            return low
        return high if offset == OFFSET_END else max(low, high + offset + 2000)  # rd_kafka_offset_tail(n) is -2000 - n

    def _refuse_without_origins(
        self, timeline: Timeline, commits: dict[int, Commit], new: set[int], owned: set[int]
    ) -> None:
        """A gate whose origin nobody here reads would stay shut for ever, unless the group has opened it already."""
        if not (self._settings.ordered and timeline.ordered):
            return
        opened = Gates(timeline).open_now(
            lambda q: commits[q].offset if q in commits else 0, self._assignment.views.waived(timeline.topic)
        )
        for p in sorted(new):
            gate = opened.first_closed(p)
            missing = {q for q, _ in opened.blockers(gate)} - owned if gate is not None else set()
            if missing:
                raise AssignmentError(timeline.topic, p, tuple(sorted(missing)))

    def _count_partitions(self, attempt: _Attempt) -> str:
        """Returns the cluster's id."""
        highest: dict[str, int] = {}
        for topic, p in self._assignment.owned:
            highest[topic] = max(highest.get(topic, 0), p + 1)
        counts, cluster_id = self._starter.counts(attempt.topics)
        for topic in list(attempt.topics):
            with attempt.of(topic):
                if topic not in counts:
                    if clock.now() - self._waiting[topic] >= self._settings.propagation:
                        raise TopicNotFoundError(topic)
                    # It may have been made just now: a broker hears of a new topic late.
                    self._again_at[topic] = clock.now() + _UNHEARD_RETRY
                    attempt.topics.remove(topic)
                    continue
                self._assignment.counted(topic, max(counts[topic], highest.get(topic, 1)))
        return cluster_id
