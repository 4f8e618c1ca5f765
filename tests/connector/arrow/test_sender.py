"""Rows handed to the client library, on a real broker: what is sent comes back, by either way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from keyorder.connector.arrow.delivery_counters import Block
from keyorder.connector.arrow.library import native
from keyorder.connector.arrow.reader import ArrowReader
from keyorder.connector.arrow.schema import HEADERS, SCHEMA
from keyorder.connector.arrow.sender import NativeSender, Rows, Sender, sender
from keyorder.partitioner.errors import UsageError
from keyorder.partitioner.hashing import key_hash
from keyorder.partitioner.routing import HINT_HEADER
from support.cluster import KafkaUnderTest

from .test_reader import by_partition, make_topic, odd_records, read_all


def odd_batch(seed: int, count: int, headers: bool = True, times: bool = True) -> pa.RecordBatch:
    """A batch of odd records; sliced, so that no buffer begins at its first row."""
    records = odd_records(seed, count + 3)
    columns = {
        "key": pa.array([r[0] for r in records], pa.binary()),
        "value": pa.array([r[1] for r in records], pa.binary()),
    }
    if headers:
        lists = [None if h is None else [{"key": n, "value": v} for n, v in h] for _, _, h in records]
        columns["headers"] = pa.array(lists, HEADERS)
    if times:
        columns["timestamp"] = pa.array(
            [1_700_000_000_000 + i if i % 5 else None for i in range(count + 3)], pa.timestamp("ms", "UTC")
        )
    return pa.RecordBatch.from_pydict(columns).slice(3)


class Sending:
    """A sender and its client, whose queue is shorter than what the tests send."""

    def __init__(self, kafka: KafkaUnderTest, natively: bool) -> None:
        config = {"queue.buffering.max.messages": 700, "linger.ms": 5, "enable.idempotence": True}
        self.raw = Producer({**kafka.client_config(), **config})
        self.sender: Sender = sender(self.raw, native({"keyorder.arrow.native": natively}))
        assert isinstance(self.sender, NativeSender) == natively

    def send(self, topic: str, batch: pa.RecordBatch, partition: int, index: list[int]) -> Block:
        """Queue these rows, waiting for room."""
        block, left = self.sender.counters.block(topic, partition), np.array(index, np.int64)
        while len(left):
            sent = self.sender.send(topic, Rows(batch), partition, block.opaque, None, left)
            left = left[sent:]
            self.raw.poll(0.01 if len(left) else 0)
        return block


@pytest.fixture(params=[True, False], ids=["native", "fallback"])
def sending(request: pytest.FixtureRequest, kafka: KafkaUnderTest) -> Iterator[Sending]:
    """Either kind."""
    made = Sending(kafka, request.param)
    yield made
    made.sender.close()
    made.raw.close()


@pytest.mark.parametrize(("headers", "times"), [(True, True), (False, False), (True, False), (False, True)])
def test_what_is_sent_comes_back(
    kafka: KafkaUnderTest, topic_name: str, sending: Sending, headers: bool, times: bool
) -> None:
    """Rows of all kinds, more than the queue holds, each partition in the order given; the counts are exact.

    A hint header among them is from elsewhere and says nothing here: it is left out.
    """
    make_topic(kafka, topic_name, 3)
    batch = odd_batch(3, 2000, headers, times)
    places = np.arange(2000) % 7 % 3
    index = {p: np.flatnonzero(places == p).tolist() for p in range(3)}
    index[1].reverse()
    blocks = [sending.send(topic_name, batch, p, rows) for p, rows in index.items()]
    assert sending.raw.flush(120) == 0
    assert sending.sender.counters.failures() == ([], False)
    assert [(block.resolved, block.acknowledged) for block in blocks] == [(len(rows),) * 2 for rows in index.values()]
    with ArrowReader(kafka.client_config()) as reader:
        reader.assign({topic_name: [(p, 0, len(rows)) for p, rows in index.items()]})
        found = by_partition(read_all(reader))
    names = [name for name in ("key", "value", "headers") if name in batch.schema.names]
    for p, rows in found.items():
        expected = batch.take(pa.array(index[p]))
        wanted = expected.select(names).to_pylist()
        for row in wanted:
            if row.get("headers"):
                row["headers"] = [header for header in row["headers"] if header["key"] != HINT_HEADER] or None
        assert wanted == [{name: row[name] for name in names} for row in rows]
        if times:
            given = expected.column("timestamp").to_pylist()
            assert [(g, g) if g else (None, row["timestamp"]) for g, row in zip(given, rows, strict=True)] == [
                (g, row["timestamp"]) for g, row in zip(given, rows, strict=True)
            ]
    assert SCHEMA.names == list(found[0][0])


def test_a_partition_that_is_not_there_is_refused(kafka: KafkaUnderTest, topic_name: str, sending: Sending) -> None:
    """Before anything is queued: the library would lose count of such a row."""
    make_topic(kafka, topic_name, 1)
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": ["1", "2"]})
    with pytest.raises(KafkaException, match="UNKNOWN_PARTITION"):
        sending.send(topic_name, batch, 1, [0, 1])
    assert len(sending.raw) == 0


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"value": [1, 2]}, "'value' is int64"),
        ({"value": ["a", "b"], "headers": ["c", "d"]}, "'headers' is string"),
        ({"value": ["a", "b"], "timestamp": [1, 2]}, "'timestamp' is int64"),
        ({"name": ["a", "b"]}, "neither a column"),
    ],
)
def test_other_columns_are_refused(columns: dict[str, list[object]], text: str) -> None:
    """One clear error each."""
    with pytest.raises(UsageError, match=text):
        Rows(pa.RecordBatch.from_pydict(columns))


def test_failures_are_told(topic_name: str, kafka: KafkaUnderTest, sending: Sending) -> None:
    """A row that the broker refuses is named with its partition, the error and its key's hash."""
    make_topic(kafka, topic_name, 1, **{"max.message.bytes": "1000"})
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": ["1", "x" * 50_000]})
    block = sending.send(topic_name, batch, 0, [1])
    assert sending.raw.flush(120) == 0
    failures, lost = sending.sender.counters.failures()
    assert [(f.topic, f.partition, f.code, f.key_hash) for f in failures] == [(topic_name, 0, 10, key_hash(b"b"))]
    assert (lost, block.resolved, block.acknowledged) == (False, 1, 0)
