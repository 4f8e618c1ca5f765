"""What changes between two actions, or between a failure and a restart: both formats see the same.

Each scenario runs through Spark's own source and through keyorder's; rows are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from keyorder.connector.metadata import wait_for_partitions, wait_until_gone
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_source import create, delete, reading, rows_of, run, send

BOTH = ("kafka", "keyorder")


@pytest.fixture(scope="module")
def source(spark: Any) -> Iterator[Any]:
    """The session."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


def values(rows: list[tuple[Any, ...]]) -> list[bytes]:
    return sorted(row[1] for row in rows)


@pytest.mark.parametrize("bound", ["default", "offsets", "time"])
def test_a_frame_shows_the_topic_as_it_is_at_each_action(
    source: Any, kafka: KafkaUnderTest, topic_name: str, bound: str
) -> None:
    """New records, a new partition and deleted records, without reading the frame anew."""
    found: dict[str, list[list[bytes]]] = {}
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 2)
        send(kafka, topic, [(n % 2, None, b"a%d" % n) for n in range(6)])
        options: dict[str, str] = {"subscribe": topic}
        if bound == "offsets":
            options["startingOffsets"] = json.dumps({topic: {"0": 1, "1": -2}})
        if bound == "time":
            options["startingTimestamp"] = "1"
        frame = reading(source, kafka, form, options)
        seen = [values(rows_of(frame))]
        send(kafka, topic, [(n % 2, None, b"b%d" % n) for n in range(3)])
        seen.append(values(rows_of(frame)))
        found[form] = seen

    assert found["keyorder"] == found["kafka"]
    assert [len(rows) for rows in found["keyorder"]] == ([5, 8] if bound == "offsets" else [6, 9])


@pytest.mark.parametrize("bound", ["default", "time"])
def test_a_frame_follows_new_partitions_and_deleted_records(
    source: Any, kafka: KafkaUnderTest, topic_name: str, bound: str
) -> None:
    """Beyond Spark's own source, whose frame keeps the partitions that it has seen first: keys move to new ones."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, None, b"a%d" % n) for n in range(6)])
    options = {"subscribe": topic_name, **({"startingTimestamp": "1"} if bound == "time" else {})}
    frame = reading(source, kafka, "keyorder", options)
    assert len(rows_of(frame)) == 6
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name].result(120)
    wait_for_partitions(admin, topic_name, 3, kafka.bootstrap_servers)
    send(kafka, topic_name, [(2, None, b"c")])
    assert len(rows_of(frame)) == 7
    gone = TopicPartition(topic_name, 0, 2)
    admin.delete_records([gone])[gone].result(120)
    assert len(rows_of(frame)) == 5


def test_a_stream_joined_with_a_static_frame_sees_it_grow(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Each micro-batch reads the static side as it is then."""
    found: dict[str, list[int]] = {}
    for form in BOTH:
        stream, static = f"{topic_name}-s-{form}", f"{topic_name}-t-{form}"
        create(kafka, stream, 1)
        create(kafka, static, 1)
        send(kafka, static, [(0, b"k", b"1")])
        send(kafka, stream, [(0, b"k", b"x")])
        side = reading(source, kafka, form, {"subscribe": static}).selectExpr("key", "value as known")
        counts: list[int] = []

        def take(
            batch: Any, number: int, stream: str = stream, static: str = static, counts: list[int] = counts
        ) -> None:
            counts.append(batch.count())
            if number == 0:
                send(kafka, static, [(0, b"k", b"%d" % n) for n in range(6)])
                send(kafka, stream, [(0, b"k", b"y")])

        left = reading(source, kafka, form, {"subscribe": stream, "startingOffsets": "earliest"}, stream=True)
        query = (
            left.join(side, "key")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / form))
            .start()
        )
        try:
            while len(counts) < 2:
                assert not query.awaitTermination(0.1), query.exception()
        finally:
            query.stop()
        found[form] = counts[:2]

    assert found == {"kafka": [1, 7], "keyorder": [1, 7]}


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_first_batch_that_failed_starts_again_where_it_started(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, start: str
) -> None:
    """What "latest" and "earliest" mean has moved by then; the records in between were never processed."""
    found: dict[str, list[bytes]] = {}
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        send(kafka, topic, [(0, None, b"old%d" % n) for n in range(3)])
        frame = reading(source, kafka, form, {"subscribe": topic, "startingOffsets": start}, stream=True)
        writing = frame.writeStream.option("checkpointLocation", str(tmp_path / form))
        failed: list[int] = []

        def fail(batch: Any, number: int, failed: list[int] = failed) -> None:
            failed.append(batch.count())
            if failed[-1]:
                raise RuntimeError("not today")

        query = writing.foreachBatch(fail).start()
        if start == "latest":
            while not query.recentProgress and not failed:  # from the first look on, records are new
                assert not query.awaitTermination(0.1)
            send(kafka, topic, [(0, None, b"new%d" % n) for n in range(4)])
        with pytest.raises(Exception, match="not today"):
            query.awaitTermination(600)
        send(kafka, topic, [(0, None, b"later")])
        seen: list[bytes] = []

        def take(batch: Any, number: int, seen: list[bytes] = seen) -> None:
            seen.extend(values(rows_of(batch)))

        again = writing.foreachBatch(take).trigger(availableNow=True).start()
        assert again.awaitTermination(600)
        found[form] = seen

    assert found["keyorder"] == found["kafka"]
    assert len(found["keyorder"]) == (5 if start == "latest" else 4)


def test_an_unfinished_first_batch_of_sparks_source_goes_on_by_its_offsets(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """What "latest" was is unknown here: an error says so, and names the file in which Spark's own source has kept it."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"%d" % n) for n in range(3)])
    start = {"subscribe": topic_name, "startingTimestamp": "1"}

    def fail(batch: Any, number: int) -> None:
        raise RuntimeError("not today")

    def moved(form: str, options: dict[str, str], take: Any) -> None:
        frame = reading(source, kafka, form, options, stream=True)
        writing = frame.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writing.foreachBatch(take).start().awaitTermination(600)

    with pytest.raises(Exception, match="not today"):
        moved("kafka", start, fail)
    send(kafka, topic_name, [(0, None, b"later")])
    with pytest.raises(Exception, match=r"sources/0/0"):
        moved("keyorder", start, fail)
    seen: list[bytes] = []
    offsets = (tmp_path / "sources" / "0" / "0").read_text().splitlines()[1]
    given = {"subscribe": topic_name, "startingOffsets": offsets}
    moved("keyorder", given, lambda batch, number: seen.extend(values(rows_of(batch))))
    assert seen == [b"0", b"1", b"2", b"later"]


def test_records_that_expired_before_the_first_batch_ran_again_are_a_loss(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """The batch began at the log's start of that time: what is gone since is told, not skipped."""
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        send(kafka, topic, [(0, None, b"%d" % n) for n in range(10)])
        frame = reading(source, kafka, form, {"subscribe": topic, "startingOffsets": "earliest"}, stream=True)
        writing = frame.writeStream.option("checkpointLocation", str(tmp_path / form)).trigger(availableNow=True)

        def fail(batch: Any, number: int) -> None:
            raise RuntimeError("not today")

        with pytest.raises(Exception, match="not today"):
            writing.foreachBatch(fail).start().awaitTermination(600)
        place = TopicPartition(topic, 0, 5)
        admin = kafka.admin()
        admin.delete_records([place])[place].result(120)
        with pytest.raises(Exception, match="failOnDataLoss"):
            writing.foreachBatch(lambda batch, number: batch.count()).start().awaitTermination(600)


def test_a_partition_that_is_not_there_is_left_out_of_an_assignment(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """The others are read; a topic that is not there at all is an error."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, None, b"%d" % n) for n in range(4)])
    options = {"assign": json.dumps({topic_name: [0, 1, 7]}), "startingOffsets": "earliest"}
    assert len(run(source, kafka, "keyorder", options, tmp_path / "there").rows) == 4
    with pytest.raises(Exception, match="does not exist"):
        reading(source, kafka, "keyorder", {"assign": json.dumps({f"{topic_name}-no": [0]})}).collect()


def test_a_pattern_is_searched_for(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Unanchored, as Spark's own source does it; anchors make it the whole name."""
    for name in (topic_name, f"{topic_name}-eu", f"my-{topic_name}"):
        create(kafka, name, 1)
        send(kafka, name, [(0, None, name.encode())])
    for pattern, count in ((topic_name, 3), (f"^{topic_name}$", 1), (f"^{topic_name}", 2)):
        rows = [values(rows_of(reading(source, kafka, form, {"subscribePattern": pattern}))) for form in BOTH]
        assert rows[0] == rows[1]
        assert len(rows[0]) == count


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "SPARK-41375: empty partitions should not record to latest offset",
)
def test_a_query_whose_topics_are_gone_keeps_its_offsets(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """An empty end would let a topic of that name that comes again be read from where it never was."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"%d" % n) for n in range(3)])

    def remove() -> None:
        delete(kafka, topic_name)
        wait_until_gone(kafka.admin(), topic_name, kafka.bootstrap_servers)

    options = {"subscribePattern": f"^{topic_name}$", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    ran = run(source, kafka, "keyorder", options, tmp_path, remove)
    assert all(ran.ends.values())
    assert len(ran.rows) == 3


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "delete a topic when a Spark job is running",
)
def test_a_query_goes_on_when_a_range_that_was_planned_is_not_there_any_more(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """failOnDataLoss=false: the topic was made again, shorter, after the batch had been planned."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"a%d" % n) for n in range(8)])
    options = {"subscribe": topic_name, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    frame = reading(source, kafka, "keyorder", options, stream=True)
    writing = frame.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)

    def fail(batch: Any, number: int) -> None:
        raise RuntimeError("not today")

    with pytest.raises(Exception, match="not today"):
        writing.foreachBatch(fail).start().awaitTermination(600)
    delete(kafka, topic_name)
    wait_until_gone(kafka.admin(), topic_name, kafka.bootstrap_servers)
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"b%d" % n) for n in range(2)])
    seen: list[bytes] = []
    query = writing.foreachBatch(lambda batch, number: seen.extend(values(rows_of(batch)))).start()
    assert query.awaitTermination(600)
    assert seen == [b"b0", b"b1"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_checkpoint_moves_to_keyorder_and_back(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, start: str
) -> None:
    """Only the format's name changes: rows are read once, deduplicating state goes along."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, b"k%d" % (n % 3), b"before") for n in range(6)])
    seen: list[bytes] = []
    options = {"subscribe": topic_name, "startingOffsets": start, "kafka.metadata.max.age.ms": "1000"}
    expected: list[bytes] = []
    for step, form in enumerate(("kafka", "keyorder", "kafka", "keyorder", "kafka")):
        frame = reading(source, kafka, form, options, stream=True).dropDuplicates(["key"])

        def take(batch: Any, number: int) -> None:
            seen.extend(row[0] for row in rows_of(batch.select("key", "value", "topic", "partition", "offset")))

        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
        if step == 0 and start == "earliest":
            expected += [b"k0", b"k1", b"k2"]
        assert sorted(seen) == sorted(expected)
        send(kafka, topic_name, [(0, b"n%d" % step, b"x"), (1, b"n%d" % step, b"again")])
        expected.append(b"n%d" % step)
