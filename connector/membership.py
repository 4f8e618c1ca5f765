"""Which partitions this member owns and which of them the client library fetches.

A newly assigned partition is fetched only when its start is known and lies before every closed gate; until then it is
simply left out of the client's assignment. Rebalance callbacks run inside the client library's poll, so an error in one
is kept and raised when the poll has returned: the library would throw the fetched records away otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from ..partitioner.errors import PeerError, StaleViewError, TopicNotFoundError
from . import clock
from .config import ConsumerSettings
from .kafka_errors import translated
from .listener import KeyRebalanceListener
from .messages import Place
from .owned import Owned
from .starting import Starter
from .view import View, ViewKeeper

if TYPE_CHECKING:
    from .committing import Committer
    from .gating import Gatekeeper

RebalanceCallback = Callable[[Any, list[TopicPartition]], None]
_RETRY = 0.02


class Membership:
    """The owned partitions of one consumer. Used by the polling thread alone."""

    gates: Gatekeeper
    commits: Committer
    before_revoke: Callable[[set[Place]], None]

    def __init__(self, raw: Consumer, settings: ConsumerSettings, views: ViewKeeper, starter: Starter) -> None:
        self.raw, self.settings, self.views, self.starter = raw, settings, views, starter
        self.owned: dict[Place, Owned] = {}
        self.listener: KeyRebalanceListener | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._application: Any = None
        self._unstarted: dict[str, float] = {}
        self._retry_at = 0.0
        self._physical: dict[str, int] = {}
        self._errors: list[BaseException] = []

    def listen(
        self,
        application: Any,
        listener: KeyRebalanceListener | None,
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
    ) -> None:
        """Whom to tell of rebalances."""
        self._application, self.listener = application, listener
        self._callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}

    @property
    def busy(self) -> bool:
        """Whether something is about to happen: a start is awaited, or a change is open."""
        return bool(self._unstarted) or any(
            (t := self.views.timeline(topic)) is not None and t.change is not None for topic in self.topics()
        )

    def topics(self) -> set[str]:
        """The topics of which this member owns partitions."""
        return {topic for topic, _ in self.owned}

    def view(self, topic: str) -> View:
        """What is known of a topic now."""
        return self.views.view(topic, self._physical.get(topic, 1))

    def raise_pending(self) -> None:
        """Raise what a rebalance callback could not."""
        if self._errors:
            errors, self._errors = self._errors, []
            raise errors[0]

    # -- rebalance callbacks, inside the client library's poll ---------------------------------------------------

    def assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        """New partitions: own them, fetch nothing yet."""
        # The binding assigns everything by itself unless the callback has assigned something, were it nothing.
        (self.raw.incremental_assign if self.settings.incremental else self.raw.assign)([])
        now = clock.now()
        for place in partitions:
            self.owned[place.topic, place.partition] = Owned(place.topic, place.partition)
            self._unstarted[place.topic] = now
            self.views.follow(place.topic)
        self._tell("on_assign", partitions)

    def revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        """Flush, commit what was processed, forget. No commit is on its way when this returns."""
        places = {(p.topic, p.partition) for p in partitions} & self.owned.keys()
        self.before_revoke(places)
        self._tell("on_revoke", partitions)
        try:
            self.commits.on_revoke([self.owned[place] for place in places])
        except Exception as error:
            self._errors.append(error)
        self._forget(places)

    def lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        """Another member owns them already: nothing can be committed."""
        places = {(p.topic, p.partition) for p in partitions} & self.owned.keys()
        self.before_revoke(places)
        self._tell("on_lost", partitions)
        self._forget(places)

    def _forget(self, places: set[Place]) -> None:
        fetching = [TopicPartition(*place) for place in places if self.owned[place].fetching]
        for place in places:
            del self.owned[place]
        try:
            if self.settings.incremental:
                self.raw.incremental_unassign(fetching)
            else:
                self.raw.unassign()
                for owned in self.owned.values():
                    owned.fetching = False
        except Exception as error:
            self._errors.append(error)
        self._unstarted = {topic: since for topic, since in self._unstarted.items() if topic in self.topics()}

    def _tell(self, what: str, partitions: list[TopicPartition]) -> None:
        callback = self._callbacks.get(what)
        try:
            if callback is not None:
                callback(self._application, partitions)
            if self.listener is not None:
                getattr(self.listener, what)(partitions)
        except Exception as error:
            self._errors.append(error)

    # -- starting ------------------------------------------------------------------------------------------------

    def start_assigned(self) -> None:
        """Find the starts of newly assigned partitions; what cannot be known yet is tried again soon."""
        if not self._unstarted or clock.now() < self._retry_at:
            return
        for topic, since in list(self._unstarted.items()):
            try:
                started = self._start_topic(topic, since)
            except PeerError as error:
                # A broker is away for a moment: nothing was decided, so nothing is lost by asking again.
                if not error.retriable or clock.now() - since > self.settings.control_timeout:
                    raise
                started = False
            if started:
                self._unstarted.pop(topic, None)
            elif not self.views.await_look(topic, since, 0) and clock.now() - since > self.settings.control_timeout:
                raise StaleViewError(topic, clock.now() - since)
        if self._unstarted:
            self._retry_at = clock.now() + _RETRY

    def _start_topic(self, topic: str, since: float) -> bool:
        new = {o.partition for o in self.owned.values() if o.topic == topic and not o.started}
        if not self.views.await_look(topic, since, _RETRY):
            return False
        self._count_partitions(topic)
        timeline = self.view(topic).timeline
        everywhere = range(self._physical[topic])
        commits = self.starter.committed(topic, everywhere)
        owned = {o.partition for o in self.owned.values() if o.topic == topic}
        if self.starter.waits_for_founder(timeline, commits, owned):
            return False
        if 0 in new and self.starter.needs_founding(timeline, commits):
            logs = self.starter.logs(topic, everywhere)
            if not self.views.await_look(topic, clock.now(), self.settings.control_timeout):
                raise StaleViewError(topic, self.settings.control_timeout)
            timeline = self.view(topic).timeline
            commits.update(self.starter.found(timeline, commits, logs))
        for start in self.starter.starts(timeline, commits, sorted(new)):
            state = self.owned[topic, start.partition]
            state.start_at(start.offset)
            state.committed = start.committed
            state.committed_epoch = state.warned = state.flushed = start.epoch
        self.gates.changed(topic)
        return True

    def _count_partitions(self, topic: str) -> None:
        with translated("describe", f"topic {topic}"):
            found = self.raw.list_topics(topic, timeout=10).topics.get(topic)
        if found is None or found.error is not None:
            raise TopicNotFoundError(topic)
        highest = max((p for t, p in self.owned if t == topic), default=0) + 1
        self._physical[topic] = max(len(found.partitions), highest)

    # -- fetching ------------------------------------------------------------------------------------------------

    def fetch(self, more: Iterable[Owned]) -> None:
        """Let the client library fetch these too, from where each is."""
        more = list(more)
        for owned in more:
            owned.fetching = True
        if self.settings.incremental:
            self.raw.incremental_assign([TopicPartition(o.topic, o.partition, o.fetched) for o in more])
        else:
            # An eager member can only replace its assignment: those already running go on where they are.
            fetching = [o for o in self.owned.values() if o.fetching]
            self.raw.assign([TopicPartition(o.topic, o.partition, o.fetched) for o in fetching])
            quiet = [TopicPartition(o.topic, o.partition) for o in fetching if o.paused_by_user or o.paused_for_hold]
            if quiet:
                self.raw.pause(quiet)

    def restart_at(self, owned: Owned, offset: int) -> None:
        """Go on from another offset, dropping what was fetched."""
        processed, committed = owned.processed, owned.committed
        owned.start_at(offset)
        if self.settings.auto_store is False or self.settings.auto_commit is False:
            owned.processed = max(processed, offset) if committed is None else processed
        if owned.fetching:
            self.raw.seek(TopicPartition(owned.topic, owned.partition, offset))

    def seek(self, place: TopicPartition) -> None:
        """The application's seek: the position becomes what it says."""
        owned = self._expect(place)
        low, high = self.starter.log(place.topic, place.partition)
        offset = place.offset
        if offset in (OFFSET_INVALID, -2):
            offset = low
        elif offset == -1:
            offset = high
        owned.start_at(offset)
        if owned.fetching:
            self.raw.seek(TopicPartition(place.topic, place.partition, offset))

    def position(self, place: TopicPartition) -> TopicPartition:
        """The offset behind the last returned record."""
        owned = self.owned.get((place.topic, place.partition))
        known = owned is not None and owned.started
        return TopicPartition(place.topic, place.partition, owned.returned if known and owned else OFFSET_INVALID)

    def pause(self, places: list[TopicPartition]) -> None:
        """The application's pause."""
        for place in places:
            self._expect(place).paused_by_user = True
        self.raw.pause([p for p in places if self._expect(p).fetching])

    def resume(self, places: list[TopicPartition]) -> None:
        """The application's resume; a partition paused for memory stays so."""
        for place in places:
            self._expect(place).paused_by_user = False
        running = [p for p in places if self._expect(p).fetching and not self._expect(p).paused_for_hold]
        if running:
            self.raw.resume(running)

    def _expect(self, place: TopicPartition) -> Owned:
        owned = self.owned.get((place.topic, place.partition))
        if owned is None:
            raise ValueError(f"{place.topic}[{place.partition}] is not assigned to this member")
        return owned
