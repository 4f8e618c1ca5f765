"""Which partitions this member owns and which of them the client library fetches.

A newly assigned partition is fetched only when its start is known and lies before every closed gate; until then it is
simply left out of the client's assignment. Rebalance callbacks run inside the client library's poll, so an error in one
is kept and raised when the poll has returned: the library would throw the fetched records away otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from ...partitioner.errors import AssignmentError, PeerError, StaleViewError, TopicNotFoundError
from ...partitioner.gates.gate import Gates
from ...partitioner.gates.starts import Commit
from ...partitioner.timeline import Timeline
from .. import clock
from ..config import ConsumerSettings
from ..kafka_errors import translated
from ..messages import Place
from .listener import KeyRebalanceListener
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
    before_fetch: Callable[[list[Place]], None]

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
        self._telling = False
        self.manual = False

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

    def guarded(self, call: Callable[[], object]) -> None:
        """Run the application's code inside the client library's poll; what it raises is raised after the poll."""
        try:
            call()
        except Exception as error:
            self._errors.append(error)

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
        self._give_up(partitions, "on_revoke")

    def _give_up(self, partitions: list[TopicPartition], what: str | None) -> None:
        places = {(p.topic, p.partition) for p in partitions} & self.owned.keys()
        self.before_revoke(places)
        if what is not None:
            self._tell(what, partitions)
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
        gone = {place: self.owned.pop(place) for place in places}
        fetching = [TopicPartition(*place) for place, owned in gone.items() if owned.fetching]
        paused = [
            TopicPartition(*place) for place, owned in gone.items() if owned.paused_by_user or owned.paused_for_hold
        ]
        try:
            if paused:
                # The client library keeps a pause for the next time that the partition is assigned here.
                self.raw.resume(paused)
            if self._by_delta:
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
        self._telling = True
        try:
            if callback is not None:
                callback(self._application, partitions)
            if self.listener is not None:
                getattr(self.listener, what)(partitions)
        except Exception as error:
            self._errors.append(error)
        finally:
            self._telling = False

    # -- assignment by hand ----------------------------------------------------------------------------------------

    @property
    def _by_delta(self) -> bool:
        """Whether the client library takes changes of its assignment, and not the whole."""
        return self.settings.incremental and not self.manual

    def assign(self, partitions: list[TopicPartition], replace: bool) -> None:
        """The application's (incremental_)assign: own these; inside on_assign, only say where they start.

        partitions: an offset of each may say where. replace: instead of what was assigned before.
        """
        if not self._telling:
            self.manual = True
            new = {(p.topic, p.partition) for p in partitions}
            self.unassign([TopicPartition(*place) for place in self.owned if replace or place in new])
        for place in partitions:
            key = (place.topic, place.partition)
            if not self._telling:
                self.owned[key] = Owned(*key)
                self._unstarted[place.topic] = clock.now()
                self.views.follow(place.topic)
            if key in self.owned and place.offset not in (OFFSET_INVALID, OFFSET_STORED):
                self.owned[key].wanted = place.offset

    def unassign(self, partitions: list[TopicPartition] | None = None) -> None:
        """The application's (incremental_)unassign; inside a rebalance callback keyorder does it anyway."""
        if not self._telling:
            gone = [TopicPartition(*place) for place in self.owned] if partitions is None else partitions
            if gone:
                self._give_up(gone, None)

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
        if self.view(topic).managed:
            self.starter.check_identity(timeline)
        everywhere = range(self._physical[topic])
        commits = self.starter.committed(topic, everywhere)
        owned = {o.partition for o in self.owned.values() if o.topic == topic}
        if not self.manual and self.starter.waits_for_founder(timeline, commits, owned):
            return False
        if (0 in new or self.manual) and self.starter.needs_founding(timeline, commits):
            logs = self.starter.logs(topic, everywhere)
            if not self.views.await_look(topic, clock.now(), self.settings.control_timeout):
                raise StaleViewError(topic, self.settings.control_timeout)
            timeline = self.view(topic).timeline
            commits.update(self.starter.found(timeline, commits, logs))
        if self.manual:
            self._refuse_without_origins(timeline, commits, new, owned)
        for start in self.starter.starts(timeline, commits, sorted(new)):
            state = self.owned[topic, start.partition]
            state.start_at(start.offset if state.wanted is None else self._resolved(state.place, state.wanted))
            state.inherited = start.ahead if state.wanted is None else None
            state.committed = start.committed
            state.committed_epoch = state.warned = state.flushed = start.epoch
        self.gates.changed(topic)
        return True

    def _resolved(self, place: Place, offset: int) -> int:
        """An offset that the application gave, with OFFSET_BEGINNING and OFFSET_END asked of the leader."""
        if offset >= 0:
            return offset
        low, high = self.starter.log(*place)
        if offset == OFFSET_BEGINNING:
            return low
        return high if offset == OFFSET_END else max(low, high + offset + 2000)  # rd_kafka_offset_tail(n) is -2000 - n

    def _refuse_without_origins(
        self, timeline: Timeline, commits: dict[int, Commit], new: set[int], owned: set[int]
    ) -> None:
        """A gate whose origin nobody here reads would stay shut for ever, unless the group has opened it already."""
        if not (self.settings.ordered and timeline.ordered):
            return
        opened = Gates(timeline).open_now(
            lambda q: commits[q].offset if q in commits else 0, self.views.waived(timeline.topic)
        )
        for p in sorted(new):
            gate = opened.first_closed(p)
            missing = {q for q, _ in opened.blockers(gate)} - owned if gate is not None else set()
            if missing:
                raise AssignmentError(timeline.topic, p, tuple(sorted(missing)))

    def _count_partitions(self, topic: str) -> None:
        # Not through the consumer: that call has been seen not to return while the group rebalances.
        with translated("describe", f"topic {topic}"):
            found = self.starter.admin.list_topics(topic, timeout=2).topics.get(topic)
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
        if self._by_delta:
            self.before_fetch([o.place for o in more])
            self.raw.incremental_assign([TopicPartition(o.topic, o.partition, o.fetched) for o in more])
        else:
            # An eager member can only replace its assignment: those already running go on where they are.
            more = [o for o in self.owned.values() if o.fetching]
            self.before_fetch([o.place for o in more])
            self.raw.assign([TopicPartition(o.topic, o.partition, o.fetched) for o in more])
        quiet = [TopicPartition(o.topic, o.partition) for o in more if o.paused_by_user or o.paused_for_hold]
        if quiet:
            self.raw.pause(quiet)
        # The library keeps a pause beyond the assignment in which it was made.
        loud = [TopicPartition(o.topic, o.partition) for o in more if not (o.paused_by_user or o.paused_for_hold)]
        if loud:
            self.raw.resume(loud)

    def fetch_anew(self) -> None:
        """Let the client library forget what it has fetched and not handed over, and begin again from where each is."""
        fetching = [o for o in self.owned.values() if o.fetching]
        if fetching and self._by_delta:
            self.raw.incremental_unassign([TopicPartition(o.topic, o.partition) for o in fetching])
        if fetching:
            self.fetch(fetching)

    def restart_at(self, owned: Owned, offset: int) -> None:
        """Go on from another offset, dropping what was fetched."""
        processed, record_end = owned.processed, owned.record_end
        owned.start_at(offset)
        if not (self.settings.auto_store and self.settings.auto_commit):
            # What was skipped counts as done with when the application has stored or committed all that it was given.
            owned.processed, owned.record_end, owned.eof = processed, record_end, offset
        if owned.fetching:
            # No seek: the client library has stopped a partition whose position is gone.
            owned.fetching = False
            if self._by_delta:
                self.raw.incremental_unassign([TopicPartition(*owned.place)])
            self.fetch([owned])

    def seek(self, place: TopicPartition) -> None:
        """The application's seek: the position becomes what it says."""
        owned = self._expect(place)
        offset = self._resolved(owned.place, OFFSET_BEGINNING if place.offset == OFFSET_INVALID else place.offset)
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
        for owned in self._owned_of(places):
            owned.paused_by_user = True
        self.raw.pause([TopicPartition(*o.place) for o in self._owned_of(places) if o.fetching])

    def resume(self, places: list[TopicPartition]) -> None:
        """The application's resume; a partition paused for memory stays so."""
        for owned in self._owned_of(places):
            owned.paused_by_user = False
        running = [TopicPartition(*o.place) for o in self._owned_of(places) if o.fetching and not o.paused_for_hold]
        if running:
            self.raw.resume(running)

    def _owned_of(self, places: list[TopicPartition]) -> list[Owned]:
        """Those of them that this member owns; of others the client library takes no notice either."""
        return [self.owned[p.topic, p.partition] for p in places if (p.topic, p.partition) in self.owned]

    def _expect(self, place: TopicPartition) -> Owned:
        owned = self.owned.get((place.topic, place.partition))
        if owned is None:
            raise KafkaException(
                KafkaError(KafkaError._STATE, f"{place.topic}[{place.partition}] is not assigned to this member")
            )
        return owned
