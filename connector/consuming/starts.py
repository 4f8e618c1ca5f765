"""Bringing newly assigned partitions to their starts, topic by topic; what cannot be known yet is tried again soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from ...partitioner.errors import AssignmentError, KeyorderError, PeerError, StaleViewError, TopicNotFoundError
from ...partitioner.gates.gate import Gates
from ...partitioner.gates.starts import Commit
from ...partitioner.timeline import Timeline
from .. import clock
from ..config import ConsumerSettings
from ..kafka_errors import translated
from ..messages import Place
from .fetching import Fetching
from .owned import Owned
from .starting import Starter
from .stopped import StoppedTopics
from .view import View, ViewKeeper

if TYPE_CHECKING:
    from .gates.gating import Gatekeeper

_RETRY = 0.02
_FAILED_RETRY = 0.5


class Starts:
    """The partitions of one member that have not started yet. Used by the polling thread alone.

    owned: all partitions of this member.
    """

    gates: Gatekeeper

    def __init__(
        self,
        fetching: Fetching,
        settings: ConsumerSettings,
        views: ViewKeeper,
        starter: Starter,
        owned: dict[Place, Owned],
        stopped: StoppedTopics,
    ) -> None:
        self._fetching, self._settings, self._stopped = fetching, settings, stopped
        self._views, self._starter, self._owned = views, starter, owned
        self._waiting: dict[str, float] = {}
        self._retry_at = 0.0
        self._again_at: dict[str, float] = {}
        self._physical: dict[str, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether a start is awaited."""
        return bool(self._waiting)

    def view(self, topic: str) -> View:
        """What is known of a topic now."""
        return self._views.view(topic, self._physical.get(topic, 1))

    def add(self, place: Place, now: float) -> None:
        """A partition that is owned from `now` on."""
        self._again_at.pop(place[0], None)
        self._stopped.goes_on(place[0])
        self._views.follow(place[0], anew=True)
        self.gates.assigned(place[0])
        self._waiting[place[0]] = max(now, clock.now())

    def keep(self, topics: set[str]) -> None:
        """Forget all other topics: nothing of them is owned any more."""
        for topic in self._waiting.keys() - topics:
            del self._waiting[topic]
        self._stopped.keep(topics)

    def find(self) -> None:
        """Find the starts of newly assigned partitions; what cannot be known yet is tried again soon.

        What one topic's start raises concerns that topic: its revocation may be on its way, and the others go on.
        """
        if not self._waiting or clock.now() < self._retry_at:
            return
        for topic, since in list(self._waiting.items()):
            if self._stopped.begins_anew(topic):
                self._views.follow(topic, anew=True)
                since = self._waiting[topic] = clock.now()
            if topic in self._views.failures or clock.now() < self._again_at.get(topic, 0.0):
                continue
            began = clock.now()
            try:
                self._find(topic, since)
            except KeyorderError as error:
                self._stopped.failed(topic, error)
                # What takes long and leads nowhere is not to keep the others waiting.
                self._again_at[topic] = clock.now() + max(_FAILED_RETRY, 10 * (clock.now() - began))
        if self._waiting:
            self._retry_at = clock.now() + _RETRY

    def _find(self, topic: str, since: float) -> None:
        late = clock.now() - since > self._settings.control_timeout
        try:
            if self._start_topic(topic, since):
                del self._waiting[topic]
                self._stopped.goes_on(topic)
            elif late and not self._views.await_look(topic, since, 0):
                raise StaleViewError(topic, clock.now() - since)
        except PeerError as error:
            # A broker is away for a moment: nothing was decided, so nothing is lost by asking again.
            if not error.retriable or late:
                raise

    def _start_topic(self, topic: str, since: float) -> bool:
        new = {o.partition for o in self._owned.values() if o.topic == topic and not o.started}
        if not self._views.await_look(topic, since, _RETRY):
            return False
        self._count_partitions(topic)
        timeline = self.view(topic).timeline
        if self.view(topic).managed:
            self._starter.check_identity(timeline)
        everywhere = range(self._physical[topic])
        commits = self._starter.committed(topic, everywhere)
        owned = {o.partition for o in self._owned.values() if o.topic == topic}
        # With auto.offset.reset=error a group can only begin where its application says.
        told = self._settings.start_at_latest is None and all(self._owned[topic, p].wanted is not None for p in new)
        if not (told or self._fetching.manual) and self._starter.waits_for_founder(timeline, commits, owned):
            return False
        if not told and (0 in new or self._fetching.manual) and self._starter.needs_founding(timeline, commits):
            logs = self._starter.logs(topic, everywhere)
            if not self._views.await_look(topic, clock.now(), self._settings.control_timeout):
                raise StaleViewError(topic, self._settings.control_timeout)
            timeline = self.view(topic).timeline
            commits.update(self._starter.found(timeline, commits, logs))
        if self._fetching.manual:
            self._refuse_without_origins(timeline, commits, new, owned)
        for start in self._starter.starts(timeline, commits, sorted(new)):
            state = self._owned[topic, start.partition]
            state.start_at(start.offset if state.wanted is None else self.resolved(state.place, state.wanted))
            state.started = False  # until all of it is known: an exception may come at any line
            state.inherited = start.ahead if state.wanted is None else None
            state.committed, state.note = start.committed, start.note
            state.committed_epoch = state.flushed = start.epoch
            state.started = True
        self.gates.changed(topic)
        return True

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
            lambda q: commits[q].offset if q in commits else 0, self._views.waived(timeline.topic)
        )
        for p in sorted(new):
            gate = opened.first_closed(p)
            missing = {q for q, _ in opened.blockers(gate)} - owned if gate is not None else set()
            if missing:
                raise AssignmentError(timeline.topic, p, tuple(sorted(missing)))

    def _count_partitions(self, topic: str) -> None:
        # Not through the consumer: that call has been seen not to return while the group rebalances.
        with translated("describe", f"topic {topic}"):
            found = self._starter.admin.list_topics(topic, timeout=2).topics.get(topic)
        if found is None or found.error is not None:
            raise TopicNotFoundError(topic)
        highest = max((p for t, p in self._owned if t == topic), default=0) + 1
        self._physical[topic] = max(len(found.partitions), highest)
