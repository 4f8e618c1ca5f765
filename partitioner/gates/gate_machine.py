"""The gates of a reader as a step machine: `step(event, now) -> actions`.

Every turn it says which topics are due for a look. A look goes through the topic's partitions in turn: it sets how far each
may be returned, tells the application of gates that have opened, lets held records go, and says what to fetch. It stops at
each action of which it has to know the outcome, and goes on with the event that tells it. What no event has told has not
happened: where a callback raises, or the look is cut short, its gate stays untold, nothing behind it is returned, and the
next look calls it again.

The driver carries the actions out in order. Per record there is no event: whoever takes records in asks `key_may_go`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Generic

from ..timeline import Timeline
from .committed import Committed
from .early_topics import PATIENCE, EarlyTopics
from .gate import Gate, Opened
from .gate_events import (
    Action,
    Announce,
    Announced,
    AskPositions,
    Assigned,
    BeginLook,
    EndLook,
    EndTurn,
    Event,
    Fetch,
    FetchedAgain,
    ForgetPositions,
    GateOpened,
    LetGo,
    LetGone,
    LetKeysGo,
    Listening,
    LookAt,
    LookEnded,
    Moved,
    P,
    PositionsRead,
    ReadTails,
    Rewound,
    Started,
    TellEnd,
    TopicView,
    Turn,
    TurnEnded,
    Unhold,
    Waived,
)
from .gate_state import Place
from .key_sieve import KeySieve
from .look_times import NO_WAIVERS, Look, Looks
from .proofs import provable_epoch

# Actions at which a look stops until it hears of their outcome.
_STOPS = Announce, LetGo, LetKeysGo


@dataclass(frozen=True, slots=True)
class GateTerms:
    """What a consumer's settings say of gates.

    ordered: False: nothing waits. gate_keys: behind a closed gate single keys wait, and not the partition. hold_limit: the
    most records that wait. early_release_keys: the most keys of unread tails to keep in memory; None without early release.
    """

    ordered: bool
    gate_keys: bool
    hold_limit: int
    early_release_keys: int | None = None


class _Current:
    """A look that is under way. waited, own: as `Look` has them. disturbed: what it has found is out of date."""

    __slots__ = ("began", "changes", "disturbed", "steps", "topic", "view", "waited", "waived")

    def __init__(self, topic: str, view: TopicView, waived: Waived, changes: int, began: float) -> None:
        self.topic, self.view, self.waived, self.changes, self.began = topic, view, waived, changes, began
        self.waited: set[Place] = set()
        self.disturbed = False
        self.steps: Generator[Action[Any], bool, None] | None = None


class GateMachine(Generic[P]):
    """The gates of one reader's partitions. Not thread-safe.

    owned: its partitions; kept by the driver, and only read here but for their `gates`. shut: the partitions behind a
    closed gate, each since when. committed: what the group has committed.
    """

    def __init__(self, terms: GateTerms, owned: Mapping[Place, P]) -> None:
        self._terms, self._owned = terms, owned
        self.committed = Committed(owned)
        self._early = None if terms.early_release_keys is None else EarlyTopics(terms.early_release_keys)
        self._judged: dict[str, TopicView] = {}
        self._openeds: dict[str, tuple[TopicView, Opened]] = {}
        # Topics with an open gate of which the application could not be told yet.
        self._unannounced: set[str] = set()
        # Topics of which this member's own positions have moved since the last look.
        self._moved: set[str] = set()
        # Topics with a gate that is closed, or not announced.
        self._waiting: set[str] = set()
        self._looks = Looks()
        self._topics: frozenset[str] = frozenset()
        self._turn = Turn(frozenset(), {}, {})
        self._due: dict[str, list[P]] = {}
        self._current: _Current | None = None
        self._to_fetch: list[P] = []
        self.shut: dict[Place, float] = {}
        self._handlers: dict[type[Any], Callable[[Any, float], list[Action[P]]]] = {
            Turn: self._on_turn,
            BeginLook: self._on_begin_look,
            Announced: self._on_announced,
            LetGone: self._on_let_gone,
            LookEnded: self._on_look_ended,
            TurnEnded: self._on_turn_ended,
            PositionsRead: self._on_positions,
            Listening: self._on_listening,
            Moved: self._on_moved,
            Started: self._on_started,
            Assigned: self._on_assigned,
            Rewound: self._on_rewound,
            FetchedAgain: self._on_fetched_again,
        }

    def step(self, event: Event, now: float) -> list[Action[P]]:
        """Take in an event at `now`, seconds of a clock that counts through suspend. Returns what is to be done, in order."""
        return self._handlers[type(event)](event, now)

    # -- questions -------------------------------------------------------------------------------------------------

    def wait_for(self, places: Iterable[Place]) -> bool:
        """Whether a closed gate waits for what the application has yet to do with records of these partitions."""
        return bool(self.shut) and self._looks.wait_for(places)

    def awaited(self) -> list[object]:
        """What tells its closed gates from others, without a look at each: how many, and which has closed last."""
        return [len(self.shut), next(reversed(self.shut))] if self.shut else []

    def judged(self, topic: str) -> TopicView | None:
        """By which view the topic's partitions have been judged."""
        return self._judged.get(topic)

    def has_moved(self, topic: str) -> bool:
        """Whether this member's own positions have moved since the last look at the topic."""
        return topic in self._moved

    def proven_epoch(self, partition: P, offset: int, view: TopicView) -> int:
        """The newest epoch that a commit of `offset` may carry: its cuts lie below it, and it is past no closed gate.

        With callbacks no further than the application has flushed. -1 for none.
        """
        topic, p, timeline = partition.topic, partition.partition, view.timeline
        asked = partition.gates.flushed if self.committed.listens else timeline.newest.number
        closed = None
        if self._terms.ordered and timeline.ordered:
            judged = self._judged.get(topic) is view
            opened = self._openeds[topic][1] if judged else self.opened(topic, view)
            closed = opened.first_closed(p)
        return provable_epoch(timeline, p, offset, asked, closed)

    def opened(self, topic: str, view: TopicView) -> Opened:
        """Which gates are open at what the group has committed; with callbacks also by what is proven as flushed."""
        return self.committed.opened(topic, view, self._turn.waived.get(topic, NO_WAIVERS))

    def proven(self, timeline: Timeline, q: int) -> int:
        """What the group has committed, with callbacks only as far as the flush is proven; for people."""
        return self.committed.proven(timeline, q)

    def early_note(self, topic: str, gate: Gate, read: int) -> str:
        """How far early release is with a closed gate, for people. read: how many offsets the scan has passed."""
        return "" if self._early is None else self._early.note(topic, gate, self.committed.known_of(topic), read)

    def key_may_go(self, partition: P, key: bytes | None, offset: int) -> bool:
        """Whether a record behind a closed gate may be returned all the same, with `keyorder.gate=key`.

        Nothing of its key may wait, the gate by which its key came has to be open, and there has to be room: a partition
        that holds all it may is read no further.
        """
        gates = partition.gates
        known = self._openeds.get(partition.topic)
        if partition.fetch.paused_for_hold or known is None or gates.limit == gates.sealed_at:
            return False
        return key is None or (key not in gates.held_keys and self.entered(partition, key, offset, known[0], known[1]))

    def entered(self, partition: P, key: bytes, offset: int, view: TopicView, opened: Opened) -> bool:
        """Whether the gate is open by which this key came to the partition the last time before this record.

        Or whether it need not be: nothing older of the key is left.
        """
        gate = view.gates.entry(view.routing.of(key).moves, partition.partition, offset)
        if gate is None or (partition.gates.passes(gate) and opened.is_open(gate)):
            return True
        topic = partition.topic
        return self._early is not None and self._early.may_go(topic, key, gate, self.committed.known_of(topic))

    # -- what is told ----------------------------------------------------------------------------------------------

    def _on_positions(self, event: PositionsRead, _: float) -> list[Action[P]]:
        self.committed.heard = event.heard
        return []

    def _on_listening(self, event: Listening, _: float) -> list[Action[P]]:
        self.committed.listens = event.listens
        return []

    def _on_moved(self, event: Moved, _: float) -> list[Action[P]]:
        self._moved.add(event.topic)
        return []

    def _on_started(self, event: Started, _: float) -> list[Action[P]]:
        self._judge_anew(event.topic)
        return []

    def _on_assigned(self, event: Assigned, _: float) -> list[Action[P]]:
        return self._forget(event.topic)

    def _on_rewound(self, event: Rewound, _: float) -> list[Action[P]]:
        """Gates behind the position may have closed, and the application is told again when they open."""
        for partition in self._owned.values():
            if partition.topic == event.topic:
                partition.gates.rearm()
        return self._forget(event.topic)

    def _on_fetched_again(self, _: FetchedAgain, __: float) -> list[Action[P]]:
        self._judged.clear()
        if self._current is not None:
            self._current.disturbed = True
        return []

    def _judge_anew(self, topic: str) -> None:
        self._judged.pop(topic, None)
        if self._current is not None and self._current.topic == topic:
            self._current.disturbed = True

    def _forget(self, topic: str) -> list[Action[P]]:
        self._judge_anew(topic)
        self.committed.forget(topic)
        return [ForgetPositions(topic)]

    # -- turns -----------------------------------------------------------------------------------------------------

    def _on_turn(self, event: Turn, now: float) -> list[Action[P]]:
        self._turn = event
        self._current = None
        self._due = {topic: [] for topic in event.topics if self._is_due(topic, event, now)}
        if not self._due and event.topics is self._topics:
            return []
        for partition in self._owned.values():
            if partition.started and partition.topic in self._due:
                self._due[partition.topic].append(partition)
        self._to_fetch = []
        return [*(LookAt(topic) for topic in self._due), EndTurn()]

    def _is_due(self, topic: str, turn: Turn, now: float) -> bool:
        """Whether a look at a topic's gates may find anything new, and the last one was not too expensive."""
        if self._judged.get(topic) is not turn.views[topic]:
            return True
        look = self._looks.get(topic)
        if topic not in self._waiting or look is None:
            return topic in self._waiting
        return look.due(
            now,
            moved=topic in self._moved,
            changes=self.committed.heard.changes,
            waived=turn.waived.get(topic, NO_WAIVERS),
            untold=self._early is not None or topic in self._unannounced,
        )

    def _on_turn_ended(self, _: TurnEnded, __: float) -> list[Action[P]]:
        """Fetch what may be fetched, forget what is owned no more, and ask for the positions that are waited for now."""
        # A callback may have given some up.
        fetch = [partition for partition in self._to_fetch if self._owns(partition)]
        actions: list[Action[P]] = [Fetch(fetch)] if fetch else []
        topics = self._topics = self._turn.topics
        self._looks.keep(topics)
        self.shut = {place: since for place, since in self.shut.items() if place in self._owned}
        self._waiting = {topic for topic, _ in self.shut} | self._unannounced
        if self._early is not None:
            actions += [ReadTails(topic, None) for topic in self._early.keep(topics)]
        return [*actions, AskPositions(self._looks.waited())]

    def _owns(self, partition: P) -> bool:
        return self._owned.get(partition.place) is partition

    # -- a look ----------------------------------------------------------------------------------------------------

    def _on_begin_look(self, event: BeginLook, now: float) -> list[Action[P]]:
        topic = event.topic
        self._moved.discard(topic)
        self._unannounced.discard(topic)
        waived = self._turn.waived.get(topic, NO_WAIVERS)
        current = _Current(topic, self._turn.views[topic], waived, self.committed.heard.changes, now)
        self._current = current
        current.steps = self._look(current, self._due.pop(topic, []), event, now)
        return self._go_on(None)

    def _on_announced(self, event: Announced, _: float) -> list[Action[P]]:
        return self._go_on(event.heard)

    def _on_let_gone(self, _: LetGone, __: float) -> list[Action[P]]:
        return self._go_on(True)

    def _go_on(self, outcome: bool | None) -> list[Action[P]]:
        """The look up to the next action of which it has to know the outcome. None to begin it."""
        current, actions = self._current, list[Action[P]]()
        if current is None or current.steps is None:
            return actions
        try:
            action = next(current.steps) if outcome is None else current.steps.send(outcome)
            while True:
                actions.append(action)
                if isinstance(action, _STOPS):
                    return actions
                action = next(current.steps)
        except StopIteration:
            current.steps = None
        return [*actions, EndLook(current.topic)]

    def _on_look_ended(self, event: LookEnded, now: float) -> list[Action[P]]:
        current, self._current = self._current, None
        if current is not None and current.topic == event.topic and not current.disturbed:
            own = frozenset(place for place in current.waited if place in self._owned)
            took, waited = now - current.began, frozenset(current.waited - own)
            self._looks.ended(event.topic, Look(now, took, current.changes, current.waived, waited, own))
            self._judged[event.topic] = current.view
        return []

    def _look(self, current: _Current, some: list[P], event: BeginLook, now: float) -> Generator[Action[P], bool, None]:
        """Set the limits of a topic's partitions that have started, and say what follows from them."""
        topic, view, waited = current.topic, current.view, current.waited
        opened = self.opened(topic, view)
        self._openeds[topic] = view, opened
        ordered = self._terms.ordered and view.timeline.ordered
        gate_keys = self._terms.gate_keys
        holding: list[Gate] = []
        room = self._terms.hold_limit - sum(len(partition.held) for partition in some)
        called = False
        for partition in some:
            if called and not self._owns(partition):
                continue
            p, gates = partition.partition, partition.gates
            gate = opened.first_closed(p) if ordered else None
            self._limit(partition, gate, view)
            blockers: set[tuple[int, int]] = set()
            if gate is None:
                gates.founded = inf
                since = self.shut.pop(partition.place, None)
                if since is not None:
                    yield GateOpened(partition.place, now - since)
            else:
                since = self.shut.setdefault(partition.place, now)
                closed = [gate]
                if gate_keys:
                    closed = [each for each in view.gates.of(p) if not opened.is_open(each)]
                    self._found(partition, closed)
                    if now - since >= PATIENCE:
                        holding += [each for each in closed if partition.fetched > each.begins]
                blockers = opened.blockers(gate)
                waited.update((topic, q) for q, _ in blockers)
                waited.update((topic, q) for each in closed[1:] for q, _ in opened.blockers(each))
            gates.unannounced = None
            if self.committed.listens and (untold := self._next_untold(partition, view, opened)) is not None:
                called = True
                yield from self._announce(partition, view, opened, untold)
                if current.disturbed:
                    return  # what is left is looked at anew
                if not self._owns(partition):
                    continue
            if partition.fetch.paused_for_hold or (
                partition.held and (gate_keys or partition.held.first < gates.limit)
            ):
                yield from self._let_go(partition, view, opened, now)
            # Left out of the assignment, not paused: the next assignment would undo a pause. A partition whose gate closes while
            # it is fetched, or is near, holds its records in memory, and is paused only when it may hold no more.
            if partition.fetch.running:
                continue
            if partition.fetched < gates.limit:
                self._to_fetch.append(partition)
            elif gates.sealed_at is None and (
                gate_keys or (gate is not None and partition.backlog <= room and self._near(topic, blockers))
            ):
                self._to_fetch.append(partition)
                room -= partition.backlog
        if self._early is not None:
            known = self.committed.known_of(topic)
            behind, another = self._early.look(topic, view, holding, known, event.scanned, now)
            waited.update((topic, q) for q in behind)
            for scan in another:
                yield ReadTails(topic, scan)

    @staticmethod
    def _limit(partition: P, gate: Gate | None, view: TopicView) -> None:
        """Up to where records of the partition may be returned."""
        gates = partition.gates
        gates.closed = gate
        gates.limit = inf if gate is None else gate.begins
        gates.sealed_at = None
        if not view.timeline.mode(partition.partition).readable:
            # KIP-694: nobody reads it any more. What lies below the cut is being deleted; above it are only strays.
            gates.sealed_at = view.timeline.cut_of_retired(partition.partition)
            gates.limit = min(gates.limit, gates.sealed_at)

    def _found(self, partition: P, closed: list[Gate]) -> None:
        """Keep a position below a gate as long as an origin of it has no commit.

        A position behind the gate beside an origin without one is how a group looks that has lost commits.
        """
        topic, commit = partition.topic, self.committed.commit
        unfounded = (gate.begins for gate in closed if any(commit(topic, q) is None for q, _ in gate.origins))
        partition.gates.founded = min(unfounded, default=inf)

    def _near(self, topic: str, blockers: Iterable[tuple[int, int]]) -> bool:
        """Whether a gate that waits for these places is likely to open soon, so that its records are better here already.

        Fetched only then, the first of them would come when the broker answers the fetch that it has: half a second later
        where nothing else arrives.
        """
        left = 0
        for q, ends in blockers:
            owned = self._owned.get((topic, q))
            reached = self.committed.known(topic, q) if owned is None or not owned.started else owned.fetched
            if reached is None:
                return False
            left += max(0, ends - reached)
        return left <= self._terms.hold_limit

    # -- what opens ------------------------------------------------------------------------------------------------

    def _next_untold(self, partition: P, view: TopicView, opened: Opened) -> Gate | None:
        """The oldest open gate of which the application has to hear: once per opened gate, before the first record behind."""
        gates = partition.gates
        for gate in view.gates.of(partition.partition):
            if not opened.is_open(gate):
                # A gate already passed that only seems closed, since nobody has said yet where the others are, is no news.
                if gate.begins >= partition.returned or all(
                    self.committed.known(partition.topic, q) is not None for q, _ in gate.origins
                ):
                    gates.seen_closed.add(gate.epoch)
            elif gate.epoch > gates.announced and (
                gate.begins >= partition.returned or gate.epoch in gates.seen_closed
            ):
                return gate
        return None

    def _announce(
        self, partition: P, view: TopicView, opened: Opened, untold: Gate | None
    ) -> Generator[Action[P], bool, None]:
        """KIP-253's onPartitionKeyAssigned, gate by gate. Until the application has heard of a gate it is as if closed."""
        gates, limit = partition.gates, partition.gates.limit
        while untold is not None:
            gates.unannounced, gates.limit = untold, min(limit, untold.begins)
            if not (yield Announce(partition, untold)):
                self._unannounced.add(partition.topic)
                return
            gates.announced = untold.epoch
            gates.unannounced, gates.limit = None, limit
            assert self._current is not None
            untold = None if self._current.disturbed else self._next_untold(partition, view, opened)

    def _let_go(self, partition: P, view: TopicView, opened: Opened, now: float) -> Generator[Action[P], bool, None]:
        """Held records below the limit may be returned; with `keyorder.gate=key`, those of keys whose gate is open."""
        gates = partition.gates
        if partition.held and partition.held.first < gates.limit:
            yield LetGo(partition, gates.limit)
        if self._terms.gate_keys and partition.held and gates.limit != gates.sealed_at:
            yield from self._let_keys_go(partition, view, opened, now)
        if partition.owes_end:
            yield TellEnd(partition)
        # Where keys go early the rest may wait for long: room for others is enough then.
        enough = 0 if self._early is None else self._terms.hold_limit // 2
        if partition.fetch.paused_for_hold and len(partition.held) <= enough:
            yield Unhold(partition)

    def _let_keys_go(
        self, partition: P, view: TopicView, opened: Opened, now: float
    ) -> Generator[Action[P], bool, None]:
        """Look through the held records of a partition, in order, if more of them may go than the last time."""
        gates, early = partition.gates, self._early
        now_open = {
            gate.epoch for gate in view.gates.of(partition.partition) if gates.passes(gate) and opened.is_open(gate)
        }
        known = self.committed.known_of(partition.topic)
        moved = early is not None and early.moved(partition.place, known, now)
        if now_open <= gates.let_through and not moved:
            return
        yield LetKeysGo(partition, KeySieve(partial(self.entered, partition, view=view, opened=opened)))
        gates.let_through = now_open
