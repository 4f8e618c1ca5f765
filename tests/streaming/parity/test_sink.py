"""Writes as in Spark's KafkaSinkSuite, each through both formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_source import create, reading, rows_of

BOTH = ("kafka", "keyorder")
pytestmark = pytest.mark.timeout(900)  # several queries of two formats each


@pytest.fixture(scope="module")
def source(spark: Any) -> Any:
    """The session."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


@pytest.fixture(scope="module")
def numbers(source: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stream of five values as strings."""
    folder = str(tmp_path_factory.mktemp("numbers") / "rows")
    source.range(1, 6, 1, 1).selectExpr("cast(id as string) as value").write.parquet(folder)
    return source.readStream.schema("value string").parquet(folder)


def to(kafka: KafkaUnderTest, **options: str) -> dict[str, str]:
    """Options of a sink."""
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.max.block.ms": "5000", **options}


def stream(frame: Any, form: str, options: Mapping[str, str], checkpoint: Path) -> None:
    """Write a stream to its end."""
    writing = frame.writeStream.format(form).options(**options, checkpointLocation=str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(600)


def batch(frame: Any, form: str, options: Mapping[str, str]) -> None:
    """Write a batch."""
    frame.write.format(form).options(**options).mode("append").save()


def values(source: Any, kafka: KafkaUnderTest, topic: str) -> list[bytes]:
    return sorted(row[1] for row in rows_of(reading(source, kafka, "kafka", {"subscribe": topic})))


@pytest.mark.scala(
    "KafkaSinkSuite",
    "streaming - write to kafka with topic field",
    "streaming - write w/o topic field, with topic option",
    "streaming - topic field and topic option",
)
@pytest.mark.parametrize("by", ["column", "option", "both"])
def test_the_topic_of_a_stream(
    source: Any, kafka: KafkaUnderTest, numbers: Any, topic_name: str, tmp_path: Path, by: str
) -> None:
    """By a column, by the option, and the option before the column."""
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        column = "not-there" if by == "both" else topic
        frame = numbers if by == "option" else numbers.selectExpr(f"'{column}' as topic", "value")
        stream(frame, form, to(kafka) if by == "column" else to(kafka, topic=topic), tmp_path / form)
        assert values(source, kafka, topic) == [b"%d" % n for n in range(1, 6)]


@pytest.mark.scala("KafkaSinkSuite", "streaming - sink progress is produced")
def test_the_rows_of_a_stream_are_counted(
    source: Any, kafka: KafkaUnderTest, numbers: Any, topic_name: str, tmp_path: Path
) -> None:
    """In the progress of the query."""
    create(kafka, topic_name, 1)
    for form in BOTH:
        options = to(kafka, topic=topic_name, checkpointLocation=str(tmp_path / form))
        query = numbers.writeStream.format(form).options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        assert sum(progress.sink.numOutputRows for progress in query.recentProgress) == 5


WRONG: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no topic": (["value as key", "value"], {}, "topic"),
    "no value": (["'t' as topic", "value as key"], {}, "value"),
    "topic of another type": (["cast('1' as int) as topic", "value"], {}, "topic"),
    "value of another type": (["'t' as topic", "cast(value as int) as value"], {}, "value"),
    "key of another type": (["'t' as topic", "cast(value as int) as key", "value"], {}, "key"),
    "partition of another type": (["'t' as topic", "value", "value as partition"], {}, "partition"),
    "key serializer": (["'t' as topic", "value"], {"kafka.key.serializer": "foo"}, "key.serializer"),
    "value serializer": (["'t' as topic", "value"], {"kafka.value.serializer": "foo"}, "value.serializer"),
    "a topic that is not there": (["value"], {"topic": "no-such-topic-to-write"}, ""),
}


@pytest.mark.scala(
    "KafkaSinkSuite",
    "streaming - write data with bad schema",
    "streaming - write data with valid schema but wrong types",
    "streaming - exception on config serializer",
    "streaming - write to non-existing topic",
)
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_written(source: Any, kafka: KafkaUnderTest, numbers: Any, tmp_path: Path, name: str) -> None:
    """An error that names the column or the option, and no row in any topic."""
    columns, options, word = WRONG[name]
    for form in BOTH:
        with pytest.raises(Exception, match=r".") as raised:
            stream(numbers.selectExpr(*columns), form, to(kafka, **options), tmp_path / form)
        assert word in str(raised.value)


@pytest.mark.scala("KafkaSinkSuite", "batch - write to kafka", "SPARK-20496: batch - enforce analyzed plans")
def test_headers_and_computed_values(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """No headers, one, several of one name; values that the query computes."""
    rows = [
        ("1", [("a", b"b")]),
        ("2", [("c", b"d"), ("e", None)]),
        ("3", [("g", b"h"), ("g", b"i")]),
        ("4", None),
        ("5", []),
    ]
    frame = source.createDataFrame(rows, "value string, headers array<struct<key:string,value:binary>>").coalesce(1)
    found = []
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        batch(frame, form, to(kafka, topic=topic))
        batch(source.range(1, 1000).selectExpr("to_json(struct(*)) as value"), form, to(kafka, topic=topic))
        read = reading(source, kafka, "kafka", {"subscribe": topic, "includeHeaders": "true"})
        found.append(sorted((bytes(r["value"]), r["headers"]) for r in read.where("offset < 5").collect()))
        assert read.count() == 5 + 999
    assert found[1] == found[0]


@pytest.mark.scala("KafkaSinkSuite", "batch - partition column and partitioner priorities")
def test_where_rows_go(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Keys to the same partitions; a partition by hand only where it is allowed; no partitioner of one's own."""
    frame = source.range(40).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    found = []
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 4)
        batch(frame, form, to(kafka, topic=topic))
        read = reading(source, kafka, "kafka", {"subscribe": topic}).select("key", "partition")
        found.append(sorted((bytes(r["key"]), r["partition"]) for r in read.collect()))
    assert found[1] == found[0]
    by_hand = frame.selectExpr("key", "value", "2 as partition")
    create(kafka, topic_name, 4)
    with pytest.raises(Exception, match=r"keyorder\.allow\.explicit\.partition"):
        batch(by_hand, "keyorder", to(kafka, topic=topic_name))
    batch(by_hand, "keyorder", to(kafka, **{"topic": topic_name, "keyorder.allow.explicit.partition": "true"}))
    read = reading(source, kafka, "kafka", {"subscribe": topic_name})
    assert [r["partition"] for r in read.select("partition").distinct().collect()] == [2]
    with pytest.raises(Exception, match=r"kafka\.partitioner\.class"):
        batch(frame, "keyorder", to(kafka, **{"topic": topic_name, "kafka.partitioner.class": "com.example.Mine"}))


@pytest.mark.scala(
    "KafkaSinkSuite", "batch - null topic field value, and no topic option", "batch - unsupported save modes"
)
def test_null_topics_and_save_modes(source: Any, kafka: KafkaUnderTest) -> None:
    """A row without a topic stops the write; a log is neither overwritten nor skipped."""
    frame = source.createDataFrame([(None, "1")], "topic string, value string")
    for form in BOTH:
        with pytest.raises(Exception, match=r"(?i)null topic"):
            batch(frame, form, to(kafka))
        for mode in ("overwrite", "ignore"):
            with pytest.raises(Exception, match=r"(?i)mode|truncate"):
                frame.write.format(form).options(**to(kafka)).mode(mode).save()


@pytest.mark.scala("KafkaSinkSuite", "generic - write big data with small producer buffer")
def test_a_small_buffer_makes_the_task_wait(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Rows nearly as big as the buffer: each waits for room, none fails."""
    frame = source.range(0, 300, 1, 1).selectExpr("cast(repeat('x', 15000) as binary) as value")
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        batch(frame, form, to(kafka, **{"topic": topic, "kafka.buffer.memory": "16384", "kafka.max.block.ms": "60000"}))
        assert reading(source, kafka, "kafka", {"subscribe": topic}).count() == 300
