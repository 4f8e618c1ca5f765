"""The Spark job: batch and stream give the view's table, on random histories and on a real topic."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction import silence
from keyorder.compaction.errors import LogShorterError, TopicReplacedError
from keyorder.compaction.spark import compact
from keyorder.compaction.spark_scan import Scan
from keyorder.compaction.store import VersionStore
from keyorder.compaction.strategy import Strategy, StrategyKind, encode_version
from keyorder.compaction.versions import COPY_HEADER, Version, copied_place, place_epoch
from keyorder.compaction.view import CompactedView
from keyorder.connector.consuming.view import unmanaged
from keyorder.connector.log_offsets import LogOffsets
from keyorder.connector.metadata import identify
from keyorder.partitioner.epochs import Epoch
from keyorder.partitioner.errors import ConfigError, TopicNotFoundError
from keyorder.partitioner.routing import HINT_HEADER, Routing
from keyorder.partitioner.timeline import Timeline
from pyspark.errors import PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from support.cleaning import HELD, dump
from support.cluster import ClusterSpec, KafkaUnderTest
from support.spark_source import create, delete, send

pytestmark = pytest.mark.kafka  # a JVM of its own: too slow for `make check`
KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)
TIMELINE = Timeline("t", "id", "", 1, (Epoch(0, 1), Epoch(3, 2, {0: 40}, {1: 5}), Epoch(4, 1, {1: 40}, {0: 80})))
STRATEGIES = [
    Strategy(),
    Strategy(StrategyKind.TIMESTAMP),
    Strategy(StrategyKind.HEADER, "v"),
    Strategy(StrategyKind.HEADER, "v", positive_only=True),
]


def row(partition: int, offset: int, key: bytes | None, value: bytes | None, ms: int, headers: Any) -> tuple[Any, ...]:
    """A row as Spark's Kafka source has it."""
    stamp = datetime.fromtimestamp(ms / 1000, timezone.utc)
    return key, value, "t", partition, offset, stamp, 0, headers


def random_rows(seed: int) -> list[tuple[Any, ...]]:
    """Keys of two homes over three epochs, some where they never lived; versions of all kinds; tombstones of both kinds."""
    chance = random.Random(seed)
    rows = []
    for partition in (0, 1):
        for offset in range(120):
            headers: list[tuple[str, bytes | None]] = []
            for _ in range(chance.randrange(3)):
                data = chance.choice(
                    [encode_version(chance.choice([-(2**63), -2, 0, 1, 2, 2**63 - 1])), b"short", None]
                )
                headers.append((chance.choice(["v", "v", "w"]), data))
            if chance.random() < 0.3:
                headers.append((HINT_HEADER, chance.choice([b"3", b"4", b"4", b"x"])))
            value = None if chance.random() < 0.3 else b"%d:%d" % (partition, offset)
            if chance.random() < 0.2:
                topic_id, sum_ = (
                    chance.choice(["id", "id", "id", "other"]),
                    crc32(value or b"") + (chance.random() < 0.1),
                )
                place = f"{chance.choice([-1, 0, 3, 4])}:{1000 + 1000 * partition + offset}"  # of no other record here
                headers.append((COPY_HEADER, f"{topic_id}:{place}:{sum_}".encode()))
            key = None if chance.random() < 0.02 else b"k%d" % chance.randrange(25)
            rows.append(row(partition, offset, key, value, chance.randrange(5), headers or None))
    return rows


def write_aborted(kafka: KafkaUnderTest, topic: str, key: str) -> None:
    """A record of a version above all others, in a transaction that is given up."""
    producer = Producer({**kafka.client_config(), "transactional.id": f"aborted-{topic}"})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, "aborted", key, partition=0, headers=[("v", encode_version(99))])
    assert producer.flush(120) == 0
    producer.abort_transaction(120)


def by_the_view(rows: list[tuple[Any, ...]], strategy: Strategy) -> dict[bytes, bytes]:
    """What the view's own fold makes of these rows."""
    routing, store = Routing(TIMELINE), VersionStore()
    for key, value, _, partition, offset, stamp, _, headers in rows:
        hint = next((int(v) for n, v in reversed(headers or []) if n == HINT_HEADER and v != b"x"), None)
        if headers and [n for n, _ in headers].count(HINT_HEADER) and dict(headers)[HINT_HEADER] == b"x":
            hint = None
        if key is None or (value is None and routing.is_move_tombstone(key, partition, hint)):
            continue
        ms = round(stamp.timestamp() * 1000)
        version = strategy.version(offset, ms, headers)
        original = None if strategy == Strategy() else copied_place(headers or [], "id", value)
        place = original or (place_epoch(routing, key, partition, offset), offset)
        store.put(key, Version(version, *place, partition, ms, headers, value))
    return {key: entry.best.value for key, entry in store.entries() if entry.best.value is not None}


@pytest.mark.kip("K280-08", "K280-12", "K280-16", "C-19")
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"{s.kind.value}-{s.positive_only}")
def test_a_batch_equals_the_view(spark: SparkSession, strategy: Strategy) -> None:
    """On a random history over growth and shrink, with foreign records, both kinds of null values, bad headers."""
    for seed in range(3):
        rows = random_rows(seed)
        source = spark.createDataFrame(rows, KAFKA).repartition(3)
        found = compact(spark, source=source, timeline=TIMELINE, strategy=strategy)

        assert found.columns == source.columns
        assert {bytes(r["key"]): bytes(r["value"]) for r in found.collect()} == by_the_view(rows, strategy), seed


@pytest.mark.kip("K280-08", "K280-19")
def test_a_stream_emits_what_supersedes(spark: SparkSession, tmp_path: Path) -> None:
    """Over several batches and a restart: each emitted row is a new highest, the last one of each key is the view's."""
    strategy = Strategy(StrategyKind.HEADER, "v")
    rows = random_rows(7)
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    source = tmp_path / "in"
    source.mkdir()
    stream = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1).parquet(str(source))
    with pytest.raises(ConfigError, match="RocksDB"):
        compact(spark, source=stream, timeline=TIMELINE, strategy=strategy)
    emitted: list[Row] = []
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        for part in (rows[::2], rows[1::2]):
            spark.createDataFrame(part, KAFKA).coalesce(1).write.mode("append").parquet(str(source))
            query = (
                compact(spark, source=stream, timeline=TIMELINE, strategy=strategy)
                .writeStream.outputMode("append")
                .foreachBatch(lambda frame, _: emitted.extend(frame.collect()))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(600)
            assert query.exception() is None
    finally:
        spark.conf.set(provider, before)
    last = {bytes(r["key"]): r["value"] for r in emitted}
    assert {key: bytes(value) for key, value in last.items() if value is not None} == by_the_view(rows, strategy)
    assert len(emitted) <= 2 * len(last)


def test_a_source_that_lacks_columns_is_refused(spark: SparkSession) -> None:
    """With what it lacks and how to have it."""
    source = spark.createDataFrame(random_rows(1), KAFKA).drop("headers")
    with pytest.raises(ConfigError, match="headers; read it with includeHeaders=true"):
        compact(spark, source=source, timeline=TIMELINE, strategy=Strategy(StrategyKind.HEADER, "v"))
    with pytest.raises(ConfigError, match="config and topic"):
        compact(spark, source=source)


@pytest.mark.parametrize("strategy", STRATEGIES[:2], ids=lambda s: s.kind.value)
def test_a_moved_key_is_not_deleted(spark: SparkSession, strategy: Strategy) -> None:
    """By a move tombstone with the latest timestamp: only its header tells it from a deletion, so that headers are needed;
    by offset the record at the new home is the later one whatever else there is.
    """
    rows = [
        row(0, 10, b"k1", b"old", 1, None),
        row(1, 20, b"k1", b"new", 2, None),
        row(0, 50, b"k1", None, 3, [(HINT_HEADER, b"3")]),
    ]
    source = spark.createDataFrame(rows, KAFKA)
    found = compact(spark, source=source, timeline=TIMELINE, strategy=strategy)
    assert {bytes(r["key"]): bytes(r["value"]) for r in found.collect()} == {b"k1": b"new"}
    without = source.drop("headers")
    if strategy.kind is StrategyKind.OFFSET:
        found = compact(spark, source=without, timeline=TIMELINE, strategy=strategy)
        assert {bytes(r["key"]): bytes(r["value"]) for r in found.collect()} == {b"k1": b"new"}
    else:
        with pytest.raises(ConfigError, match="headers; read it with includeHeaders=true"):
            compact(spark, source=without, timeline=TIMELINE, strategy=strategy)


@pytest.mark.kip("K280-08")
def test_a_real_topic_gives_the_views_table(
    spark: SparkSession, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Its strategy and its timeline come from the cluster, also in the tasks; the result is a Parquet file like any.
    An aborted record is no version, unless the options ask for such records.
    """
    admin = TopicAdmin(kafka.client_config())
    config = {**HELD, "compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}
    admin.create(topic_name, 1, config=config)
    chance = random.Random(11)
    for count in (2, 3, 1):
        with OrderedProducer(kafka.client_config()) as producer:
            for i in range(60):
                value = None if chance.random() < 0.2 else f"{count}-{i}"
                version = [("v", encode_version(chance.randrange(9)))]
                producer.produce(topic_name, value, f"k{chance.randrange(20)}", headers=version)
            assert producer.flush(120) == 0
        (admin.expand if count > 1 else admin.shrink)(topic_name, count)
    write_aborted(kafka, topic_name, "k1")
    with CompactedView(kafka.client_config(), topic_name) as view:
        expected = dict(view.load().items())
        assert view.counts.move_tombstones > 0
    rows = [row(r.partition, r.offset, r.key, r.value, r.timestamp, list(r.headers)) for r in dump(kafka, topic_name)]
    source = spark.createDataFrame(rows, KAFKA)

    compact(spark, kafka.client_config(), topic_name, source=source).write.parquet(str(tmp_path / "out"))

    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {bytes(r["key"]): bytes(r["value"]) for r in found} == expected
    read = compact(spark, kafka.client_config(), topic_name, tombstones=True)
    assert read.columns == source.columns
    rows_read = {bytes(r["key"]): r for r in read.collect()}
    assert {key: bytes(r["value"]) for key, r in rows_read.items() if r["value"] is not None} == expected
    assert len(rows_read) > len(expected)
    whole = {
        (r["partition"], r["offset"]): (r["key"], r["value"], r["timestamp"], r["headers"]) for r in source.collect()
    }
    for r in rows_read.values():
        assert (r["key"], r["value"], r["timestamp"], r["headers"] or []) == whole[r["partition"], r["offset"]]
    by_source = compact(spark, kafka.client_config(), topic_name, options={"fetchOffset.numRetries": "5"})
    assert {bytes(r["key"]): bytes(r["value"]) for r in by_source.collect()} == expected
    asked = {"Kafka.Isolation.Level": "read_uncommitted"}  # Spark takes the names of options in any case
    by_source = compact(spark, kafka.client_config(), topic_name, options=asked)
    found = by_source.collect()
    assert {bytes(r["key"]): bytes(r["value"]) for r in found} == {**expected, b"k1": b"aborted"}
    by_time = Strategy(StrategyKind.TIMESTAMP)
    with pytest.raises(ConfigError, match="headers; read it with includeHeaders=true"):
        compact(spark, kafka.client_config(), topic_name, source=source.drop("headers"), strategy=by_time)


@pytest.mark.kip("K280-08")
def test_from_topic_to_topic(spark: SparkSession, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """As a batch and as a stream over a growth: what they write is read back, by the default strategy, as the view's table.
    An aborted record is no version of its key.
    """
    admin = TopicAdmin(kafka.client_config())
    config = {**HELD, "compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}
    admin.create(topic_name, 1, config=config)
    for kind in ("batch", "stream"):
        admin.create(f"{topic_name}-{kind}", 2, config={"cleanup.policy": "compact", "keyorder.view.age.ms": "200"})
    write_aborted(kafka, topic_name, "k1")
    chance = random.Random(3)
    sink = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        for part in range(2):
            with OrderedProducer(kafka.client_config()) as producer:
                for i in range(60):
                    value = None if chance.random() < 0.2 else f"{part}-{i}"
                    version = [("v", encode_version(chance.randrange(9)))]
                    producer.produce(topic_name, value, f"k{chance.randrange(15)}", headers=version)
                assert producer.flush(120) == 0
            query = (
                compact(spark, kafka.client_config(), topic_name, streaming=True)
                .select("key", "value")
                .writeStream.outputMode("append")
                .format("keyorder")
                .options(**sink, topic=f"{topic_name}-stream", checkpointLocation=str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(600)
            assert query.exception() is None
            if part == 0:
                admin.expand(topic_name, 2)
    finally:
        spark.conf.set(provider, before)
    latest = compact(spark, kafka.client_config(), topic_name).select("key", "value")
    latest.write.format("keyorder").mode("append").options(**sink, topic=f"{topic_name}-batch").save()

    tables = []
    for name in (topic_name, f"{topic_name}-batch", f"{topic_name}-stream"):
        with CompactedView(kafka.client_config(), name) as view:
            tables.append(dict(view.load().items()))
    assert tables[0]
    assert tables[1] == tables[0]
    assert tables[2] == tables[0]


@pytest.mark.kip("K280-08")
def test_a_topic_without_a_timeline_and_an_empty_one(
    spark: SparkSession, kafka: KafkaUnderTest, topic_name: str
) -> None:
    """By the strategy of the call; an empty topic gives no rows; a missing one is named.

    Headers are needed by timestamp once it has a timeline, even if it got that after the call: from then on keys may move.
    """
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 3)])[topic_name].result(120)
    strategy = Strategy(StrategyKind.HEADER, "v")
    assert compact(spark, kafka.client_config(), topic_name, strategy=strategy).collect() == []
    producer = Producer(kafka.client_config())
    for i in range(90):
        producer.produce(topic_name, f"{i}", f"k{i % 10}", headers=[("v", encode_version(-i))], partition=i % 3)
    producer.produce(topic_name, "no key")
    assert producer.flush(120) == 0
    found = compact(spark, kafka.client_config(), topic_name, strategy=strategy)
    assert {bytes(r["key"]): bytes(r["value"]) for r in found.collect()} == {b"k%d" % i: b"%d" % i for i in range(10)}
    source = found.drop("headers")
    by_time = Strategy(StrategyKind.TIMESTAMP)
    now, later = [
        compact(spark, kafka.client_config(), topic_name, source=source, strategy=by_time) for _ in ("now", "later")
    ]
    assert len(now.collect()) == 10
    TopicAdmin(kafka.client_config()).adopt(topic_name, accept_misplaced=True)
    with pytest.raises(PythonException, match="headers; read it with includeHeaders=true"):
        later.collect()
    with pytest.raises(TopicNotFoundError):
        compact(spark, kafka.client_config(), f"{topic_name}-missing")


def test_a_task_of_little_memory_gives_what_it_has(kafka: KafkaUnderTest, topic_name: str) -> None:
    """In parts, each key's highest version among them; without one the same in a single row for each key."""
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    producer = Producer(kafka.client_config())
    for i in range(3000):
        producer.produce(topic_name, f"{i}", f"k{i % 100}", headers=[("v", encode_version(-i))])
    assert producer.flush(120) == 0
    timeline = Timeline(topic_name, "id", "", 1, (Epoch(0, 1),))
    topic_id = identify(admin, topic_name, kafka.bootstrap_servers).topic_id
    config = {**kafka.client_config(), "fetch.message.max.bytes": 4000, "queued.max.messages.kbytes": 1}
    for memory, most in ((10**9, 100), (0, 3000)):
        strategy = Strategy(StrategyKind.HEADER, "v")
        scan = Scan(config, topic_name, timeline, True, strategy, [(0, 3000)], topic_id, memory)
        rows = pa.Table.from_batches(scan(iter([pa.RecordBatch.from_pydict({"id": [0]})]))).to_pylist()
        assert 100 <= len(rows) <= most
        best = {row["key"]: row for row in sorted(rows, key=lambda row: row["version"])}
        assert {key: row["value"] for key, row in best.items()} == {b"k%d" % i: b"%d" % i for i in range(100)}


@pytest.mark.parametrize("records", [3, 30], ids=["shorter", "longer"])
def test_a_topic_that_was_made_anew_is_not_read_as_the_old_one(
    spark: SparkSession, start_kafka: Callable[[ClusterSpec], KafkaUnderTest], topic_name: str, records: int
) -> None:
    """The ends are those of the old one: an action on the same frame says so, and does not wait for what cannot come."""
    kafka = start_kafka(ClusterSpec(1))
    try:
        create(kafka, topic_name, 1)
        send(kafka, topic_name, [(0, b"k%d" % n, b"old") for n in range(10)])
        latest = compact(spark, kafka.client_config(), topic_name)
        assert latest.count() == 10
        delete(kafka, topic_name)
        with pytest.raises(PythonException, match=f"TopicNotFoundError.*{topic_name}"):
            latest.count()
        create(kafka, topic_name, 1)
        send(kafka, topic_name, [(0, b"k%d" % n, b"new") for n in range(records)])
        with pytest.raises(PythonException, match=f"TopicReplacedError.*{topic_name}"):
            latest.collect()
        found = compact(spark, kafka.client_config(), topic_name)
        assert [bytes(r["value"]) for r in found.collect()] == [b"new"] * records
    finally:
        kafka.stop()


def scan_of(kafka: KafkaUnderTest, topic: str, end: int, memory: int = 10**9) -> Scan:
    """Of the one partition of a topic that is there, up to `end`."""
    topic_id = identify(kafka.admin(), topic, kafka.bootstrap_servers).topic_id
    known = replace(unmanaged(topic, 1), topic_id=topic_id)
    return Scan(kafka.client_config(), topic, known, False, Strategy(), [(0, end)], topic_id, memory)


def test_a_topic_that_is_made_anew_while_it_is_read(
    start_kafka: Callable[[ClusterSpec], KafkaUnderTest], topic_name: str
) -> None:
    """A task does not end as if all that it has read were of one topic."""
    kafka = start_kafka(ClusterSpec(1))
    try:
        create(kafka, topic_name, 1)
        send(kafka, topic_name, [(0, b"k%d" % n, b"old") for n in range(10)])
        batches = scan_of(kafka, topic_name, 10, memory=0)(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
        assert next(batches).num_rows > 0
        delete(kafka, topic_name)
        create(kafka, topic_name, 1)
        send(kafka, topic_name, [(0, b"k%d" % n, b"new") for n in range(30)])
        with pytest.raises(TopicReplacedError, match=topic_name):
            list(batches)
    finally:
        kafka.stop()


def test_a_log_that_ends_below_what_is_to_be_read(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an unclean election: the task stops with both offsets."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, b"k", b"v")] * 10)
    monkeypatch.setattr(silence, "_SILENCE", 0.0)
    with pytest.raises(LogShorterError, match=rf"{topic_name}\[0\] ends at 10, before offset 20"):
        list(scan_of(kafka, topic_name, 20)(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
    assert sum(map(len, scan_of(kafka, topic_name, 10)(iter([pa.RecordBatch.from_pydict({"id": [0]})])))) == 1


def test_a_position_beyond_the_log(kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker refuses each fetch there: what is below the range's end cannot come either."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, b"k", b"v")] * 10)
    monkeypatch.setattr(silence, "_SILENCE", 0.0)
    monkeypatch.setattr(LogOffsets, "earliest", lambda *_: {(topic_name, 0): 15})  # as if the log were cut off just now
    with pytest.raises(LogShorterError, match="ends at 10, before offset 20"):
        list(scan_of(kafka, topic_name, 20)(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
