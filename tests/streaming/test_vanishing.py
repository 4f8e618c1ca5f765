"""Trigger.AvailableNow has fixed what it reads: what vanishes meanwhile stops the query, as with Spark's own source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_source import create, delete, reading, rows_of, send


def fewer_partitions(kafka: KafkaUnderTest, topic: str) -> None:
    delete(kafka, topic)
    create(kafka, topic, 3)
    send(kafka, topic, [(n % 3, None, b"new") for n in range(60)])


def fewer_records(kafka: KafkaUnderTest, topic: str) -> None:
    delete(kafka, topic)
    create(kafka, topic, 5)
    send(kafka, topic, [(n % 5, None, b"new") for n in range(10)])


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "Query with Trigger.AvailableNow should throw error when topic partitions got unavailable during subsequent batches",
    "Query with Trigger.AvailableNow should throw error when offset(s) in planned topic partitions got unavailable during subsequent batches",  # noqa: E501
)
@pytest.mark.parametrize("vanish", [delete, fewer_partitions, fewer_records])
@pytest.mark.parametrize("form", ["kafka", "keyorder"])
def test_what_vanishes_stops_the_query(
    spark: Any,
    kafka: KafkaUnderTest,
    topic_name: str,
    tmp_path: Path,
    form: str,
    vanish: Callable[[KafkaUnderTest, str], None],
) -> None:
    """After the first batch the topic is deleted, or made again and smaller. Also with failOnDataLoss=false."""
    spark.dataSource.register(KeyorderDataSource)
    create(kafka, topic_name, 5)
    send(kafka, topic_name, [(n % 5, None, b"old") for n in range(15)])
    batches: dict[int, list[Any]] = {}

    def take(frame: Any, number: int) -> None:
        batches[number] = rows_of(frame)
        if number == 0:
            vanish(kafka, topic_name)

    options = {"subscribe": topic_name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
    options["failOnDataLoss"] = "false"
    options["kafka.allow.auto.create.topics"] = "false"
    stream = reading(spark, kafka, form, options, stream=True).writeStream.foreachBatch(take)
    query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=r"AvailableNow|does not exist|not exist|UnknownTopicOrPartition"):
        query.awaitTermination(600)

    if form == "keyorder":  # theirs sees records that are fewer a batch later, now and then
        assert [row[1] for rows in batches.values() for row in rows] == [b"old"] * 5
