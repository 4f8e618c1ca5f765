"""Behaviours of the KIPs that no test of a single module shows: readers, committers and producers without a broker."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition, murmur2
from keyorder import OrderedProducer
from keyorder.connector import clock
from keyorder.connector.admin import split_topic_config
from keyorder.connector.committing import Committer
from keyorder.connector.config import consumer_settings
from keyorder.connector.owned import Owned
from keyorder.connector.positions import GroupPositions
from keyorder.connector.reading import Intake
from keyorder.connector.view import View, unmanaged
from keyorder.partitioner.errors import ConfigError, PeerError, StaleViewError
from keyorder.partitioner.gate import Gates
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.routing import HINT_HEADER, Routing
from keyorder.partitioner.starts import Commit
from keyorder.partitioner.timeline import ChangePhase, Drain, Epoch, Retirement, Timeline, crossings
from support.dumb import key_of_hash, timeline_of

TOPIC = "t"
BEFORE = timeline_of(1, [])
GROWN = timeline_of(1, [(2, {0: 5}, {1: 0})])
MOVED = key_of_hash(1, 2)  # 1 -> 2 moves the odd hashes from 0 to 1
SETTINGS, _ = consumer_settings({"bootstrap.servers": "localhost:1", "group.id": "g"})


def _record(partition: int, offset: int, key: bytes | None = None, hint: bytes | None = None) -> Message:
    headers = [(HINT_HEADER, hint)] if hint is not None else None
    return Message(topic=TOPIC, partition=partition, offset=offset, key=key, value=b"v", headers=headers)


class _Views:
    """A view keeper whose next look, asked for or not, brings `newest`."""

    def __init__(self, timeline: Timeline, as_of: float, newest: Timeline | None = None) -> None:
        self.view, self.newest, self.last, self.looks = View(timeline, managed=True), newest, as_of, 0

    def as_of(self, _: str) -> float:
        return self.last

    def view_age(self, _: str) -> float:
        return 2.0

    def await_look(self, _: str, since: float, __: float) -> bool:
        self.looks += 1
        if self.newest is not None:
            self.view, self.last = View(self.newest, managed=True), since
        return self.newest is not None


def _intake(views: _Views, *partitions: int) -> tuple[Intake, dict[tuple[str, int], Owned]]:
    """A reader's intake over owned partitions without a client library; gates are judged with nothing committed."""
    owned = {(TOPIC, p): Owned(TOPIC, p) for p in partitions}
    for each in owned.values():
        each.start_at(0)
        each.fetching = True
    judged: list[View] = []

    def judge() -> None:
        judged[:] = [views.view]
        look = views.view.gates.open_now(lambda _: 0)
        for each in owned.values():
            gate = look.first_closed(each.partition)
            each.limit = inf if gate is None else gate.begins

    gates = SimpleNamespace(current=lambda _: judged == [views.view], open_what_may=judge)
    members: Any = SimpleNamespace(owned=owned, view=lambda _: views.view, gates=gates)
    keeper: Any = views
    intake = Intake(SETTINGS, members, keeper)
    intake.ready = deque()
    return intake, owned


@pytest.mark.kip("K253-18", "K253-60", "K253-23")
def test_a_hint_newer_than_the_view_makes_the_reader_look_and_judge_anew() -> None:
    """The record of a moved key says that the count has changed: the new gate holds it, and nobody rejoins anything."""
    views = _Views(BEFORE, as_of=clock.now(), newest=GROWN)
    intake, owned = _intake(views, 0, 1)

    intake.take([_record(1, 0, MOVED, b"1")], clock.now())

    assert views.looks == 1
    assert owned[TOPIC, 1].limit == 0
    assert [m.offset() for m in owned[TOPIC, 1].held] == [0]
    assert (list(intake.ready), intake.strays) == ([], 0)


@pytest.mark.kip("K253-18", "K253-59", "K253-30")
def test_a_batch_is_split_at_the_first_closed_gate() -> None:
    """Records below it are handed on, those at and behind it are held, in their order; other partitions do not wait."""
    shrunk = timeline_of(1, [(2, {0: 0}, {1: 0}), (1, {1: 4}, {0: 7})])
    views = _Views(shrunk, as_of=clock.now())
    intake, owned = _intake(views, 0, 1)

    intake.take([_record(0, o, None) for o in (5, 6, 7, 8)] + [_record(1, 0, MOVED, b"1")], clock.now())

    assert owned[TOPIC, 0].limit == 7
    assert [(m.partition(), m.offset()) for m in intake.ready] == [(0, 5), (0, 6), (1, 0)]
    assert [m.offset() for m in owned[TOPIC, 0].held] == [7, 8]


@pytest.mark.kip("K253-18")
def test_a_record_that_is_not_where_its_key_belongs_makes_the_reader_look() -> None:
    """Without any hint: the key's hash disagrees with the partition. It is a stray only if it still does after the look."""
    managed = timeline_of(2, [(3, {0: 9}, {2: 0})])
    late = key_of_hash(2, 4)
    views = _Views(managed, as_of=clock.now(), newest=managed)
    intake, _ = _intake(views, 0, 1, 2)

    intake.take([_record(0, 20, late)], clock.now() + 1)

    assert views.looks == 1
    assert intake.strays == 1
    assert [m.offset() for m in intake.ready] == [20]


@pytest.mark.kip("K253-23")
def test_records_wait_for_a_fresh_view_and_the_error_may_be_retried() -> None:
    """While no look is newer than the record's fetch less the view's age, it waits; after a long silence poll() says so."""
    views = _Views(BEFORE, as_of=clock.now() - 3)
    intake, _ = _intake(views, 0)
    intake.take([_record(0, 0, b"k")], clock.now())
    assert (len(intake.waiting), list(intake.ready)) == (1, [])

    views.last = clock.now() - SETTINGS.control_timeout - 1
    with pytest.raises(StaleViewError) as raised:
        intake.take([], clock.now())

    assert isinstance(raised.value, PeerError)
    assert raised.value.retriable
    views.last = clock.now()
    intake.take([], clock.now())
    assert [m.offset() for m in intake.ready] == [0]


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


def _committer(timeline: Timeline, *owned: Owned) -> tuple[Committer, list[Any], Any]:
    events: list[Any] = []
    listener = SimpleNamespace(
        on_partition_key_maybe_revoked=lambda places: events.append(("flush", [p.partition for p in places]))
    )
    members: Any = SimpleNamespace(
        owned={o.place: o for o in owned}, view=lambda _: members.current, listener=listener, current=None
    )
    members.current = SimpleNamespace(timeline=timeline)
    raw: Any = _Raw(events)
    return Committer(raw, SETTINGS, members, "localhost:1"), events, members


@pytest.mark.kip("K253-20", "K253-48", "K253-49", "C-01")
def test_a_position_is_told_at_the_start_and_behind_a_cut_after_the_flush() -> None:
    """Not on the way; when the last record before the cut is processed: flush, then the commit with the epoch, once."""
    owned = Owned(TOPIC, 0)
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
    assert (owned.committed, owned.committed_epoch) == (5, 1)


@pytest.mark.kip("K253-20")
def test_the_flush_is_asked_for_also_where_nothing_may_have_moved() -> None:
    """The group had read all before the change came: its offset stays, and the flush is asked for and proven all the same."""
    owned = Owned(TOPIC, 0)
    owned.start_at(5)
    committer, events, members = _committer(BEFORE, owned)
    committer.flush_and_prove()
    members.current = SimpleNamespace(timeline=GROWN)

    committer.flush_and_prove()

    assert events[1:] == [("flush", [0]), ("commit", [(0, 5, "ko1:1")])]


@pytest.mark.kip("K253-13", "K253-14", "K253-46", "K253-47")
def test_positions_are_asked_for_while_somebody_waits_and_only_those() -> None:
    """Each answer has the offset and the flushed epoch; nothing new makes the next question later, news make it sooner."""
    positions = GroupPositions({"bootstrap.servers": "localhost:1"}, "g")
    positions._client.close()
    events: list[Any] = []
    raw: Any = _Raw(events, {0: (7, "ko1:1"), 1: (9, None)})
    positions._client = raw
    positions.watch([(TOPIC, 0), (TOPIC, 2)])

    positions._ask(positions._watched)
    first = positions._pause
    pauses = []
    for _ in range(30):
        positions._ask(positions._watched)
        pauses.append(positions._pause)

    assert set(map(str, events)) == {str(("ask", [0, 2]))}
    assert positions.get(TOPIC, 0) == Commit(7, 1)
    assert positions.get(TOPIC, 1) is None
    assert positions.get(TOPIC, 2) is None
    assert pauses == sorted(pauses)
    assert (first, pauses[-1]) == (0.01, 0.25)
    raw.answers[0] = (8, "ko1:1")
    positions._ask(positions._watched)
    assert positions._pause == 0.01


@pytest.mark.kip("K253-15", "C-21")
def test_a_partition_without_a_cut_is_not_in_the_map() -> None:
    """Absent is no offset: an empty origin has the cut 0, and a partition that no key left has none."""
    epoch = timeline_of(3, [(4, {0: 0}, {3: 0})]).newest
    assert (dict(epoch.ends), dict(epoch.begins)) == ({0: 0}, {3: 0})
    assert [epoch.ends.get(p) for p in (0, 1, 3)] == [0, None, None]


@pytest.mark.kip("K253-22")
def test_ordered_delivery_is_on_unless_it_is_switched_off() -> None:
    """For a topic and for a consumer; any word but true and false is refused with the setting's name."""
    assert Timeline(TOPIC, "i", "c", 1, (Epoch(0, 1),)).ordered
    assert SETTINGS.ordered
    off, _ = consumer_settings(
        {"bootstrap.servers": "localhost:1", "group.id": "g", "enable.ordered.delivery": "false"}
    )
    assert not off.ordered
    setting = {"enable.ordered.delivery": "false"}
    assert split_topic_config({**setting, "retention.ms": "1"}) == (setting, {"retention.ms": "1"})
    with pytest.raises(ConfigError, match=r"enable\.ordered\.delivery"):
        split_topic_config({"enable.ordered.delivery": "no"})


@pytest.mark.kip("K253-61", "C-16")
def test_ordered_delivery_off_routes_as_before() -> None:
    """The same home, hint and moves for every key; no gate of any partition."""
    off = Timeline(TOPIC, "i", "c", GROWN.initial, GROWN.epochs, ordered=False)
    keys = [key_of_hash(slot, 8) for slot in range(8)]

    assert [Routing(off).of(key) for key in keys] == [Routing(GROWN).of(key) for key in keys]
    assert list(Gates(off).all()) == []
    assert list(Gates(GROWN).all()) != []


@pytest.mark.kip("K253-66", "K694-25")
@pytest.mark.parametrize("partitions", [1, 3, 6, 7])
def test_without_a_timeline_every_partition_is_used_as_stock_clients_use_it(partitions: int) -> None:
    """One epoch, no gates, and each key where hash % count puts it: clients may be exchanged one by one."""
    view = View(unmanaged(TOPIC, partitions), managed=False)
    keys = [f"key {number}".encode() for number in range(200)]

    assert [view.routing.of(key).home for key in keys] == [murmur2(key, partitions) for key in keys]
    assert {view.timeline.mode(p).writable for p in range(partitions)} == {True}
    assert list(view.gates.all()) == []


@pytest.mark.kip("K253-39", "C-06")
def test_records_without_a_key_go_to_active_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each active one gets some; one that is retired, added or about to be retired gets none; one lasts for a batch."""
    times = iter(number / 250 for number in range(10_000))
    monkeypatch.setattr(clock, "now", lambda: next(times))
    producer: Any = object.__new__(OrderedProducer)
    producer._sticky = {}

    def placed(timeline: Timeline) -> list[int]:
        record: Any = SimpleNamespace(topic=TOPIC, sending=SimpleNamespace(timeline=timeline))
        return [producer._place_unkeyed(record) for _ in range(1_000)]

    active = timeline_of(2, [(6, {}, {}), (4, {}, {})])
    assert set(Counter(placed(active))) == {0, 1, 2, 3}
    assert set(placed(active.opened(3, ChangePhase.PLAN).prepared())) == {0, 1, 2}
    assert set(placed(active.opened(5, ChangePhase.PLAN).prepared())) == {0, 1, 2, 3}
    runs = placed(active)
    changes = sum(one != two for one, two in pairwise(runs))
    assert changes < 500


@pytest.mark.kip("K280-03", "K280-10")
def test_a_topic_keeps_its_compaction_strategy_in_the_control_topic() -> None:
    """Brokers do not know the two settings; a strategy that the KIP does not name is refused."""
    ours = {"compaction.strategy": "header", "compaction.strategy.header": "v"}
    assert split_topic_config({**ours, "cleanup.policy": "compact"}) == (ours, {"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match=r"compaction\.strategy"):
        split_topic_config({"compaction.strategy": "newest"})


def _changed(timeline: Timeline, count: int, cut: int, retirement: Retirement | None = None) -> Timeline:
    moves = crossings(timeline.initial, timeline.newest.count, count)
    prepared = timeline.opened(count, ChangePhase.PLAN).prepared()
    return prepared.committed({q: cut + q for q, _ in moves}, {p: cut + p for _, p in moves}, retirement=retirement)


@pytest.mark.kip("K253-02", "K253-32", "K253-33", "K253-56", "K694-07", "K694-12", "K694-21")
def test_a_second_shrink_keeps_the_marks_of_the_first_and_a_growth_takes_back_what_it_uses() -> None:
    """Each retired partition has the epoch, cut and wishes of the shrink that retired it, and is ReadOnly; others are not."""
    hasty = Retirement(immediate=True, groups=("g",))
    timeline = _changed(_changed(timeline_of(3, [], start=8), 6, 100), 4, 200, hasty)
    assert timeline.drains == (
        Drain(4, 2, 204, Mode.READ_ONLY, hasty),
        Drain(5, 2, 205, Mode.READ_ONLY, hasty),
        Drain(6, 1, 106, Mode.READ_ONLY, Retirement()),
        Drain(7, 1, 107, Mode.READ_ONLY, Retirement()),
    )
    assert [timeline.mode(p) for p in (0, 3, 4, 7)] == [
        Mode.READ_WRITE,
        Mode.READ_WRITE,
        Mode.READ_ONLY,
        Mode.READ_ONLY,
    ]
    assert timeline.epochs[1].ends == {6: 106, 7: 107}

    grown = _changed(timeline, 7, 300)

    assert [(d.partition, d.epoch) for d in grown.drains] == [(7, 1)]
    assert grown.mode(5) is Mode.READ_WRITE
    assert grown.epochs[:3] == timeline.epochs
