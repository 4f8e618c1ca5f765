"""Streams as in Spark's KafkaMicroBatchSourceSuite, each through both formats: rows by batch and end offsets are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from keyorder.connector.metadata import wait_for_partitions
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.progress import waiting_of
from support.cluster import KafkaUnderTest
from support.spark_source import Ran, create, delete, ends_of, reading, rows_of, run, send

BOTH = ("kafka", "keyorder")
pytestmark = pytest.mark.timeout(900)  # several queries of two formats each
T0 = 1_600_000_000_000


@pytest.fixture(scope="module")
def source(spark: Any) -> Any:
    """The session."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


def grow(kafka: KafkaUnderTest, topic: str, count: int) -> None:
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(120)
    wait_for_partitions(admin, topic, count, kafka.bootstrap_servers)


def values(ran: Ran) -> dict[int, list[tuple[int, bytes]]]:
    """(partition, value) of the rows of each batch."""
    return {number: sorted((row[3], row[1]) for row in rows) for number, rows in ran.batches.items()}


def ends(ran: Ran) -> list[Any]:
    """The end offsets of each batch, without the topic's name."""
    return [sorted(topics.values(), key=str) for topics in ran.ends.values()]


def timed(kafka: KafkaUnderTest, topic: str) -> None:
    """Five partitions, six records in each: three at T0 and, but for partition 4, three a second later."""
    create(kafka, topic, 5)
    producer = Producer({**kafka.client_config(), "log_level": 0})
    for n in range(30):
        if n < 15 or n % 5 < 4:
            producer.produce(topic, b"%d" % n, None, n % 5, timestamp=T0 + n // 15 * 1000)
    assert producer.flush(120) == 0


STARTS: dict[str, Callable[[str], dict[str, str]]] = {
    "latest offsets": lambda topic: {"startingOffsets": "latest"},
    "earliest offsets": lambda topic: {"startingOffsets": "earliest"},
    "specific offsets": lambda topic: {
        "startingOffsets": json.dumps({topic: {"0": -2, "1": -1, "2": 0, "3": 1, "4": 2}})
    },
    "specific timestamps": lambda topic: {
        "startingOffsetsByTimestamp": json.dumps({topic: {str(p): T0 + 1000 * (p < 4) for p in range(5)}})
    },
    "global timestamp per topic": lambda topic: {
        "startingTimestamp": str(T0 + 1000), "startingOffsetsByTimestampStrategy": "latest",
    },
}  # fmt: skip
STRATEGIES: dict[str, Callable[[str], dict[str, str]]] = {
    "assign": lambda topic: {"assign": json.dumps({topic: [0, 1, 2, 3, 4]})},
    "subscribing topic by name": lambda topic: {"subscribe": topic},
    "subscribing topic by pattern": lambda topic: {"subscribePattern": f"^{topic}.*"},
}


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "assign from latest offsets",
    "assign from earliest offsets",
    "assign from specific offsets",
    "assign from specific timestamps",
    "assign from global timestamp per topic",
    "subscribing topic by name from latest offsets",
    "subscribing topic by name from earliest offsets",
    "subscribing topic by name from specific offsets",
    "subscribing topic by name from specific timestamps",
    "subscribing topic by name from global timestamp per topic",
    "subscribing topic by pattern from latest offsets",
    "subscribing topic by pattern from earliest offsets",
    "subscribing topic by pattern from specific offsets",
    "subscribing topic by pattern from specific timestamps",
    "subscribing topic by pattern from global timestamp per topic",
    "(de)serialization of initial offsets",
)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_starts(source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, strategy: str, start: str) -> None:
    """A query stops and is started again; meanwhile records come and, where they are not assigned by hand, partitions."""
    found = []
    for form in BOTH:
        topic = f"{topic_name[-8:]}-{form}"
        timed(kafka, topic)

        def between(topic: str = topic) -> None:
            if strategy != "assign":
                grow(kafka, topic, 7)
            send(kafka, topic, [(p, None, b"new%d" % p) for p in range(5 if strategy == "assign" else 7)])

        strict = str(start != "latest offsets").lower()  # both ways, in half of the cases each
        options = {**STRATEGIES[strategy](topic), **STARTS[start](topic), "failOnDataLoss": strict}
        ran = run(source, kafka, form, options, tmp_path / form, between)
        found.append((values(ran), ends(ran)))
    assert found[1] == found[0]


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "subscribing topics from topic-level offsets",
    "topic-level offsets tolerate a new topic matching subscribePattern after the start",
)
def test_a_start_for_all_partitions_of_a_topic(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Words that newer versions of Spark take: as 4.2 by partition; a topic that comes later is read from its beginning."""
    one, two, late = (f"{topic_name}-{name}" for name in ("one", "two", "late"))
    for topic in (one, two):
        create(kafka, topic, 2)
        send(kafka, topic, [(n % 2, None, b"%d" % n) for n in range(6)])
    starts = {
        "kafka": {one: {"0": -2, "1": -2}, two: {"0": -1, "1": 1}},
        "keyorder": {one: "earliest", two: {"0": -1, "1": 1}},
    }
    found = []
    for form in BOTH:
        options = {"subscribePattern": f"^{topic_name}", "startingOffsets": json.dumps(starts[form])}
        found.append(values(run(source, kafka, form, options, tmp_path / form)))
        whole = {"subscribe": one, "startingOffsets": json.dumps({one: starts[form][one]})}
        found.append(sorted(row[1] for row in rows_of(reading(source, kafka, form, whole))))
    assert found[2:] == found[:2]
    create(kafka, late, 1)
    send(kafka, late, [(0, None, b"late")])
    options = {"subscribePattern": f"^{topic_name}", "startingOffsets": json.dumps(starts["keyorder"])}
    again = run(source, kafka, "keyorder", options, tmp_path / "keyorder")
    assert [row[1] for row in again.rows] == [b"late"]
    wrong = {"subscribe": one, "startingOffsets": json.dumps({one: "latest", two: "earliest"})}
    with pytest.raises(Exception, match=r"don't match what are assigned"):
        run(source, kafka, "keyorder", wrong, tmp_path / "wrong")


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "subscribing topic by name from specific timestamps with non-matching starting offset",
    "subscribing topic by name from global timestamp per topic with non-matching starting offset",
    "subscribing topic by pattern from specific timestamps with non-matching starting offset",
    "subscribing topic by pattern from global timestamp per topic with non-matching starting offset",
)
@pytest.mark.parametrize("start", ["specific", "global"])
def test_a_start_that_no_record_matches(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, start: str
) -> None:
    """An error by default; with the strategy `latest` the end of that partition."""
    timed(kafka, topic_name)
    times = json.dumps({topic_name: {str(p): T0 + 1000 for p in range(5)}})
    at = {"startingTimestamp": str(T0 + 1000)} if start == "global" else {"startingOffsetsByTimestamp": times}
    found = []
    for form in BOTH:
        for by in ({"subscribe": topic_name}, {"subscribePattern": f"^{topic_name}$"}):
            with pytest.raises(Exception, match=r"(?i)no offset matched from request"):
                run(source, kafka, form, {**by, **at}, tmp_path / f"{form}-{len(by)}-{next(iter(by))}")
            lenient = {**by, **at, "startingOffsetsByTimestampStrategy": "latest"}
            found.append(run(source, kafka, form, lenient, tmp_path / f"{form}-latest-{next(iter(by))}"))
    assert len({str((values(ran), ends(ran))) for ran in found}) == 1
    assert len(found[0].rows) == 12


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "Trigger.AvailableNow",
    "SPARK-26718 Rate limit set to Long.Max should not overflow integer during end offset calculation",
    "maxOffsetsPerTrigger",
    "cannot stop Kafka stream",
)
@pytest.mark.parametrize("most", [5, 10, 2**63 - 1])
def test_limits(source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, most: int) -> None:
    """The shares of skewed partitions batch by batch; a limit near the end of 64 bits is none."""
    create(kafka, topic_name, 3)
    send(kafka, topic_name, [(0, None, b"%d" % n) for n in range(25)] + [(1, None, b"x")] * 5 + [(2, None, b"y")])
    found = []
    for form in BOTH:
        options = {"subscribe": topic_name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
        ran = run(source, kafka, form, options, tmp_path / form)
        found.append((values(ran), ends(ran)))
    assert found[1] == found[0]


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite", "input row metrics", "KafkaSource with watermark", "Kafka column types"
)
def test_progress_watermarks_and_types(source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """The rows that a query has read; a window over the records' times; the types of the columns."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, None, b"%d" % n) for n in range(3)], timestamp=T0, headers=[("a", b"b")])
    found = []
    for form in BOTH:
        options = {"subscribe": topic_name, "startingOffsets": "earliest", "includeHeaders": "true"}
        frame = reading(source, kafka, form, options, stream=True)
        counts = frame.withWatermark("timestamp", "10 seconds").groupBy("timestamp").count()
        name = f"watermark_{form}"
        writing = counts.writeStream.format("memory").queryName(name).outputMode("complete")
        query = writing.option("checkpointLocation", str(tmp_path / form)).trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        read = sum(progress.numInputRows for progress in query.recentProgress)
        rows = source.sql(f"select cast(timestamp as long), count from {name}").collect()
        found.append((read, [tuple(row) for row in rows], str(frame.schema)))
    assert found[1] == found[0]
    assert found[0][:2] == (3, [(T0 // 1000, 3)])


@pytest.mark.scala("KafkaMicroBatchSourceSuite", "subscribing topic by pattern with topic deletions")
def test_a_topic_goes_and_another_one_comes(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """With failOnDataLoss=false."""
    found = []
    for form in BOTH:
        one, two = f"{topic_name}-{form}-1", f"{topic_name}-{form}-2"
        create(kafka, one, 2)
        send(kafka, one, [(n % 2, None, b"%d" % n) for n in range(3)])

        def change(one: str = one, two: str = two) -> None:
            delete(kafka, one)
            create(kafka, two, 2)
            send(kafka, two, [(n % 2, None, b"%d" % n) for n in range(4, 7)])

        options = {
            "subscribePattern": f"^{topic_name}-{form}",
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
        }
        found.append(values(run(source, kafka, form, options, tmp_path / form, change)))
    assert found[1] == found[0]


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite", "SPARK-22956: currentPartitionOffsets should be set when no new data comes in"
)
def test_two_sources_of_which_one_has_nothing_new(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """The union goes on with the other one, also after a restart."""
    for number, count in enumerate((10, 30)):
        create(kafka, f"{topic_name}-{number}", 1)
        send(kafka, f"{topic_name}-{number}", [(0, None, b"%d-%d" % (number, n)) for n in range(count)])
    found: dict[str, list[list[bytes]]] = {}
    for form in BOTH:
        batches: list[list[bytes]] = []
        for _ in range(2):
            options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
            frames = [
                reading(source, kafka, form, {**options, "subscribe": f"{topic_name}-{n}"}, stream=True) for n in (0, 1)
            ]

            def take(batch: Any, number: int, batches: list[list[bytes]] = batches) -> None:
                batches.append(sorted(row[1] for row in rows_of(batch)))

            writing = frames[0].union(frames[1]).writeStream.foreachBatch(take)
            writing = writing.option("checkpointLocation", str(tmp_path / form)).trigger(availableNow=True)
            assert writing.start().awaitTermination(600)
            if form == BOTH[0] and len(batches) <= 6:
                send(kafka, f"{topic_name}-1", [(0, None, b"more%d" % n) for n in range(5)])
        found[form] = [row for row in batches if row]
    assert sorted(row for batch in found["keyorder"] for row in batch) == sorted(
        row for batch in found["kafka"] for row in batch
    )
    assert all(len(batch) <= 10 for batch in found["keyorder"])


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "ensure stream-stream self-join generates only one offset in log and correct metrics",
)
def test_a_self_join_is_one_source(source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """As many lines of offsets as with Spark's own source, and the rows of both sides."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, None, b"%d" % n) for n in (1, 2, 6, 3)])
    found = []
    for form in BOTH:
        frame = reading(source, kafka, form, {"subscribe": topic_name, "startingOffsets": "earliest"}, stream=True)
        numbers = frame.selectExpr("cast(cast(value as string) as int) as value").selectExpr(
            "value", "value % 5 as key"
        )
        rows: list[Any] = []

        def take(batch: Any, number: int, rows: list[Any] = rows) -> None:
            rows.extend(tuple(row) for row in batch.collect())

        writing = numbers.join(numbers, "key").writeStream.foreachBatch(take)
        writing = writing.option("checkpointLocation", str(tmp_path / form)).trigger(availableNow=True)
        assert writing.start().awaitTermination(600)
        lines = (tmp_path / form / "offsets" / "0").read_text().splitlines()
        found.append((sorted(rows), sum(topic_name in line for line in lines)))
    assert found[1] == found[0]
    assert found[0][0] == [(1, 1, 1), (1, 1, 6), (1, 6, 1), (1, 6, 6), (2, 2, 2), (3, 3, 3)]


@pytest.mark.scala("KafkaMicroBatchSourceSuite", "SPARK-25495: FetchedData.reset should reset all fields")
def test_records_that_come_while_a_batch_is_read(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """They are fetched ahead of their batch, and belong to the next one alone."""
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        producer = Producer({**kafka.client_config(), "transactional.id": topic, "log_level": 0})
        producer.init_transactions()

        def write(*numbers: int, topic: str = topic, producer: Producer = producer) -> None:
            producer.begin_transaction()
            for n in numbers:
                producer.produce(topic, b"%d" % n, partition=0)
            producer.commit_transaction()

        write(0, 1, 2, 3)
        seen: list[list[bytes]] = []
        frame = reading(
            source, kafka, form,
            {"subscribe": topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}, stream=True,
        )  # fmt: skip

        def take(batch: Any, number: int, seen: list[list[bytes]] = seen, write: Callable[..., None] = write) -> None:
            if number == 0:
                write(4, 5, 6, 7)
            if rows := rows_of(batch):
                seen.append([row[1] for row in rows])

        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / form)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        assert seen == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"]]


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite", "test custom metrics - with rate limit", "test custom metrics - no rate limit"
)
@pytest.mark.parametrize("most", ["3", None])
def test_the_lag_in_the_progress(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, most: str | None
) -> None:
    """Spark's own source has it as metrics; of a source written in Python it is in the offsets of the progress."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"%d" % n) for n in range(10)])
    limit = {} if most is None else {"maxOffsetsPerTrigger": most}
    found: list[list[int]] = []
    for form in BOTH:
        options = {"subscribe": topic_name, "startingOffsets": "earliest", **limit}
        frame = reading(source, kafka, form, options, stream=True)
        writing = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / form))
        query = writing.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        if form == "kafka":
            found.append([int(progress.sources[0].metrics["maxOffsetsBehindLatest"]) for progress in batches])
        else:
            found.append([waiting_of(progress)[0].lag for progress in batches])
    assert found[1] == found[0]
    assert found[0] == ([0] if most is None else [7, 4, 1, 0])


@pytest.mark.scala("KafkaMicroBatchSourceSuite", "SPARK-56243: malformed record timestamp throws detailed error")
def test_a_time_that_no_timestamp_holds(source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Such as nanoseconds by mistake: an error that names the record, which is not read as one of another time."""
    create(kafka, topic_name, 1, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    send(kafka, topic_name, [(0, None, b"well")])
    send(kafka, topic_name, [(0, None, b"wrong")], timestamp=1_700_000_000_000_000_000)
    options = {"subscribe": topic_name, "startingOffsets": "earliest"}
    for form, way in (("kafka", {}), ("keyorder", {}), ("keyorder", {"keyorder.arrow.native": "false"})):
        with pytest.raises(Exception, match=r"partition 0 offset 1 has (?s:.)*overflows"):
            reading(source, kafka, form, {**options, **way}).collect()
    for form in BOTH:
        with pytest.raises(Exception, match=r"partition 0 offset 1 has (?s:.)*overflows"):
            run(source, kafka, form, options, tmp_path / form)


@pytest.mark.scala("KafkaMicroBatchSourceSuite", "async progress tracking")
@pytest.mark.parametrize("interval", ["0", "600000"])
def test_progress_that_is_kept_asynchronously(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, interval: str
) -> None:
    """Each batch's offsets, or seldom ones: a restart goes on from the last that were kept, and loses nothing."""
    found = []
    for form in BOTH:
        topic, out = f"{topic_name[-20:]}-{form}", f"{topic_name[-20:]}-{form}-out"
        create(kafka, topic, 2)
        create(kafka, out, 1)
        counts = []
        for step in range(2):
            send(kafka, topic, [(n % 2, None, b"%d-%d" % (step, n)) for n in range(10)])
            options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
            rows = reading(source, kafka, form, options, stream=True).select("key", "value")
            to = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": out}
            kept = {
                "asyncProgressTrackingEnabled": "true",
                "asyncProgressTrackingCheckpointIntervalMs": interval,
                "checkpointLocation": str(tmp_path / form),
            }
            query = rows.writeStream.format("kafka").options(**to, **kept).start()  # Spark asks for a sink of its own
            try:
                query.processAllAvailable()
            finally:
                query.stop()
            written = [row[1] for row in rows_of(reading(source, kafka, "kafka", {"subscribe": out}))]
            assert len(set(written)) == 10 * (step + 1)
            counts.append(len(written))
        found.append((counts, sorted(str(end[topic]) for end in ends_of(tmp_path / form).values())))
    assert found[1] == found[0]


@pytest.mark.scala("KafkaMicroBatchSourceSuite", "SPARK-30656: minPartitions", "minPartitions is supported")
def test_a_stream_is_split_where_that_is_allowed(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Here by keyorder.allow.split, since it costs the order within a batch."""
    create(kafka, topic_name, 3)
    send(kafka, topic_name, [(min(n // 10, 2), None, b"%d" % n) for n in range(21)])
    for form in BOTH:
        sizes: list[tuple[int, int]] = []
        options = {"subscribe": topic_name, "startingOffsets": "earliest", "minPartitions": "6"}
        allowed = {"keyorder.allow.split": "true"} if form == "keyorder" else {}
        frame = reading(source, kafka, form, {**options, **allowed}, stream=True)

        def take(batch: Any, number: int, sizes: list[tuple[int, int]] = sizes) -> None:
            sizes.append((batch.rdd.getNumPartitions(), batch.count()))

        writing = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / form))
        assert writing.trigger(availableNow=True).start().awaitTermination(600)
        assert [(count >= 6, rows) for count, rows in sizes] == [(True, 21)]


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "SPARK-53560: no crash looping during uncommitted batch retry in AvailableNow trigger",
)
def test_a_batch_that_fails_is_planned_again_after_a_growth(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """It fails for the same reason as before, not for the partitions that have come."""
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        send(kafka, topic, [(0, None, b"%d" % n) for n in range(1, 8)])
        frame = reading(source, kafka, form, {"subscribe": topic, "startingOffsets": "earliest"}, stream=True)

        def fail(batch: Any, number: int) -> None:
            assert batch.count() == 7
            raise RuntimeError("error for 7")

        writing = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / form))
        for _ in range(2):
            with pytest.raises(Exception, match="error for 7"):
                writing.trigger(availableNow=True).start().awaitTermination(600)
            if _ == 0:
                grow(kafka, topic, 2)


@pytest.mark.scala("KafkaMicroBatchSourceSuite", "bad source options")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest", "subscribe": "t"}, "ending offset not valid in streaming queries"),
        (
            {"subscribe": "t", "endingOffsetsByTimestamp": '{"t": {"0": 1000}}'},
            "ending timestamp not valid in streaming queries",
        ),
        ({"startingOffsets": "earliest"}, "options must be specified"),
        ({"subscribe": "t", "subscribePattern": "t.*"}, "only one"),
        ({"subscribe": "t", "assign": '{"a":[0]}'}, "only one"),
        ({"assign": ""}, "no topicpartitions to assign"),
        ({"subscribe": ""}, "no topics to subscribe"),
        ({"subscribePattern": ""}, "pattern to subscribe is empty"),
        ({"subscribe": "t", "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}, "is higher than"),
    ],
)
def test_options_that_cannot_be(
    source: Any, kafka: KafkaUnderTest, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    """In the same words, at load() or at start()."""
    for form in BOTH:
        with pytest.raises(Exception, match=r".") as raised:
            run(source, kafka, form, options, tmp_path / form)
        assert words in str(raised.value).lower(), form


@pytest.mark.scala(
    "KafkaDontFailOnDataLossSuite",
    "failOnDataLoss=false should not return duplicated records: microbatch v2",
    "failOnDataLoss=false should not return duplicated records: batch v2",
)
def test_offsets_that_are_gone_double_nothing(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """A start below the log start, batch and stream."""
    from confluent_kafka import TopicPartition

    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"%d" % n) for n in range(50)])
    place = TopicPartition(topic_name, 0, 20)
    admin = kafka.admin()
    admin.delete_records([place])[place].result(120)
    options = {"startingOffsets": json.dumps({topic_name: {"0": 0}}), "failOnDataLoss": "false"}
    options |= {"subscribe": topic_name, "kafkaConsumer.pollTimeoutMs": "1000"}
    for form in BOTH:
        rows = rows_of(reading(source, kafka, form, options))
        assert [row[4] for row in rows] == list(range(20, 50))
        ran = run(source, kafka, form, options, tmp_path / form)
        assert [row[4] for row in ran.rows] == list(range(20, 50))
        assert ends_of(tmp_path / form)
