"""Batches of messages and batches of columns say the same of the same records."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.connector.arrow.batches import ColumnBatch, arrow_batch_of, items_of
from keyorder.connector.arrow.columns import ColumnBuilder  # noqa: F401  (compiles before the clock of a test runs)
from keyorder.connector.arrow.fetch_source import taken_of
from keyorder.connector.arrow.schema import batch_of, messages_of
from keyorder.connector.consuming.records.batches import Backlog, MessageBatch
from keyorder.connector.consuming.records.batches import items_of as items_of_messages
from keyorder.connector.consuming.view import View, unmanaged
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.hashing import HASHES
from keyorder.partitioner.timeline import Timeline, crossings

HINTS = [b"0", b"1", b"2", b"3", b"7", b"", None, b"x1", "²".encode(), b"99999999999"]


def a_timeline(rng: random.Random) -> Timeline:
    """Some epochs with random cuts."""
    count = initial = rng.randint(1, 4)
    timeline = replace(unmanaged("t", initial), initial=initial, hash=rng.choice(list(HASHES)))
    for _ in range(rng.randint(0, 4)):
        after = rng.randint(initial, 9)
        if after == count:
            continue
        moves = crossings(initial, count, after)
        ends = {q: rng.randint(0, 40) for q, _ in moves}
        begins = {p: rng.randint(0, 40) for _, p in moves}
        timeline = timeline.opened(after, ChangePhase.PREPARE).committed(ends, begins)
        count = after
    return timeline


def some_messages(rng: random.Random, partition: int, first: int) -> list[Message]:
    """One partition's records with growing offsets, keys of all kinds, and headers that look like hints or are."""
    messages = []
    offset = first
    for _ in range(rng.randint(1, 30)):
        headers = None
        if rng.random() < 0.4:
            names = ["keyorder-epoch", "keyorder-epochs", "h", ""]
            headers = [(rng.choice(names), rng.choice(HINTS)) for _ in range(rng.randint(1, 3))]
        key = None if rng.random() < 0.1 else str(rng.randrange(60)).encode()
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(4))
        messages.append(
            Message(
                topic="t",
                partition=partition,
                offset=offset,
                key=key,
                value=value,
                headers=headers,
                timestamp=(1, 1_700_000_000_000 + offset),
            )
        )
        offset += rng.randint(1, 4)
    return messages


def facts(messages: list[Message]) -> list[object]:
    """What a record is."""
    return [(m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp()) for m in messages]


@pytest.mark.parametrize("time", [2**63 - 1, 2**62, 1_700_000_000_000_000_000, -(2**63), (2**63 - 1) // 1000])
def test_a_time_beyond_microseconds_is_the_edge_and_no_other_time(time: int) -> None:
    """It stays the latest or the earliest: a wrapped one would win or lose by chance."""
    message = Message(topic="t", partition=0, offset=0, key=b"k", value=b"v", timestamp=(1, time))
    kept = batch_of([message]).column("timestamp").cast(pa.int64()).to_pylist()
    assert kept == [min(max(time * 1000, -(2**63)), 2**63 - 1)]


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**9), st.booleans())
@pytest.mark.slow
def test_both_kinds_judge_alike(seed: int, managed: bool) -> None:
    """Highest hint, first hinted row and strays, over random timelines and records; also of their cuts."""
    rng = random.Random(seed)
    view = View(a_timeline(rng), managed)
    messages = some_messages(rng, rng.randrange(9), rng.randrange(20))
    (rows,) = items_of_messages(messages)
    (columns,) = items_of(taken_of(messages))
    assert isinstance(rows, MessageBatch)
    assert isinstance(columns, ColumnBatch)
    start = rng.randrange(len(messages))
    stop = rng.randint(start + 1, len(messages))
    for a, b in [(rows, columns), (rows.cut(start, stop), columns.cut(start, stop))]:
        one, two = a.judge(view), b.judge(view)
        assert (one.hint, one.hinted, list(one.strays)) == (two.hint, two.hinted, list(two.strays))
        assert (a.place, a.rows, a.last) == (b.place, b.rows, b.last)
        bounds = [0, *(a.offset(row) for row in range(a.rows)), a.last + 1, float("inf")]
        assert [a.rows_below(o) for o in bounds] == [b.rows_below(o) for o in bounds]
        assert facts(a.messages()) == facts(b.messages())
    expected = [
        row
        for row, m in enumerate(messages)
        if managed
        and (
            (len(view.timeline.epochs) == 1 and rows.place[1] >= view.timeline.newest.count)
            or (
                m.key() is not None and view.routing.is_stray(m.key(), rows.place[1], m.offset())  # type: ignore[arg-type]
            )
        )
    ]
    assert expected == list(rows.judge(view).strays)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9))
def test_a_backlog_gives_out_exactly_what_lies_below(seed: int) -> None:
    """In order, whatever the batches' kinds and the sequence of limits; the count is of records."""
    rng = random.Random(seed)
    messages = some_messages(rng, 0, seed % 6)
    backlog = Backlog()
    at = 0
    while at < len(messages):
        n = rng.randint(1, 5)
        piece = messages[at : at + n]
        backlog.append(items_of_messages(piece)[0] if rng.random() < 0.5 else items_of(taken_of(piece))[0])  # type: ignore[arg-type]
        at += n
    given_out: list[Message] = []
    for limit in sorted(rng.randrange(130) for _ in range(4)):
        while (batch := backlog.first_below(limit)) is not None:
            given_out += batch.messages()
            backlog.drop(batch)
        assert facts(given_out) == facts([m for m in messages if (m.offset() or 0) < limit])
        assert len(backlog) == len(messages) - len(given_out)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9))
def test_messages_and_columns_turn_into_each_other(seed: int) -> None:
    """Nulls, empty values, headers and times survive, in one batch from batches of both kinds."""
    rng = random.Random(seed)
    messages = some_messages(rng, 3, 7)
    assert facts(messages_of(batch_of(messages))) == facts(messages)
    half = len(messages) // 2
    batches = [
        *(items_of_messages(messages[:half]) if half else []),
        *items_of(taken_of(messages[half:])),
    ]
    assert facts(messages_of(arrow_batch_of(batches))) == facts(messages)  # type: ignore[arg-type]


@pytest.mark.parametrize("offsets", [[5, 6, 3, 4], [1, 1], [9, 2, 3]])
def test_offsets_that_go_back_begin_a_new_batch(offsets: list[int]) -> None:
    """What was fetched anew is not part of what was fetched before."""
    messages = [Message(topic="t", partition=0, offset=o, key=b"k", value=b"v", timestamp=(1, 1)) for o in offsets]
    for items in (items_of_messages(messages), items_of(taken_of(messages))):
        assert [m.offset() for item in items for m in item.messages()] == offsets  # type: ignore[union-attr]
        assert len(items) == 2
