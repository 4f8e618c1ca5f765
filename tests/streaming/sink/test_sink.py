"""Rows of a DataFrame and of a streaming query as records on a real broker."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from keyorder import Layout, TopicAdmin
from keyorder.connector.crash import SINK_STEPS
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_driver import SparkDriver, faults, read_topic


@pytest.fixture
def registered(spark: Any) -> Any:
    """The session, which knows the format."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


def per_key(messages: list[Any]) -> dict[bytes, list[bytes]]:
    """Values of each key in the order of the log; all tests here write a key to one partition at a time."""
    keys: dict[bytes, list[bytes]] = {}
    for message in messages:
        keys.setdefault(message.key(), []).append(message.value())
    return keys


def test_a_batch_is_written_with_keys_headers_and_topics(
    registered: Any, kafka: KafkaUnderTest, topic_name: str
) -> None:
    admin = TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create(topic_name, 3)
    rows = [(f"k{n}", f"v{n}", [("h", b"x")] if n % 2 else None, topic_name) for n in range(40)]
    frame = registered.createDataFrame(
        rows, "key string, value string, headers array<struct<key:string,value:binary>>, topic string"
    )
    frame.write.format("keyorder").option("kafka.bootstrap.servers", kafka.bootstrap_servers).mode("append").save()
    found = read_topic(kafka.client_config(), topic_name)
    assert per_key(found) == {f"k{n}".encode(): [f"v{n}".encode()] for n in range(40)}
    layout = Layout(3, 3)
    for message in found:
        assert message.partition() == layout.home(message.key())
        odd = int(message.key()[1:]) % 2
        assert (message.headers() or []) == ([("h", b"x")] if odd else [])


def test_versions_of_a_stream_are_the_last_header_and_grow_with_its_batches(
    registered: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Each file is a batch of one task."""
    TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers}).create(topic_name, 1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic_name,
        "keyorder.sink.version.header": "v",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    rows = registered.range(0, 5, 1, 1).selectExpr("'k' as key", "cast(id as string) as value")
    for _ in range(2):
        rows.write.mode("append").parquet(str(tmp_path / "rows"))
    source = registered.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "rows"))
    query = source.writeStream.format("keyorder").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    versions = [struct.unpack(">q", dict(m.headers())["v"])[0] for m in read_topic(kafka.client_config(), topic_name)]
    assert versions == [*range(5), *range(1 << 35, (1 << 35) + 5)]


@pytest.mark.parametrize("named_by", ["option", "column"])
def test_versions_of_a_batch_write_tell_its_own_rows_apart_and_no_more(
    registered: Any, kafka: KafkaUnderTest, topic_name: str, named_by: str
) -> None:
    """Each write begins at 0 again, so in a topic that is compacted by them its rows would lose to those before."""
    admin, competing = TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers}), f"{topic_name}-by-v"
    admin.create(topic_name, 1)
    by_v = {"cleanup.policy": "compact", "compaction.strategy": "header", "compaction.strategy.header": "v"}
    admin.create(competing, 1, config=by_v)
    rows = registered.range(0, 5, 1, 1).selectExpr("'k' as key", "cast(id as string) as value")

    def write(topic: str) -> None:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "keyorder.sink.version.header": "v"}
        placed = rows.selectExpr("*", f"'{topic}' as topic") if named_by == "column" else rows
        if named_by == "option":
            options["topic"] = topic
        placed.write.format("keyorder").options(**options).mode("append").save()

    for _ in range(2):
        write(topic_name)
    versions = [struct.unpack(">q", dict(m.headers())["v"])[0] for m in read_topic(kafka.client_config(), topic_name)]
    assert versions == [*range(5), *range(5)]
    with pytest.raises(Exception, match="a batch write has no number that grows from write to write"):
        write(competing)
    assert read_topic(kafka.client_config(), competing) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topic": "no-such-topic-anywhere"}, "no-such-topic-anywhere"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"keyorder.sink.exactly.once": "si"}, "keyorder.sink.exactly.once"),
    ],
)
def test_bad_options_stop_the_write_with_their_name(
    registered: Any, kafka: KafkaUnderTest, topic_name: str, change: dict[str, str], words: str
) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic_name, **change}
    frame = registered.range(0, 3, 1, 1).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match=words):
        frame.write.format("keyorder").options(**options).mode("append").save()


def test_overwriting_is_refused(registered: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    frame = registered.range(0, 3, 1, 1).selectExpr("cast(id as string) as value")
    writer = frame.write.format("keyorder").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    with pytest.raises(Exception, match="Save mode Overwrite not allowed"):
        writer.option("topic", topic_name).mode("overwrite").save()


def numbers_by_key(spark: Any, kafka: KafkaUnderTest, topic: str, checkpoint: Path, **options: str) -> Any:
    """A query that writes 0, 1, 2, … under key `number % 20`; one task has all numbers of a key, in their order."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 60).option("numPartitions", 2).load()
    rows = source.selectExpr("cast(value % 20 as string) as key", "cast(value as string) as value")
    writer = rows.writeStream.format("keyorder").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint)).options(**options)
    return writer.trigger(processingTime="100 milliseconds").start()


def await_batches(query: Any, more: int) -> None:
    """Wait until `more` further batches were finished; an error of the query is raised here."""
    progress = query.lastProgress
    wanted = (progress["batchId"] if progress else -1) + more
    while (query.lastProgress or {"batchId": -1})["batchId"] < wanted:
        assert not query.awaitTermination(0.1), "the query stopped"


def values_by_key(kafka: KafkaUnderTest, topic: str) -> dict[int, list[int]]:
    """Committed values of each key in the order of their timestamps."""
    values: dict[int, list[int]] = {}
    for message in sorted(read_topic(kafka.client_config(), topic), key=lambda m: m.timestamp()[1]):
        values.setdefault(int(message.key()), []).append(int(message.value()))
    return values


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_query_writes_through_growth_and_shrink(
    registered: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, exactly_once: str
) -> None:
    admin = TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create(topic_name, 2)
    query = numbers_by_key(
        registered, kafka, topic_name, tmp_path / "checkpoint", **{"keyorder.sink.exactly.once": exactly_once}
    )
    try:
        await_batches(query, 2)
        for count in (3, 5, 2):
            (admin.expand if count > 2 else admin.shrink)(topic_name, count)
            await_batches(query, 2)
    finally:
        query.stop()
    for key, values in values_by_key(kafka, topic_name).items():
        assert values == list(range(key, values[-1] + 1, 20))


@pytest.mark.nightly
@pytest.mark.timeout(2_400)
def test_workers_and_drivers_killed_in_each_step_double_and_lose_nothing(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers}).create(topic_name, 3)
    kills = int(os.environ.get("KEYORDER_SINK_KILLS", "3"))
    finished = -1
    spec = {"folder": str(tmp_path), "servers": kafka.bootstrap_servers, "topic": topic_name, "rows": 60}
    for turn in range(kills):
        crashed = tmp_path / f"crashed-{turn}"
        step = SINK_STEPS[turn % len(SINK_STEPS)]
        driver = SparkDriver(spec, {"KEYORDER_CRASH_AT": step, "KEYORDER_CRASH_ONCE": str(crashed)})
        try:
            driver.await_batch(finished + 3)
            finished = driver.finished
        finally:
            driver.kill()
        assert crashed.exists(), "no worker reached that step"
    values = values_by_key(kafka, topic_name)
    assert faults(values) == {"lost": 0, "doubled": 0, "reordered": 0}
    assert min(each[-1] for each in values.values()) >= (finished + 1) * 60 - 20
