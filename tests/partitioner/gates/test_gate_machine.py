"""The gates of a reader as a machine: what it announces, lets go, fetches and asks, without a broker, a clock or a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.gates import look_times
from keyorder.partitioner.gates.gate import Gates
from keyorder.partitioner.gates.gate_events import (
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
    Heard,
    LetGo,
    LetGone,
    LetKeysGo,
    Listening,
    LookAt,
    LookEnded,
    Moved,
    PositionsRead,
    Rewound,
    Turn,
    TurnEnded,
    Unhold,
)
from keyorder.partitioner.gates.gate_machine import GateMachine, GateTerms
from keyorder.partitioner.gates.gate_state import GateState, Place, Standing
from keyorder.partitioner.gates.key_sieve import KeySieve
from keyorder.partitioner.gates.starts import Commit
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline
from support.dumb import DumbGates, dumb_home, key_of_hash, murmur2, timeline_of

TOPIC = "t"
GROWN = timeline_of(1, [(2, {0: 5}, {1: 0})])
TWICE = timeline_of(1, [(2, {0: 5}, {1: 0}), (3, {0: 9}, {2: 0})])
MOVED = key_of_hash(1, 2)


class Records(list[tuple[int, bytes]]):
    """Held records: (offset, key)."""

    @property
    def first(self) -> int:
        return self[0][0]


@dataclass(eq=False)
class Partition:
    """A partition of a reader, in the place of the connector's."""

    partition: int
    started: bool = True
    fetched: int = 0
    returned: int = 0
    backlog: int = 0
    owes_end: bool = False
    counted: Commit | None = None
    topic: str = TOPIC
    held: Records = field(default_factory=Records)
    gates: GateState = field(default_factory=GateState)
    fetch: Any = field(default_factory=lambda: SimpleNamespace(running=False, paused_for_hold=False))

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    def hold(self, *offsets: int, key: bytes = MOVED) -> None:
        self.held += [(offset, key) for offset in offsets]
        self.fetched = max([self.fetched, *(offset + 1 for offset in offsets)])
        for _ in offsets:
            self.gates.hold_key(key)


class Reader:
    """Carries the machine's actions out at once, and notes them. answer: whether the application's callback returns."""

    def __init__(
        self, timeline: Timeline, *owned: int, listens: bool = False, gate_keys: bool = False, hold_limit: int = 100
    ) -> None:
        self.owned = {(TOPIC, p): Partition(p) for p in owned}
        self.machine: GateMachine[Partition] = GateMachine(GateTerms(True, gate_keys, hold_limit), self.owned)
        self.now = 100.0
        self.waived: set[tuple[int, int]] = set()
        self.heard = Heard()
        self.done: list[Any] = []
        self.went: list[tuple[int, int]] = []
        self.answer: Callable[[Partition, int], bool] = lambda partition, epoch: True
        self.tell(Listening(listens))
        self.view: Any = None
        self.topics = frozenset([TOPIC])
        self.sees(timeline)

    def sees(self, timeline: Timeline) -> None:
        self.view = SimpleNamespace(timeline=timeline, gates=Gates(timeline), routing=Routing(timeline))

    def __getitem__(self, p: int) -> Partition:
        return self.owned[TOPIC, p]

    def others(self, commits: Mapping[int, Commit]) -> None:
        known = {(TOPIC, q): commit for q, commit in commits.items()}
        self.heard = Heard(known, frozenset(known), self.heard.changes + 1)
        self.tell(PositionsRead(self.heard))

    def tell(self, event: Event) -> list[Any]:
        return self.machine.step(event, self.now)

    def turn(self) -> list[Any]:
        """One turn. Returns what was done in it, without what only asks for an event."""
        self.done = []
        self.run(self.tell(Turn(self.topics, dict.fromkeys(self.topics, self.view), {TOPIC: frozenset(self.waived)})))
        return [action for action in self.done if not isinstance(action, LookAt | EndLook | EndTurn)]

    def run(self, actions: list[Any]) -> None:
        for action in actions:
            self.done.append(action)
            self.run(self.perform(action))

    def perform(self, action: Any) -> list[Any]:
        match action:
            case LookAt(topic):
                return self.tell(BeginLook(topic))
            case EndLook(topic):
                return self.tell(LookEnded(topic))
            case EndTurn():
                return self.tell(TurnEnded())
            case Announce(partition, gate):
                return self.tell(Announced(self.answer(partition, gate.epoch)))
            case LetGo(partition, below):
                self._release(partition, [record for record in partition.held if record[0] < below])
                return self.tell(LetGone())
            case LetKeysGo(partition, sieve):
                self._release(partition, [(o, key) for o, key in partition.held if sieve.goes(key, o)])
                return self.tell(LetGone())
            case Fetch(partitions):
                for partition in partitions:
                    partition.fetch.running = True
            case Unhold(partition):
                partition.fetch.paused_for_hold = False
        return []

    def _release(self, partition: Partition, records: list[tuple[int, bytes]]) -> None:
        for record in records:
            partition.held.remove(record)
            partition.gates.free_key(record[1])
            self.went.append((partition.partition, record[0]))


@pytest.fixture(autouse=True)
def _looks_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_times, "_CHEAP", inf)


def gate(reader: Reader, p: int, at: int = 0) -> Any:
    return reader.view.gates.of(p)[at]


def test_a_closed_gate_holds_asks_and_opens_with_what_the_others_have_committed() -> None:
    reader = Reader(GROWN, 1)
    reader[1].hold(0, 1)
    assert reader.turn() == [AskPositions(frozenset({(TOPIC, 0)}))]
    assert (reader[1].gates.standing, reader[1].gates.limit) == (Standing.GATED, 0)
    assert (reader.machine.awaited(), reader.machine.shut) == ([1, (TOPIC, 1)], {(TOPIC, 1): 100.0})
    reader.now += 0.25
    reader.others({0: Commit(5, 0)})
    assert reader.turn() == [
        GateOpened((TOPIC, 1), 0.25),
        LetGo(reader[1], inf),
        Fetch([reader[1]]),
        AskPositions(frozenset()),
    ]
    assert (reader[1].gates.standing, reader.went) == (Standing.READING, [(1, 0), (1, 1)])
    assert reader.turn() == []


def test_where_the_application_listens_it_hears_before_anything_goes() -> None:
    """And the gate opens by a flush that is proven, not by the offset alone."""
    reader = Reader(GROWN, 1, listens=True)
    reader[1].hold(0)
    reader.others({0: Commit(5, 0)})
    near = Fetch([reader[1]])
    assert reader.turn() == [near, AskPositions(frozenset({(TOPIC, 0)}))]
    reader.others({0: Commit(5, 1)})
    assert [type(action) for action in reader.turn()] == [GateOpened, Announce, LetGo, AskPositions]
    reader.tell(FetchedAgain())
    assert reader.turn() == [AskPositions(frozenset())], "once for each gate"


def test_a_callback_that_raises_changes_no_state_and_is_called_again_in_the_next_turn() -> None:
    """What it was to confirm stays unconfirmed: nothing goes, the gate is as if closed. Then all goes on."""
    reader = Reader(GROWN, 1, listens=True)
    reader[1].hold(0)
    reader.others({0: Commit(5, 1)})
    reader.answer = lambda partition, epoch: False
    told = Announce(reader[1], gate(reader, 1))
    for _ in range(3):
        assert told in reader.turn()
        assert (reader[1].gates.standing, reader[1].gates.limit, reader[1].gates.announced) == (Standing.UNTOLD, 0, -1)
        assert reader.went == []
    reader.answer = lambda partition, epoch: True
    assert told in reader.turn()
    assert (reader[1].gates.standing, reader[1].gates.limit, reader.went) == (Standing.READING, inf, [(1, 0)])


@pytest.mark.parametrize("stop", [Announce, LetGo])
def test_a_look_that_is_cut_short_anywhere_is_begun_again(stop: type) -> None:
    """An exception came before the machine heard of the outcome: nothing has gone that was not told of before."""
    reader = Reader(GROWN, 1, listens=True)
    reader[1].hold(0)
    reader.others({0: Commit(5, 1)})
    perform = reader.perform

    def cut(action: Any) -> list[Any]:
        if isinstance(action, stop):
            raise KeyboardInterrupt
        return perform(action)

    reader.perform = cut  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        reader.turn()
    assert (reader[1].gates.announced, reader.went) == (-1 if stop is Announce else 1, [])
    reader.perform = perform  # type: ignore[method-assign]
    reader.tell(FetchedAgain())
    done = [type(action) for action in reader.turn()]
    assert (done.count(Announce), reader.went) == (stop is Announce, [(1, 0)])


def test_a_seek_inside_the_callback_is_looked_at_before_anything_else_goes() -> None:
    """It has rewound the origin: the gate that was just told of is closed again, with all others that wait for it."""
    reader = Reader(TWICE, 0, 1, 2, listens=True)
    for p in (1, 2):
        reader[p].hold(0)
    reader[0].counted = Commit(9, 2)

    def seeks(partition: Partition, epoch: int) -> bool:
        reader[0].counted = Commit(0, 0)
        reader.run(reader.tell(Rewound(TOPIC)))
        return True

    reader.answer = seeks
    done = reader.turn()
    assert [type(action) for action in done if isinstance(action, Announce | LetGo)] == [Announce]
    reader.turn()
    assert [reader[p].gates.standing for p in (0, 1, 2)] == [Standing.READING, Standing.GATED, Standing.GATED]
    assert reader.went == []
    reader.answer = lambda partition, epoch: True
    reader[0].counted = Commit(9, 2)
    reader.tell(Moved(TOPIC))
    reader.turn()
    assert sorted(reader.went) == [(1, 0), (2, 0)]


def test_what_a_callback_gave_up_is_neither_announced_nor_fetched() -> None:
    reader = Reader(TWICE, 1, 2, listens=True)
    lost = reader[2]
    reader.others({0: Commit(9, 2)})

    def gives_up(partition: Partition, epoch: int) -> bool:
        del reader.owned[lost.place]
        return True

    reader.answer = gives_up
    done = reader.turn()
    assert [action.partition for action in done if isinstance(action, Announce)] == [reader[1]]
    assert [action.partitions for action in done if isinstance(action, Fetch)] == [[reader[1]]]


def test_what_others_have_said_counts_no_more_after_an_assignment() -> None:
    """It may be from before a reset of the group."""
    reader = Reader(GROWN, 1)
    reader.others({0: Commit(5, 1)})
    reader.turn()
    assert reader[1].gates.standing is Standing.READING
    assert reader.tell(Assigned(TOPIC)) == [ForgetPositions(TOPIC)]
    assert reader.turn() == [AskPositions(frozenset({(TOPIC, 0)}))]
    assert reader[1].gates.standing is Standing.GATED


def test_after_a_rewind_the_application_is_told_again_when_the_gate_opens() -> None:
    reader = Reader(GROWN, 0, 1, listens=True)
    told = Announce(reader[1], gate(reader, 1))
    for _ in range(2):
        reader[0].counted = Commit(5, 1)
        reader.tell(Moved(TOPIC))
        assert told in reader.turn()
        reader[0].counted = Commit(0, 0)
        reader.tell(Rewound(TOPIC))
        assert told not in reader.turn()
        assert reader[1].gates.standing is Standing.GATED


def test_what_waits_keeps_the_later_records_of_its_key() -> None:
    """Also where these could go by themselves, and no other key."""
    sieve = KeySieve(lambda key, offset: offset != 3)
    records: list[tuple[bytes | None, int]] = [(b"a", 2), (b"a", 3), (b"b", 4), (b"a", 5), (None, 6)]
    assert [sieve.goes(*record) for record in records] == [True, False, True, False, True]


def test_only_what_comes_first_of_its_key_goes_past_a_closed_gate() -> None:
    """A waiver may open a newer gate while records wait for an older one."""
    reader = Reader(timeline_of(1, [(1, {1: 5}, {0: 10})], start=2), 0, gate_keys=True)
    stays = key_of_hash(0, 2)
    reader.turn()
    assert reader.machine.key_may_go(reader[0], stays, 12)
    reader[0].hold(11, key=stays)
    assert not reader.machine.key_may_go(reader[0], stays, 12)


def test_single_keys_go_where_their_own_gate_is_open() -> None:
    """A key that has always lived in the partition goes; one that came waits, and so do its later records."""
    shrunk = timeline_of(1, [(1, {1: 5}, {0: 10})], start=2)
    reader = Reader(shrunk, 0, gate_keys=True)
    stays, comes = key_of_hash(0, 2), key_of_hash(1, 2)
    reader.turn()
    assert (reader[0].gates.limit, reader[0].fetch.running) == (10, True)
    may_go = reader.machine.key_may_go
    assert [may_go(reader[0], key, 10) for key in (stays, comes, None)] == [True, False, True]
    reader[0].hold(10, 11, key=comes)
    assert not may_go(reader[0], comes, 12)
    reader[0].fetch.paused_for_hold = True
    assert not may_go(reader[0], stays, 12), "it holds as much as it may, and is read no further"
    reader.others({1: Commit(5, 1)})
    done = reader.turn()
    assert [type(action) for action in done] == [GateOpened, LetGo, Unhold, AskPositions]
    assert (reader.went, reader[0].fetch.paused_for_hold) == ([(0, 10), (0, 11)], False)


def test_a_retired_partition_is_read_up_to_its_cut() -> None:
    prepared = timeline_of(1, [], start=2).opened(1, ChangePhase.PLAN).prepared()
    retired = prepared.committed({1: 4}, {0: 9}).drained(1, Mode.NONE)
    reader = Reader(retired, 1)
    reader[1].hold(3, 4)
    reader.turn()
    assert (reader[1].gates.standing, reader[1].gates.limit, reader.went) == (Standing.SEALED, 4, [(1, 3)])


# --- against the rule of the gate, word by word ---------------------------------------------------------------


@dataclass
class Said:
    """One step of a random history: what it does, of which partition, by how much, and what callbacks answer then."""

    what: str
    p: int
    more: int
    answers: bool


SAID = st.builds(
    Said,
    st.sampled_from(["commit", "fetch", "fetch", "seek", "cut short", "waive", "turn"]),
    st.integers(0, 3),
    st.integers(1, 6),
    st.booleans(),
)


class History:
    """A member that owns some partitions of a topic that has changed, and hears of commits on the others."""

    def __init__(self, counts: list[int], sizes: list[int], owned: set[int], listens: bool, gate_keys: bool) -> None:
        self.counts, self.gate_keys = counts, gate_keys
        steps, sizes = [], list(sizes)
        at: dict[int, int] = dict.fromkeys(range(max(counts)), 0)
        for count in counts[1:]:
            at = {p: end + sizes.pop() for p, end in at.items()}
            steps.append((count, at, at))
        self.timeline = timeline_of(1, steps, start=counts[0])
        self.newest = self.timeline.newest.number
        self.reader = Reader(self.timeline, *sorted(owned & at.keys()), listens=listens, gate_keys=gate_keys)
        self.committed = dict.fromkeys(at, 0)
        self.told: dict[int, list[int]] = {}
        self.reader.answer = self.hears
        self.answers = True
        self.reader.turn()  # nothing is fetched before the first

    def dumb(self) -> DumbGates:
        return DumbGates(self.timeline, self.committed, self.reader.waived)

    def hears(self, partition: Partition, epoch: int) -> bool:
        assert self.dumb().is_open((partition.partition, epoch))
        if self.answers:
            self.told.setdefault(partition.partition, []).append(epoch)
        return self.answers

    def play(self, said: Said) -> None:
        reader = self.reader
        p = said.p % len(self.committed)
        own = reader.owned.get((TOPIC, p))
        self.answers = said.answers
        if said.what == "commit":
            self.moves(p, self.committed[p] + said.more)
            reader.tell(Moved(TOPIC))
        elif said.what == "seek" and own is not None:
            self.moves(p, max(0, self.committed[p] - said.more))
            reader.run(reader.tell(Rewound(TOPIC)))
            self.told.clear()
            reader.others({q: Commit(at, self.newest) for q, at in self.committed.items()})
        elif said.what == "fetch" and own is not None:
            self.fetches(own, said.more)
        elif said.what == "cut short":
            reader.tell(FetchedAgain())
            for partition in reader.owned.values():
                partition.held.clear()
                partition.gates.begin_again()
        elif said.what == "waive":
            reader.waived |= {(g.partition, g.epoch) for g in reader.view.gates.of(p)[: said.more % 2]}
        reader.now += 2.0
        before = len(reader.went)
        reader.turn()
        self.check(reader.went[before:])

    def moves(self, p: int, offset: int) -> None:
        self.committed[p] = offset
        own = self.reader.owned.get((TOPIC, p))
        if own is not None:
            own.counted = Commit(offset, self.newest)
        self.reader.others({q: Commit(at, self.newest) for q, at in self.committed.items()})

    def fetches(self, own: Partition, many: int) -> None:
        """As records are taken in: what lies below the limit goes, and what may go by its key; the rest is held."""
        for offset in range(own.fetched, own.fetched + many):
            key = key_of_hash(offset % 4, 4)
            own.fetched = offset + 1
            if not own.held and offset < own.gates.limit:
                self.check([(own.partition, offset)])
            elif self.gate_keys and self.reader.machine.key_may_go(own, key, offset):
                self.check_key(own, key, offset)
            else:
                own.hold(offset, key=key)

    def check_key(self, own: Partition, key: bytes, offset: int) -> None:
        assert key not in [held for _, held in own.held]
        assert self.passes(own.partition, offset, key)

    def passes(self, p: int, offset: int, key: bytes | None) -> bool:
        """Whether all gates are open behind which the record lies; of a key alone, the one by which it came."""
        gates = [g for g in self.reader.view.gates.of(p) if g.begins <= offset]
        if key is not None:
            gates = [g for g in gates if self.came_by(key, p, g.epoch)][-1:]
        dumb = self.dumb()
        return all(dumb.is_open((p, g.epoch)) for g in gates)

    def came_by(self, key: bytes, p: int, epoch: int) -> bool:
        before, after = self.counts[epoch - 1], self.counts[epoch]
        slot = murmur2(key) & 0x7FFFFFFF
        homes = [dumb_home(1, count, slot) for count in (before, after)]
        return homes[1] == p != homes[0]

    def check(self, went: list[tuple[int, int]]) -> None:
        dumb, reader = self.dumb(), self.reader
        for p, offset in went:
            assert all(held > offset or held % 4 != offset % 4 for held, _ in reader[p].held)
            assert self.passes(p, offset, key_of_hash(offset % 4, 4) if self.gate_keys else None)
        blockers: set[Place] = set()
        for (_, p), partition in reader.owned.items():
            gates = reader.view.gates.of(p)
            closed = [g for g in gates if not dumb.is_open((p, g.epoch))]
            untold = partition.gates.unannounced
            limits = [g.begins for g in closed] + ([] if untold is None else [untold.begins])
            assert partition.gates.limit == min(limits, default=inf)
            assert partition.gates.closed == (closed[0] if closed else None)
            assert not partition.held or partition.held.first >= partition.gates.limit
            for g in closed if self.gate_keys else closed[:1]:
                blockers |= {(TOPIC, q) for q, _ in dumb.blockers((p, g.epoch))}
        asked = [action.places for action in reader.done if isinstance(action, AskPositions)]
        assert not asked or asked == [blockers - reader.owned.keys()]
        assert {place for place, _ in reader.machine.shut.items()} == {
            place for place, partition in reader.owned.items() if partition.gates.closed is not None
        }
        for epochs in self.told.values():
            assert epochs == sorted(set(epochs)), "told once of each, oldest first"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.lists(st.integers(0, 6), min_size=12, max_size=12),
    st.sets(st.integers(0, 3), min_size=1),
    st.booleans(),
    st.booleans(),
    st.lists(SAID, max_size=25),
)
def test_limits_questions_and_what_goes_follow_the_rule_of_the_gate(
    counts: list[int], sizes: list[int], owned: set[int], listens: bool, gate_keys: bool, history: list[Said]
) -> None:
    """Whatever is committed, sought, waived, and however often a callback raises or a call is cut short."""
    counts = [count for at, count in enumerate(counts) if at == 0 or count != counts[at - 1]]
    if len(counts) < 2:
        counts = [1, 2]
    played = History(counts, sizes, owned, listens, gate_keys)
    for said in history:
        played.play(said)
