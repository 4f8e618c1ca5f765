"""What a controller that stays does, turn by turn: it finishes changes that were left open, scales, and runs jobs.

It keeps no state that others would need: whatever it was doing when it dies stands in the timeline, and the next one,
here or elsewhere, goes on from there. Several may run; the transactional writer of a topic fences all others, and a
fenced one waits longer and longer before it tries again, so that they do not take turns in stopping each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf, isfinite
from threading import Thread
from typing import Protocol, TypeVar

from ...partitioner.changes.scaling import Decision, History, decide
from ...partitioner.changes.scaling_policy import Load, Policy
from ...partitioner.epochs import ChangePhase, OpenChange
from ...partitioner.errors import ControllerFencedError, KeyorderError, OrderError, StockWritersError
from ...partitioner.timeline import Timeline
from .claims import Claims
from .results import Change
from .scaling_policy import ScalingPolicies

# A roll call holds no records, and may wait for a dead writer's lease to run out.
_PLAN_PATIENCE = 4
_MOST_DOUBLINGS = 6
# Seconds until a topic is tried again that stock producers write: they may be replaced or stopped at any time.
_REFUSED_PAUSE = 60.0

Result = TypeVar("Result")


class Job(Protocol):
    """Something to be done from time to time, beside the controller's turns; one run of it at a time.

    What it knows of topics is the supervisor's `timelines` and `claims`.
    """

    name: str

    def due(self, now: float) -> bool:
        """Whether to run it now; not asked while it runs. now: connector.clock's."""

    def run(self) -> Mapping[str, object] | None:
        """Do it. What is returned is reported; None says nothing. A KeyorderError is reported, and the job stays."""


class Submit(Protocol):
    """Runs something beside the turns."""

    def __call__(self, work: Callable[[], Result]) -> Future[Result]:
        """Begin it."""


class Cluster(Protocol):
    """What the supervisor needs of Kafka."""

    @property
    def unreadable(self) -> Mapping[str, OrderError]:
        """The managed topics whose timelines cannot be read, with the error."""

    def timelines(self) -> Mapping[str, Timeline]:
        """Every managed topic that exists; those that cannot be read are in `unreadable`. Raises KeyorderError."""

    def measure(self, timeline: Timeline, policy: Policy) -> Load | None:
        """The load of a topic, None if there is none to tell yet. Raises KeyorderError."""

    def forget(self, topic: str) -> None:
        """Drop what was measured of a topic."""

    def resume(self, topic: str, change: OpenChange) -> Change:
        """Finish a change that was left open, or give it up. Raises KeyorderError."""

    def resize(self, topic: str, current: int, count: int, policy: Policy) -> Change:
        """Grow or shrink if the topic still has `current`, as the policy of the topic wants it.

        Raises KeyorderError; StockWritersError where stock producers write the topic and the policy does not accept them.
        """


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a turn. facts: further members of the object that programs get."""

    event: str
    topic: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The event as one object."""
        return {"event": self.event, **({} if self.topic is None else {"topic": self.topic}), **self.facts}


@dataclass(slots=True)
class _Watched:
    """An open change, and since when nobody has moved it."""

    change: OpenChange
    since: float


def in_background(work: Callable[[], Result]) -> Future[Result]:
    """Run it on a thread that does not keep the process alive."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="keyorder-work", daemon=True).start()
    return future


class Supervisor:
    """Looks after the topics in turns. Not thread-safe.

    topics: the ones to look after, all managed ones if empty. jobs: may be added to later.
    takeover_s: how long an open change may stand still.
    policies: when to scale, never if None. apply: scale instead of only telling. submit: runs a change, or a job.
    timelines: those of its topics, as the last turn has seen them; replaced whole, for jobs to read.
    claims: the topics that a change or a job of this process is at work on; the other one leaves them alone meanwhile.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str] = (),
        jobs: Sequence[Job] = (),
        takeover_s: float = 15.0,
        policies: ScalingPolicies | None = None,
        apply: bool = False,
        submit: Submit = in_background,
    ) -> None:
        self._cluster, self._topics, self._jobs = cluster, frozenset(topics), jobs
        self._takeover_s, self._policies, self._apply, self._submit = takeover_s, policies, apply, submit
        self._watched: dict[str, _Watched] = {}
        self._running: dict[str, Future[Change]] = {}
        self._jobs_running: dict[str, Future[Mapping[str, object] | None]] = {}
        self.timelines: Mapping[str, Timeline] = {}
        self.claims = Claims()
        self._setbacks: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._epochs: dict[str, int] = {}
        self._histories: dict[str, History] = {}
        self._said: dict[str, object] = {}
        self._refused: set[str] = set()
        self._unmeasured: set[str] = set()
        self._unread: dict[str, str] = {}

    @property
    def running(self) -> tuple[str, ...]:
        """Topics that this process is changing."""
        return tuple(sorted(self._running))

    @property
    def refused(self) -> frozenset[str]:
        """Topics that the policy wants to change and that are left as they are, since stock producers write them."""
        return frozenset(self._refused)

    @property
    def at_work(self) -> bool:
        """Whether a change or a job of this process is under way."""
        return bool(self._running or self._jobs_running)

    @property
    def settled(self) -> bool:
        """Whether a single run is over: nothing is being done, left open, or measured for the first time.

        A topic whose change failed or went to another controller is not waited for.
        """
        open_changes = [topic for topic in self._watched if not self._setbacks.get(topic)]
        return not self.at_work and not open_changes and not self._unmeasured

    def only_mine(self, timelines: Mapping[str, Timeline]) -> dict[str, Timeline]:
        """Those that it looks after, by name. Topics that were released are nobody's."""
        return {
            name: t
            for name, t in sorted(timelines.items())
            if (not self._topics or name in self._topics) and t.released is None
        }

    def turn(self, now: float) -> list[Event]:
        """One look at everything, and what follows from it. now: seconds of connector.clock."""
        events = self.finished(now)
        try:
            timelines = self._cluster.timelines()
        except KeyorderError as error:
            if not error.retriable:
                raise
            return [*events, Event("unreachable", facts=failure(error))]
        events += self._unreadable()
        mine = self.timelines = self.only_mine(timelines)
        for topic in set(self._watched) - set(mine):
            del self._watched[topic]
        self._unmeasured &= set(mine)
        self._refused &= set(mine)
        for topic, timeline in mine.items():
            if self._epochs.get(topic) != timeline.newest.number:
                self._epochs[topic] = timeline.newest.number
                self._setbacks.pop(topic, None)
                self._refused.discard(topic)
            if topic not in self._running:
                events += self._watch(topic, timeline, now)
            if self._policies is not None:
                events += self._scale(topic, timeline, self._policies.of(topic), now)
        for job in self._jobs:
            if job.name not in self._jobs_running and job.due(now):
                self._jobs_running[job.name] = self._submit(job.run)
        return [*events, *self._jobs_done()]

    def finished(self, now: float) -> list[Event]:
        """What became of changes and jobs that this process began; each is told once."""
        events = self._jobs_done()
        for topic, future in sorted(self._running.items()):
            if not future.done():
                continue
            del self._running[topic]
            self.claims.give_back(topic)
            self._watched.pop(topic, None)
            try:
                change = future.result()
            except ControllerFencedError as error:
                self._set_back(topic, now)
                events.append(Event("fenced", topic, {"message": str(error)}))
            except StockWritersError as error:
                self._not_before[topic] = now + _REFUSED_PAUSE
                if topic not in self._refused:
                    self._refused.add(topic)
                    events.append(Event("refused", topic, failure(error)))
            except KeyorderError as error:
                self._set_back(topic, now)
                events.append(Event("failed", topic, failure(error)))
            else:
                seconds = change.steps[-1].seconds if change.steps else 0.0
                facts = {
                    "before": change.before,
                    "after": change.after,
                    "changed": change.changed,
                    "epoch": change.epoch,
                    "attempts": change.attempts,
                    "seconds": round(seconds, 3),
                }
                events.append(Event("changed", topic, facts))
        return events

    def _unreadable(self) -> list[Event]:
        """Topics that nothing can be done for, each told once: until they are fixed, or fail in another way."""
        now = {
            topic: str(error)
            for topic, error in self._cluster.unreadable.items()
            if not self._topics or topic in self._topics
        }
        news = [topic for topic in sorted(now) if self._unread.get(topic) != now[topic]]
        self._unread = now
        return [Event("unreadable", topic, failure(self._cluster.unreadable[topic])) for topic in news]

    def _watch(self, topic: str, timeline: Timeline, now: float) -> list[Event]:
        """Follow an open change, and take it over when it has stood still for too long."""
        change, known = timeline.change, self._watched.get(topic)
        if change is None:
            if known is None:
                return []
            del self._watched[topic]
            newest = timeline.newest
            return [Event("change-closed", topic, {"count": newest.count, "epoch": newest.number})]
        about = {"count": change.count, "epoch": change.epoch, "phase": change.phase.value}
        if known is None or known.change != change:
            self._watched[topic] = _Watched(change, now)
            return [Event("change-open", topic, about)]
        if now - known.since < self._patience(topic, change) or not self.claims.take(topic):
            return []
        self._running[topic] = self._submit(lambda: self._cluster.resume(topic, change))
        return [Event("take-over", topic, {**about, "stood_still_s": round(now - known.since, 3)})]

    def _patience(self, topic: str, change: OpenChange) -> float:
        # Later attempts have longer deadlines: 20 s from the third one on.
        later = 2 if change.attempt > 2 else 1
        longer = _PLAN_PATIENCE if change.phase is ChangePhase.PLAN else later
        return float(self._takeover_s * longer * 2 ** self._setbacks.get(topic, 0))

    def _set_back(self, topic: str, now: float) -> None:
        setbacks = min(self._setbacks.get(topic, 0) + 1, _MOST_DOUBLINGS)
        self._setbacks[topic] = setbacks
        self._not_before[topic] = now + self._takeover_s * 2**setbacks

    def _scale(self, topic: str, timeline: Timeline, policy: Policy, now: float) -> list[Event]:
        if topic not in self._histories:
            self._histories[topic] = History()
            self._unmeasured.add(topic)
        if topic in self.claims or timeline.change is not None:
            # Writers hold records meanwhile: what is measured now says nothing.
            self._cluster.forget(topic)
            return []
        if now < self._not_before.get(topic, -inf):
            return []
        try:
            load = self._cluster.measure(timeline, policy)
        except KeyorderError as error:
            self._not_before[topic] = now + policy.sample_s
            self._unmeasured.discard(topic)
            return [Event("failed", topic, failure(error))]
        if load is None:
            return []
        self._unmeasured.discard(topic)
        decision = decide(load, timeline.layout, policy, now, self._histories[topic])
        self._histories[topic] = decision.history
        if decision.count == decision.current:
            self._refused.discard(topic)
        act = self._apply and decision.due(now) and self.claims.take(topic)
        told = (decision.current, decision.count, decision.hot_keys, decision.due(now))
        events = []
        if (act and topic not in self._refused) or self._said.get(topic) != told:
            self._said[topic] = told
            events.append(Event("decision", topic, _decided(decision, act, now)))
        if act:
            current, count = decision.current, decision.count
            self._running[topic] = self._submit(lambda: self._cluster.resize(topic, current, count, policy))
        return events

    def _jobs_done(self) -> list[Event]:
        events = []
        for name, future in list(self._jobs_running.items()):
            if not future.done():
                continue
            del self._jobs_running[name]
            try:
                facts = future.result()
            except KeyorderError as error:
                events.append(Event("failed", facts={"job": name, **failure(error)}))
            else:
                events += [] if facts is None else [Event("job", facts={"job": name, **facts})]
        return events


def failure(error: KeyorderError) -> dict[str, object]:
    """An error as the facts of an event."""
    return {"error": {"type": type(error).__name__, "message": str(error), "retriable": error.retriable}}


def _decided(decision: Decision, applied: bool, now: float) -> dict[str, object]:
    wait = max(0.0, decision.act_from - now)
    return {
        "current": decision.current,
        "count": decision.count,
        "reason": decision.reason,
        "due": decision.due(now),
        "due_in_s": round(wait, 3) if isfinite(wait) else None,
        "hot_key_partitions": list(decision.hot_keys),
        "applied": applied,
    }
