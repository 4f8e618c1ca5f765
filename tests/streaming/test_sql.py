"""SQL, threads and modes of writing: what Spark gives a source written in Python, and what it does not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_source import create, reading, rows_of, send


@pytest.fixture(scope="module")
def source(spark: Any) -> Iterator[Any]:
    """The session."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


def test_a_view_by_sql_reads_the_topic_as_it_is(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """CREATE TEMPORARY VIEW ... USING; beside it the same with Spark's own source."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, b"k", b"1")])
    for form in ("kafka", "keyorder"):
        source.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW of_{form} USING {form} "
            f"OPTIONS ('kafka.bootstrap.servers' '{kafka.bootstrap_servers}', subscribe '{topic_name}')"
        )
    for count in (1, 2):
        found = [source.sql(f"SELECT count(*) FROM of_{form}").collect()[0][0] for form in ("kafka", "keyorder")]
        assert found == [count, count]
        send(kafka, topic_name, [(0, b"k", b"2")])


def test_a_table_of_the_catalog_is_told_how_to_be_read(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Spark does not hand the options of CREATE TABLE to a Python source; with the query's own it can be read."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, b"k", b"1")])
    given = f"'kafka.bootstrap.servers' = '{kafka.bootstrap_servers}', 'subscribe' = '{topic_name}'"
    source.sql(f"CREATE TABLE catalogued USING keyorder OPTIONS ({given})")
    try:
        with pytest.raises(Exception, match=r"CREATE TEMPORARY VIEW"):
            source.sql("SELECT * FROM catalogued").collect()
        assert source.sql(f"SELECT count(*) FROM catalogued WITH ({given})").collect()[0][0] == 1
    finally:
        source.sql("DROP TABLE catalogued")


def test_a_view_of_the_catalog_reads_and_a_table_is_written(
    source: Any, kafka: KafkaUnderTest, topic_name: str
) -> None:
    """The options stand in the view's query, and in the INSERT; a stream is given them beside the table's name."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, b"k", b"1")])
    at = f"'kafka.bootstrap.servers' = '{kafka.bootstrap_servers}'"
    source.sql(f"CREATE TABLE orders_topic USING keyorder OPTIONS ({at}, 'subscribe' = '{topic_name}')")
    source.sql(f"CREATE VIEW orders AS SELECT * FROM orders_topic WITH ({at}, 'subscribe' = '{topic_name}')")
    source.sql("CREATE TABLE orders_sink (key BINARY, value BINARY) USING keyorder")
    try:
        for count in (1, 2, 4):
            assert source.sql("SELECT count(*) FROM orders").collect()[0][0] == count
            to = f"{at}, 'topic' = '{topic_name}'"
            source.sql(f"INSERT INTO orders_sink WITH ({to}) SELECT key, value FROM orders").collect()
        with pytest.raises(Exception, match=r"INSERT INTO the_table WITH"):
            source.sql("INSERT INTO orders_sink SELECT key, value FROM orders").collect()
        with pytest.raises(Exception, match=r"INSERT INTO the_table WITH"):
            source.sql("CREATE TABLE orders_copy USING keyorder AS SELECT key, value FROM orders").collect()
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
        stream = source.readStream.options(**options, startingOffsets="earliest").table("orders_topic")
        query = stream.writeStream.format("memory").queryName("orders_seen").trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        assert source.table("orders_seen").count() == 8
    finally:
        source.sql("DROP VIEW orders")
        for table in ("orders_topic", "orders_sink"):
            source.sql(f"DROP TABLE {table}")


def test_writes_from_a_thread_and_in_each_mode(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """As the guide says: a mode is given, the thread's session is made active first, and updates go by foreachBatch."""
    create(kafka, topic_name, 1)
    to = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic_name}
    rows = source.range(3).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    with pytest.raises(Exception, match="ErrorIfExists"):
        rows.write.format("keyorder").options(**to).save()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            source.createDataFrame([(1,)], "x int")  # makes the session this thread's own
            rows.write.format("keyorder").options(**to).mode("append").save()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert not failed
    read = reading(source, kafka, "keyorder", {"subscribe": topic_name})
    assert len(rows_of(read)) == 3

    stream = reading(source, kafka, "keyorder", {"subscribe": topic_name, "startingOffsets": "earliest"}, stream=True)
    counts = stream.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    with pytest.raises(Exception, match="does not support Update mode"):
        counts.writeStream.format("keyorder").options(**to, checkpointLocation=str(tmp_path / "1")).outputMode(
            "update"
        ).trigger(availableNow=True).start().awaitTermination(600)

    def append(batch: Any, number: int) -> None:
        batch.write.format("keyorder").options(**to).mode("append").save()

    query = counts.writeStream.foreachBatch(append).outputMode("update")
    assert (
        query.option("checkpointLocation", str(tmp_path / "2")).trigger(availableNow=True).start().awaitTermination(600)
    )
    assert len(rows_of(read)) == 6
