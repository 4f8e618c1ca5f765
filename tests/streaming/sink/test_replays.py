"""A task of an exactly-once write that is run again for a batch which it has committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import chain

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from keyorder.partitioner.errors import RecordVersionError
from keyorder.streaming.sink.errors import ReplayMismatchError
from keyorder.streaming.sink.markers import ensure_marker_topic, marker_slot
from keyorder.streaming.sink.options import EXACTLY_ONCE, SinkOptions, sink_options
from keyorder.streaming.sink.task import Task
from keyorder.streaming.sink.transaction import write_transaction
from keyorder.streaming.sink.warm import Warm
from support.cluster import KafkaUnderTest
from support.spark_source import create

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
# Columns that no record has: Spark's own sink passes over them, too.
BESIDE = {
    "time": pa.scalar(NOW, pa.timestamp("us", "UTC")),
    "amount": pa.scalar(1.5),
    "paid": pa.scalar(True),
    "day": pa.scalar(NOW.date(), pa.date32()),
    "tags": pa.scalar([("a", 1)], pa.map_(pa.string(), pa.int32())),
}


@pytest.fixture
def warm() -> Iterator[Warm]:
    """What a worker process keeps between tasks."""
    found = Warm()
    yield found
    found.close()


@pytest.fixture
def options(kafka: KafkaUnderTest, topic_name: str) -> SinkOptions:
    """Of an exactly-once write."""
    create(kafka, topic_name, 1)
    ensure_marker_topic(kafka.client_config())
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic_name, EXACTLY_ONCE: "true"}
    return sink_options(given)


def rows(*values: str, **beside: pa.Scalar) -> Iterator[pa.RecordBatch]:
    """One batch. beside: what each row has besides its value."""
    columns = {"value": pa.array(values, pa.string()), **{n: pa.repeat(v, len(values)) for n, v in beside.items()}}
    return iter([pa.record_batch(columns)])


@pytest.fixture
def task() -> Task:
    """The seventh batch of a query."""
    return Task(str(uuid.uuid4()), 7, 0)


def test_columns_that_are_not_written_count_for_nothing(options: SinkOptions, task: Task, warm: Warm) -> None:
    """Of whatever type, and with other values in a replay, such as the current time."""
    later = {**BESIDE, "time": pa.scalar(NOW.replace(year=2027), pa.timestamp("us", "UTC")), "more": pa.scalar(b"x")}

    assert write_transaction(rows("a", "b", **BESIDE), options, task, warm)[:3] == (2, False, 0)
    assert write_transaction(rows("a", "b", **later), options, task, warm)[:3] == (2, True, 0)


def test_a_replay_may_bring_its_rows_in_another_order(options: SinkOptions, task: Task, warm: Warm) -> None:
    """A shuffle fetches its blocks in any order. Nothing is written, so that only the rows themselves count."""
    write_transaction(rows("a1", "a2", "b1", "b2"), options, task, warm)
    batches = chain(rows("b1"), rows("b2", "a1"), rows("a2"))
    assert write_transaction(batches, options, task, warm)[:2] == (4, True)
    shifted = chain(rows("b1"), rows("b2", "a1"), rows("a1"))
    with pytest.raises(ReplayMismatchError):
        write_transaction(shifted, options, task, warm)


def test_a_marker_of_an_earlier_keyorder_is_judged_by_its_own_rules(
    kafka: KafkaUnderTest, options: SinkOptions, task: Task, warm: Warm
) -> None:
    """keyorder was upgraded in the middle of a batch: the marker's fingerprint is one of rows in their order."""
    crc = "2:value=9e83486d,value#=8e79da5a"
    topic, partition = marker_slot(task.slot)
    older = b'{"version": 1, "batch": 7, "rows": 2, "fingerprint": "%b"}' % crc.encode()
    producer = Producer(kafka.client_config())
    producer.produce(topic, older, task.slot.encode(), partition)
    assert producer.flush(120) == 0

    assert write_transaction(rows("a", "b"), options, task, warm)[:2] == (2, True)
    with pytest.raises(ReplayMismatchError, match=crc):
        write_transaction(rows("b", "a"), options, task, warm)


def test_a_marker_of_a_later_keyorder_stops_its_own_task_alone(
    kafka: KafkaUnderTest, options: SinkOptions, task: Task, warm: Warm
) -> None:
    """What its fingerprint means is not known here; other queries' tasks pass over it."""
    topic, partition = marker_slot(task.slot)
    producer = Producer(kafka.client_config())
    producer.produce(topic, b'{"version": 99, "batch": 7}', task.slot.encode(), partition)
    assert producer.flush(120) == 0

    with pytest.raises(RecordVersionError, match="marker of the Spark sink"):
        write_transaction(rows("a"), options, task, warm)
    queries = (Task(str(uuid.uuid4()), 7, 0) for _ in range(10_000))
    beside = next(other for other in queries if marker_slot(other.slot) == marker_slot(task.slot))
    assert write_transaction(rows("a"), options, beside, warm)[:2] == (1, False)


def test_other_rows_stop_the_task(options: SinkOptions, task: Task, warm: Warm) -> None:
    """Rows that it had went to another task now, or the other way round."""
    write_transaction(rows("a", "b"), options, task, warm)

    for now in (rows("b", "b"), rows("a"), rows("a", "b", "b"), rows(), iter(())):
        with pytest.raises(ReplayMismatchError, match="has committed batch 7 with other rows"):
            write_transaction(now, options, task, warm)
    assert write_transaction(rows("a", "b"), options, task, warm)[:3] == (2, True, 0)
