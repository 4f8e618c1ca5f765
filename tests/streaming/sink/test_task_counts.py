"""How many tasks a batch has, which exactly once goes by: a batch that is run again after a restart must have as many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from keyorder import TopicAdmin
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.sink.markers import MarkerReader
from keyorder.streaming.sink.options import EXACTLY_ONCE, SinkOptions
from keyorder.streaming.sink.writer import Written, check_task_count
from support.cluster import KafkaUnderTest
from support.spark_driver import read_topic

KEYS = 40


@pytest.fixture
def registered(spark: Any) -> Iterator[Any]:
    """The session, which knows the format; eight partitions after a shuffle, unless they are coalesced."""
    spark.dataSource.register(KeyorderDataSource)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture
def source(registered: Any, tmp_path: Path) -> Any:
    """A stream of one batch."""
    rows = registered.range(0, KEYS, 1, 2).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    rows.write.parquet(str(tmp_path / "rows"))
    return registered.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))


def write(kafka: KafkaUnderTest, topic: str, checkpoint: Path, rows: Any) -> Any:
    """The ended query that has written what there is of a stream exactly once. Raises what ended it early."""
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, EXACTLY_ONCE: "true"}
    writer = rows.writeStream.format("keyorder").options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    return query


def tasks_of(rows: Any, folder: Path) -> int:
    """How many tasks write the stream's only batch."""
    found: list[int] = []
    placed = rows.selectExpr("spark_partition_id() as task")
    query = placed.writeStream.foreachBatch(lambda batch, _: found.append(batch.distinct().count()))
    query = query.option("checkpointLocation", str(folder / "count")).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    (count,) = found
    return count


def test_only_a_repartition_by_number_has_a_fixed_number_of_tasks(registered: Any, source: Any, tmp_path: Path) -> None:
    """Adaptive execution puts the partitions of other shuffles together, by the cores that the cluster has."""
    stateless = "spark.sql.adaptive.streaming.stateless.enabled"
    coalesced = tasks_of(source.repartition("key"), tmp_path / "key")
    assert coalesced < 8
    assert tasks_of(source.repartition(8, "key"), tmp_path / "number") == 8
    registered.conf.set(stateless, "false")
    try:
        assert tasks_of(source.repartition("key"), tmp_path / "not-adaptive") == 8
    finally:
        registered.conf.unset(stateless)


def test_a_batch_that_is_run_again_with_fewer_tasks_stops_the_query(
    kafka: KafkaUnderTest, source: Any, topic_name: str, tmp_path: Path
) -> None:
    """The tasks that it does not have any more had committed their rows, which are in others now."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    run = partial(write, kafka, topic_name, tmp_path / "checkpoint")

    def values() -> list[int]:
        return sorted(int(message.value()) for message in read_topic(kafka.client_config(), topic_name))

    # Tasks 0 and 1 have no rows, task 2 commits, and task 3 fails.
    upper = source.where("pmod(hash(key), 4) >= 2")
    failing = upper.repartition(4, "key").selectExpr(
        "key", "if(spark_partition_id() = 3, raise_error('not now'), value) as value"
    )
    with pytest.raises(Exception, match="not now"):
        run(failing)
    committed = values()
    assert 0 < len(committed) < KEYS

    again = upper.repartition(2, "key")
    with pytest.raises(Exception, match=r"TaskCountError.*has 2 tasks now .* committed task 2, whose rows") as stopped:
        run(again)
    assert 'repartition(n, "key")' in str(stopped.value)
    doubled = values()
    assert [value for value in set(doubled) if doubled.count(value) > 1]
    with pytest.raises(Exception, match="TaskCountError"):
        run(again)
    assert values() == doubled


def test_a_batch_that_is_run_again_with_as_many_tasks_is_finished(
    kafka: KafkaUnderTest, source: Any, topic_name: str, tmp_path: Path
) -> None:
    """Some have committed, and others have not. Each marker names the run, by which later batches are not looked at."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    run = partial(write, kafka, topic_name, tmp_path / "checkpoint")

    placed = source.repartition(4, "key")
    with pytest.raises(Exception, match="not now"):
        run(placed.selectExpr("key", "if(spark_partition_id() = 3, raise_error('not now'), value) as value"))
    query = run(placed)

    records = read_topic(kafka.client_config(), topic_name)
    assert sorted(int(record.value()) for record in records) == list(range(KEYS))
    with closing(MarkerReader(kafka.client_config())) as reader:
        markers = reader.of_batch(query.id, 0, 240)
    assert sorted(markers) == [0, 1, 2, 3]
    assert markers[3].run == query.runId
    assert markers[0].run not in ("", query.runId)


def test_only_a_run_s_first_batch_is_looked_at() -> None:
    """Others have no earlier attempt. There is no cluster here: a look would fail."""
    options = SinkOptions({"bootstrap.servers": "127.0.0.1:1"}, "t", exactly_once=True)
    check_task_count(options, [Written(0, 5, query="q"), Written(1, 5, query="q", follows=True)], 3)
    check_task_count(options, [Written(0, 0, query="q"), Written(1, 0, query="q")], 3)
