"""Behaviours of the KIPs that no test of a single module shows: layouts, settings and placement, without a broker."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import murmur2
from keyorder.connector import clock
from keyorder.connector.config import consumer_settings
from keyorder.connector.consuming.view import View, unmanaged
from keyorder.connector.operations.topic_settings import split_topic_config
from keyorder.connector.producing.record_sender import RecordSender
from keyorder.partitioner.epochs import ChangePhase, Drain, Epoch, Retirement
from keyorder.partitioner.errors import ConfigError
from keyorder.partitioner.gates.gate import Gates
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.records.timeline_record import decode_timeline, encode_timeline
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline, crossings
from support.dumb import key_of_hash, timeline_of

TOPIC = "t"
CONSUMER = {"bootstrap.servers": "localhost:1", "group.id": "g"}
GROWN = timeline_of(1, [(2, {0: 5}, {1: 0})])


@pytest.mark.kip("K253-15", "C-21")
def test_a_partition_without_a_cut_is_not_in_the_map() -> None:
    """Absent is no offset: an empty origin has the cut 0, and a partition that no key left has none, for every reader."""
    epoch = decode_timeline(encode_timeline(timeline_of(3, [(4, {0: 0}, {3: 0})]))).newest
    assert (dict(epoch.ends), dict(epoch.begins)) == ({0: 0}, {3: 0})
    assert [epoch.ends.get(p) for p in (0, 1, 3)] == [0, None, None]


@pytest.mark.kip("K253-22")
def test_ordered_delivery_is_on_unless_it_is_switched_off() -> None:
    """For a topic and for a consumer; any word but true and false is refused with the setting's name."""
    assert Timeline(TOPIC, "i", "c", 1, (Epoch(0, 1),)).ordered
    assert consumer_settings(CONSUMER)[0].ordered
    assert not consumer_settings({**CONSUMER, "enable.ordered.delivery": "false"})[0].ordered
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
    assert {view.timeline.mode(p) for p in range(partitions)} == {Mode.READ_WRITE}
    assert list(view.gates.all()) == []


@pytest.mark.kip("K253-39", "C-06")
def test_records_without_a_key_go_to_active_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each active one gets some; one that is retired, added or about to be retired gets none; one lasts for a batch."""
    times = iter(number / 250 for number in range(10_000))
    monkeypatch.setattr(clock, "now", lambda: next(times))
    handover: Any = object.__new__(RecordSender)
    handover._sticky = {}

    def placed(timeline: Timeline) -> list[int]:
        sending: Any = SimpleNamespace(timeline=timeline)
        return [handover.place_unkeyed(TOPIC, sending) for _ in range(1_000)]

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
    prepared = timeline.opened(count, ChangePhase.PLAN, retirement=retirement).prepared()
    return prepared.committed({q: cut + q for q, _ in moves}, {p: cut + p for _, p in moves})


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
