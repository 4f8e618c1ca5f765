"""A streaming query through growth and shrink on a real broker: no key reordered, nothing lost, nothing twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from keyorder import OrderedProducer, TopicAdmin
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.progress import GateListener, waiting_of
from support.cluster import KafkaUnderTest
from support.spark_source import create, ends_of, reading, rows_of, run, send

KEYS = 40


@pytest.fixture(scope="module")
def source(spark: Any) -> Any:
    """The session, with the source registered as an installed package registers itself."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


class Writer(threading.Thread):
    """Numbers every key's records: value n is the n-th record of its key."""

    def __init__(self, kafka: KafkaUnderTest, topic: str) -> None:
        super().__init__(daemon=True)
        self.producer = OrderedProducer({**kafka.client_config(), "linger.ms": 2, "log_level": 0})
        self.topic, self.sent = topic, 0
        self.failed: list[Any] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            self.send(20)

    def send(self, count: int) -> None:
        for _ in range(count):
            key, number = self.sent % KEYS, self.sent // KEYS
            self.producer.produce(self.topic, b"%d" % number, b"k%d" % key, on_delivery=self._delivered)
            self.sent += 1
        self.producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)

    def finish(self) -> None:
        self.stopping.set()
        if self.is_alive():
            self.join(120)
        assert self.producer.flush(120) == 0
        self.producer.close()
        assert self.failed == []


def judge(batches: dict[int, list[tuple[Any, ...]]], sent: int) -> tuple[int, int, int]:
    """(reordered, lost, duplicates). Rows of different partitions of a batch count as in no order at all."""
    reordered = duplicates = 0
    seen: dict[bytes, list[int]] = {}
    for _, rows in sorted(batches.items()):
        homes: dict[bytes, int] = {}
        for key, value, _, partition, *_ in rows:
            assert homes.setdefault(key, partition) == partition, "a key in two partitions of one batch"
            numbers, number = seen.setdefault(key, []), int(value)
            duplicates += number in numbers
            reordered += bool(numbers) and number < numbers[-1]
            numbers.append(number)
    return reordered, sent - len({(key, n) for key, numbers in seen.items() for n in numbers}), duplicates


@pytest.mark.kip("K253-01")
def test_growth_and_shrink_beneath_a_query_with_restarts(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """4 -> 6 -> 3 -> 8 under load; the query is stopped twice, begun again from its checkpoint, and replays what it planned."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, initial_partition_count=2)
    writer = Writer(kafka, topic_name)
    writer.send(200)
    writer.start()
    batches: dict[int, list[tuple[Any, ...]]] = {}
    replayed: list[int] = []
    second = threading.Event()
    lost = -1
    options = {
        "subscribe": topic_name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "400",
        "keyorder.commit.group": f"shown-{topic_name}",
    }

    def take(frame: Any, number: int) -> None:
        rows = rows_of(frame)
        if number in batches:
            replayed.append(number)
            assert rows == batches[number], "a batch was planned otherwise after a restart"
        batches[number] = rows
        if number > 0:
            second.set()

    def start(available_now: bool = False) -> Any:
        stream = reading(source, kafka, "keyorder", options, stream=True).writeStream.foreachBatch(take)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return (stream.trigger(availableNow=True) if available_now else stream).start()

    query = start()
    for count in (6, 3, 8):
        (admin.expand if count > admin.timeline(topic_name).newest.count else admin.shrink)(topic_name, count)
        if count == 3:
            assert second.wait(120), "no batch was committed"
            query.stop()
            lost = lose_last_commit(tmp_path / "checkpoint")
            # What came after that batch was never planned, so whatever a stopped attempt at it showed was never shown.
            for later in [number for number in batches if number > lost]:
                del batches[later]
            query = start()
    writer.finish()
    query.stop()
    query = start(available_now=True)
    assert query.awaitTermination(600)

    assert judge(batches, writer.sent) == (0, 0, 0)
    assert sum(map(len, batches.values())) == writer.sent
    assert lost in replayed
    ends = ends_of(tmp_path / "checkpoint")
    shown = committed(kafka, f"shown-{topic_name}", topic_name)
    assert shown == {int(p): o for p, o in ends[max(ends)][topic_name].items()}


def test_a_query_that_ends_shows_its_last_batch_to_the_group(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """A job that runs now and then has no next batch by which Spark would say that the last one is done."""
    create(kafka, topic_name, 1)
    options = {"subscribe": topic_name, "startingOffsets": "earliest", "keyorder.commit.group": f"shown-{topic_name}"}
    for count in (2, 4):
        send(kafka, topic_name, [(0, b"k", b"v")] * 2)
        run(source, kafka, "keyorder", options, tmp_path / "checkpoint")
        assert committed(kafka, f"shown-{topic_name}", topic_name) == {0: count}


def lose_last_commit(checkpoint: Path) -> int:
    """Leave a checkpoint as a driver that died leaves it: its last batch was done, the commit of it never written.

    A later batch that the stopped query had already planned goes too: Spark begins again at the newest planned batch, and it
    would be that one.
    """
    lost = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    planned = [int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*")]
    gone = [("commits", lost), *(("offsets", number) for number in planned if number > lost)]
    for log, number in gone:
        (checkpoint / log / str(number)).unlink()
        (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)
    return lost


def committed(kafka: KafkaUnderTest, group: str, topic: str) -> dict[int, int]:
    """A group's offsets."""
    consumer = Consumer({**kafka.client_config(), "group.id": group})
    found = consumer.committed([TopicPartition(topic, p) for p in range(8)], timeout=120)
    consumer.close()
    return {place.partition: place.offset for place in found if place.offset >= 0}


def test_progress_tells_of_lag_and_gates_and_shows_no_secret(
    source: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """While a gate is closed its reason is in the progress; at the end there is neither lag nor gate. No secret anywhere."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2)
    writer = Writer(kafka, topic_name)
    writer.send(100)
    assert writer.producer.flush(120) == 0
    admin.expand(topic_name, 3)
    writer.send(100)
    writer.finish()
    told: list[tuple[Any, ...]] = []
    heard = threading.Event()

    def hear(*facts: Any) -> None:
        told.append(facts)
        heard.set()

    listener = GateListener(hear, after=0.0)
    source.streams.addListener(listener)
    options = {"subscribe": topic_name, "startingOffsets": "earliest", "kafka.ssl.key.password": "hunter2"}
    frame = reading(source, kafka, "keyorder", options, stream=True)
    query = frame.writeStream.format("noop").queryName("told").option("checkpointLocation", str(tmp_path))
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(600)
    assert heard.wait(120)  # Spark tells its listeners in its own time
    source.streams.removeListener(listener)
    waiting = [each for progress in query.recentProgress for each in waiting_of(progress)]
    plan = frame._jdf.queryExecution().toString() + query._jsq.toString()
    texts = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]

    assert (topic_name, 2) in waiting[0].gates
    assert waiting[0].behind[topic_name, 2] > 0
    assert (waiting[-1].lag, waiting[-1].gates) == (0, {})
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows][-1] > 0
    assert told
    assert all((name, place) == ("told", (topic_name, 2)) for name, place, *_ in told)
    assert not [text for text in [plan, *map(str, query.recentProgress), *texts] if "hunter2" in text]
