"""Holding partitions at their closed gates, and letting them go on when the group's positions open them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import inf

from confluent_kafka import Message, TopicPartition

from ....partitioner.gates.gate import Gate, Opened
from ....partitioner.gates.proofs import provable_epoch
from ....partitioner.gates.starts import Commit, proven_epoch, proven_position
from ... import clock
from ...config import ConsumerSettings
from ...durations import Durations
from ...messages import Place, key_of, offset_of
from ..assignment import Assignment
from ..callbacks import Callbacks
from ..partition_state import PartitionState
from ..records.batches import Backlog, Batch
from ..view import View
from .early import PATIENCE, EarlyReleases
from .origins import OriginWatch
from .positions import GroupPositions

# A look at a topic's gates costs more the more partitions it has. After one that took a time t the next one waits for
# _BRISK * t where something has moved, and for _CALM * t where nobody tells. One that costs little never waits. Seconds.
_CHEAP, _BRISK, _CALM = 0.0002, 4.0, 20.0
# The gates of a topic with a closed one are looked at so often even if nothing seems to have moved. Seconds.
_AT_LEAST = 1.0


@dataclass(slots=True)
class _Look:
    """The last look at a topic's gates: when it ended, how long it took, and what it saw of others.

    waited: the places of other members that its closed gates wait for. own: those of this member.
    """

    at: float
    took: float
    answers: int
    waived: set[tuple[int, int]]
    waited: set[Place]
    own: set[Place]


class Gatekeeper:
    """The gates of one consumer's partitions. shut: the partitions behind a closed one, each since when.

    _unannounced: topics with an open gate of which the application could not be told yet. _moved: topics of which this
    member's own positions have moved since the last look. _waiting: topics with a gate that is closed, or not announced.
    durations: how long gates that have opened were closed.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        assignment: Assignment,
        callbacks: Callbacks,
        positions: GroupPositions,
        origins: OriginWatch,
        early: EarlyReleases | None = None,
    ) -> None:
        self._settings, self._assignment, self._callbacks, self._positions = settings, assignment, callbacks, positions
        self._origins, self._early = origins, early
        self._judged: dict[str, View] = {}
        self._openeds: dict[str, Opened] = {}
        self._unannounced: set[str] = set()
        self._moved: set[str] = set()
        self._looks: dict[str, _Look] = {}
        self._topics: frozenset[str] = frozenset()
        self._waiting: set[str] = set()
        self.shut: dict[Place, float] = {}
        self.durations = Durations()

    def wait_for(self, places: Iterable[Place]) -> bool:
        """Whether a closed gate of ours waits for what the application has yet to do with records of these partitions."""
        return self.busy and any(place in look.own for place in places for look in self._looks.values())

    @property
    def busy(self) -> bool:
        """Whether a gate of ours is closed."""
        return bool(self.shut)

    def awaited(self) -> list[object]:
        """What tells its closed gates from others, without a look at each: how many, and which has closed last."""
        return [len(self.shut), next(reversed(self.shut))] if self.shut else []

    def changed(self, topic: str) -> None:
        """Partitions were started: judge the topic anew."""
        self._judged.pop(topic, None)

    def moved(self, topic: str) -> None:
        """The group's coordinator has acknowledged a position of ours, or the application has flushed. From any thread."""
        self._moved.add(topic)

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
        for owned in self._assignment.owned.values():
            if owned.topic == topic:
                owned.gates.announced = -1
                owned.gates.seen_closed.clear()

    def current(self, topic: str) -> bool:
        """Whether the newest timeline of the topic has been judged."""
        return self._judged.get(topic) is self._assignment.view(topic)

    def proven_epoch(self, owned: PartitionState, offset: int) -> int:
        """The newest epoch that a commit of `offset` may carry: its cuts lie below it, and it is past no closed gate.

        With callbacks no further than the application has flushed. -1 for none.
        """
        view = self._assignment.view(owned.topic)
        asked = view.timeline.newest.number if self._callbacks.listener is None else owned.gates.flushed
        closed = None
        if self._settings.ordered and view.timeline.ordered:
            judged = self._judged.get(owned.topic) is view
            opened = self._openeds[owned.topic] if judged else self.opened(owned.topic, view)
            closed = opened.first_closed(owned.partition)
        return provable_epoch(view.timeline, owned.partition, offset, asked, closed)

    def open_what_may(self) -> None:
        """Look at the gates of every topic whose timeline or positions may have changed."""
        topics = self._assignment.topics()
        due = [topic for topic in topics if self._due(topic, topic in self._waiting)]
        if not due and topics is self._topics:
            self._check()
            return
        by_topic: dict[str, list[PartitionState]] = {topic: [] for topic in due}
        for owned in self._assignment.owned.values():
            if owned.started and owned.topic in by_topic:
                by_topic[owned.topic].append(owned)
        to_fetch: list[PartitionState] = []
        for topic, some in by_topic.items():
            self._look(topic, some, to_fetch)
        # A callback may have given some up.
        to_fetch = [owned for owned in to_fetch if self._assignment.owned.get(owned.place) is owned]
        if to_fetch:
            # All at once: an eager member replaces its whole assignment with every call.
            self._assignment.fetching.begin(to_fetch)
        self._tidy()
        self._check()

    def _due(self, topic: str, waits: bool) -> bool:
        """Whether a look at a topic's gates may find anything new, and the last one was not too expensive."""
        view = self._assignment.view(topic)
        if self._judged.get(topic) is not view:
            return True
        look = self._looks.get(topic)
        if not waits or look is None:
            return waits
        since = clock.now() - look.at
        if since >= _AT_LEAST:
            return True
        if topic in self._moved or look.answers != self._positions.answers or look.waived != self._waived(topic):
            return look.took < _CHEAP or since >= _BRISK * look.took
        # When a scan has ended, or a callback will not raise any more, nobody tells.
        if self._early is None and topic not in self._unannounced:
            return False
        return look.took < _CHEAP or since >= _CALM * look.took

    def _look(self, topic: str, some: list[PartitionState], to_fetch: list[PartitionState]) -> None:
        began = clock.now()
        answers, waived = self._positions.answers, self._waived(topic)
        self._moved.discard(topic)
        view = self._assignment.view(topic)
        waited = self._judge(topic, view, some, to_fetch)
        own = {place for place in waited if place in self._assignment.owned}
        ended = clock.now()
        self._looks[topic] = _Look(ended, ended - began, answers, waived, waited - own, own)
        self._judged[topic] = view

    def _waived(self, topic: str) -> set[tuple[int, int]]:
        return self._assignment.views.waived(topic)

    def _tidy(self) -> None:
        """Forget what is owned no more, and have the others' positions asked that are waited for now."""
        self._topics = topics = self._assignment.topics()
        self._looks = {topic: look for topic, look in self._looks.items() if topic in topics}
        self.shut = {place: since for place, since in self.shut.items() if place in self._assignment.owned}
        self._waiting = {topic for topic, _ in self.shut} | self._unannounced
        if self._early is not None:
            self._early.keep(topics)
        self._positions.watch({place for look in self._looks.values() for place in look.waited})

    def _check(self) -> None:
        if self._positions.failure is not None:
            raise self._positions.failure

    def _judge(self, topic: str, view: View, some: list[PartitionState], to_fetch: list[PartitionState]) -> set[Place]:
        """Set the limits of a topic's partitions. Returns the places that its closed gates wait for.

        some: those of them that have started. to_fetch: takes those that may be fetched from now on.
        """
        opened = self._openeds[topic] = self.opened(topic, view)
        self._unannounced.discard(topic)
        waited: set[Place] = set()
        holding: list[Gate] = []
        ordered = self._settings.ordered and view.timeline.ordered
        room = self._settings.hold_limit - sum(len(owned.held) for owned in some)
        for owned in some:
            blockers: set[tuple[int, int]] = set()
            gate = opened.first_closed(owned.partition) if ordered else None
            owned.gates.closed = gate
            owned.gates.limit = inf if gate is None else gate.begins
            if not view.timeline.mode(owned.partition).readable:
                # KIP-694: nobody reads it any more. What lies below the cut is being deleted; above it are only strays.
                owned.gates.sealed_at = view.timeline.cut_of_retired(owned.partition)
                owned.gates.limit = min(owned.gates.limit, owned.gates.sealed_at)
            else:
                owned.gates.sealed_at = None
            if gate is None:
                owned.gates.founded = inf
                since = self.shut.pop(owned.place, None)
                if since is not None:
                    self.durations.add(clock.now() - since)
                    self._origins.opened(owned.place, clock.now() - since)
            else:
                self.shut.setdefault(owned.place, clock.now())
                closed = [gate]
                if self._settings.gate_keys:
                    closed = [each for each in view.gates.of(owned.partition) if not opened.is_open(each)]
                    self._found(owned, closed)
                    if clock.now() - self.shut[owned.place] >= PATIENCE:
                        holding += [each for each in closed if owned.fetched > each.begins]
                blockers = opened.blockers(gate)
                waited.update((topic, q) for q, _ in blockers)
                waited.update((topic, q) for each in closed[1:] for q, _ in opened.blockers(each))
            self._announce(owned, view, opened)
            if owned.gates.unannounced is not None:
                self._unannounced.add(topic)
                owned.gates.limit = min(owned.gates.limit, owned.gates.unannounced.begins)
            self._let_go(owned, view, opened)
            # Left out of the assignment, not paused: the next assignment would undo a pause. A partition whose gate closes while
            # it is fetched, or is near, holds its records in memory, and is paused only when it may hold no more.
            if owned.fetch.running:
                continue
            if owned.fetched < owned.gates.limit:
                to_fetch.append(owned)
            elif owned.gates.sealed_at is None and (
                self._settings.gate_keys or (gate is not None and owned.backlog <= room and self._near(topic, blockers))
            ):
                to_fetch.append(owned)
                room -= owned.backlog
        if self._early is not None:
            behind = self._early.look(topic, view, holding, partial(self._known, topic))
            waited.update((topic, q) for q in behind)
        return waited

    def _near(self, topic: str, blockers: Iterable[tuple[int, int]]) -> bool:
        """Whether a gate that waits for these places is likely to open soon, so that its records are better here already.

        Fetched only then, the first of them would come when the broker answers the fetch that it has: half a second later
        where nothing else arrives.
        """
        left = 0
        for q, ends in blockers:
            owned = self._assignment.owned.get((topic, q))
            reached = self._known(topic, q) if owned is None or not owned.started else owned.fetched
            if reached is None:
                return False
            left += max(0, ends - reached)
        return left <= self._settings.hold_limit

    def _known(self, topic: str, q: int) -> int | None:
        """What the group has committed on `q`, acknowledged: 0 without a commit, None where nobody has said yet."""
        owned = self._assignment.owned.get((topic, q))
        if (owned is None or not owned.started) and not self._positions.asked(topic, q):
            return None
        return self.position(topic, q)

    def early_note(self, topic: str, gate: Gate) -> str:
        """How far early release is with a closed gate, for people."""
        return "" if self._early is None else self._early.note(topic, gate, partial(self._known, topic))

    def opened(self, topic: str, view: View) -> Opened:
        """Which gates are open at what the group has committed; with callbacks also by what is proven as flushed."""
        proven = None if self._callbacks.listener is None else lambda q: proven_epoch(self.commit(topic, q))
        return view.gates.open_now(lambda q: self.position(topic, q), self._assignment.views.waived(topic), proven)

    def position(self, topic: str, q: int) -> int:
        """What the group has committed on `q`, acknowledged; 0 without a commit."""
        commit = self.commit(topic, q)
        return 0 if commit is None else commit.offset

    def proven(self, topic: str, q: int) -> int:
        """The same, with callbacks only as far as the flush is proven; for people."""
        if self._callbacks.listener is None:
            return self.position(topic, q)
        return proven_position(self._assignment.view(topic).timeline, q, self.commit(topic, q))

    def commit(self, topic: str, q: int) -> Commit | None:
        """What counts as committed on `q`, by this member or another.

        Of an own partition too what the broker has acknowledged, not what was returned: if that opened a gate, a crash would
        give the old record out again, after the new one.
        """
        owned = self._assignment.owned.get((topic, q))
        return self._positions.get(topic, q) if owned is None or not owned.started else owned.counted

    def _announce(self, owned: PartitionState, view: View, opened: Opened) -> None:
        """KIP-253's onPartitionKeyAssigned: once per opened gate, before the first record behind it.

        Where the callback raises, the gate stays closed for this member, and the callback is called again at the next turn.
        """
        owned.gates.unannounced = None
        listener = self._callbacks.listener
        if listener is None:
            return
        place = TopicPartition(owned.topic, owned.partition)
        for gate in view.gates.of(owned.partition):
            if not opened.is_open(gate):
                # A gate already passed that only seems closed, since nobody has said yet where the others are, is no news.
                if gate.begins >= owned.returned or all(
                    self._known(owned.topic, q) is not None for q, _ in gate.origins
                ):
                    owned.gates.seen_closed.add(gate.epoch)
            elif gate.epoch > owned.gates.announced and (
                gate.begins >= owned.returned or gate.epoch in owned.gates.seen_closed
            ):
                if not self._callbacks.guarded(lambda: listener.on_partition_key_assigned([place])):
                    owned.gates.unannounced = gate
                    return
                owned.gates.announced = gate.epoch

    def _is_open(self, gate: Gate, owned: PartitionState, opened: Opened) -> bool:
        """Whether a gate of this partition lets records through."""
        return owned.gates.passes(gate) and opened.is_open(gate)

    def key_may_go(self, message: Message, owned: PartitionState) -> bool:
        """Whether a record behind a closed gate may be returned all the same, with `keyorder.gate=key`.

        Nothing of its key may wait, the gate by which its key came has to be open, and there has to be room: a partition
        that holds all it may is read no further.
        """
        opened = self._openeds.get(owned.topic)
        if owned.fetch.paused_for_hold or opened is None or owned.gates.limit == owned.gates.sealed_at:
            return False
        key = key_of(message)
        return key is None or (key not in owned.gates.held_keys and self._entered(key, message, owned, opened))

    def _entered(self, key: bytes, message: Message, owned: PartitionState, opened: Opened) -> bool:
        """Whether the gate is open by which this key came to the partition the last time before this record.

        Or whether it need not be: nothing older of the key is left.
        """
        topic = owned.topic
        view = self._assignment.view(topic)
        gate = view.gates.entry(view.routing.of(key).moves, owned.partition, offset_of(message))
        if gate is None or self._is_open(gate, owned, opened):
            return True
        return self._early is not None and self._early.may_go(topic, key, gate, partial(self._known, topic))

    def _let_go(self, owned: PartitionState, view: View, opened: Opened) -> None:
        """Held records below the limit may be returned; with `keyorder.gate=key`, those of keys whose gate is open."""
        while (batch := owned.held.first_below(owned.gates.limit)) is not None:
            owned.let_go(batch, late=self._settings.gate_keys)
            owned.held.drop(batch)
            self._assignment.out.ready.append(batch)
        if self._settings.gate_keys and owned.held and owned.gates.limit != owned.gates.sealed_at:
            self._let_keys_go(owned, view, opened)
        if owned.seen.untold is not None and not owned.held:
            self._assignment.out.ready.append(owned.seen.untold)
            owned.seen.untold = None
        # Where keys go early the rest may wait for long: room for others is enough then.
        enough = 0 if self._early is None else self._settings.hold_limit // 2
        if owned.fetch.paused_for_hold and len(owned.held) <= enough:
            self._assignment.fetching.unhold(owned)

    def _found(self, owned: PartitionState, closed: list[Gate]) -> None:
        """Keep a position below a gate as long as an origin of it has no commit.

        A position behind the gate beside an origin without one is how a group looks that has lost commits.
        """
        unfounded = (
            gate.begins for gate in closed if any(self.commit(owned.topic, q) is None for q, _ in gate.origins)
        )
        owned.gates.founded = min(unfounded, default=inf)

    def _let_keys_go(self, owned: PartitionState, view: View, opened: Opened) -> None:
        """Look through the held records of a partition, in order, if more of them may go than the last time."""
        now_open = {gate.epoch for gate in view.gates.of(owned.partition) if self._is_open(gate, owned, opened)}
        moved = self._early is not None and self._early.moved(owned.place, partial(self._known, owned.topic))
        if now_open <= owned.gates.let_through and not moved:
            return
        still = Backlog()
        freed: list[Batch] = []
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
        self._assignment.out.ready.extend(freed)
        owned.gates.let_through = now_open
