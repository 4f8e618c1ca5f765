"""Behaviours of the KIPs in a reader, without a broker: when it looks again, holds, lets go, flushes, commits and asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from keyorder.connector import clock
from keyorder.connector.config import consumer_settings
from keyorder.connector.consuming import committing
from keyorder.connector.consuming.committing import Committer
from keyorder.connector.consuming.gates.gating import Gatekeeper
from keyorder.connector.consuming.gates.origins import OriginWatch
from keyorder.connector.consuming.gates.positions import GroupPositions
from keyorder.connector.consuming.partition_state import PartitionState
from keyorder.connector.consuming.progress import Progress
from keyorder.connector.consuming.records.batches import Item, MessageBatch, items_of
from keyorder.connector.consuming.records.delivery_buffer import DeliveryBuffer
from keyorder.connector.consuming.records.reading import Intake
from keyorder.connector.consuming.records.strays import StrayPolicy, Strays
from keyorder.connector.consuming.view import View
from keyorder.connector.group_commits import GroupCommits
from keyorder.partitioner.epochs import ChangePhase, Epoch
from keyorder.partitioner.errors import PeerError, StaleViewError, TimelineRegressionError
from keyorder.partitioner.gates import look_times
from keyorder.partitioner.gates.gate import Opened
from keyorder.partitioner.gates.gate_events import Heard
from keyorder.partitioner.gates.starts import Commit, flushed_epoch
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.routing import HINT_HEADER
from keyorder.partitioner.timeline import Timeline, crossings
from support.dumb import key_of_hash, timeline_of

TOPIC = "t"
BEFORE = timeline_of(1, [])
GROWN = timeline_of(1, [(2, {0: 5}, {1: 0})])
MOVED = key_of_hash(1, 2)  # 1 -> 2 moves the odd hashes from 0 to 1
SETTINGS, _ = consumer_settings({"bootstrap.servers": "localhost:1", "group.id": "g"})


@pytest.fixture(autouse=True)
def _looks_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: after a look that took long the next one would wait."""
    for module in (committing, look_times):
        monkeypatch.setattr(module, "_CHEAP", inf)


def _record(partition: int, offset: int, key: bytes | None = None, hint: bytes | None = None) -> Message:
    headers = [(HINT_HEADER, hint)] if hint is not None else None
    return Message(topic=TOPIC, partition=partition, offset=offset, key=key, value=b"v", headers=headers)


def _batches(*messages: Message) -> list[MessageBatch]:
    return [MessageBatch((TOPIC, messages[0].partition() or 0), list(messages))]


class _Views:
    """A view keeper whose next look, asked for or not, brings `newest`. arriving: comes without a look.

    end: of the logs, as the client library knows it.
    """

    arriving: Timeline | None = None
    end = -1

    def __init__(self, timeline: Timeline, as_of: float, newest: Timeline | None = None) -> None:
        self.view, self.newest, self.last, self.looks = View(timeline, managed=True), newest, as_of, 0

    def as_of(self, _: str) -> float:
        return self.last

    def view_age(self, _: str) -> float:
        return 2.0

    def await_epoch(self, topic: str, epoch: int, since: float, timeout: float) -> bool:
        if self.arriving is not None and self.arriving.newest.number >= epoch:
            self.view = View(self.arriving, managed=True)
            return True
        return self.await_look(topic, since, timeout)

    def await_look(self, _: str, since: float, __: float) -> bool:
        self.looks += 1
        if self.newest is not None:
            self.view, self.last = View(self.newest, managed=True), since
        return self.newest is not None


def _intake(views: _Views, *partitions: int) -> tuple[Intake, dict[tuple[str, int], PartitionState]]:
    """A reader's intake over owned partitions without a client library; gates are judged with nothing committed."""
    owned = {(TOPIC, p): PartitionState(TOPIC, p) for p in partitions}
    for each in owned.values():
        each.start_at(0)
        each.fetch.running = True
    judged: list[View] = []

    def judge() -> None:
        judged[:] = [views.view]
        look = views.view.gates.open_now(lambda _: 0)
        for each in owned.values():
            gate = look.first_closed(each.partition)
            each.gates.limit = inf if gate is None else gate.begins

    gates: Any = SimpleNamespace(current=lambda _: judged == [views.view], open_what_may=judge)
    fetching: Any = SimpleNamespace(handed_over=lambda items: None, known_end=lambda owned: views.end)
    assignment: Any = SimpleNamespace(
        owned=owned, view=lambda _: views.view, views=views, fetching=fetching, out=DeliveryBuffer(owned)
    )
    nobody: Any = None
    strays = Strays({}, SETTINGS.group, StrayPolicy.DELIVER, "")
    intake = Intake(SETTINGS, assignment, nobody, nobody, gates, strays, Progress())
    return intake, owned


def _take(intake: Intake, items: list[Item], fetched_at: float) -> None:
    intake.take(items, fetched_at)
    intake.sort()


@pytest.mark.kip("K253-18", "K253-23", "K253-28", "K253-60")
def test_a_hint_newer_than_the_view_makes_the_reader_look_and_judge_anew() -> None:
    """The record of a moved key says that the count has changed: the new gate holds it, and nobody rejoins anything."""
    views = _Views(BEFORE, as_of=clock.now(), newest=GROWN)
    intake, owned = _intake(views, 0, 1)

    _take(intake, items_of([_record(1, 0, MOVED, b"1")]), clock.now())

    assert views.looks == 1
    assert owned[TOPIC, 1].gates.limit == 0
    assert list(owned[TOPIC, 1].held.offsets()) == [0]
    assert (list(intake._out.ready), intake._strays.counts.total()) == ([], 0)


@pytest.mark.kip("K253-18", "K253-60")
def test_a_hint_waits_for_its_epoch_and_not_for_the_end_of_the_control_topic() -> None:
    """The epoch that a hint names has come: the view is new enough for these records, and no look is waited for."""
    views = _Views(BEFORE, as_of=clock.now())
    intake, owned = _intake(views, 0, 1)
    views.arriving = GROWN

    _take(intake, items_of([_record(1, 0, MOVED, b"1")]), clock.now())

    assert views.looks == 0
    assert list(owned[TOPIC, 1].held.offsets()) == [0]


def test_hints_are_looked_at_from_the_end_on_that_an_older_look_had_before_it() -> None:
    """What was in the log when a look began was written by no epoch that it did not show; what came later may be."""
    hinted = key_of_hash(0, 2)  # its home has not changed: the hint alone tells
    views = _Views(timeline_of(2, []), as_of=clock.now())
    views.end = 3
    intake, owned = _intake(views, 0)
    _take(intake, items_of([_record(0, 0)]), clock.now())
    _take(intake, items_of([_record(0, 1, hinted, b"1")]), clock.now())
    assert views.looks == 1, "no look has begun since the end was seen"

    views.last = clock.now()
    _take(intake, items_of([_record(0, 2, hinted, b"1")]), clock.now())
    assert views.looks == 1
    _take(intake, items_of([_record(0, 3, hinted, b"1")]), clock.now())
    assert views.looks == 2
    owned[TOPIC, 0].start_at(2)  # the log may be another one now
    _take(intake, items_of([_record(0, 2, hinted, b"1")]), clock.now())
    assert views.looks == 3


@pytest.mark.parametrize("settled", [False, True])
def test_a_hint_on_a_topic_without_timeline_stops_the_reader(settled: bool) -> None:
    """Its control topic was lost, or it is a copy. Nothing from the first hint on is given out, in a backlog neither."""
    views = _Views(timeline_of(2, []), as_of=clock.now())
    views.view = View(timeline_of(2, []), managed=False)
    views.newest = None
    intake, owned = _intake(views, 0)
    intake._views.await_epoch = lambda *_: True  # type: ignore[method-assign]
    intake._views.await_look = lambda *_: True  # type: ignore[method-assign]
    if settled:
        owned[TOPIC, 0].seen.end, owned[TOPIC, 0].seen.end_at = 10_000, -inf
    records = [_record(0, offset, b"k", b"1" if offset == 37 else None) for offset in range(40)]
    with pytest.raises(TimelineRegressionError):
        _take(intake, items_of(records), clock.now())
    assert sum(item.rows for item in intake._out.ready if not isinstance(item, Message)) == 37


@pytest.mark.kip("K253-18", "K253-59", "K253-30")
def test_a_batch_is_split_at_the_first_closed_gate() -> None:
    """Records below it are handed on, those at and behind it are held, in their order; other partitions do not wait."""
    shrunk = timeline_of(1, [(2, {0: 0}, {1: 0}), (1, {1: 4}, {0: 7})])
    views = _Views(shrunk, as_of=clock.now())
    intake, owned = _intake(views, 0, 1)

    _take(intake, items_of([_record(0, o, None) for o in (5, 6, 7, 8)] + [_record(1, 0, MOVED, b"1")]), clock.now())

    assert owned[TOPIC, 0].gates.limit == 7
    assert [(m.partition(), m.offset()) for item in intake._out.ready for m in item.messages()] == [
        (0, 5),
        (0, 6),
        (1, 0),
    ]
    assert list(owned[TOPIC, 0].held.offsets()) == [7, 8]


@pytest.mark.kip("K253-18")
def test_a_record_that_is_not_where_its_key_belongs_makes_the_reader_look() -> None:
    """Without any hint: the key's hash disagrees with the partition. It is a stray only if it still does after the look."""
    managed = timeline_of(2, [(3, {0: 9}, {2: 0})])
    late = key_of_hash(2, 4)
    views = _Views(managed, as_of=clock.now(), newest=managed)
    intake, _ = _intake(views, 0, 1, 2)

    _take(intake, items_of([_record(0, 20, late)]), clock.now() + 1)

    assert views.looks == 1
    assert intake._strays.counts == {(TOPIC, 0): 1}
    assert [m.offset() for item in intake._out.ready for m in item.messages()] == [20]


@pytest.mark.kip("K253-23")
def test_records_wait_for_a_fresh_view_and_the_error_may_be_retried() -> None:
    """While no look is newer than the record's fetch less the view's age, it waits; after a long silence poll() says so."""
    views = _Views(BEFORE, as_of=clock.now() - 3)
    intake, _ = _intake(views, 0)
    _take(intake, items_of([_record(0, 0, b"k")]), clock.now())
    assert (len(intake._out.waiting), list(intake._out.ready)) == (1, [])

    views.last = clock.now() - SETTINGS.control_timeout - 1
    with pytest.raises(StaleViewError) as raised:
        _take(intake, items_of([]), clock.now())

    assert isinstance(raised.value, PeerError)
    assert raised.value.retriable
    views.last = clock.now()
    _take(intake, items_of([]), clock.now())
    assert [m.offset() for item in intake._out.ready for m in item.messages()] == [0]


class _Raw:
    """A client library whose commits and questions are noted."""

    def __init__(self, events: list[Any], answers: Mapping[int, tuple[int, str | None]] | None = None) -> None:
        self.events, self.answers = events, answers or {}

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        self.events.append(("commit", sorted((p.partition, p.offset, p.metadata) for p in offsets)))
        return offsets

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.events.append(("ask", sorted(p.partition for p in places)))
        answers = {p.partition: self.answers.get(p.partition, (-1001, None)) for p in places}
        return [TopicPartition(TOPIC, q, offset, metadata or "") for q, (offset, metadata) in answers.items()]


class _Group(_Raw):
    """A group that takes every commit at once, and tells what is committed."""

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.answers = {**self.answers, **{p.partition: (p.offset, p.metadata) for p in offsets}}
        return super().commit(offsets, asynchronous=False)

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, p.partition, *self.answers[p.partition]) for p in places]


def _guarded(errors: list[Exception], call: Callable[[], object]) -> bool:
    """As Membership.guarded."""
    try:
        call()
    except Exception as error:
        errors.append(error)
        return False
    return True


def _committer(timeline: Timeline, *owned: PartitionState) -> tuple[Committer, list[Any], Any]:
    events: list[Any] = []
    listener = SimpleNamespace(
        on_partition_key_maybe_revoked=lambda places: events.append(("flush", [p.partition for p in places]))
    )
    members: Any = SimpleNamespace(
        owned={o.place: o for o in owned},
        view=lambda _: members.current,
        current=None,
        topics=lambda: {TOPIC},
    )
    members.current = SimpleNamespace(timeline=timeline)
    raw: Any = _Group(events)
    callbacks: Any = SimpleNamespace(listener=listener, guarded=partial(_guarded, []))
    all_open: Any = SimpleNamespace(
        proven_epoch=lambda o, at: flushed_epoch(members.current.timeline, o.partition, at),
        moved=lambda topic: None,
        current=lambda _: True,
    )
    nobody: Any = None
    strays = Strays({}, "g", StrayPolicy.DELIVER, "")
    committer = Committer(raw, SETTINGS, members, callbacks, all_open, strays=strays, link=nobody)
    return committer, events, members


@pytest.mark.kip("K253-20", "K253-48", "K253-49", "C-01")
def test_a_position_is_told_at_the_start_and_behind_a_cut_after_the_flush() -> None:
    """Not on the way; when the last record before the cut is processed: flush, then the commit with the epoch, once."""
    owned = PartitionState(TOPIC, 0)
    owned.start_at(3)
    committer, events, members = _committer(BEFORE, owned)
    committer.flush_and_prove()
    assert events == [("commit", [(0, 3, "ko1:0")])]
    events.clear()

    members.current = SimpleNamespace(timeline=GROWN)
    owned.processed = owned.returned = 4
    committer.flush_and_prove()
    assert events == []
    owned.processed = owned.returned = 5
    committer.flush_and_prove()
    committer.flush_and_prove()

    assert events == [("flush", [0]), ("commit", [(0, 5, "ko1:1")])]
    assert (owned.commits.offset, owned.commits.epoch) == (5, 1)


@pytest.mark.kip("K253-61")
def test_with_ordered_delivery_off_a_member_flushes_and_proves_all_the_same() -> None:
    """Members that do wait, of this group or a later one, need the proof."""
    owned = PartitionState(TOPIC, 0)
    owned.start_at(5)
    committer, events, members = _committer(replace(BEFORE, ordered=False), owned)
    committer.flush_and_prove()
    members.current = SimpleNamespace(timeline=replace(GROWN, ordered=False))
    committer._gates, _, _ = _gatekeeper(replace(GROWN, ordered=False), owned, ordered=False)
    owned.start_at(5)

    committer.flush_and_prove()

    assert events[1:] == [("flush", [0]), ("commit", [(0, 5, "ko1:1")])]


@pytest.mark.kip("K253-48", "T-9")
def test_a_position_is_told_at_the_start_at_the_end_and_past_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10, at the end of the log at 30, past a cut at 35; not on the way at 20, and not when nothing has changed."""
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    owned = PartitionState(TOPIC, 0)
    owned.start_at(10)
    committer, events, members = _committer(BEFORE, owned)

    def told(position: int, timeline: Timeline = BEFORE) -> list[Any]:
        """What one turn at this position commits."""
        events.clear()
        owned.processed = owned.returned = position
        members.current = SimpleNamespace(timeline=timeline)
        committer.flush_and_prove()
        committer.periodic()
        return [places for what, places in events if what == "commit"]

    assert told(10) == [[(0, 10, "ko1:0")]]
    assert told(20) == []
    now += SETTINGS.auto_commit_interval  # at the end of the log nothing follows, so the interval passes there
    assert told(30) == [[(0, 30, "ko1:0")]]
    assert told(35, timeline_of(1, [(2, {0: 33}, {1: 0})])) == [[(0, 35, "ko1:1")]]
    now += SETTINGS.auto_commit_interval
    assert told(35, timeline_of(1, [(2, {0: 33}, {1: 0})])) == []


@pytest.mark.kip("K253-20")
def test_the_flush_is_asked_for_also_where_nothing_may_have_moved() -> None:
    """The group had read all before the change came: its offset stays, and the flush is asked for and proven all the same."""
    owned = PartitionState(TOPIC, 0)
    owned.start_at(5)
    committer, events, members = _committer(BEFORE, owned)
    committer.flush_and_prove()
    members.current = SimpleNamespace(timeline=GROWN)

    committer.flush_and_prove()

    assert events[1:] == [("flush", [0]), ("commit", [(0, 5, "ko1:1")])]


@pytest.mark.kip("K253-13", "K253-14", "K253-46", "K253-47")
def test_positions_are_asked_for_while_somebody_waits_and_only_those() -> None:
    """Each answer has the offset and the flushed epoch; only news count as progress, after which questions come sooner."""
    events: list[Any] = []
    raw: Any = _Raw(events, {0: (7, "ko1:1"), 1: (9, None)})
    commits = GroupCommits({"bootstrap.servers": "localhost:1"}, keep=1)
    commits._put_back("g", raw)
    link: Any = SimpleNamespace(commits=commits)
    positions = GroupPositions(link, "g")
    positions.begin = lambda: None  # type: ignore[method-assign]
    positions.watch([(TOPIC, 0), (TOPIC, 2)])

    positions._ask(positions._watched)
    moved = positions._moved_at
    for _ in range(3):
        positions._ask(positions._watched)

    assert set(map(str, events)) == {str(("ask", [0, 2]))}
    assert positions.get(TOPIC, 0) == Commit(7, 1)
    assert positions.get(TOPIC, 1) is None
    assert positions.get(TOPIC, 2) is None
    assert positions._moved_at == moved
    raw.answers[0] = (8, "ko1:1")
    positions._ask(positions._watched)
    assert positions._moved_at > moved


class _Others:
    """Positions that other members have committed; notes which are watched."""

    failure = None

    def __init__(self) -> None:
        self.watched: set[tuple[str, int]] = set()
        self.heard = Heard()

    def answer(self, partition: int, commit: Commit) -> None:
        """The group's coordinator has told this."""
        known = {**self.heard.commits, (TOPIC, partition): commit}
        self.heard = Heard(known, frozenset(known), self.heard.changes + 1)

    def watch(self, places: set[tuple[str, int]]) -> None:
        self.watched = places

    def forget(self, _: str) -> None:
        self.heard = Heard(changes=self.heard.changes + 1)


def _gatekeeper(
    timeline: Timeline, owned: PartitionState, ordered: bool = True
) -> tuple[Gatekeeper, _Others, list[Any]]:
    """The gates of a member that owns one partition, with a listener whose calls are noted."""
    loads: list[Any] = []
    others: Any = _Others()
    view = View(timeline, managed=True)
    listener = SimpleNamespace(on_partition_key_assigned=lambda places: loads.append([p.partition for p in places]))
    states = {owned.place: owned}
    callbacks: Any = SimpleNamespace(listener=listener, guarded=partial(_guarded, []))
    assignment: Any = SimpleNamespace(
        owned=states,
        out=DeliveryBuffer(states),
        topics=lambda: {TOPIC},
        view=lambda _: view,
        views=SimpleNamespace(waived=lambda _: set()),
        fetching=SimpleNamespace(begin=lambda more: [setattr(o.fetch, "running", True) for o in more]),
    )
    keeper = Gatekeeper(
        replace(SETTINGS, ordered=ordered), assignment, callbacks, others, OriginWatch({}, SETTINGS.group)
    )
    owned.start_at(0)
    return keeper, others, loads


@pytest.mark.kip("K253-21", "K253-46", "K253-49", "K253-54", "K253-59")
def test_an_open_gate_loads_once_and_lets_its_records_go() -> None:
    """Closed: held, and the origin's owner is asked. A commit without the flushed epoch opens nothing; with it, load first."""
    owned = PartitionState(TOPIC, 1)
    keeper, others, loads = _gatekeeper(GROWN, owned)
    owned.held.append(*_batches(_record(1, 0, MOVED, b"1")))
    keeper.open_what_may()
    assert (owned.gates.limit, owned.fetch.running, loads, others.watched) == (0, False, [], {(TOPIC, 0)})

    others.answer(0, Commit(5, 0))
    keeper.open_what_may()
    assert (owned.gates.limit, loads, list(keeper._assignment.out.ready)) == (0, [], [])

    others.answer(0, Commit(5, 1))
    keeper.open_what_may()
    keeper.changed(TOPIC)
    keeper.open_what_may()
    assert (owned.gates.limit, owned.fetch.running, loads, others.watched) == (inf, True, [[1]], set())
    assert [m.offset() for item in keeper._assignment.out.ready for m in item.messages()] == [0]


@pytest.mark.kip("K253-51", "C-09")
def test_a_seek_back_inside_the_callback_closes_the_gate_again() -> None:
    """It was called for a gate that is open; by its own seek the origin is read again, and the gate waits for that."""
    origin, owned = PartitionState(TOPIC, 0), PartitionState(TOPIC, 1)
    keeper, _, loads = _gatekeeper(GROWN, owned)
    keeper._assignment.owned[origin.place] = origin
    origin.start_at(5)
    origin.commits.learned(5, 1, "")
    origin.gates.flushed = 1

    def seeks(places: list[TopicPartition]) -> None:
        loads.append([place.partition for place in places])
        origin.start_at(0)
        keeper.rearm(TOPIC)

    keeper._callbacks.listener = SimpleNamespace(on_partition_key_assigned=seeks)  # type: ignore[assignment]
    keeper.open_what_may()
    keeper.open_what_may()
    assert (loads, owned.gates.limit, keeper.busy) == ([[1]], 0, True)


def test_a_thousand_gates_that_open_at_once_are_told_of_one_after_the_other() -> None:
    """However many callbacks one look calls."""
    count = 1_500
    epochs = (
        Epoch(0, count),
        Epoch(1, 2 * count, dict.fromkeys(range(count), 0), dict.fromkeys(range(count, 2 * count), 0)),
    )
    keeper, _, loads = _gatekeeper(Timeline(TOPIC, "id", "cluster", count, epochs), PartitionState(TOPIC, count))
    for p in range(count + 1, 2 * count):
        keeper._assignment.owned[TOPIC, p] = PartitionState(TOPIC, p)
        keeper._assignment.owned[TOPIC, p].start_at(0)
    keeper.open_what_may()
    assert loads == [[p] for p in range(count, 2 * count)]


@pytest.mark.parametrize(
    ("position", "end", "here"),
    [(None, 5, False), (39_999, 5, False), (40_000, 5, True), (50_000, 10_000, True), (50_000, 10_001, False)],
)
def test_records_behind_a_gate_that_is_near_are_fetched_before_it_opens(
    position: int | None, end: int, here: bool
) -> None:
    """Else the first of them would wait until the broker answers the fetch that it has. Never more than may be held."""
    owned = PartitionState(TOPIC, 1)
    keeper, others, _ = _gatekeeper(timeline_of(1, [(2, {0: 50_000}, {1: 0})]), owned)
    owned.seen.end = end
    if position is not None:
        others.answer(0, Commit(position, 0))
    keeper.open_what_may()
    assert (owned.gates.limit, owned.fetch.running) == (0, here)


def test_a_closed_gate_is_looked_at_when_something_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position of ours or of others, a waiver; once a second in any case; less often where a look takes long."""
    now = [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    owned = PartitionState(TOPIC, 1)
    keeper, others, _ = _gatekeeper(GROWN, owned)
    waived: set[tuple[int, int]] = set()
    keeper._assignment.views.waived = lambda _: set(waived)  # type: ignore[method-assign]
    looks: list[float] = []
    took = 0.0
    look = keeper._machine.opened

    def counted(topic: str, view: View) -> Opened:
        looks.append(now[0])
        now[0] += took
        return look(topic, view)

    monkeypatch.setattr(keeper._machine, "opened", counted)

    def looked() -> bool:
        before = len(looks)
        for _ in range(3):
            keeper.open_what_may()
        assert len(looks) - before <= 1
        return len(looks) > before

    assert looked()
    assert keeper.busy
    assert not looked()
    keeper.moved(TOPIC)
    assert looked()
    others.answer(0, Commit(3, 0))
    assert looked()
    waived.add((9, 9))
    assert looked()
    now[0] += 0.9
    assert not looked()
    now[0] += 0.1
    assert looked()

    monkeypatch.setattr(look_times, "_CHEAP", 0.0)
    took = 0.1
    keeper.moved(TOPIC)
    assert looked()
    keeper.moved(TOPIC)
    assert not looked(), "it has just taken a tenth of a second"
    now[0] += 0.5
    assert looked()
    others.answer(0, Commit(5, 1))
    now[0] += 0.5
    assert looked()
    assert not keeper.busy
    assert owned.gates.limit == inf


@pytest.mark.kip("K253-22", "K253-61", "C-16")
def test_without_ordered_delivery_nothing_is_held_or_asked() -> None:
    """Switched off for the consumer or for the topic: no limit, no question, no closed gate."""
    for timeline, ordered in ((GROWN, False), (replace(GROWN, ordered=False), True)):
        owned = PartitionState(TOPIC, 1)
        keeper, others, _ = _gatekeeper(timeline, owned, ordered)
        keeper.open_what_may()
        assert (owned.gates.limit, owned.fetch.running, others.watched, keeper.busy) == (inf, True, set(), False)


@pytest.mark.kip("K694-14", "C-12")
def test_a_partition_with_none_is_read_no_further_than_its_cut() -> None:
    """ReadOnly: nothing ends it. None: what lies above its cut is held back, with a key or without, whatever the gates say."""
    moves = crossings(1, 2, 1)
    prepared = timeline_of(1, [], start=2).opened(1, ChangePhase.PLAN).prepared()
    retired = prepared.committed({q: 4 for q, _ in moves}, {p: 9 for _, p in moves})
    for mode, limit in ((Mode.READ_ONLY, inf), (Mode.NONE, 4)):
        owned = PartitionState(TOPIC, 1)
        keeper, _, _ = _gatekeeper(retired.drained(1, mode), owned)
        keeper.open_what_may()
        assert (owned.gates.limit, owned.fetch.running) == (limit, True)


def test_a_position_passes_what_is_gone_before_a_closed_gate() -> None:
    """Compacted or aborted up to the gate, with records behind it: no end of partition shows there, yet all is processed."""
    owned = PartitionState(TOPIC, 0)
    owned.start_at(0)
    owned.gates.limit = 12
    owned.held.append(*_batches(_record(0, 15)))
    owned.released = 5
    owned.skip_tail()
    assert (owned.returned, owned.processed_up_to(0)) == (0, 0), "a record before the gate is still to be returned"
    owned.gave(4)
    assert owned.processed_up_to(3) == 3, "the application has not processed all that it was given"
    assert owned.processed_up_to(5) == 12
    owned.skip_tail()
    assert owned.returned == 12
