"""The driver of `partitioner.gates.gate_machine`: clock, callbacks, fetching and the others' positions. It decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from confluent_kafka import TopicPartition

from ....partitioner.gates.gate import Gate, Opened
from ....partitioner.gates.gate_events import (
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
    PositionsRead,
    ReadTails,
    Rewound,
    Started,
    TellEnd,
    Turn,
    TurnEnded,
    Unhold,
)
from ....partitioner.gates.gate_machine import GateMachine, GateTerms
from ....partitioner.gates.key_sieve import KeySieve
from ....partitioner.gates.starts import Commit
from ... import clock
from ...config import ConsumerSettings
from ...durations import Durations
from ...messages import Place, key_of, offset_of
from ..assignment import Assignment
from ..callbacks import Callbacks
from ..partition_state import PartitionState
from ..records.batches import Backlog, Batch
from ..view import View
from .origins import OriginWatch
from .positions import GroupPositions
from .tail_scan import TailScanner

_Actions = list[Action[PartitionState]]


class Gatekeeper:
    """The gates of one consumer's partitions. Used by the polling thread alone, but for `moved`.

    scanner: reads unread tails, where early release is on. durations: how long gates that have opened were closed.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        assignment: Assignment,
        callbacks: Callbacks,
        positions: GroupPositions,
        origins: OriginWatch,
        scanner: TailScanner | None = None,
    ) -> None:
        self._settings, self._assignment, self._callbacks, self._positions = settings, assignment, callbacks, positions
        self._origins, self._scanner = origins, scanner
        keys = None if scanner is None else settings.early_release_keys
        terms = GateTerms(settings.ordered, settings.gate_keys, settings.hold_limit, keys)
        self._machine: GateMachine[PartitionState] = GateMachine(terms, assignment.owned)
        self._told: deque[str] = deque()
        # Asked for every record that is held: no Python frame.
        self.key_may_go = self._machine.key_may_go
        self.durations = Durations()

    # -- questions -------------------------------------------------------------------------------------------------

    @property
    def shut(self) -> dict[Place, float]:
        """The partitions behind a closed gate, each since when."""
        return self._machine.shut

    @property
    def busy(self) -> bool:
        """Whether a gate of ours is closed."""
        return bool(self._machine.shut)

    def wait_for(self, places: Iterable[Place]) -> bool:
        """Whether a closed gate of ours waits for what the application has yet to do with records of these partitions."""
        return self._machine.wait_for(places)

    def awaited(self) -> list[object]:
        """What tells its closed gates from others, without a look at each."""
        return self._machine.awaited()

    def current(self, topic: str) -> bool:
        """Whether the newest timeline of the topic has been judged."""
        return self._machine.judged(topic) is self._assignment.view(topic)

    def proven_epoch(self, owned: PartitionState, offset: int) -> int:
        """The newest epoch that a commit of `offset` may carry; -1 for none."""
        if (self._callbacks.listener is None) is self._machine.committed.listens:
            self._know()
        return self._machine.proven_epoch(owned, offset, self._assignment.view(owned.topic))

    def opened(self, topic: str, view: View) -> Opened:
        """Which gates are open at what the group has committed; with callbacks also by what is proven as flushed."""
        self._know()
        return self._machine.opened(topic, view)

    def commit(self, topic: str, q: int) -> Commit | None:
        """What counts as committed on `q`, by this member or another."""
        self._know()
        return self._machine.committed.commit(topic, q)

    def proven(self, topic: str, q: int) -> int:
        """What the group has committed on `q`, with callbacks only as far as the flush is proven; for people."""
        self._know()
        return self._machine.proven(self._assignment.view(topic).timeline, q)

    def early_note(self, topic: str, gate: Gate) -> str:
        """How far early release is with a closed gate, for people."""
        return self._machine.early_note(topic, gate, 0 if self._scanner is None else self._scanner.read(topic))

    # -- what is told ----------------------------------------------------------------------------------------------

    def changed(self, topic: str) -> None:
        """Partitions were started: judge the topic anew."""
        self._step(Started(topic))

    def moved(self, topic: str) -> None:
        """The group's coordinator has acknowledged a position of ours, or the application has flushed. From any thread."""
        self._told.append(topic)

    def begin_again(self) -> None:
        """What was fetched is fetched again: judge all topics anew."""
        self._step(FetchedAgain())

    def assigned(self, topic: str) -> None:
        """Partitions were assigned: what was heard of others counts no more."""
        self._step(Assigned(topic))

    def rearm(self, topic: str) -> None:
        """A position went back: gates behind it may have closed, and the application is told again when they open."""
        self._step(Rewound(topic))

    def open_what_may(self) -> None:
        """Look at the gates of every topic whose timeline or positions may have changed."""
        while self._told:
            self._step(Moved(self._told.popleft()))
        self._know()
        assignment, topics = self._assignment, self._assignment.topics()
        views = {topic: assignment.view(topic) for topic in topics}
        self._step(Turn(topics, views, {topic: assignment.views.waived(topic) for topic in topics}))
        if self._positions.failure is not None:
            raise self._positions.failure

    def _know(self) -> None:
        """Tell the machine what others have said, and whether somebody listens."""
        committed = self._machine.committed
        if self._positions.heard is not committed.heard:
            self._step(PositionsRead(self._positions.heard))
        if (self._callbacks.listener is not None) is not committed.listens:
            self._step(Listening(not committed.listens))

    # -- actions ---------------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        """Tell the machine, and do what it asks for; what follows from an action comes before the next one."""
        actions = deque(self._machine.step(event, clock.now()))
        while actions:
            actions.extendleft(reversed(self._perform(actions.popleft())))

    def _perform(self, action: Action[PartitionState]) -> _Actions:
        """Do it. Returns what the machine asks for next."""
        match action:
            case LookAt(topic):
                return self._look(topic)
            case Announce(owned, _):
                return self._machine.step(Announced(self._announce(owned)), clock.now())
            case LetGo(owned, below):
                self._let_go(owned, below)
                return self._machine.step(LetGone(), clock.now())
            case LetKeysGo(owned, sieve):
                self._let_keys_go(owned, sieve)
                return self._machine.step(LetGone(), clock.now())
            case TellEnd(owned):
                if owned.seen.untold is not None:
                    self._assignment.out.ready.append(owned.seen.untold)
                    owned.seen.untold = None
            case Unhold(owned):
                self._assignment.fetching.unhold(owned)
            case GateOpened(place, seconds):
                self.durations.add(seconds)
                self._origins.opened(place, seconds)
            case ReadTails(topic, scan):
                if self._scanner is not None:
                    self._scanner.want(topic, scan)
            case EndLook(topic):
                return self._machine.step(LookEnded(topic), clock.now())
            case EndTurn():
                return self._machine.step(TurnEnded(), clock.now())
            case Fetch(partitions):
                self._assignment.fetching.begin(partitions)
            case AskPositions(places):
                self._positions.watch(places)
                self._know()
            case ForgetPositions(topic):
                self._positions.forget(topic)
        return []

    def _look(self, topic: str) -> _Actions:
        scanned = None if self._scanner is None else self._scanner.outcome(topic)
        return self._machine.step(BeginLook(topic, scanned), clock.now())

    def _announce(self, owned: PartitionState) -> bool:
        """Whether the application has heard, or there is nobody any more who would."""
        listener = self._callbacks.listener
        place = TopicPartition(owned.topic, owned.partition)
        heard = listener is None or self._callbacks.guarded(lambda: listener.on_partition_key_assigned([place]))
        self._know()  # it may have changed what is known
        return heard

    def _let_go(self, owned: PartitionState, below: float) -> None:
        while (batch := owned.held.first_below(below)) is not None:
            owned.let_go(batch, late=self._settings.gate_keys)
            owned.held.drop(batch)
            self._assignment.out.ready.append(batch)

    def _let_keys_go(self, owned: PartitionState, sieve: KeySieve) -> None:
        still = Backlog()
        freed: list[Batch] = []
        for record in owned.held:
            message = record.message(0)
            if sieve.goes(key_of(message), offset_of(message)):
                owned.let_go(record, late=True)
                freed.append(record)
            else:
                still.append(record)
        # An exception at any line before this one leaves them all held.
        owned.held = still
        self._assignment.out.ready.extend(freed)
