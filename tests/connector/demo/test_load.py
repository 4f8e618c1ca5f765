"""The load: which keys come, and how late records are counted while it runs."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.demo.keys import key_stream
from keyorder.connector.demo.late import LateCounter
from keyorder.connector.demo.watching import OrderWatch, parse_deliveries


def test_the_same_seed_gives_the_same_keys() -> None:
    """A run can be repeated: the row of keys depends on the arguments alone."""
    first, second = (list(islice(key_stream(7, 0, 3, 900, 2.5, 50), 2_000)) for _ in range(2))
    assert first == second
    assert first != list(islice(key_stream(8, 0, 3, 900, 2.5, 50), 2_000))


def test_writers_share_no_key_and_each_key_comes() -> None:
    """Each key belongs to one writer, and after as many records as were planned for, every key has been written."""
    keys, per_key = 900, 2.5
    rows = [set(islice(key_stream(7, w, 3, keys, per_key, 50), 1_400)) for w in range(3)]
    assert not rows[0] & rows[1]
    assert not rows[1] & rows[2]
    assert not rows[0] & rows[2]
    assert sum(1 for key in set().union(*rows) if key.startswith("order-")) == keys


def test_some_keys_are_hot() -> None:
    """Hot keys go on from the start to the end; the others come for a few records and go."""
    counts = Counter(islice(key_stream(7, 0, 1, 2_000, 3.0, 100), 6_000))
    hot = [count for key, count in counts.items() if key.startswith("customer-")]
    cold = [count for key, count in counts.items() if key.startswith("order-")]
    assert min(hot) > max(cold)


@pytest.mark.parametrize(
    ("deliveries", "late"),
    [
        ([1, 2, 3], []),
        ([1, 3, 2], [2]),
        ([2, 1, 3], [1]),
        ([1, 2, 1, 2, 3], []),
        ([3, 1, 1, 2], [1, 2]),
        ([1, 4, 2, 2, 3], [2, 3]),
    ],
)
def test_a_record_is_late_once(deliveries: list[int], late: list[int]) -> None:
    """Late is a first delivery after a later record of the key; a redelivery is not."""
    counter = LateCounter()
    assert [sequence for sequence in deliveries if counter.see("k", sequence)] == late
    assert counter.records == len(late)
    assert counter.keys == ({"k"} if late else set())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 6)), max_size=30))
def test_counting_agrees_with_looking_back(deliveries: list[tuple[str, int]]) -> None:
    """The counter finds exactly those first deliveries before which a later record of the key was delivered."""
    counter = LateCounter()
    for number, (key, sequence) in enumerate(deliveries):
        before = [s for k, s in deliveries[:number] if k == key]
        expected = sequence not in before and any(s > sequence for s in before)
        assert counter.see(key, sequence) == expected


def _line(t: int, key: str, sequence: int, kind: str = "ds") -> str:
    return json.dumps([t, kind, 0, 5, "run", "w", key, sequence], separators=(",", ":"))


def test_deliveries_are_read_off_recorded_lines() -> None:
    """Only starts of deliveries of our values count; torn lines and other events are passed over."""
    lines = [_line(5, "k", 1), _line(6, "k", 1, "de"), '[7,"ds",0,9]', '[8,"ds",0,9,"ru', '[9,"as",[1]]']
    assert parse_deliveries(lines) == [(5, "k", 1)]


def test_the_watch_orders_what_several_members_recorded(tmp_path: Path) -> None:
    """Events of several files are counted in order of time; those too new wait, a half-written line does too."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text(_line(10, "k", 1) + "\n" + _line(30, "k", 3) + "\n")
    second.write_text(_line(20, "k", 2) + "\n" + _line(40, "k", 5)[:9])
    watch = OrderWatch()
    watch.look([first, second, tmp_path / "absent"], until=30)
    assert (watch.deliveries, watch.late.records) == (2, 0)
    second.write_text(_line(20, "k", 2) + "\n" + _line(40, "k", 5) + "\n" + _line(50, "k", 4) + "\n")
    watch.look([first, second], until=100)
    assert (watch.deliveries, watch.late.records) == (5, 1)
