"""A compacted batch on a broker: what its tasks give together is the view's table. No Spark session is needed for that."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction.strategy import Strategy, StrategyKind, encode_version
from keyorder.compaction.view import CompactedView
from keyorder.connector.metadata import wait_for_partitions
from keyorder.streaming.errors import OffsetsMismatchError
from keyorder.streaming.source import reading
from keyorder.streaming.source.compacting import MisplacedVersionError
from keyorder.streaming.source.options import source_options
from keyorder.streaming.source.readers import BatchReader
from support.cleaning import HELD
from support.cluster import KafkaUnderTest
from support.spark_source import create, send

pytestmark = pytest.mark.kafka
CONFIG = {**HELD, "compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}


def reader_of(kafka: KafkaUnderTest, topic: str, **options: str) -> BatchReader:
    """The batch reader of that topic, with these options."""
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    named = {name.replace("__", "."): value for name, value in options.items()}
    return BatchReader(source_options({**base, **named}, streaming=False))


def rows_of(reader: BatchReader, tasks: Any = None) -> list[dict[str, Any]]:
    """All rows that its tasks give, planned now or before; a task travels as it does to an executor."""
    tasks = reader.partitions() if tasks is None else tasks
    travelled = pickle.loads(pickle.dumps((reader, tasks)))
    return [row for task in travelled[1] for batch in travelled[0].read(task) for row in batch.to_pylist()]


def table_of(rows: list[dict[str, Any]]) -> Mapping[bytes, bytes]:
    """By key; each key once."""
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row["value"] for row in rows}


def write(kafka: KafkaUnderTest, topic: str, chance: random.Random, word: str, count: int = 60) -> None:
    """Values, deletions and repeated versions of forty keys."""
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(count):
            value = None if chance.random() < 0.2 else f"{word}-{i}"
            version = [("v", encode_version(chance.randrange(9)))] if chance.random() < 0.9 else []
            producer.produce(topic, value, f"k{chance.randrange(40)}", headers=version)
        assert producer.flush(120) == 0


def viewed(kafka: KafkaUnderTest, topic: str, strategy: Strategy | None = None) -> Mapping[bytes, bytes]:
    """The table by the view."""
    with CompactedView(kafka.client_config(), topic, strategy) as view:
        return dict(view.load().items())


@pytest.mark.kip("K280-08")
def test_every_key_once_over_growth_and_shrink(kafka: KafkaUnderTest, topic_name: str) -> None:
    """By the topic's strategy and by others, in many tasks and in one, tombstones too, also when little memory is there."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=CONFIG)
    chance = random.Random(5)
    for count in (5, 3, 4):
        write(kafka, topic_name, chance, f"to-{count}")
        (admin.expand if count != 3 else admin.shrink)(topic_name, count)
    write(kafka, topic_name, chance, "last")
    expected = viewed(kafka, topic_name)
    assert expected
    many = reader_of(kafka, topic_name, keyorder__compact="topic", keyorder__task__min__records="0")
    assert len(many.partitions()) == 4
    assert table_of(rows_of(many)) == expected
    assert table_of(rows_of(reader_of(kafka, topic_name, keyorder__compact="topic"))) == expected
    for read in ("homes", "all"):
        everywhere = {"keyorder__compact__read": read, "minPartitions": "3", "keyorder__compact__tombstones": "true"}
        rows = rows_of(reader_of(kafka, topic_name, keyorder__compact="topic", includeHeaders="true", **everywhere))
        assert {key: value for key, value in table_of(rows).items() if value is not None} == expected
        assert len(rows) > len(expected)
        assert list(rows[0]) == [
            "key",
            "value",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestampType",
            "headers",
        ]
    for kind in ("offset", "timestamp"):
        rows = rows_of(reader_of(kafka, topic_name, compaction__strategy=kind))
        assert table_of(rows) == viewed(kafka, topic_name, Strategy(StrategyKind(kind)))


def test_keys_that_move_after_planning_are_given_once(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A frame is planned once and read again later: new partitions and new versions are in it, no key twice."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=CONFIG)
    chance = random.Random(6)
    write(kafka, topic_name, chance, "before")
    reader = reader_of(kafka, topic_name, keyorder__compact="topic", keyorder__task__min__records="0")
    tasks = reader.partitions()
    assert table_of(rows_of(reader, tasks)) == viewed(kafka, topic_name)
    admin.expand(topic_name, 5)
    write(kafka, topic_name, chance, "after")
    assert len(tasks) == 2
    assert table_of(rows_of(reader, tasks)) == viewed(kafka, topic_name)
    admin.shrink(topic_name, 2)
    write(kafka, topic_name, chance, "then")
    assert table_of(rows_of(reader, tasks)) == viewed(kafka, topic_name)


@pytest.mark.parametrize(("keys", "least", "most"), [(3000, 3, 20), (30, 1, 1)])
def test_a_small_memory_reads_in_parts(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, keys: int, least: int, most: int
) -> None:
    """The keys of a task are read part by part, and all are there; what has been superseded takes no room for long."""
    create(kafka, topic_name, 2)
    producer = Producer({**kafka.client_config(), "enable.idempotence": True})  # a retry must not change the order
    for i in range(6000):
        producer.produce(topic_name, b"%d" % i + b"x" * 400, b"k%d" % (i % keys), i % keys % 2)
    assert producer.flush(120) == 0
    small = {"compaction__strategy": "offset", "keyorder__compact__memory__mb": "1", "keyorder__compact__read": "all"}
    reads: list[int] = []
    plain = reading.read_ranges

    def counted(*given: Any) -> Any:
        reads.append(1)
        return plain(*given)

    monkeypatch.setattr(reading, "read_ranges", counted)
    found = table_of(rows_of(reader_of(kafka, topic_name, **small)))
    assert found == viewed(kafka, topic_name, Strategy())
    assert found == {b"k%d" % (i % keys): b"%d" % i + b"x" * 400 for i in range(6000 - keys, 6000)}
    assert least <= len(reads) <= most


def test_a_version_where_its_key_never_lived_is_not_overlooked(kafka: KafkaUnderTest, topic_name: str) -> None:
    """No task that has the key would read it: the query stops, and says how all partitions are read."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 3, config=CONFIG)
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(30):
            producer.produce(topic_name, "home", f"k{i}", headers=[("v", encode_version(1))])
        assert producer.flush(120) == 0
    foreign = Producer(kafka.client_config())
    for partition in range(3):
        foreign.produce(topic_name, b"away", b"k1", partition, headers=[("v", encode_version(2 + partition))])
    assert foreign.flush(120) == 0
    split = {"keyorder__compact": "topic", "keyorder__task__min__records": "0"}
    with pytest.raises(MisplacedVersionError, match=r"keyorder\.compact\.read=all"):
        rows_of(reader_of(kafka, topic_name, **split))
    found = table_of(rows_of(reader_of(kafka, topic_name, **split, keyorder__compact__read="all", minPartitions="3")))
    assert found == viewed(kafka, topic_name)


def test_several_topics_and_one_that_a_pattern_finds_later(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Each by its own strategy; a topic that comes after planning is read, too."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(f"{topic_name}-a", 2, config=CONFIG)
    admin.create(f"{topic_name}-b", 1, config={"cleanup.policy": "compact", "keyorder.view.age.ms": "200"})
    chance = random.Random(7)
    base = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribePattern": f"^{topic_name}-",
        "keyorder.compact": "topic",
    }
    reader = BatchReader(source_options(base, streaming=False))
    for name in ("a", "b"):
        write(kafka, f"{topic_name}-{name}", chance, name)
    tasks = reader.partitions()
    admin.create(f"{topic_name}-c", 2, config=CONFIG)
    write(kafka, f"{topic_name}-c", chance, "c")
    rows = rows_of(reader, tasks)
    for name in ("a", "b", "c"):
        topic = f"{topic_name}-{name}"
        assert table_of([row for row in rows if row["topic"] == topic]) == viewed(kafka, topic)


@pytest.mark.parametrize("compacted", [{"keyorder__compact": "topic"}, {"compaction__strategy": "offset"}])
@pytest.mark.parametrize(
    ("side", "given"),
    [
        ("endingOffsets", {"t": {"0": 5}}),
        ("startingOffsets", {"t": {"0": 5}}),
        ("endingOffsets", {"t": {"0": 5, "1": 5, "7": 5}}),
        ("endingOffsets", {"t": {"0": 5, "1": 5}, "typo": {"0": 5}}),
        ("startingOffsetsByTimestamp", {"t": {"0": 5}}),
        ("endingOffsetsByTimestamp", {"t": {"0": 5}}),
    ],
)
def test_offsets_of_other_partitions_are_refused(
    kafka: KafkaUnderTest, topic_name: str, compacted: dict[str, str], side: str, given: dict[str, dict[str, int]]
) -> None:
    """As by a read that is not compacted: a partition that is not named would be left out unseen."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, b"k%d" % n, b"v") for n in range(20)])
    bound = {side: json.dumps({topic_name if topic == "t" else topic: by for topic, by in given.items()})}
    with pytest.raises(OffsetsMismatchError, match=side) as plain:
        reader_of(kafka, topic_name, **bound).partitions()
    with pytest.raises(OffsetsMismatchError, match=side) as found:
        reader_of(kafka, topic_name, **bound, **compacted).partitions()
    assert str(found.value) == str(plain.value)


def test_a_partition_that_no_offset_is_given_for_later(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The topic has grown between planning and reading: the task says it, as one does that does not compact."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, b"k%d" % n, b"v") for n in range(20)])
    bound = json.dumps({topic_name: {"0": 5, "1": 4}})
    readers = [
        reader_of(kafka, topic_name, endingOffsets=bound, **more) for more in ({}, {"compaction__strategy": "offset"})
    ]
    planned = [reader.partitions() for reader in readers]
    assert len(table_of(rows_of(readers[1], planned[1]))) == 9
    admin = kafka.admin()  # it has to outlive the answer
    admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name].result(120)
    wait_for_partitions(admin, topic_name, 3, kafka.bootstrap_servers)
    for reader, tasks in zip(readers, planned, strict=True):
        with pytest.raises(OffsetsMismatchError, match="endingOffsets"):
            rows_of(reader, tasks)
