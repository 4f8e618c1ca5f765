"""Latencies and series, counted off small histories that were written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from keyorder.connector.demo.latency import HandOver, gate_openings, hand_overs, quantile, spread
from keyorder.connector.demo.series import Series, count_series
from keyorder.connector.verify.events import Kind, Value
from keyorder.connector.verify.history import History
from keyorder.connector.verify.topology import Epoch, Topology

MS = 1_000_000


def _key(topology: Topology, homes: tuple[int, ...]) -> str:
    """A key with this chain of homes."""
    for number in range(10_000):
        key = f"k{number}"
        if tuple(segment.home for segment in topology.chain(key.encode())) == homes:
            return key
    raise AssertionError(homes)


@pytest.fixture
def topology() -> Topology:
    """From one partition to two: what moves leaves p0 below 10 and enters p1 from 0 on."""
    return Topology(1, [Epoch(0, 1), Epoch(1, 2, {0: 10}, {1: 0})])


class Story:
    """A history told in milliseconds."""

    def __init__(self) -> None:
        self.history = History()

    def sent(self, at: int, key: str, seq: int, partition: int, offset: int) -> None:
        self.history.add(at * MS, Kind.SEND_OK, "w", "", partition, offset, Value("", "w", key, seq))

    def given(self, at: int, until: int, key: str, seq: int, partition: int, offset: int) -> None:
        value = Value("", "w", key, seq)
        self.history.add(at * MS, Kind.DELIVER_START, "c", "g", partition, offset, value)
        self.history.add(until * MS, Kind.DELIVER_END, "c", "g", partition, offset, value)

    def end(self) -> History:
        return self.history.finish()


def test_a_waiting_record_counts_from_the_end_of_the_old_home(topology: Topology) -> None:
    """The new home's record was in the log already: its hand-over began when the old home's last record was done."""
    key, story = _key(topology, (0, 1)), Story()
    story.sent(1, key, 1, 0, 3)
    story.sent(5, key, 2, 1, 0)
    story.given(10, 20, key, 1, 0, 3)
    story.given(27, 28, key, 2, 1, 0)
    assert hand_overs(story.end(), topology) == [HandOver(1, 7.0, True)]


def test_a_later_record_counts_from_its_acknowledgement(topology: Topology) -> None:
    """Nobody waits for a record that was not written yet."""
    key, story = _key(topology, (0, 1)), Story()
    story.sent(1, key, 1, 0, 3)
    story.given(10, 20, key, 1, 0, 3)
    story.sent(50, key, 2, 1, 0)
    story.given(53, 54, key, 2, 1, 0)
    assert hand_overs(story.end(), topology) == [HandOver(1, 3.0, False)]


def test_a_redelivery_at_the_old_home_is_waited_for(topology: Topology) -> None:
    """After a crash the old record comes again: the last end counts."""
    key, story = _key(topology, (0, 1)), Story()
    story.sent(1, key, 1, 0, 3)
    story.sent(2, key, 2, 1, 0)
    story.given(10, 20, key, 1, 0, 3)
    story.given(30, 40, key, 1, 0, 3)
    story.given(45, 46, key, 2, 1, 0)
    assert hand_overs(story.end(), topology) == [HandOver(1, 5.0, True)]


def test_keys_without_two_homes_hand_nothing_over(topology: Topology) -> None:
    """A key that stays, and one with records at its new home alone, are no hand-overs."""
    stays, moves, story = _key(topology, (0,)), _key(topology, (0, 1)), Story()
    story.sent(1, stays, 1, 0, 3)
    story.given(10, 20, stays, 1, 0, 3)
    story.sent(2, moves, 1, 1, 0)
    story.given(30, 40, moves, 1, 1, 0)
    assert hand_overs(story.end(), topology) == []


def test_a_gate_opens_from_the_end_of_all_that_lies_before_its_cut(topology: Topology) -> None:
    """The gate waits for every record below the cut, also for other keys', and for none above it."""
    stays, moves, story = _key(topology, (0,)), _key(topology, (0, 1)), Story()
    story.sent(1, moves, 1, 0, 3)
    story.sent(2, stays, 1, 0, 9)
    story.sent(3, stays, 2, 0, 10)
    story.sent(4, moves, 2, 1, 0)
    story.given(10, 11, moves, 1, 0, 3)
    story.given(20, 30, stays, 1, 0, 9)
    story.given(31, 39, stays, 2, 0, 10)
    story.given(34, 35, moves, 2, 1, 0)
    assert gate_openings(story.end(), topology) == [HandOver(1, 4.0, True)]


def test_quantiles_are_values_that_occurred() -> None:
    """The nearest rank; nothing has none."""
    values = [float(n) for n in range(1, 101)]
    assert quantile(values, 0.5) == 50
    assert quantile(values, 0.99) == 99
    assert quantile([3.0], 0.01) == quantile([3.0], 0.99) == 3.0
    assert quantile([], 0.5) is None
    assert spread([]) == {"p50": None, "p99": None, "max": None, "count": 0}
    assert spread([2.0, 1.0]) == {"p50": 1.0, "p99": 2.0, "max": 2.0, "count": 2}


def test_series_count_what_was_written_delivered_and_late() -> None:
    """Counts go to the slice and partition in which they happened; lag is what was written and not done with."""
    story = Story()
    story.sent(100, "k", 1, 0, 0)
    story.sent(600, "k", 2, 1, 0)
    story.given(700, 800, "k", 2, 1, 0)
    story.given(1_100, 1_200, "k", 1, 0, 0)
    series = count_series(story.end(), 0, 0.5)
    assert series.slices == 3
    assert series.written == {0: [1, 0, 0], 1: [0, 1, 0]}
    assert series.delivered == {1: [0, 1, 0], 0: [0, 0, 1]}
    assert series.late == {0: [0, 0, 1]}
    assert series.lag == [1, 1, 0]
    assert (series.late_records, series.late_keys) == (1, 1)


def test_series_survive_json() -> None:
    """A judge tells its series as JSON, which knows only strings as names."""
    story = Story()
    story.sent(100, "k", 1, 3, 0)
    story.given(200, 300, "k", 1, 3, 0)
    series = count_series(story.end(), 0, 0.5)
    facts: dict[str, Any] = json.loads(json.dumps(series.as_dict()))
    assert Series.from_dict(facts) == series
