"""Holding partitions at their closed gates, and letting them go on when the group's positions open them."""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf

from confluent_kafka import Message, TopicPartition

from ....partitioner.gates.gate import Gate, Opened
from ....partitioner.gates.starts import Commit, flushed_epoch, proven_position
from ....partitioner.modes import Mode
from ... import clock
from ...config import ConsumerSettings
from ...messages import Place, key_of, offset_of
from ..membership import Membership
from ..owned import Owned
from ..records.parcels import Backlog, Item
from ..view import View
from .early import PATIENCE, EarlyReleases
from .origins import OriginWatch
from .positions import GroupPositions


class Gatekeeper:
    """The gates of one consumer's partitions. shut: the partitions behind a closed one, each since when."""

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
        self._announced: dict[Place, int] = {}
        self.shut: dict[Place, float] = {}

    @property
    def busy(self) -> bool:
        """Whether a gate of ours is closed."""
        return bool(self.shut)

    def changed(self, topic: str) -> None:
        """Partitions were started: judge the topic anew."""
        self._judged.pop(topic, None)

    def rearm(self, topic: str) -> None:
        """A position went back: gates behind it may have closed."""
        self._judged.pop(topic, None)

    def current(self, topic: str) -> bool:
        """Whether the newest timeline of the topic has been judged."""
        return self._judged.get(topic) is self._members.view(topic)

    def proven_epoch(self, owned: Owned, offset: int) -> int:
        """The newest epoch that a commit of `offset` may carry: its cuts lie below it, and it is past no closed gate.

        A view that was a moment old has let records of keys that never moved pass a gate that it did not know yet.
        """
        view = self._members.view(owned.topic)
        reached = flushed_epoch(view.timeline, owned.partition, offset)
        if not (self._settings.ordered and view.timeline.ordered):
            return reached
        judged = self._judged.get(owned.topic) is view
        opened = self._openeds[owned.topic] if judged else self.opened(owned.topic, view)
        gate = opened.first_closed(owned.partition)
        return reached if gate is None or offset <= gate.begins else min(reached, gate.epoch - 1)

    def open_what_may(self) -> None:
        """Judge the gates of every topic whose timeline or positions may have changed."""
        waited: set[Place] = set()
        for topic in self._members.topics():
            view = self._members.view(topic)
            if self._judged.get(topic) is view and not any(place[0] == topic for place in self.shut):
                continue
            self._judged[topic] = view
            waited |= self._judge(topic, view)
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
        waited: set[Place] = set()
        to_fetch: list[Owned] = []
        holding: list[Gate] = []
        ordered = self._settings.ordered and view.timeline.ordered
        for owned in [o for o in self._members.owned.values() if o.topic == topic and o.started]:
            gate = opened.first_closed(owned.partition) if ordered else None
            owned.limit = inf if gate is None else gate.begins
            if view.timeline.mode(owned.partition) is Mode.NONE:
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
            self._let_go(owned, view, opened)
            may_fetch = self._settings.gate_keys and owned.sealed_at is None
            if not owned.fetching and (may_fetch or owned.fetched < owned.limit):
                to_fetch.append(owned)
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
        """Which gates are open at what the group has committed."""
        return view.gates.open_now(lambda q: self.position(topic, q), self._members.views.waived(topic))

    def position(self, topic: str, q: int) -> int:
        """What the group has committed on `q`, acknowledged; with callbacks only as far as the flush is proven."""
        commit = self.commit(topic, q)
        if self._members.listener is not None:
            return proven_position(self._members.view(topic).timeline, q, commit)
        return 0 if commit is None else commit.offset

    def commit(self, topic: str, q: int) -> Commit | None:
        """What counts as committed on `q`, by this member or another."""
        owned = self._members.owned.get((topic, q))
        if owned is None or not owned.started:
            return self._positions.get(topic, q)
        # A seek backwards leaves the commit where it was; what lies between is not processed any more.
        acknowledged = None if owned.committed is None else min(owned.committed, owned.processed)
        return None if acknowledged is None else Commit(acknowledged, owned.committed_epoch)

    def _announce(self, owned: Owned, view: View, opened: Opened) -> None:
        """KIP-253's onPartitionKeyAssigned: once per opened gate, before the first record behind it."""
        if self._members.listener is None:
            return
        for gate in view.gates.of(owned.partition):
            known = self._announced.get(owned.place, -1)
            if not opened.is_open(gate):
                owned.seen_closed.add(gate.epoch)
            elif gate.epoch > known and (gate.begins >= owned.returned or gate.epoch in owned.seen_closed):
                self._announced[owned.place] = gate.epoch
                self._members.listener.on_partition_key_assigned([TopicPartition(owned.topic, owned.partition)])

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
        if gate is None or opened.is_open(gate):
            return True
        return self._early is not None and self._early.may_go(topic, key, gate, partial(self._known, topic))

    def _let_go(self, owned: Owned, view: View, opened: Opened) -> None:
        """Held records below the limit may be returned; with `keyorder.gate=key`, those of keys whose gate is open."""
        for parcel in owned.held.below(owned.limit):
            owned.let_go(parcel, late=self._settings.gate_keys)
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
        now_open = {gate.epoch for gate in view.gates.of(owned.partition) if opened.is_open(gate)}
        moved = self._early is not None and self._early.moved(owned.place, partial(self._known, owned.topic))
        if now_open <= owned.let_through and not moved:
            return
        owned.let_through = now_open
        held, owned.held = owned.held, Backlog()
        waiting: set[bytes | None] = set()
        for record in held.below(inf):
            message = record.message(0)
            key = key_of(message)
            if key not in waiting and (key is None or self._entered(key, message, owned, opened)):
                owned.let_go(record, late=True)
                self.ready.append(record)
            else:
                waiting.add(key)
                owned.held.append(record)
