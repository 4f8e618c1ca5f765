"""ArrowReader on a real broker, by the C calls and by the Python client: both give the same rows."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from keyorder.connector.arrow.columns import Event
from keyorder.connector.arrow.reader import ArrowReader
from keyorder.connector.arrow.schema import SCHEMA, batch_of, empty_batch
from keyorder.connector.metadata import wait_for_partitions
from keyorder.partitioner.errors import ConfigError, TopicNotFoundError
from support.cluster import KafkaUnderTest

Row = dict[str, object]


def make_topic(kafka: KafkaUnderTest, topic: str, partitions: int, **config: str) -> None:
    """Create a plain topic; when this returns its broker shows it to clients."""
    admin = kafka.admin()
    made = admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
    made[topic].result(120)
    wait_for_partitions(admin, topic, partitions, kafka.bootstrap_servers, 120)


def odd_records(
    seed: int, count: int
) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]]:
    """Records with all that is unusual: empty and missing keys, tombstones, headers without values, twice the same name."""
    rng = random.Random(seed)

    def some(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(most))

    names = ["a", "a", "ключ", "", "keyorder-epoch"]
    return [
        (
            some(20),
            some(300),
            [(rng.choice(names), some(9)) for _ in range(rng.randrange(1, 5))] if rng.random() < 0.3 else None,
        )
        for _ in range(count)
    ]


def fill(kafka: KafkaUnderTest, topic: str, records: int, seed: int = 7, partitions: int = 3, **config: object) -> None:
    """Write odd records round robin."""
    producer = Producer({**kafka.client_config(), "linger.ms": 20, **config})
    if "transactional.id" in config:
        producer.init_transactions(30)
        producer.begin_transaction()
    for i, (key, value, headers) in enumerate(odd_records(seed, records)):
        producer.produce(topic, value, key, i % partitions, timestamp=1_700_000_000_000 + i, headers=headers)
        producer.poll(0)
    if "transactional.id" in config:
        producer.commit_transaction(30)
    assert producer.flush(120) == 0


def read_all(reader: ArrowReader, max_rows: int = 1000) -> pa.Table:
    """Everything that is assigned."""
    batches = []
    while not reader.done:
        batch = reader.read(max_rows, 10.0)
        assert len(batch) <= max_rows
        assert batch.schema == SCHEMA
        batch.validate(full=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema=SCHEMA)


def by_partition(table: pa.Table) -> dict[int, list[Row]]:
    """Rows of each partition in the order in which they came."""
    rows: dict[int, list[Row]] = {}
    for row in table.to_pylist():
        rows.setdefault(row["partition"], []).append(row)
    return rows


def stock_rows(kafka: KafkaUnderTest, topic: str, ends: dict[int, int]) -> dict[int, list[Row]]:
    """What the ordinary consumer reads, as rows."""
    consumer = Consumer({**kafka.client_config(), "group.id": uuid.uuid4().hex, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    messages, finished = [], 0
    while finished < len(ends):
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            finished += 1
        else:
            messages.append(message)
    consumer.close()
    return by_partition(pa.Table.from_batches([batch_of(messages)]))


@pytest.fixture(params=["native", "fallback"])
def reader(request: pytest.FixtureRequest, kafka: KafkaUnderTest) -> Iterator[ArrowReader]:
    """A reader of either kind."""
    native = request.param == "native"
    config = {**kafka.client_config(), "keyorder.arrow.native": native, "fetch.wait.max.ms": 50}
    config["topic.metadata.propagation.max.ms"] = 1000
    with ArrowReader(config) as made:
        assert made.native == native
        yield made


def test_reads_what_the_ordinary_consumer_reads(kafka: KafkaUnderTest, topic_name: str, reader: ArrowReader) -> None:
    """Keys, values, headers, nulls and times come out as from confluent_kafka, partition by partition in order."""
    make_topic(kafka, topic_name, 3)
    fill(kafka, topic_name, 3000)
    reader.assign({topic_name: [(p, 0, 1000) for p in range(3)]})
    assert stock_rows(kafka, topic_name, {0: 1000, 1: 1000, 2: 1000}) == by_partition(read_all(reader))


def test_ranges_are_exact_and_the_next_ones_go_on(kafka: KafkaUnderTest, topic_name: str, reader: ArrowReader) -> None:
    """Each range holds its offsets alone; following ranges lose and repeat nothing, also after a step back."""
    make_topic(kafka, topic_name, 3)
    fill(kafka, topic_name, 3000)
    for start, end in [(0, 1), (1, 400), (400, 400), (400, 990), (990, 1000), (10, 20), (500, 700), (700, 701)]:
        reader.assign({topic_name: [(p, start, end) for p in (0, 2)]})
        rows = by_partition(read_all(reader, max_rows=150))
        offsets = {p: [row["offset"] for row in found] for p, found in rows.items()}
        assert offsets == ({p: list(range(start, end)) for p in (0, 2)} if end > start else {})
    reader.assign({topic_name: [(1, 0, 5)]})
    assert [row["offset"] for row in by_partition(read_all(reader))[1]] == [0, 1, 2, 3, 4]


def test_a_range_that_ends_with_a_transaction_marker_ends(
    kafka: KafkaUnderTest, topic_name: str, reader: ArrowReader
) -> None:
    """The marker behind the last record shows as nothing; the range is done all the same."""
    make_topic(kafka, topic_name, 1)
    fill(kafka, topic_name, 10, partitions=1, **{"transactional.id": topic_name})
    reader.assign({topic_name: [(0, 0, 11)]})
    assert list(range(10)) == [row["offset"] for row in read_all(reader).to_pylist()]
    assert reader.position(topic_name, 0) == 11


def test_reading_nothing_gives_an_empty_batch(kafka: KafkaUnderTest, topic_name: str, reader: ArrowReader) -> None:
    """No range, no time or no record: an empty batch of the schema."""
    assert empty_batch() == reader.read(10, 0)
    make_topic(kafka, topic_name, 1)
    reader.assign({topic_name: [(0, 0, 5)]})
    assert empty_batch() == reader.read(10, 0.3)
    assert not reader.done
    fill(kafka, topic_name, 5, partitions=1)
    assert len(read_all(reader)) == 5


def test_what_cannot_be_read_raises(kafka: KafkaUnderTest, topic_name: str, reader: ArrowReader) -> None:
    """A topic that is not there, and an offset that the log does not hold, are errors and not an endless wait."""
    make_topic(kafka, topic_name, 1)
    reader.assign({topic_name: [(0, 100, 105)]})
    with pytest.raises(KafkaException):
        read_all(reader)
    reader.assign({topic_name + "-absent": [(0, 0, 5)]})
    with pytest.raises(TopicNotFoundError):
        read_all(reader)


def test_an_error_of_what_was_dropped_is_not_raised_later(
    kafka: KafkaUnderTest, topic_name: str, reader: ArrowReader
) -> None:
    """A partition that is not read any more was out of range: the ranges read now have no part in it."""
    make_topic(kafka, topic_name, 2)
    fill(kafka, topic_name, 20, partitions=2)
    reader.assign({topic_name: [(0, 1_000, 2_000)]})
    reader.assign({topic_name: [(1, 0, 10)]})
    reader._event(Event(0, KafkaError.OFFSET_OUT_OF_RANGE, "out of range", topic_name, 0, 1_000))
    assert len(read_all(reader)) == 10


def test_an_unclear_option_is_refused(kafka: KafkaUnderTest) -> None:
    """`keyorder.arrow.native` is true or false."""
    with pytest.raises(ConfigError, match=r"keyorder\.arrow\.native"):
        ArrowReader({**kafka.client_config(), "keyorder.arrow.native": "perhaps"})
