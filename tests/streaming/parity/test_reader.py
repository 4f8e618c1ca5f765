"""What Spark's suites of the offset reader and of the consumer strategies show: no Spark session is needed for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewPartitions
from keyorder.connector.metadata import wait_for_partitions
from keyorder.partitioner.errors import ConfigError, TopicNotFoundError
from keyorder.streaming.errors import OffsetsMismatchError
from keyorder.streaming.source import batch
from keyorder.streaming.source.batch import Piece, bind, plan_batch
from keyorder.streaming.source.cluster import QueryCluster
from keyorder.streaming.source.offsets import Range
from keyorder.streaming.source.options import source_options
from keyorder.streaming.source.tasks import split
from support.cluster import KafkaUnderTest
from support.spark_source import create, send

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True, scope="module")
def _no_client_is_left() -> Iterator[None]:
    """Tasks ran in this process: what they keep warm would go on asking for a broker that has stopped."""
    yield
    batch._close_idle()


def cluster(kafka: KafkaUnderTest, **options: str) -> QueryCluster:
    """As a query with these options sees it."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return QueryCluster(source_options({**base, **named}, streaming=False))


@pytest.mark.scala(
    "ConsumerStrategySuite",
    "AssignStrategy.assignedTopicPartitions must give back all assigned",
    "AssignStrategy.assignedTopicPartitions must skip invalid partitions",
    "SubscribeStrategy.assignedTopicPartitions must give back all assigned",
    "SubscribePatternStrategy.assignedTopicPartitions must give back all assigned",
)
def test_the_partitions_of_each_strategy(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What was named and exists; of an assignment of which nothing exists that is an error here, and no empty query."""
    a, b = f"{topic_name}-a", f"{topic_name}-b"
    create(kafka, a, 3)
    create(kafka, b, 2)
    create(kafka, "other" + topic_name, 2)
    everything = {*((a, p) for p in range(3)), *((b, p) for p in range(2))}
    assert cluster(kafka, assign=json.dumps({a: [0, 2]})).places() == {(a, 0), (a, 2)}
    assert cluster(kafka, assign=json.dumps({a: [0, 7], b: [2]})).places() == {(a, 0)}
    with pytest.raises(TopicNotFoundError):
        cluster(kafka, assign=json.dumps({a: [7]})).places()
    assert cluster(kafka, subscribe=f"{a},{b}").places() == everything
    assert cluster(kafka, subscribePattern=f"^{topic_name}-.*").places() == everything


@pytest.mark.scala(
    "KafkaOffsetReaderSuite",
    "isolationLevel must give back default isolation level when not set",
    "isolationLevel must give back READ_UNCOMMITTED when set",
    "isolationLevel must give back READ_COMMITTED when set",
    "isolationLevel must throw exception when invalid isolation level set",
)
def test_isolation_levels(kafka: KafkaUnderTest, topic_name: str) -> None:
    """An open transaction's records are beyond the end for read_committed alone."""
    from confluent_kafka import Producer

    create(kafka, topic_name, 1)
    producer = Producer({**kafka.client_config(), "transactional.id": topic_name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic_name, b"x", partition=0)
    producer.flush()
    place = (topic_name, 0)
    for level, end in (("", 1), ("read_uncommitted", 1), ("read_committed", 0)):
        given = {"kafka__isolation__level": level} if level else {}
        assert cluster(kafka, subscribe=topic_name, **given).ends([place]) == {place: end}
    producer.abort_transaction()
    with pytest.raises(ConfigError, match=r"kafka\.isolation\.level"):
        cluster(kafka, subscribe=topic_name, kafka__isolation__level="intentionally_invalid")


@pytest.mark.scala(
    "KafkaOffsetReaderSuite",
    "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using specific offsets",
    "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using special offsets",
    "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - multiple topic partitions",
    "SPARK-30656: getOffsetRangesFromResolvedOffsets",
)
def test_ranges_are_split_and_keep_open_edges(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Inner edges are offsets; the outer ones stay what the options say, and are looked up when a task reads."""
    assert split([Range("t", 0, 1, 4)], 3, None) == [Range("t", 0, n, n + 1) for n in (1, 2, 3)]
    assert split([Range("t", 0, 0, 100), Range("t", 1, 0, 3)], 4, None) == [
        Range("t", 0, 0, 33), Range("t", 0, 33, 66), Range("t", 0, 66, 100), Range("t", 1, 0, 3),
    ]  # fmt: skip
    halves = split([Range("t", p, 0, size) for p, size in enumerate((10, 10, 1))], 6, None)
    assert len(halves) == 7  # as many as asked for, at least: two and a half are three
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(0, None, b"x")] * 4)
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
    portions = plan_batch(source_options({**base, "minPartitions": "2"}, streaming=False))
    pieces = [piece for portion in portions for piece in portion.pieces]
    assert pieces == [Piece(topic_name, 0, None, 2), Piece(topic_name, 0, 2, None), Piece(topic_name, 1)]
    assert portions[-1].beside == ((topic_name, 0),)


@pytest.mark.scala(
    "KafkaOffsetReaderSuite",
    "SPARK-48383: START_OFFSET_DOES_NOT_MATCH_ASSIGNED error class",
    "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED error class",
)
def test_offsets_and_times_for_other_partitions_than_there_are(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Fewer and more; the error names both sets."""
    create(kafka, topic_name, 3)
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
    for option in ("startingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        for count in (2, 4):
            text = json.dumps({topic_name: {str(p): 1 for p in range(count)}})
            with pytest.raises(OffsetsMismatchError, match=f"{topic_name}-1.* Assigned: .*{topic_name}-2"):
                plan_batch(source_options({**base, option: text}, streaming=False))


def test_times_of_a_partition_that_a_client_does_not_know_yet(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Made after the client's look at the topic: the time that was asked for is not taken for an offset."""
    create(kafka, topic_name, 1)
    known = cluster(kafka, subscribe=topic_name)
    assert known.offsets_for_times({(topic_name, 0): 1}) == {(topic_name, 0): None}
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic_name, 2)])[topic_name].result(120)
    wait_for_partitions(admin, topic_name, 2, kafka.bootstrap_servers)
    send(kafka, topic_name, [(1, None, b"x")])
    assert known.offsets_for_times({(topic_name, 1): 1}) == {(topic_name, 1): 0}
    known.close()


def test_a_worker_keeps_few_clients_between_batches(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Each incremental read has offsets of its own: what was opened for the ones before is closed."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"x")] * 20)
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
    threads = []
    for n in range(16):
        edges = {
            name: json.dumps({topic_name: {"0": n + k}}) for k, name in enumerate(("startingOffsets", "endingOffsets"))
        }
        options = source_options({**base, **edges}, streaming=False)
        bound, _ = bind(options, plan_batch(options)[0])
        assert [(r.start, r.end) for r in bound] == [(n, n + 1)]
        threads.append(len(os.listdir("/proc/self/task")))
    assert threads[-1] <= threads[7] + 2
