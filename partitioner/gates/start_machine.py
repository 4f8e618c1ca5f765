"""Bringing newly assigned partitions to their starts as a step machine: `step(event, now) -> actions`.

All topics are asked for together, with one request of each kind. What one topic's start raises concerns that topic: its
revocation may be on its way, and the others go on. Where a request for all of them fails, each is asked for by itself for
a while. What cannot be known yet is tried again in the next turn.

An attempt goes up to a request, and on with the answer. What no answer has told has not happened: an attempt that is cut
short is over with the next turn, and whatever has not begun is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic

from ..errors import AssignmentError, KeyorderError, NoOffsetError, StaleViewError, TopicNotFoundError
from ..errors.roots import is_passing
from ..timeline import Timeline
from .gate import Gates
from .gate_state import Place
from .start_events import (
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
    Logs,
    LogsRead,
    Look,
    Looked,
    NoteCount,
    P,
    ReadCommits,
    ReadLogs,
    Stop,
    Turn,
    Warn,
)
from .starts import (
    Commit,
    GroupState,
    Start,
    check_consistent,
    flushed_epoch,
    founded,
    initial_offsets,
    is_gone,
    start_of,
    state_of,
)

_REQUESTS = Look, Identify, ReadCommits, ReadLogs, CommitStarts, Begin
_RETRY = 0.02
_BACKLOG = 1_000
_FAILED_RETRY = 0.5
_UNHEARD_RETRY = 0.1
# Where a request for all topics has failed: how long each is asked for by itself, and how long one turn goes on with it.
_APART, _PATIENCE = 10.0, 1.0

_Steps = Generator[Action[P], Any, None]


@dataclass(frozen=True, slots=True)
class StartTerms:
    """What a consumer's settings say of starts.

    ordered: False: nothing waits at gates. from_latest: `auto.offset.reset`; None stands for `error`. control_timeout: how
    long the control topic may be silent. propagation: how long a topic that is not there may be one that was just made.
    """

    group: str
    ordered: bool
    from_latest: bool | None
    control_timeout: float
    propagation: float


class _Attempt(Generic[P]):
    """One attempt to start topics. topics: those that are still in it. fresh: those of which a look was new enough.

    By topic: counts, how many partitions there are; timelines, by which each is started; commits, the group's; waived, gates
    that an operator let go; owned, new, the partitions of this member, and those of them that have not started.
    logs: of the partitions of groups that it has made.
    """

    def __init__(self, topics: list[str], manual: bool) -> None:
        self.topics, self.manual = list(topics), manual
        self.fresh: frozenset[str] = frozenset()
        self.started: set[str] = set()
        self.errors: dict[str, KeyorderError] = {}
        self.counts: dict[str, int] = {}
        self.timelines: dict[str, Timeline] = {}
        self.commits: dict[str, dict[int, Commit]] = {}
        self.waived: Mapping[str, Set[tuple[int, int]]] = {}
        self.logs: Logs = {}
        self.owned: dict[str, set[int]] = {}
        self.new: dict[str, list[P]] = {}

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


class StartMachine(Generic[P]):
    """The partitions of one member that have not started yet. Not thread-safe.

    owned: its partitions; kept by the driver, and only read here.
    """

    def __init__(self, terms: StartTerms, owned: Mapping[Place, P]) -> None:
        self._terms, self._owned = terms, owned
        self._waiting: dict[str, float] = {}
        self._retry_at = self._apart_until = self._now = 0.0
        self._again_at: dict[str, float] = {}
        self._warned_at: dict[str, float] = {}
        self._steps: _Steps[P] | None = None
        self._handlers: dict[type[Any], Callable[[Any], list[Action[P]]]] = {
            Assigned: self._on_assigned,
            Kept: self._on_kept,
            Turn: self._on_turn,
            Failed: self._on_failed,
            **dict.fromkeys((Looked, Identified, CommitsRead, LogsRead, Committed, Begun), self._go_on),
        }

    def step(self, event: Event, now: float) -> list[Action[P]]:
        """Take in an event at `now`, seconds of a clock that counts through suspend. Returns what is to be done, in order."""
        self._now = now
        return self._handlers[type(event)](event)

    @property
    def waiting(self) -> Mapping[str, float]:
        """The topics of which a start is awaited, each since when: a look at its control topic has to begin later."""
        return self._waiting

    def due(self, now: float) -> bool:
        """Whether a turn may find anything."""
        return bool(self._waiting) and now >= self._retry_at

    # -- what is told ----------------------------------------------------------------------------------------------

    def _on_assigned(self, event: Assigned) -> list[Action[P]]:
        self._again_at.pop(event.topic, None)
        self._warned_at.pop(event.topic, None)
        self._waiting[event.topic] = self._now
        return [Follow(event.topic)]

    def _on_kept(self, event: Kept) -> list[Action[P]]:
        for topic in self._waiting.keys() - event.topics:
            del self._waiting[topic]
        return []

    def _on_turn(self, event: Turn) -> list[Action[P]]:
        self._steps = self._turn(event)
        return self._go_on(None)

    def _on_failed(self, event: Failed) -> list[Action[P]]:
        return self._go_on(event)

    def _go_on(self, answer: Event | None) -> list[Action[P]]:
        """The turn up to its next request. None to begin it."""
        steps, actions = self._steps, list[Action[P]]()
        if steps is None:
            return actions
        try:
            action = steps.throw(answer.error) if isinstance(answer, Failed) else steps.send(answer)
            while not isinstance(action, _REQUESTS):
                actions.append(action)
                action = next(steps)
            return [*actions, action]
        except StopIteration:
            self._steps = None
        return actions

    # -- a turn ----------------------------------------------------------------------------------------------------

    def _turn(self, turn: Turn) -> _Steps[P]:
        due: list[str] = []
        for topic in list(self._waiting):
            if topic in turn.remade:
                self._waiting[topic] = self._now
                yield Follow(topic)
            elif topic in turn.unusable:
                continue
            if self._now >= self._again_at.get(topic, 0.0):
                due.append(topic)
        if len(due) > 1 and self._now >= self._apart_until:
            try:
                yield from self._find(due, turn.manual)
                due = []
            except KeyorderError:
                self._apart_until = self._now + _APART
        until = self._now + _PATIENCE
        for topic in due:
            if self._now >= until:
                break
            yield from self._find_alone(topic, turn.manual)
        if self._waiting:
            self._retry_at = self._now + _RETRY

    def _find_alone(self, topic: str, manual: bool) -> _Steps[P]:
        began = self._now
        since = self._waiting.pop(topic)
        self._waiting[topic] = since  # behind the others: each gets its turn
        try:
            yield from self._find([topic], manual)
        except KeyorderError as error:
            took = self._now - began
            if not is_passing(error):
                # What takes long and leads nowhere is not to keep the others waiting.
                yield self._failed(topic, error, took)
                return
            # A broker is away: nothing was decided, so nothing is lost by asking again. However long that takes, the
            # client library is silent as well, and goes on when the broker is back.
            self._again_at[topic] = self._now + took
            if self._late(max(since, self._warned_at.get(topic, since))):
                # Where an operator would look: the application is told nothing, as long as it may pass.
                self._warned_at[topic] = self._now
                yield Warn(topic, self._now - since, error)

    def _late(self, since: float) -> bool:
        return self._now - since > self._terms.control_timeout

    def _failed(self, topic: str, error: KeyorderError, took: float = 0.0) -> Stop:
        self._again_at[topic] = self._now + max(_FAILED_RETRY, 10 * took)
        return Stop(topic, error)

    def _find(self, topics: list[str], manual: bool) -> _Steps[P]:
        """Start what can be started of these topics. Raises what concerns a request for all of them."""
        attempt: _Attempt[P] = _Attempt(topics, manual)
        yield from self._start(attempt)
        for topic in topics:
            if topic in attempt.started:
                continue
            since = self._waiting[topic]
            error = attempt.errors.get(topic)
            if error is None and topic not in attempt.fresh and self._late(since):
                error = StaleViewError(topic, self._now - since)
            if error is not None:
                if len(topics) == 1:
                    raise error
                yield self._failed(topic, error)

    # -- an attempt ------------------------------------------------------------------------------------------------

    def _start(self, attempt: _Attempt[P]) -> _Steps[P]:
        """One request of each kind for all topics, however many."""
        looked: Looked = yield Look({topic: self._waiting[topic] for topic in attempt.topics}, _RETRY)
        attempt.fresh = frozenset(looked.views)
        attempt.topics = [topic for topic in attempt.topics if topic in attempt.fresh]
        if not attempt.topics:
            return
        yield from self._identify(attempt)
        if attempt.topics:
            yield from self._make_groups(attempt)
        if attempt.topics:
            yield from self._begin(attempt)

    def _identify(self, attempt: _Attempt[P]) -> _Steps[P]:
        """How many partitions there are, whether they are those that the timelines mean, and what is committed on them."""
        identified: Identified = yield Identify(attempt.topics)
        for topic in attempt.topics:
            attempt.owned[topic], attempt.new[topic] = set(), []
        for each in self._owned.values():
            if each.topic in attempt.owned:
                attempt.owned[each.topic].add(each.partition)
                if not each.started:
                    attempt.new[each.topic].append(each)
        for topic in list(attempt.topics):
            view, found = identified.views[topic], identified.found.get(topic)
            if found is not None:
                attempt.counts[topic] = max(found.partitions, 1 + max(attempt.owned[topic], default=0))
                yield NoteCount(topic, attempt.counts[topic])
                if view.managed:
                    with attempt.of(topic):
                        view.timeline.check_identity(found.topic_id, found.cluster_id)
            elif self._now - self._waiting[topic] >= self._terms.propagation:
                attempt.refuse({topic: TopicNotFoundError(topic)})
            else:
                # It may have been made just now: a broker hears of a new topic late.
                self._again_at[topic] = self._now + _UNHEARD_RETRY
                attempt.topics.remove(topic)
        if attempt.topics:
            read: CommitsRead = yield ReadCommits({topic: range(attempt.counts[topic]) for topic in attempt.topics})
            attempt.waived = read.waived
            for topic in attempt.topics:
                attempt.timelines[topic] = read.views[topic].timeline
                attempt.commits[topic] = dict(read.commits[topic])

    def _make_groups(self, attempt: _Attempt[P]) -> _Steps[P]:
        """Make the group where it has no commits yet, or leave out the topics where another member has to."""
        attempt.topics = [topic for topic in attempt.topics if not self._waits_for_founder(attempt, topic)]
        wanting = [topic for topic in attempt.topics if self._has_to_found(attempt, topic)]
        if not wanting:
            return
        places = [(topic, p) for topic in wanting for p in range(attempt.counts[topic])]
        read: LogsRead = yield ReadLogs(dict.fromkeys(places, 0))
        attempt.logs = read.logs
        looked: Looked = yield Look(dict.fromkeys(wanting, self._now), self._terms.control_timeout)
        made: dict[str, dict[int, Commit]] = {}
        for topic in wanting:
            with attempt.of(topic):
                if topic not in looked.views:
                    raise StaleViewError(topic, self._terms.control_timeout)
                attempt.timelines[topic] = looked.views[topic].timeline
                made[topic] = self._initial_commits(attempt, topic)
        if made:
            yield CommitStarts(made)
        for topic, commits in made.items():
            attempt.commits[topic].update(commits)

    def _told(self, attempt: _Attempt[P], topic: str) -> bool:
        """With auto.offset.reset=error a group can only begin where its application says."""
        return self._terms.from_latest is None and all(each.fetch.wanted is not None for each in attempt.new[topic])

    def _waits_for_founder(self, attempt: _Attempt[P], topic: str) -> bool:
        """Whether another member has to make the group first: the owner of partition 0 alone does it."""
        if attempt.manual or self._told(attempt, topic):
            return False
        return 0 not in attempt.owned[topic] and not founded(attempt.timelines[topic], attempt.commits[topic])

    def _has_to_found(self, attempt: _Attempt[P], topic: str) -> bool:
        """Whether this member has to make (or stamp) the group: the owner of partition 0, or who assigns by hand."""
        mine = attempt.manual or any(each.partition == 0 for each in attempt.new[topic])
        if not mine or self._told(attempt, topic):
            return False
        commits = attempt.commits[topic]
        return state_of(commits) is not GroupState.RESUMING or not founded(attempt.timelines[topic], commits)

    def _initial_commits(self, attempt: _Attempt[P], topic: str) -> dict[int, Commit]:
        """What makes the group, of all partitions of a topic. Each with the newest epoch that it proves."""
        timeline, commits = attempt.timelines[topic], attempt.commits[topic]
        logs = {p: attempt.logs[topic, p] for p in range(attempt.counts[topic])}
        starts = {p: start for p, (start, _) in logs.items()}
        ends = {p: end for p, (_, end) in logs.items()}
        offsets = initial_offsets(self._terms.group, timeline, commits, starts, ends, self._terms.from_latest)
        notes = {p: commit.note for p, commit in commits.items()}
        return {p: Commit(o, flushed_epoch(timeline, p, o), note=notes.get(p, "")) for p, o in offsets.items()}

    def _begin(self, attempt: _Attempt[P]) -> _Steps[P]:
        """Where each partition starts, and on from there."""
        for topic in attempt.topics if attempt.manual else ():
            with attempt.of(topic):
                self._refuse_without_origins(attempt, topic)
        unknown = {
            (topic, each.partition): commit.offset if (commit := attempt.commits[topic].get(each.partition)) else 0
            for topic in attempt.topics
            for each in attempt.new[topic]
            if (topic, each.partition) not in attempt.logs
        }
        logs = dict(attempt.logs)
        if unknown:
            read: LogsRead = yield ReadLogs(unknown)
            logs |= read.logs
        asked = self._now
        begun: dict[str, list[tuple[P, Start]]] = {}
        for topic in attempt.topics:
            with attempt.of(topic):
                begun[topic] = self._starts(attempt, topic, logs)
        for topic, starts in begun.items():
            yield Begin(topic, starts, asked, any(start.end - start.offset >= _BACKLOG for _, start in starts))
            attempt.started.add(topic)
            self._waiting.pop(topic, None)

    def _starts(self, attempt: _Attempt[P], topic: str, logs: Logs) -> list[tuple[P, Start]]:
        group, timeline, commits = self._terms.group, attempt.timelines[topic], attempt.commits[topic]
        check_consistent(group, timeline, commits)
        new = sorted(attempt.new[topic], key=lambda each: each.partition)
        starts = [
            (each, start_of(group, (topic, each.partition), commits.get(each.partition), *logs[topic, each.partition]))
            for each in new
        ]
        by_group = [start for each, start in starts if each.fetch.wanted is None]
        # With auto.offset.reset=error, unless the application says where to begin.
        gone = tuple(
            start.partition
            for start in by_group
            if start.committed is not None and is_gone(timeline, start.partition, start.committed, start.offset)
        )
        if gone and self._terms.from_latest is None:
            raise NoOffsetError(group, topic, gone)
        return [
            (each, start if (wanted := each.fetch.wanted) is None else start.at(wanted, logs[topic, each.partition]))
            for each, start in starts
        ]

    def _refuse_without_origins(self, attempt: _Attempt[P], topic: str) -> None:
        """A gate whose origin nobody here reads would stay shut for ever, unless the group has opened it already."""
        timeline, commits = attempt.timelines[topic], attempt.commits[topic]
        if not (self._terms.ordered and timeline.ordered):
            return
        opened = Gates(timeline).open_now(
            lambda q: commits[q].offset if q in commits else 0, attempt.waived.get(topic, ())
        )
        for p in sorted(each.partition for each in attempt.new[topic]):
            gate = opened.first_closed(p)
            missing = {q for q, _ in opened.blockers(gate)} - attempt.owned[topic] if gate is not None else set()
            if missing:
                raise AssignmentError(topic, p, tuple(sorted(missing)))
