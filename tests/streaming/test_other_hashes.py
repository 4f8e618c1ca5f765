"""Spark on a topic whose keys a stock producer placed by CRC-32: read and written by the topic's own hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from keyorder import Layout, TopicAdmin
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_driver import read_topic
from support.spark_source import create, reading

KEYS = [f"k{n}" for n in range(40)]


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    """The session, which knows the format."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


def test_source_and_sink_go_by_the_topics_hash(
    session: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """A stock backlog, adopted and grown; the sink writes on behind it, and a query reads each key in order."""
    create(kafka, topic_name, 2)
    stock = Producer({**kafka.client_config(), "linger.ms": 5})  # places keys by CRC-32, as it does by default
    for number in range(3):
        for key in KEYS:
            stock.produce(topic_name, str(number), key)
    assert stock.flush(120) == 0
    admin = TopicAdmin(kafka.client_config())
    assert admin.adopt(topic_name).layout == Layout(2, 2, "crc32")

    def write(first: int) -> None:
        rows = [(key, str(number)) for number in (first, first + 1) for key in KEYS]
        frame = session.createDataFrame(rows, "key string, value string").coalesce(1)
        writer = frame.write.format("keyorder").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer.option("topic", topic_name).mode("append").save()

    write(3)
    admin.expand(topic_name, 3)
    write(5)
    layout = Layout(2, 3, "crc32")
    newest = [m for m in read_topic(kafka.client_config(), topic_name) if int(m.value()) >= 5]
    assert len(newest) == 2 * len(KEYS)
    assert {(m.key(), m.partition()) for m in newest} == {(key.encode(), layout.home(key)) for key in KEYS}

    seen: list[list[tuple[bytes, int]]] = []

    def take(frame: Any, _: int) -> None:
        rows = sorted(frame.collect(), key=lambda row: (row["partition"], row["offset"]))
        seen.append([(bytes(row["key"]), int(row["value"])) for row in rows])

    options = {"subscribe": topic_name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
    stream = reading(session, kafka, "keyorder", options, stream=True)
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    assert query.start().awaitTermination(600)
    read: dict[bytes, list[int]] = {}
    for batch in seen:
        for key, number in batch:
            read.setdefault(key, []).append(number)
    assert read == {key.encode(): list(range(7)) for key in KEYS}
