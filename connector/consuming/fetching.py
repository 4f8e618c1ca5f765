"""What the client library fetches of the owned partitions: which of them, from where, and which stand still."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, TopicPartition

from ..config import ConsumerSettings
from ..messages import Place
from .owned import Owned


class Fetching:
    """The client library's assignment. Used by the polling thread alone.

    owned: all partitions of this member. manual: the application assigns by itself, without the group's assignor.
    before_fetch: called with what is about to be assigned.
    """

    before_fetch: Callable[[list[Place]], None]

    def __init__(self, raw: Consumer, settings: ConsumerSettings, owned: dict[Place, Owned]) -> None:
        self.raw, self._settings, self._owned = raw, settings, owned
        self.manual = False

    @property
    def _by_delta(self) -> bool:
        """Whether the client library takes changes of its assignment, and not the whole."""
        return self._settings.incremental and not self.manual

    def nothing_new(self) -> None:
        """A rebalance has brought partitions: fetch none of them yet."""
        # The binding assigns everything by itself unless the callback has assigned something, were it nothing.
        (self.raw.incremental_assign if self._settings.incremental else self.raw.assign)([])

    def begin(self, more: Iterable[Owned]) -> None:
        """Let the client library fetch these too, from where each is."""
        more = list(more)
        for owned in more:
            owned.fetching = True
        if self._by_delta:
            self.before_fetch([o.place for o in more])
            self.raw.incremental_assign([TopicPartition(o.topic, o.partition, o.fetched) for o in more])
        else:
            # An eager member can only replace its assignment: those already running go on where they are.
            more = [o for o in self._owned.values() if o.fetching]
            self.before_fetch([o.place for o in more])
            self.raw.assign([TopicPartition(o.topic, o.partition, o.fetched) for o in more])
        quiet = [TopicPartition(o.topic, o.partition) for o in more if o.paused_by_user or o.paused_for_hold]
        if quiet:
            self.raw.pause(quiet)
        # The library keeps a pause beyond the assignment in which it was made.
        loud = [TopicPartition(o.topic, o.partition) for o in more if not (o.paused_by_user or o.paused_for_hold)]
        if loud:
            self.raw.resume(loud)

    def begin_anew(self) -> None:
        """Let the client library forget what it has fetched and not handed over, and begin again from where each is."""
        fetching = [o for o in self._owned.values() if o.fetching]
        if fetching and self._by_delta:
            self.raw.incremental_unassign([TopicPartition(o.topic, o.partition) for o in fetching])
        if fetching:
            self.begin(fetching)

    def end(self, gone: Iterable[Owned]) -> None:
        """Fetch these no more. They have been taken out of what is owned."""
        gone = list(gone)
        paused = [TopicPartition(*owned.place) for owned in gone if owned.paused_by_user or owned.paused_for_hold]
        if paused:
            # The client library keeps a pause for the next time that the partition is assigned here.
            self.raw.resume(paused)
        if self._by_delta:
            self.raw.incremental_unassign([TopicPartition(*owned.place) for owned in gone if owned.fetching])
        else:
            self.raw.unassign()
            for owned in self._owned.values():
                owned.fetching = False

    def restart_at(self, owned: Owned, offset: int) -> None:
        """Go on from another offset, dropping what was fetched."""
        processed, record_end = owned.processed, owned.record_end
        owned.start_at(offset)
        if not (self._settings.auto_store and self._settings.auto_commit):
            # What was skipped counts as done with when the application has stored or committed all that it was given.
            owned.processed, owned.record_end, owned.eof = processed, record_end, offset
        if owned.fetching:
            # No seek: the client library has stopped a partition whose position is gone.
            owned.fetching = False
            if self._by_delta:
                self.raw.incremental_unassign([TopicPartition(*owned.place)])
            self.begin([owned])

    def seek(self, owned: Owned, offset: int) -> None:
        """The application's seek: the position becomes what it says."""
        owned.start_at(offset)
        if owned.fetching:
            self.raw.seek(TopicPartition(*owned.place, offset))

    def hold(self, owned: Owned) -> None:
        """Stand still: what waits behind its gate fills the memory that it may take."""
        owned.paused_for_hold = True
        self.raw.pause([TopicPartition(*owned.place)])

    def unhold(self, owned: Owned) -> None:
        """Go on after `hold`, unless the application has paused it."""
        owned.paused_for_hold = False
        if not owned.paused_by_user:
            self.raw.resume([TopicPartition(*owned.place)])

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
        return [self._owned[p.topic, p.partition] for p in places if (p.topic, p.partition) in self._owned]
