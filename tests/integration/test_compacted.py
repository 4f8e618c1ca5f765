"""Compacted topics: a moved key's old values are cleared, and readers never mistake that for a delete."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.control.timeline_edit import edit
from support.cluster import KafkaUnderTest

COMPACTED = {"keyorder.view.age.ms": "300", "cleanup.policy": "compact"}


def log(kafka: KafkaUnderTest, topic: str, partition: int, key: bytes) -> list[bytes | None]:
    """The values of a key in one partition, as a plain reader sees them."""
    consumer = Consumer(
        {**kafka.client_config(), "group.id": "log", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes | None] = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return values
        if message.key() == key:
            values.append(message.value())


def read_all(kafka: KafkaUnderTest, topic: str, group: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """What an ordered group is given, from the beginning; and that nothing follows."""
    config = {**kafka.client_config(), "group.id": group, "auto.offset.reset": "earliest"}
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 120
        seen: list[tuple[bytes | None, bytes | None]] = []
        while len(seen) < count:
            assert time.monotonic() < deadline, (seen, consumer.gates())
            seen += [(m.key(), m.value()) for m in consumer.consume(count - len(seen), 0.2)]
        assert consumer.consume(1, 1.0) == []
        assert consumer.strays == 0
    return seen


@pytest.mark.kip("K253-62", "K253-63", "K253-65", "C-08", "T-13")
def test_a_moved_key_is_cleared_at_every_earlier_home(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Written at 1, not at 2, written again at 4 partitions: both earlier homes get a tombstone, readers get none."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=COMPACTED)
    layout = admin.describe(topic_name).layout
    key = next(
        k for k in (f"k{i}" for i in range(1000)) if layout.resized(2).home(k) == 1 and layout.resized(4).home(k) == 3
    )
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "first", key)
        assert producer.flush(120) == 0
        admin.expand(topic_name, 2)
        admin.expand(topic_name, 4)
        told = []
        producer.produce(topic_name, "second", key, on_delivery=lambda error, _: told.append(error))
        producer.produce(topic_name, "third", key)
        assert producer.flush(120) == 0
        assert told == [None]

    name = key.encode()
    assert log(kafka, topic_name, 3, name) == [b"second", b"third"]
    assert log(kafka, topic_name, 0, name)[-1] is None
    assert log(kafka, topic_name, 1, name) in ([], [None], [None, None])
    assert read_all(kafka, topic_name, topic_name, 3) == [(name, b"first"), (name, b"second"), (name, b"third")]


@pytest.mark.kip("K253-62")
def test_where_delivery_is_not_ordered_nothing_is_cleared(kafka: KafkaUnderTest, topic_name: str) -> None:
    """KIP-253 asks for the tombstone of a topic with ordered delivery; the key's old value stays, as stock clients leave it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config={**COMPACTED, "enable.ordered.delivery": "false"})
    key = next(k for k in (f"k{i}" for i in range(100)) if admin.describe(topic_name).layout.resized(2).home(k) == 1)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "first", key)
        assert producer.flush(120) == 0
        admin.expand(topic_name, 2)
        producer.produce(topic_name, "second", key)
        assert producer.flush(120) == 0

    name = key.encode()
    assert (log(kafka, topic_name, 0, name), log(kafka, topic_name, 1, name)) == ([b"first"], [b"second"])


def test_a_real_delete_of_a_moved_key_is_delivered(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A null value at the key's home is the application's, whatever headers it carries."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=COMPACTED)
    key = next(k for k in (f"k{i}" for i in range(100)) if admin.describe(topic_name).layout.resized(2).home(k) == 1)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "value", key)
        producer.flush(120)
        admin.expand(topic_name, 2)
        producer.produce(topic_name, None, key)
        assert producer.flush(120) == 0

    name = key.encode()
    assert read_all(kafka, topic_name, topic_name, 2) == [(name, b"value"), (name, None)]


def test_a_key_that_came_back_keeps_its_value(kafka: KafkaUnderTest, topic_name: str) -> None:
    """1 -> 2 -> 1 with writes in between: the last value stands at the home it came back to."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=COMPACTED)
    key = next(k for k in (f"k{i}" for i in range(100)) if admin.describe(topic_name).layout.resized(2).home(k) == 1)
    with OrderedProducer(kafka.client_config()) as producer:
        for count, value in ((2, "one"), (1, "two"), (2, "three"), (1, "four")):
            producer.produce(topic_name, value, key)
            producer.flush(120)
            (admin.expand if count == 2 else admin.shrink)(topic_name, count)
        producer.produce(topic_name, "five", key)
        assert producer.flush(120) == 0

    name = key.encode()
    assert log(kafka, topic_name, 0, name)[-1] == b"five"
    assert log(kafka, topic_name, 1, name)[-1] is None
    values = [value for _, value in read_all(kafka, topic_name, topic_name, 5)]
    assert values == [b"one", b"two", b"three", b"four", b"five"]


def test_a_retired_partition_of_a_compacted_topic_is_kept(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its surviving values are the only copies: it stays readable, also for a shrink that asked for no delay."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(
        topic_name, 2, initial_partition_count=1, config={**COMPACTED, "delete.topic.partition.enable": "true"}
    )
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(20):
            producer.produce(topic_name, "value", f"k{i}")
        assert producer.flush(120) == 0
    admin.shrink(topic_name, 1, immediate=True)

    (step,) = admin.drain(topic_name)

    assert not step.done
    assert "re-homed" in step.what
    assert len(read_all(kafka, topic_name, topic_name, 20)) == 20


@pytest.mark.kip("K253-64", "C-02")
@pytest.mark.parametrize("policy", ["compact,delete", "compact"])
def test_a_tombstone_is_sent_only_while_something_old_is_left(
    kafka: KafkaUnderTest, topic_name: str, policy: str
) -> None:
    """Before the old home was cleared below the cut a moved key's write is followed by one; afterwards by none.

    What clears it is a deletion where the broker allows one, and else a purge watermark in the timeline.
    """
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config={**COMPACTED, "cleanup.policy": policy})
    grown = admin.describe(topic_name).layout.resized(2)
    early, late = [key for key in (f"k{i}" for i in range(100)) if grown.home(key) == 1][:2]
    with OrderedProducer(kafka.client_config()) as producer:
        for key in (early, late):
            producer.produce(topic_name, "old", key)
        assert producer.flush(120) == 0
        admin.expand(topic_name, 2)
        producer.produce(topic_name, "new", early)
        assert producer.flush(120) == 0
    assert log(kafka, topic_name, 0, early.encode())[-1:] == [None]

    cut = admin.timeline(topic_name).newest.ends[0]
    if policy == "compact":
        edit(kafka.client_config(), topic_name, lambda t: replace(t, purged={0: cut}))
    else:
        place = TopicPartition(topic_name, 0, cut)
        client = kafka.admin()
        client.delete_records([place])[place].result(120)
    before = log(kafka, topic_name, 0, late.encode())
    told = []
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "new", late, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(120) == 0

    assert told == [None]
    assert log(kafka, topic_name, 1, late.encode()) == [b"new"]
    assert log(kafka, topic_name, 0, late.encode()) == before
    assert None not in before
