"""ArrowWriter on a real broker: what is written comes back, by either way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from keyorder.connector.arrow.reader import ArrowReader
from keyorder.connector.arrow.schema import HEADERS, SCHEMA
from keyorder.connector.arrow.writer import ArrowWriter
from keyorder.partitioner.errors import UsageError
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


@pytest.fixture(params=["native", "fallback"])
def writer(request: pytest.FixtureRequest, kafka: KafkaUnderTest) -> Iterator[ArrowWriter]:
    """A writer of either kind, with a queue shorter than what the tests write."""
    config = {**kafka.client_config(), "queue.buffering.max.messages": 700, "linger.ms": 5, "enable.idempotence": True}
    with ArrowWriter({**config, "keyorder.arrow.native": request.param == "native"}) as made:
        assert made.native == (request.param == "native")
        yield made


@pytest.mark.parametrize(("headers", "times"), [(True, True), (False, False), (True, False), (False, True)])
def test_what_is_written_comes_back(
    kafka: KafkaUnderTest, topic_name: str, writer: ArrowWriter, headers: bool, times: bool
) -> None:
    """Rows of all kinds, more than the queue holds, each partition in order; the counts are exact."""
    make_topic(kafka, topic_name, 3)
    batch = odd_batch(3, 2000, headers, times)
    partitions = np.arange(2000) % 7 % 3
    assert writer.write(topic_name, batch, partitions) == 2000
    assert writer.flush(30) == 0
    assert writer.failures() == []
    counts = np.bincount(partitions).tolist()
    assert [writer.acknowledged(topic_name, p) for p in range(3)] == counts
    with ArrowReader(kafka.client_config()) as reader:
        reader.assign({topic_name: [(p, 0, n) for p, n in enumerate(counts)]})
        found = by_partition(read_all(reader))
    names = [name for name in ("key", "value", "headers") if name in batch.schema.names]
    for p, rows in found.items():
        expected = batch.filter(pa.array(partitions == p))
        assert expected.select(names).to_pylist() == [{name: row[name] for name in names} for row in rows]
        if times:
            given = expected.column("timestamp").to_pylist()
            assert [(g, g) if g else (None, row["timestamp"]) for g, row in zip(given, rows, strict=True)] == [
                (g, row["timestamp"]) for g, row in zip(given, rows, strict=True)
            ]
    assert SCHEMA.names == list(found[0][0])


def test_a_row_that_cannot_be_sent_stops_there(kafka: KafkaUnderTest, topic_name: str, writer: ArrowWriter) -> None:
    """Rows before it are queued, none behind it; alone it raises."""
    make_topic(kafka, topic_name, 1)
    batch = pa.RecordBatch.from_pydict({"key": [b"a"] * 4, "value": [b"1", b"2", b"x" * 1_100_000, b"4"]})
    assert writer.write(topic_name, batch, [0] * 4) == 2
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        writer.write(topic_name, batch.slice(2), [0] * 2)
    with pytest.raises(KafkaException, match="UNKNOWN_PARTITION"):
        writer.write(topic_name, batch.slice(0, 2), [1, 1])
    assert writer.flush(30) == 0
    assert writer.acknowledged(topic_name, 0) == 2


def test_other_columns_are_refused(kafka: KafkaUnderTest, topic_name: str, writer: ArrowWriter) -> None:
    """One clear error each."""
    for columns, text in [
        ({"value": [1, 2]}, "'value' is int64"),
        ({"value": ["a", "b"], "headers": ["c", "d"]}, "'headers' is string"),
        ({"value": ["a", "b"], "timestamp": [1, 2]}, "'timestamp' is int64"),
        ({"name": ["a", "b"]}, "neither a column"),
    ]:
        with pytest.raises(UsageError, match=text):
            writer.write(topic_name, pa.RecordBatch.from_pydict(columns), [0, 0])
    with pytest.raises(UsageError, match="1 partitions for 2 rows"):
        writer.write(topic_name, pa.RecordBatch.from_pydict({"value": ["a", "b"]}), [0])


def test_failures_are_told(topic_name: str, kafka: KafkaUnderTest, writer: ArrowWriter) -> None:
    """A row that the broker refuses is named with its partition, the error and its key's hash."""
    make_topic(kafka, topic_name, 1, **{"max.message.bytes": "1000"})
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": ["1", "x" * 50_000]})
    assert writer.write(topic_name, batch.slice(1), [0]) == 1
    assert writer.flush(30) == 0
    assert [(f.topic, f.partition, f.code) for f in writer.failures()] == [(topic_name, 0, 10)]
    assert writer.acknowledged(topic_name, 0) == 0
