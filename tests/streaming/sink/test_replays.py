"""A task of an exactly-once write that is run again for a batch which it has committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from keyorder.streaming.sink.errors import ReplayMismatchError
from keyorder.streaming.sink.markers import ensure_marker_topic
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

    assert write_transaction(rows("a", "b", **BESIDE), options, task, warm) == (2, False, 0)
    assert write_transaction(rows("a", "b", **later), options, task, warm) == (2, True, 0)


def test_other_rows_stop_the_task(options: SinkOptions, task: Task, warm: Warm) -> None:
    """Rows that it had went to another task now, or the other way round."""
    write_transaction(rows("a", "b"), options, task, warm)

    for now in (rows("b", "a"), rows("a"), rows(), iter(())):
        with pytest.raises(ReplayMismatchError, match="has committed batch 7 with other rows"):
            write_transaction(now, options, task, warm)
    assert write_transaction(rows("a", "b"), options, task, warm) == (2, True, 0)
