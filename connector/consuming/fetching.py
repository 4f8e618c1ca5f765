"""What the client library fetches of the owned partitions: which of them, from where, and which stand still.

To give partitions back answers a revocation, also one that the library has not told of yet: it joins its group again, and
this member may then commit what nobody here knows to be another's. To assign lets it forget that a loss is one. So in a group
nothing is fetched anew at once, outside of a rebalance: that becomes due, and the next turn first lets the library tell what
there is (`due`, `give_back`, `begin_all`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from .. import clock
from ..config import ConsumerSettings
from ..messages import Place, place_of
from .partition_state import PartitionState
from .records.batches import Item
from .resumed import Resumed

# Seconds.
_SILENT = 1.0


class Fetching:
    """The client library's assignment. Used by the polling thread alone.

    owned: all partitions of this member. subscribed: the application has a subscription. of_group: what the group has given
    this member and not taken back, whatever the application has assigned or given up since.
    """

    def __init__(self, raw: Consumer, settings: ConsumerSettings, owned: dict[Place, PartitionState]) -> None:
        self.raw, self._settings, self._owned = raw, settings, owned
        self.subscribed = self._has_subscribed = False
        self.of_group: set[Place] = set()
        self._before_fetch: Callable[[list[Place]], None] = lambda places: None
        self._standing_still = False
        self._due = self._unheard = False
        self._unsure: dict[Place, float] = {}
        self._resumed = Resumed()
        # What the library was told to pause, and has not shown since that it goes on. It keeps a pause beyond the assignment.
        self._told_to_pause: set[Place] = set()
        # What the application paused and this member does not own now: as in the client library, only a resume ends a pause.
        self._paused_away: set[Place] = set()

    def tell_before(self, before_fetch: Callable[[list[Place]], None]) -> None:
        """Call this with the places of what is about to be assigned."""
        self._before_fetch = before_fetch

    @property
    def manual(self) -> bool:
        """Whether no group has a say: the application assigns by itself. It is a member until a revocation has been served."""
        return not (self.subscribed or self.of_group)

    def subscribe(self, subscribed: bool) -> None:
        """Note that the application has subscribed, or has done so no more."""
        self.subscribed, self._has_subscribed = subscribed, self._has_subscribed or subscribed

    def by_hand(self) -> list[TopicPartition]:
        """What is owned and was not given by the group."""
        return [TopicPartition(*place) for place in self._owned if place not in self.of_group]

    def has_no_group(self, topics: Collection[str]) -> bool:
        """Whether the group has given nothing of these topics."""
        return not any(topic in topics for topic, _ in self.of_group)

    def check_kind(self, whole: bool) -> None:
        """Raise the client library's own refusal of a change by hand. whole: of all that is assigned.

        Once it has joined a group it takes changes of one kind alone, and so it does after it has left.
        """
        if not whole and not self._by_delta:
            self.raw.incremental_assign([])
        elif whole and self._by_delta and self._has_subscribed:
            self.raw.assign([])  # where it is taken nothing is to be left

    @property
    def _by_delta(self) -> bool:
        """Whether the client library takes changes of its assignment, and not the whole."""
        return self._settings.incremental

    @property
    def whole(self) -> bool:
        """Whether a rebalance takes all partitions away and brings all anew."""
        return not self._settings.incremental

    def nothing_new(self) -> None:
        """A rebalance has brought partitions: fetch none of them yet."""
        # The binding assigns everything by itself unless the callback has assigned something, were it nothing.
        (self.raw.incremental_assign if self._settings.incremental else self.raw.assign)([])

    def begin(self, more: Iterable[PartitionState]) -> None:
        """Let the client library fetch these too, from where each is."""
        more = list(more)
        for owned in more:
            owned.fetch.running = True
            if owned.place in self._paused_away:
                owned.fetch.paused_by_user = True
                self._paused_away.discard(owned.place)
        if self._by_delta:
            self._before_fetch([o.place for o in more])
            self.raw.incremental_assign([TopicPartition(o.topic, o.partition, o.fetched) for o in more])
        else:
            # An eager member can only replace its assignment: those already running go on where they are.
            more = [o for o in self._owned.values() if o.fetch.running]
            self._before_fetch([o.place for o in more])
            self.raw.assign([TopicPartition(o.topic, o.partition, o.fetched) for o in more])
        for owned in more:
            owned.fetch.taken = -1
            self._unsure.pop(owned.place, None)
        self._pause([o for o in more if o.fetch.paused])
        still = [o.place for o in more if not o.fetch.paused and o.place in self._told_to_pause]
        if still:
            self._resumed.begun(still, clock.now())
            self.raw.resume([TopicPartition(*place) for place in still])

    def begin_anew(self) -> None:
        """Let the client library forget what it has fetched and not handed over, and begin again from where each is.

        Whatever it has assigned now: an exception may have come between the call and the note of it.
        """
        if self.manual:
            self.give_back()
            self.begin_all()
        else:
            self._due = True

    @property
    def due(self) -> bool:
        """Whether everything is to be given back to the client library and begun anew, before it is polled for records."""
        return self._due

    @property
    def unheard(self) -> bool:
        """Whether partitions were given back, and the library was not heard to the end since: what it tells was answered."""
        return self._unheard

    def give_back(self) -> None:
        """Take everything away from the client library, whatever it has."""
        assigned = self.raw.assignment()
        self._unheard = not self.manual
        if not self._by_delta:
            self.raw.assign([])
        elif assigned:
            self.raw.incremental_unassign(assigned)

    def begin_all(self) -> None:
        """The library was heard: let it fetch what is still owned, from where each is."""
        fetching = [owned for owned in self._owned.values() if owned.fetch.running]
        if fetching:
            self.begin(fetching)
        self._due = self._unheard = self._standing_still = False

    def known_end(self, owned: PartitionState) -> int:
        """An end that the log has had, by what the client library has heard last; -1 for none."""
        try:
            known = self.raw.get_watermark_offsets(TopicPartition(*owned.place), cached=True)
        except KafkaException:
            return -1
        return -1 if known is None else max(known[1], -1)

    def as_assigned(self) -> bool:
        """Whether the client library's assignment is ours. Not when an exception has cut a rebalance callback short.

        It came before our first line then, and the library has assigned, or taken away, by itself.
        """
        assigned = {(place.topic, place.partition) for place in self.raw.assignment()}
        return assigned == {owned.place for owned in self._owned.values() if owned.fetch.running}

    def _unassign(self, some: list[PartitionState]) -> None:
        """Whatever the books say: an exception may have come between a call and the note of it."""
        assigned = {(place.topic, place.partition) for place in self.raw.assignment()}
        self.raw.incremental_unassign([TopicPartition(*owned.place) for owned in some if owned.place in assigned])

    def handed_over(self, items: Iterable[Item]) -> None:
        """The client library has handed these over."""
        unheard: set[Place] = set()
        for item in items:
            place = place_of(item) if isinstance(item, Message) else item.place
            self._unsure.pop(place, None)
            self._resumed.over(place)
            self._told_to_pause.discard(place)
            if not isinstance(item, Message) and place in self._owned:
                fetch = self._owned[place].fetch
                fetch.taken = item.last + 1
                if fetch.paused:
                    unheard.add(place)
        self._pause([self._owned[place] for place in unheard])  # it did not hear of it: see Resumed

    def thrown_away(self, columns: bool) -> list[PartitionState]:
        """Partitions of which the client library has handed something over that did not get here: an exception took it.

        Its own position tells that of records, unless they came as columns. Of an end of partition, or an error, nothing
        tells: see `silent`.
        """
        fetching = [owned for owned in self._owned.values() if owned.fetch.running]
        if not fetching:
            return []
        now = clock.now()
        gone = []
        for owned, place in zip(fetching, self.raw.position([TopicPartition(*o.place) for o in fetching]), strict=True):
            if columns or (place.offset >= 0 and place.offset != owned.fetch.taken):
                gone.append(owned)
            else:
                self._unsure.setdefault(owned.place, now)
        return gone

    def silent(self, now: float) -> list[PartitionState]:
        """Partitions of which nothing has come for a while since an exception that may have taken an event of theirs."""
        if not self._unsure:
            return []
        due = [place for place, since in self._unsure.items() if now - since >= _SILENT]
        for place in due:
            del self._unsure[place]
        return [self._owned[place] for place in due if place in self._owned and self._owned[place].fetch.running]

    @property
    def standing_still(self) -> bool:
        """Whether nothing is fetched, since `stand_still`."""
        return self._standing_still

    def stand_still(self) -> None:
        """Fetch nothing for a while: what was fetched before cannot be looked at yet."""
        self._standing_still = True
        self._pause([o for o in self._owned.values() if o.fetch.running])

    def go_on(self) -> None:
        """Fetch again after `stand_still`."""
        self._resume([o for o in self._owned.values() if o.fetch.running and not o.fetch.paused])
        self._standing_still = False

    def _pause(self, some: list[PartitionState]) -> None:
        if some:
            self._told_to_pause.update(owned.place for owned in some)
            self.raw.pause([TopicPartition(*owned.place) for owned in some])

    def _resume(self, some: list[PartitionState]) -> None:
        """Tell the library to go on with these, and note it: it may not have heard."""
        if some:
            self._resumed.told([owned.place for owned in some], clock.now())
            self.raw.resume([TopicPartition(*owned.place) for owned in some])

    def may_stand_still(self, now: float) -> bool:
        """Whether the library may have to be told again to go on."""
        return not self._standing_still and self._resumed.any_due(now)

    def tell_again(self, idle: bool) -> None:
        """Tell the library once more to go on with what is silent since it was told. idle: it has nothing to hand over."""
        silent, anew = (self._still_running(places) for places in self._resumed.due(clock.now()))
        if silent:
            self.raw.resume([TopicPartition(*owned.place) for owned in silent])
        if anew and idle:  # else it may be there, behind records of others
            self.begin_anew()

    def _still_running(self, places: list[Place]) -> list[PartitionState]:
        found = []
        for place in places:
            owned = self._owned.get(place)
            if owned is not None and owned.fetch.running and not owned.fetch.paused:
                found.append(owned)
            else:
                self._resumed.over(place)
        return found

    def end(self, gone: Iterable[PartitionState]) -> None:
        """Fetch these no more. They have been taken out of what is owned."""
        gone = list(gone)
        for owned in gone:
            self._resumed.over(owned.place)
        paused = [TopicPartition(*owned.place) for owned in gone if owned.fetch.paused]
        if paused:
            # Here, not in the library: it could not tell the application's pauses from ours.
            self.raw.resume(paused)
            self._paused_away.update(owned.place for owned in gone if owned.fetch.paused_by_user)
        if self._by_delta:
            self._unassign(gone)
        else:
            self.raw.unassign()  # also before another assign(), which would be no answer to a revocation
            if any(owned.fetch.running for owned in self._owned.values()):
                self.begin([])  # the others go on

    def stop(self, some: Iterable[PartitionState]) -> None:
        """Fetch these no more, though they are owned."""
        running = [owned for owned in some if owned.fetch.running]
        for owned in running:
            owned.fetch.running = False
            self._resumed.over(owned.place)
        if running:
            self.begin_anew()

    def restart_at(self, owned: PartitionState, offset: int) -> None:
        """Go on from another offset, dropping what was fetched."""
        processed, record_end = owned.processed, owned.record_end
        owned.start_at(offset)
        if not (self._settings.auto_store and self._settings.auto_commit):
            # What was skipped counts as done with when the application has stored or committed all that it was given.
            owned.processed, owned.record_end, owned.seen.eof = processed, record_end, offset
        if owned.fetch.running:
            self.begin_anew()  # no seek: the client library has stopped a partition whose position is gone

    def seek(self, owned: PartitionState, offset: int) -> None:
        """The application's seek: the position becomes what it says."""
        if not owned.started:
            owned.fetch.wanted = offset
            return
        owned.start_at(offset)
        if owned.fetch.running:
            try:
                owned.fetch.taken = -1
                self.raw.seek(TopicPartition(*owned.place, offset))
            except KafkaException:
                self.begin_anew()  # the client library has stopped it

    def hold(self, owned: PartitionState) -> None:
        """Stand still: what waits behind its gate fills the memory that it may take."""
        owned.fetch.paused_for_hold = True
        self._pause([owned])

    def unhold(self, owned: PartitionState) -> None:
        """Go on after `hold`, unless the application has paused it."""
        owned.fetch.paused_for_hold = False
        if not owned.fetch.paused_by_user:
            self._resume([owned])

    def pause(self, places: list[TopicPartition]) -> None:
        """The application's pause."""
        for owned in self._owned_of(places):
            owned.fetch.paused_by_user = True
        self._pause([o for o in self._owned_of(places) if o.fetch.running])

    def resume(self, places: list[TopicPartition]) -> None:
        """The application's resume; a partition paused for memory stays so."""
        self._paused_away.difference_update((p.topic, p.partition) for p in places)
        for owned in self._owned_of(places):
            owned.fetch.paused_by_user = False
        self._resume([o for o in self._owned_of(places) if o.fetch.running and not o.fetch.paused_for_hold])

    def _owned_of(self, places: list[TopicPartition]) -> list[PartitionState]:
        """Those of them that this member owns; of others the client library takes no notice either."""
        return [self._owned[p.topic, p.partition] for p in places if (p.topic, p.partition) in self._owned]
