"""Holding partitions at their closed gates, and letting them go on when the group's positions open them."""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf

from confluent_kafka import Message, TopicPartition

from ....partitioner.gates.gate import Gate, Opened
from ....partitioner.gates.proofs import provable_epoch
from ....partitioner.gates.starts import Commit, proven_epoch, proven_position
from ... import clock
from ...config import ConsumerSettings
from ...messages import Place, key_of, offset_of
from ..membership import Membership
from ..owned import Owned
from ..records.parcels import Backlog, Item, Parcel
from ..view import View
from .early import PATIENCE, EarlyReleases
from .origins import OriginWatch
from .positions import GroupPositions


class Gatekeeper:
    """The gates of one consumer's partitions. shut: the partitions behind a closed one, each since when.

    _unannounced: topics with an open gate of which the application could not be told yet.
    """

    ready: deque[Item]

    def __init__(
        self,
        settings: ConsumerSettings,
        members: Membership,
        positions: GroupPositions,
        origins: OriginWatch,
        early: EarlyReleases | None = None,
    ) -> None:
        self._settings, self._members, self._positions = settings, members, positions
        self._origins, self._early = origins, early
        self._judged: dict[str, View] = {}
        self._openeds: dict[str, Opened] = {}
        self._unannounced: set[str] = set()
        self.shut: dict[Place, float] = {}

    @property
    def busy(self) -> bool:
        """Whether a gate of ours is closed."""
        return bool(self.shut)

    def changed(self, topic: str) -> None:
        """Partitions were started: judge the topic anew."""
        self._judged.pop(topic, None)

    def begin_again(self) -> None:
        """What was fetched is fetched again: judge all topics anew."""
        self._judged.clear()

    def assigned(self, topic: str) -> None:
        """Partitions were assigned: what was heard of others may be from before a reset, and counts no more."""
        self._judged.pop(topic, None)
        self._positions.forget(topic)

    def rearm(self, topic: str) -> None:
        """A position went back: gates behind it may have closed, and the application is told again when they open."""
        self._judged.pop(topic, None)
        self._positions.forget(topic)
        for owned in self._members.owned.values():
            if owned.topic == topic:
                owned.announced = -1
                owned.seen_closed.clear()

    def current(self, topic: str) -> bool:
        """Whether the newest timeline of the topic has been judged."""
        return self._judged.get(topic) is self._members.view(topic)

    def proven_epoch(self, owned: Owned, offset: int) -> int:
        """The newest epoch that a commit of `offset` may carry: its cuts lie below it, and it is past no closed gate.

        With callbacks no further than the application has flushed. -1 for none.
        """
        view = self._members.view(owned.topic)
        asked = view.timeline.newest.number if self._members.listener is None else owned.flushed
        closed = None
        if self._settings.ordered and view.timeline.ordered:
            judged = self._judged.get(owned.topic) is view
            opened = self._openeds[owned.topic] if judged else self.opened(owned.topic, view)
            closed = opened.first_closed(owned.partition)
        return provable_epoch(view.timeline, owned.partition, offset, asked, closed)

    def open_what_may(self) -> None:
        """Judge the gates of every topic whose timeline or positions may have changed."""
        waited: set[Place] = set()
        for topic in self._members.topics():
            view = self._members.view(topic)
            waits = topic in self._unannounced or any(place[0] == topic for place in self.shut)
            if self._judged.get(topic) is view and not waits:
                continue
            waited |= self._judge(topic, view)
            self._judged[topic] = view
        self.shut = {place: since for place, since in self.shut.items() if place in self._members.owned}
        if self._early is not None:
            self._early.keep(self._members.topics())
        if waited or not self.shut:
            self._positions.watch(waited)
        if self._positions.failure is not None:
            raise self._positions.failure

    def _judge(self, topic: str, view: View) -> set[Place]:
        """Set the limits of one topic's partitions. Returns the places whose positions other members have to raise."""
        opened = self._openeds[topic] = self.opened(topic, view)
        self._unannounced.discard(topic)
        waited: set[Place] = set()
        to_fetch: list[Owned] = []
        holding: list[Gate] = []
        ordered = self._settings.ordered and view.timeline.ordered
        for owned in [o for o in self._members.owned.values() if o.topic == topic and o.started]:
            gate = opened.first_closed(owned.partition) if ordered else None
            owned.limit = inf if gate is None else gate.begins
            if not view.timeline.mode(owned.partition).readable:
                # KIP-694: nobody reads it any more. What lies below the cut is being deleted; above it are only strays.
                owned.sealed_at = view.timeline.cut_of_retired(owned.partition)
                owned.limit = min(owned.limit, owned.sealed_at)
            else:
                owned.sealed_at = None
            if gate is None:
                owned.founded = inf
                if self.shut.pop(owned.place, None) is not None:
                    self._origins.opened(owned.place)
            else:
                self.shut.setdefault(owned.place, clock.now())
                closed = [gate]
                if self._settings.gate_keys:
                    closed = [each for each in view.gates.of(owned.partition) if not opened.is_open(each)]
                    self._found(owned, closed)
                    if clock.now() - self.shut[owned.place] >= PATIENCE:
                        holding += [each for each in closed if owned.fetched > each.begins]
                blockers = {(topic, q) for each in closed for q, _ in opened.blockers(each)}
                waited |= blockers - self._members.owned.keys()
            self._announce(owned, view, opened)
            if owned.unannounced is not None:
                self._unannounced.add(topic)
                owned.limit = min(owned.limit, owned.unannounced.begins)
            self._let_go(owned, view, opened)
            may_fetch = self._settings.gate_keys and owned.sealed_at is None
            if not owned.fetching and (may_fetch or owned.fetched < owned.limit):
                to_fetch.append(owned)
        to_fetch = [o for o in to_fetch if self._members.owned.get(o.place) is o]  # a callback may have given some up
        if to_fetch:
            self._members.fetching.begin(to_fetch)
        if self._early is not None:
            behind = self._early.look(topic, view, holding, partial(self._known, topic))
            waited |= {(topic, q) for q in behind} - self._members.owned.keys()
        return waited

    def _known(self, topic: str, q: int) -> int | None:
        """What the group has committed on `q`, acknowledged: 0 without a commit, None where nobody has said yet."""
        owned = self._members.owned.get((topic, q))
        if (owned is None or not owned.started) and not self._positions.asked(topic, q):
            return None
        return self.position(topic, q)

    def early_note(self, topic: str, gate: Gate) -> str:
        """How far early release is with a closed gate, for people."""
        return "" if self._early is None else self._early.note(topic, gate, partial(self._known, topic))

    def opened(self, topic: str, view: View) -> Opened:
        """Which gates are open at what the group has committed; with callbacks also by what is proven as flushed."""
        proven = None if self._members.listener is None else lambda q: proven_epoch(self.commit(topic, q))
        return view.gates.open_now(lambda q: self.position(topic, q), self._members.views.waived(topic), proven)

    def position(self, topic: str, q: int) -> int:
        """What the group has committed on `q`, acknowledged; 0 without a commit."""
        commit = self.commit(topic, q)
        return 0 if commit is None else commit.offset

    def proven(self, topic: str, q: int) -> int:
        """The same, with callbacks only as far as the flush is proven; for people."""
        if self._members.listener is None:
            return self.position(topic, q)
        return proven_position(self._members.view(topic).timeline, q, self.commit(topic, q))

    def commit(self, topic: str, q: int) -> Commit | None:
        """What counts as committed on `q`, by this member or another."""
        owned = self._members.owned.get((topic, q))
        return self._positions.get(topic, q) if owned is None or not owned.started else owned.counted

    def _announce(self, owned: Owned, view: View, opened: Opened) -> None:
        """KIP-253's onPartitionKeyAssigned: once per opened gate, before the first record behind it.

        Where the callback raises, the gate stays closed for this member, and the callback is called again at the next turn.
        """
        owned.unannounced = None
        listener = self._members.listener
        if listener is None:
            return
        place = TopicPartition(owned.topic, owned.partition)
        for gate in view.gates.of(owned.partition):
            if not opened.is_open(gate):
                # A gate already passed that only seems closed, since nobody has said yet where the others are, is no news.
                if gate.begins >= owned.returned or all(
                    self._known(owned.topic, q) is not None for q, _ in gate.origins
                ):
                    owned.seen_closed.add(gate.epoch)
            elif gate.epoch > owned.announced and (gate.begins >= owned.returned or gate.epoch in owned.seen_closed):
                if not self._members.guarded(lambda: listener.on_partition_key_assigned([place])):
                    owned.unannounced = gate
                    return
                owned.announced = gate.epoch

    def _is_open(self, gate: Gate, owned: Owned, opened: Opened) -> bool:
        """Whether a gate of this partition lets records through."""
        told = owned.unannounced is None or gate.epoch < owned.unannounced.epoch
        return told and opened.is_open(gate)

    def key_may_go(self, message: Message, owned: Owned) -> bool:
        """Whether a record behind a closed gate may be returned all the same, with `keyorder.gate=key`.

        Nothing of its key may wait, the gate by which its key came has to be open, and there has to be room: a partition
        that holds all it may is read no further.
        """
        opened = self._openeds.get(owned.topic)
        if owned.paused_for_hold or opened is None or owned.limit == owned.sealed_at:
            return False
        key = key_of(message)
        return key is None or (key not in owned.held_keys and self._entered(key, message, owned, opened))

    def _entered(self, key: bytes, message: Message, owned: Owned, opened: Opened) -> bool:
        """Whether the gate is open by which this key came to the partition the last time before this record.

        Or whether it need not be: nothing older of the key is left.
        """
        topic = owned.topic
        view = self._members.view(topic)
        gate = view.gates.entry(view.routing.of(key).moves, owned.partition, offset_of(message))
        if gate is None or self._is_open(gate, owned, opened):
            return True
        return self._early is not None and self._early.may_go(topic, key, gate, partial(self._known, topic))

    def _let_go(self, owned: Owned, view: View, opened: Opened) -> None:
        """Held records below the limit may be returned; with `keyorder.gate=key`, those of keys whose gate is open."""
        while (parcel := owned.held.first_below(owned.limit)) is not None:
            owned.let_go(parcel, late=self._settings.gate_keys)
            owned.held.drop(parcel)
            self.ready.append(parcel)
        if self._settings.gate_keys and owned.held and owned.limit != owned.sealed_at:
            self._let_keys_go(owned, view, opened)
        # Where keys go early the rest may wait for long: room for others is enough then.
        enough = 0 if self._early is None else self._settings.hold_limit // 2
        if owned.paused_for_hold and len(owned.held) <= enough:
            self._members.fetching.unhold(owned)

    def _found(self, owned: Owned, closed: list[Gate]) -> None:
        """Keep a position below a gate as long as an origin of it has no commit.

        A position behind the gate beside an origin without one is how a group looks that has lost commits.
        """
        unfounded = (
            gate.begins for gate in closed if any(self.commit(owned.topic, q) is None for q, _ in gate.origins)
        )
        owned.founded = min(unfounded, default=inf)

    def _let_keys_go(self, owned: Owned, view: View, opened: Opened) -> None:
        """Look through the held records of a partition, in order, if more of them may go than the last time."""
        now_open = {gate.epoch for gate in view.gates.of(owned.partition) if self._is_open(gate, owned, opened)}
        moved = self._early is not None and self._early.moved(owned.place, partial(self._known, owned.topic))
        if now_open <= owned.let_through and not moved:
            return
        still = Backlog()
        freed: list[Parcel] = []
        waiting: set[bytes | None] = set()
        for record in owned.held:
            message = record.message(0)
            key = key_of(message)
            if key not in waiting and (key is None or self._entered(key, message, owned, opened)):
                owned.let_go(record, late=True)
                freed.append(record)
            else:
                waiting.add(key)
                still.append(record)
        # An exception at any line before this one leaves them all held.
        owned.held = still
        self.ready.extend(freed)
        owned.let_through = now_open
