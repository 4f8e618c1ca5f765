"""Which partitions this member owns: rebalances, and assignment by hand.

A newly assigned partition is fetched only when its start is known and lies before every closed gate; until then it is
simply left out of the client's assignment. Rebalance callbacks run inside the client library's poll, so an error in one
is kept and raised when the poll has returned: the library would throw the fetched records away otherwise.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from ...partitioner.gates.starts import flushed_epoch
from .. import clock
from ..config import ConsumerSettings
from ..messages import Place, with_words
from .fetching import Fetching
from .growth_watch import GrowthWatch
from .listener import KeyRebalanceListener
from .overlooked import Overlooked
from .partition_state import PartitionState
from .starting import Starter
from .starts import Starts
from .stopped import StoppedTopics
from .view import View, ViewKeeper

if TYPE_CHECKING:
    from .committing import Committer

_MOST_ERRORS = 100
RebalanceCallback = Callable[[Any, list[TopicPartition]], None]


class Membership:
    """The owned partitions of one consumer. Used by one thread at a time.

    rebalancing: a rebalance callback has begun and not ended."""

    commits: Committer
    before_revoke: Callable[[set[Place]], None]

    def __init__(self, raw: Consumer, settings: ConsumerSettings, views: ViewKeeper, starter: Starter) -> None:
        self.views, self.starter = views, starter
        self.owned: dict[Place, PartitionState] = {}
        self.fetching = Fetching(raw, settings, self.owned)
        self.stopped = StoppedTopics(
            self.owned,
            views,
            self.fetching,
            lambda places: self.before_revoke(places),
            lambda e: self._errors.append(e),
        )
        self.overlooked = Overlooked(starter.link, settings.group) if settings.static else None
        self.growth = GrowthWatch(starter, settings.growth_interval) if settings.cooperative else None
        self.starts = Starts(self.fetching, settings, views, starter, self.owned, self.stopped)
        self.listener: KeyRebalanceListener | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._application: Callable[[], Any] = lambda: None
        self._errors: list[BaseException] = []
        self._of_event: Exception | None = None
        self._event_heard = False
        self._subscribed: list[str] = []
        self._telling = self._abandoned = self._joined = False
        self._topics: frozenset[str] | None = frozenset()
        self.rebalancing = False

    def subscribe(
        self,
        topics: list[str],
        application: Any,
        listener: KeyRebalanceListener | None,
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
    ) -> None:
        """Join the group for these topics. The others: whom to tell of rebalances."""
        self._application, self.listener = weakref.ref(application), listener
        self._callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        self._subscribed = list(topics)
        self._joined = False
        self._join()
        if self.growth is not None:
            self.growth.follow(topics)

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._subscribed = []
        if self.overlooked is not None:
            self.overlooked.look(())
        if self.growth is not None:
            self.growth.follow(())
        self.fetching.raw.unsubscribe()

    def leave(self, patience: float) -> None:
        """The consumer is being closed: commit what a group's rebalance would not ask for.

        patience: seconds for the group's coordinator. If that is silent for as long, everything counts as lost.
        """
        if self.commits.give_up_if_silent(patience):
            self._lose([TopicPartition(*place) for place in self.owned])
        elif self.fetching.manual:
            self.unassign()

    def abandon(self) -> None:
        """The application has dropped the consumer: it is told nothing more, and nothing more is committed."""
        self._callbacks, self.listener, self._abandoned = {}, None, True

    def join_again(self) -> None:
        """Leave the group and join it anew: a rebalance was cut short, so nobody knows what is owned, or one is due."""
        self.rebalancing = False
        if self._subscribed:
            assigned = {(p.topic, p.partition) for p in self.fetching.raw.assignment()}
            for owned in self.owned.values():
                owned.fetching = owned.place in assigned
            self._give_up([TopicPartition(*place) for place in self.owned], "on_revoke")
            self.fetching.raw.unsubscribe()
            self._joined = False
            self._join()

    def see_growth(self) -> None:
        """Let the client library see new partitions."""
        if self.growth is None or not self.growth.found:
            return
        # To subscribe while it joins would ask for a second membership. It joins by itself when a topic is there: of one that it
        # knows by name it hears, for the first that a pattern matches it looks every quarter of an hour.
        if self._joined:
            self.growth.refresh(self.fetching.raw.list_topics, self._join_for_growth)
        elif any(topic.startswith("^") for topic in self._subscribed):
            self.growth.refresh(self.fetching.raw.list_topics, None)

    def _join(self) -> None:
        self.fetching.raw.subscribe(
            self._subscribed, on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )

    def _join_for_growth(self) -> None:
        try:
            self._join()
        except KafkaException as refused:
            # A fatal error is told of by the library's poll, once.
            if refused.args[0].code() != KafkaError._FATAL:
                raise

    @property
    def busy(self) -> bool:
        """Whether something is about to happen: a start is awaited, or a change is open."""
        return self.starts.waiting or any(
            (t := self.views.timeline(topic)) is not None and t.change is not None for topic in self.topics()
        )

    def topics(self) -> frozenset[str]:
        """The topics of which this member owns partitions. The same object until some come or go."""
        if self._topics is None:
            self._topics = frozenset(topic for topic, _ in self.owned)
        return self._topics

    def view(self, topic: str) -> View:
        """What is known of a topic now."""
        return self.starts.view(topic)

    def raise_pending(self, closing: bool = False) -> None:
        """Raise what a rebalance callback could not. closing: without what error_cb raises again: its program has heard."""
        if closing and self._event_heard:
            self._errors[:] = [error for error in self._errors if error is not self._of_event]
        if self._errors:
            # A stop that was asked for goes first. More than so many, and a callback raises faster than it is polled.
            del self._errors[_MOST_ERRORS:]
            stops = (n for n, error in enumerate(self._errors) if not isinstance(error, Exception))
            error = self._errors.pop(next(stops, 0))
            if error is self._of_event:
                self._of_event, self._event_heard = None, True
            raise error

    def guarded(self, call: Callable[[], object]) -> bool:
        """Run the application's code; what it raises is raised after the client library's poll. Whether it succeeded."""
        try:
            call()
        except BaseException as error:
            self._errors.append(error)
            return False
        return True

    def told_event(self, call: Callable[[], object]) -> None:
        """As `guarded`, of error_cb and its kin: of several that raise before a call ends, the last one's is raised.

        So it is in the client library, where a broker out of reach is an event for each of its addresses: to raise each would
        let as many calls fail one after the other, close() among them.
        """
        try:
            call()
        except Exception as error:
            self._errors[:] = [*(known for known in self._errors if known is not self._of_event), error]
            self._of_event = error
        except BaseException as stop:
            self._errors.append(stop)

    # -- rebalance callbacks, inside the client library's poll ---------------------------------------------------

    def assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        """New partitions: own them, fetch nothing yet."""
        self.rebalancing = self._joined = True
        self.fetching.nothing_new()
        if self.fetching.whole and self.owned:
            # The whole assignment anew, and nothing was revoked in between: what is left of the last one is lost.
            self._lose([TopicPartition(*place) for place in self.owned])
        now = clock.now()
        for place in partitions:
            self._own((place.topic, place.partition))
            self.starts.add((place.topic, place.partition), now)
        self._tell("on_assign", partitions)
        if self.overlooked is not None:
            named = {topic for topic in self._subscribed if not topic.startswith("^")}
            self.overlooked.look(named | self.topics())
        self.rebalancing = False

    def revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        """Flush, commit what was processed, forget. No commit is on its way when this returns."""
        self.rebalancing = True
        if self.fetching.whole:
            named = {(p.topic, p.partition) for p in partitions}
            partitions = [*partitions, *(TopicPartition(*place) for place in self.owned if place not in named)]
        self._give_up(partitions, "on_revoke")
        self.rebalancing = False

    def _own(self, place: Place) -> None:
        self._topics = None
        self.owned[place] = PartitionState(*place)
        self._topics = None  # a signal handler may have asked in between

    def _give_up(self, partitions: list[TopicPartition], what: str | None) -> None:
        places = {(p.topic, p.partition) for p in partitions} & self.owned.keys()
        self.before_revoke(places)
        if what is not None and (places or not partitions):  # else it was told before
            self._tell(what, partitions)
        if not self._abandoned:
            try:
                self.commits.on_revoke([self.owned[place] for place in places])
            except Exception as error:
                self._errors.append(error)
        self._forget(places)

    def lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        """Another member owns them already: nothing can be committed."""
        self.rebalancing, self._joined = True, False
        self._lose(partitions)
        self.rebalancing = False

    def failed(self) -> None:
        """The client library has raised a fatal error: this member is none any more, and never will be again."""
        if self.owned and not self.fetching.manual:
            self.lost(None, [TopicPartition(*place) for place in self.owned])

    def _lose(self, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions} & self.owned.keys()
        self.before_revoke(places)
        # As the client library does: on_revoke hears of it where there is no on_lost.
        self._tell("on_lost" if self._callbacks.get("on_lost") is not None else "on_revoke", partitions, "on_lost")
        self._forget(places)

    def _forget(self, places: set[Place]) -> None:
        self._topics = None
        gone = [self.owned.pop(place) for place in places]
        self._topics = None
        try:
            self.fetching.end(gone)
        except Exception as error:
            # A member that was expelled may be told of its loss when its client has come to its end, in close().
            if not (isinstance(error, KafkaException) and error.args[0].code() == KafkaError._DESTROY):
                self._errors.append(error)
        self.starts.keep(self.topics())

    def _tell(self, what: str, partitions: list[TopicPartition], heard: str = "") -> None:
        """Call the application. heard: the listener's method, if it is another one."""
        callback = self._callbacks.get(what)
        self._telling = True
        try:
            if callback is not None:
                callback(self._application(), partitions)
            if self.listener is not None:
                getattr(self.listener, heard or what)(partitions)
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._telling = False

    # -- assignment by hand ----------------------------------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition], replace: bool) -> None:
        """The application's (incremental_)assign: own these; inside on_assign, only say where they start.

        partitions: an offset of each may say where. replace: instead of what was assigned before.
        """
        places = {(p.topic, p.partition) for p in partitions}
        if len(places) < len(partitions):
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "a partition is named twice"))
        if not self._telling:
            self.fetching.manual = True
            self.unassign([TopicPartition(*place) for place in self.owned if replace or place in places])
        for place in partitions:
            key = (place.topic, place.partition)
            if not self._telling:
                self._own(key)
                self.starts.add(key, clock.now())
            owned = self.owned.get(key)
            if owned is not None:
                owned.assigned_as = with_words(*key, place.offset, place.metadata, place.leader_epoch)
                if place.offset not in (OFFSET_INVALID, OFFSET_STORED):
                    owned.wanted = place.offset

    def assignment(self) -> list[TopicPartition]:
        """What is owned, with the offsets that the application has assigned."""
        shown = []
        for (topic, partition), owned in sorted(self.owned.items()):
            given = owned.assigned_as or TopicPartition(topic, partition)
            offset = OFFSET_STORED if given.offset == OFFSET_INVALID else given.offset
            shown.append(with_words(topic, partition, offset, given.metadata, given.leader_epoch))
        return shown

    def unassign(self, partitions: list[TopicPartition] | None = None) -> None:
        """The application's (incremental_)unassign; inside a rebalance callback keyorder does it anyway."""
        if not self._telling:
            gone = [TopicPartition(*place) for place in self.owned] if partitions is None else partitions
            if gone:
                self._give_up(gone, None)

    # -- positions -------------------------------------------------------------------------------------------------

    def restart_at(self, owned: PartitionState, offset: int) -> None:
        """Go on from another offset, dropping what was fetched and not returned."""
        self.before_revoke({owned.place})
        self.fetching.restart_at(owned, offset)

    def check_change(self, partitions: list[TopicPartition], assigned: bool) -> None:
        """Of the application's incremental calls outside a callback. assigned: whether these have to be owned, or must not."""
        for p in partitions:
            if not self._telling and ((p.topic, p.partition) in self.owned) is not assigned:
                code = KafkaError._INVALID_ARG if assigned else KafkaError._CONFLICT
                text = "is not assigned" if assigned else "is assigned already"
                raise KafkaException(KafkaError(code, f"{p.topic}[{p.partition}] {text}"))

    def sought(self, place: TopicPartition) -> tuple[PartitionState, int]:
        """Of the application's seek: the partition, and the offset as a number."""
        owned = self.owned.get((place.topic, place.partition))
        if owned is None:
            if place.topic not in self.topics():
                self.fetching.raw.seek(place)  # the client library's own refusal, as in storing an offset
            raise KafkaException(
                KafkaError(KafkaError._STATE, f"{place.topic}[{place.partition}] is not assigned to this member")
            )
        if place.offset == OFFSET_STORED:
            raise KafkaException(
                KafkaError(
                    KafkaError._INVALID_ARG, "a seek names an offset, the beginning or the end: not OFFSET_STORED"
                )
            )
        wanted = OFFSET_BEGINNING if place.offset == OFFSET_INVALID else place.offset
        return owned, self.starts.resolved(owned.place, wanted)

    def seek(self, owned: PartitionState, offset: int) -> None:
        """The application's seek: the position becomes what it says."""
        # What is processed again from there has to be flushed again.
        owned.flushed = min(owned.flushed, flushed_epoch(self.view(owned.topic).timeline, owned.partition, offset))
        self.fetching.seek(owned, offset)

    def position(self, place: TopicPartition) -> TopicPartition:
        """The offset behind the last returned record."""
        owned = self.owned.get((place.topic, place.partition))
        known = owned is not None and owned.started
        return TopicPartition(place.topic, place.partition, owned.returned if known and owned else OFFSET_INVALID)
