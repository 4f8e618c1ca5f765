"""Which partitions this member owns: rebalances, and assignment by hand.

A newly assigned partition is fetched only when its start is known and lies before every closed gate; until then it is
simply left out of the client's assignment.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from ...partitioner.gates.starts import flushed_epoch
from .. import clock
from ..config import ConsumerSettings
from ..messages import Place, with_words
from .assignment import Assignment
from .callbacks import Callbacks
from .committing import Committer
from .gates.gating import Gatekeeper
from .growth_watch import GrowthWatch
from .overlooked import Overlooked
from .partition_state import PartitionState
from .starting import Starter
from .starts import Starts
from .stopped import StoppedTopics


class Membership:
    """How partitions come to one member and go from it. Used by one thread at a time.

    rebalancing: a rebalance callback has begun and not ended. overlooked, growth: what looks for partitions that the group
    overlooks, and for new ones; None where the client library does.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        assignment: Assignment,
        callbacks: Callbacks,
        starter: Starter,
        gates: Gatekeeper,
        commits: Committer,
    ) -> None:
        self._assignment, self._callbacks, self._commits = assignment, callbacks, commits
        self.owned, self._fetching = assignment.owned, assignment.fetching
        self.stopped = StoppedTopics(assignment, callbacks)
        self.starts = Starts(settings, assignment, starter, self.stopped, gates)
        self.overlooked = Overlooked(starter.link, settings.group) if settings.static else None
        self.growth = (
            GrowthWatch(starter, settings.group, settings.growth_interval, not settings.cooperative)
            if settings.classic
            else None
        )
        self._subscribed: list[str] = []
        self._abandoned = self._joined = False
        self.rebalancing = False

    def subscribe(self, topics: list[str]) -> None:
        """Join the group for these topics."""
        by_hand = self._fetching.by_hand() if self._fetching.manual else []
        if by_hand:
            # While it may: a member that joins commits nothing.
            self._commits.on_revoke([self.owned[place.topic, place.partition] for place in by_hand])
        self._join(topics)
        self._subscribed, self._joined = list(topics), False
        self._fetching.subscribe(True)
        self._give_up(by_hand, None)
        if self.growth is not None:
            self.growth.follow(topics)

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._subscribed = []
        if self.overlooked is not None:
            self.overlooked.look(())
        if self.growth is not None:
            self.growth.follow(())
        self._fetching.raw.unsubscribe()
        self._fetching.subscribe(False)

    def leave(self, patience: float) -> None:
        """The consumer is being closed: commit what a group's rebalance would not ask for.

        patience: seconds for the group's coordinator. If that is silent for as long, everything counts as lost.
        """
        if self._commits.give_up_if_silent(patience):
            self._lose([TopicPartition(*place) for place in self.owned])
        else:
            self._give_up(self._fetching.by_hand(), None)

    def abandon(self) -> None:
        """The application has dropped the consumer: it is told nothing more, and nothing more is committed."""
        self._callbacks.forget()
        self._abandoned = True

    def join_again(self) -> None:
        """Leave the group and join it anew: a rebalance was cut short, so nobody knows what is owned, or one is due."""
        self.rebalancing = False
        if self._subscribed:
            assigned = {(p.topic, p.partition) for p in self._fetching.raw.assignment()}
            for owned in self.owned.values():
                owned.fetch.running = owned.place in assigned
            mine = self._fetching.of_group
            self._give_up([TopicPartition(*place) for place in self.owned if place in mine], "on_revoke")
            mine.clear()
            self._fetching.raw.unsubscribe()
            self._joined = False
            self._join(self._subscribed)

    def watch_growth(self) -> bool:
        """Look for new partitions soon; False where the client library has to: outside of a classic group. On any thread."""
        if self.growth is None or not self._subscribed:
            return False
        self.growth.wake()
        return True

    def see_growth(self) -> None:
        """Let the client library see new partitions."""
        if self.growth is None:
            return
        self.growth.tick(clock.now())
        if not self.growth.found:
            return
        # To subscribe while it joins would ask for a second membership. It joins by itself when a topic is there: of one that it
        # knows by name it hears, for the first that a pattern matches it looks every quarter of an hour.
        if self._joined:
            self.growth.refresh(self._fetching.raw.list_topics, self._join_for_growth)
        elif any(topic.startswith("^") for topic in self._subscribed):
            self.growth.refresh(self._fetching.raw.list_topics, None)

    def _join(self, topics: list[str]) -> None:
        self._fetching.raw.subscribe(topics, on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)

    def _join_for_growth(self) -> None:
        try:
            self._join(self._subscribed)
        except KafkaException as refused:
            # A fatal error is told of by the library's poll, once.
            if refused.args[0].code() != KafkaError._FATAL:
                raise

    def awaited(self) -> list[object]:
        """What is about to happen: a start, or the end of a change."""
        awaited: list[object] = ["start"] if self.starts.waiting else []
        for topic in self._assignment.topics():
            timeline = self._assignment.views.timeline(topic)
            if timeline is not None and timeline.change is not None:
                awaited.append(timeline)
        return awaited

    # -- rebalance callbacks, inside the client library's poll ---------------------------------------------------

    def assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        """New partitions: own them, fetch nothing yet."""
        self.rebalancing = self._joined = True
        self._fetching.nothing_new()
        if self._fetching.whole and self.owned:
            # The whole assignment anew, and nothing was revoked in between: what is left of the last one is lost.
            left = [TopicPartition(*place) for place in self.owned if place in self._fetching.of_group]
            if left:
                self._lose(left)
        given = {(place.topic, place.partition) for place in partitions}
        by_hand = self._fetching.by_hand()
        self._give_up([p for p in by_hand if self._fetching.whole or (p.topic, p.partition) in given], None)
        self._fetching.of_group |= given
        awaited: set[str] = set()
        for place in partitions:
            self._own((place.topic, place.partition), awaited)
        self._callbacks.tell("on_assign", partitions)
        if self.growth is not None:
            self.growth.assigned()
        if self.overlooked is not None:
            named = {topic for topic in self._subscribed if not topic.startswith("^")}
            self.overlooked.look(named | self._assignment.topics())
        self.rebalancing = False

    def _own(self, place: Place, awaited: set[str]) -> None:
        """awaited: the topics whose starts this assignment awaits. Not all at its end: an exception may come at any line."""
        self._assignment.own(place)
        if place[0] not in awaited:
            self.starts.add(place[0])
            awaited.add(place[0])

    def revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        """Flush, commit what was processed, forget. No commit is on its way when this returns.

        Where it was answered before it was told, these may be another member's already: they count as lost.
        """
        if self._fetching.unheard:
            self.lost(None, partitions)
            return
        self.rebalancing = True
        if self.growth is not None:
            self.growth.revoked()
        if self._fetching.whole:
            named = {(p.topic, p.partition) for p in partitions}
            partitions = [*partitions, *(TopicPartition(*p) for p in self._fetching.of_group if p not in named)]
        self._give_up(partitions, "on_revoke")
        self._fetching.of_group -= {(p.topic, p.partition) for p in partitions}
        self.rebalancing = False

    def _give_up(self, partitions: list[TopicPartition], what: str | None) -> None:
        named = {(p.topic, p.partition) for p in partitions}
        places = named & self.owned.keys()
        if what is None and not places:
            return  # to tell the client library of nothing would answer a rebalance that waits there
        self._assignment.out.drop(places)
        if what is not None and (named & self._fetching.of_group or not partitions):  # else it was told before
            self._callbacks.tell(what, partitions)
        if not self._abandoned:
            try:
                self._commits.on_revoke([self.owned[place] for place in places])
            except Exception as error:
                self._callbacks.raises(error)
        self._forget(places)

    def lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        """Another member owns them already: nothing can be committed."""
        self.rebalancing, self._joined = True, False
        self._lose(partitions)
        self.rebalancing = False

    def failed(self) -> None:
        """The client library has raised a fatal error: this member is none any more, and never will be again."""
        if self._fetching.of_group:
            self.lost(None, [TopicPartition(*place) for place in self._fetching.of_group])

    def _lose(self, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions} & self.owned.keys()
        self._assignment.out.drop(places)
        self._callbacks.tell_lost(partitions)
        self._forget(places)
        self._fetching.of_group -= {(p.topic, p.partition) for p in partitions}

    def _forget(self, places: set[Place]) -> None:
        gone = self._assignment.give_up(places)
        try:
            self._fetching.end(gone)
        except Exception as error:
            # A member that was expelled may be told of its loss when its client has come to its end, in close().
            if not (isinstance(error, KafkaException) and error.args[0].code() == KafkaError._DESTROY):
                self._callbacks.raises(error)
        self.starts.keep(self._assignment.topics())

    # -- assignment by hand ----------------------------------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition], replace: bool) -> None:
        """The application's (incremental_)assign: own these; inside on_assign, only say where they start.

        partitions: an offset of each may say where. replace: instead of what was assigned before.
        """
        places = {(p.topic, p.partition) for p in partitions}
        if len(places) < len(partitions):
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "a partition is named twice"))
        if not self._callbacks.telling:
            if replace:
                self._fetching.check_kind(whole=True)
            self._give_up([TopicPartition(*place) for place in self.owned if replace or place in places], None)
        awaited: set[str] = set()
        for place in partitions:
            key = (place.topic, place.partition)
            if not self._callbacks.telling:
                self._own(key, awaited)
            owned = self.owned.get(key)
            if owned is not None:
                owned.fetch.assigned_as = with_words(*key, place.offset, place.metadata, place.leader_epoch)
                if place.offset not in (OFFSET_INVALID, OFFSET_STORED):
                    owned.fetch.wanted = place.offset

    def assignment(self) -> list[TopicPartition]:
        """What is owned, with the offsets that the application has assigned."""
        shown = []
        for (topic, partition), owned in sorted(self.owned.items()):
            given = owned.fetch.assigned_as or TopicPartition(topic, partition)
            offset = OFFSET_STORED if given.offset == OFFSET_INVALID else given.offset
            shown.append(with_words(topic, partition, offset, given.metadata, given.leader_epoch))
        return shown

    def unassign(self, partitions: list[TopicPartition] | None = None) -> None:
        """The application's (incremental_)unassign; inside a rebalance callback keyorder does it anyway."""
        if not self._callbacks.telling:
            if partitions is None:
                self._fetching.check_kind(whole=True)
                partitions = [TopicPartition(*place) for place in self.owned]
            self._give_up(partitions, None)

    # -- positions -------------------------------------------------------------------------------------------------

    def check_change(self, partitions: list[TopicPartition], assigned: bool) -> None:
        """Of the application's incremental calls outside a callback. assigned: whether these have to be owned, or must not."""
        if not self._callbacks.telling:
            self._fetching.check_kind(whole=False)
        for p in partitions:
            if not self._callbacks.telling and ((p.topic, p.partition) in self.owned) is not assigned:
                code = KafkaError._INVALID_ARG if assigned else KafkaError._CONFLICT
                text = "is not assigned" if assigned else "is assigned already"
                raise KafkaException(KafkaError(code, f"{p.topic}[{p.partition}] {text}"))

    def sought(self, place: TopicPartition) -> tuple[PartitionState, int]:
        """Of the application's seek: the partition, and the offset as a number."""
        owned = self.owned.get((place.topic, place.partition))
        if owned is None:
            if place.topic not in self._assignment.topics():
                self._fetching.raw.seek(place)  # the client library's own refusal, as in storing an offset
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
        owned.gates.flushed = min(
            owned.gates.flushed, flushed_epoch(self._assignment.view(owned.topic).timeline, owned.partition, offset)
        )
        self._fetching.seek(owned, offset)

    def position(self, place: TopicPartition) -> TopicPartition:
        """The offset behind the last returned record."""
        owned = self.owned.get((place.topic, place.partition))
        known = owned is not None and owned.started
        return TopicPartition(place.topic, place.partition, owned.returned if known and owned else OFFSET_INVALID)
