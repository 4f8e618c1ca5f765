"""`produce(partition=...)` to a topic that keyorder does not manage goes as with confluent_kafka, and leaves it unmanaged."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.partitioner.errors import (
    BrokerUnreachableError,
    PartitionRefusedError,
    ReleasedTopicError,
    UnmanagedTopicError,
)
from support.cluster import KafkaUnderTest

BOTH = pytest.mark.parametrize("kind", [Producer, OrderedProducer], ids=["stock", "ordered"])


@pytest.fixture
def topic(kafka: KafkaUnderTest, topic_name: str) -> str:
    """Two partitions, made by a stock client."""
    admin = AdminClient(kafka.client_config())
    admin.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(120)
    return topic_name


def read(kafka: KafkaUnderTest, topic: str, count: int) -> list[tuple[int, Any, Any, Any]]:
    """The first records, in any order: partition, key, value, headers."""
    config = {**kafka.client_config(), "group.id": f"read-{topic}", "auto.offset.reset": "earliest"}
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.consume(count - len(found), 120)
    return [(m.partition(), m.key(), m.value(), m.headers()) for m in found]


def place_for_ever(producer: Any, topic: str) -> None:
    """One record after the other to one partition."""
    while True:
        producer.produce(topic, b"v", b"k", 1)
        assert producer.flush(120) == 0


@BOTH
def test_records_that_the_application_places_lie_where_it_said(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """With their callbacks, on the thread that polls; and nobody has adopted the topic."""
    placed: list[tuple[KafkaError | None, int | None, int]] = []
    with kind(kafka.client_config()) as producer:
        for n in range(20):
            producer.produce(
                topic,
                f"v{n}",
                "k",
                n % 2,
                on_delivery=lambda error, message: placed.append((error, message.partition(), threading.get_ident())),
                headers={"n": str(n)} if n == 19 else None,
            )
        assert producer.produce_batch(topic, [{"value": b"b"}, {"value": b"c"}], 0) == 2
        assert producer.flush(120) == 0
    assert sorted(partition for _, partition, _ in placed if partition is not None) == [0] * 10 + [1] * 10
    assert {error for error, _, _ in placed} == {None}
    assert {thread for _, _, thread in placed} == {threading.get_ident()}
    found = read(kafka, topic, 22)
    assert [partition for partition, *_ in found].count(0) == 12
    assert [headers for *_, headers in found if headers] == [[("n", b"19")]]
    assert TopicAdmin(kafka.client_config()).managed(topic) is None


def test_a_batch_may_name_a_partition_for_each_record(kafka: KafkaUnderTest, topic: str) -> None:
    """As confluent-kafka's documentation has it; its own takes the batch's."""
    placed = []
    with OrderedProducer(
        {**kafka.client_config(), "on_delivery": lambda _, message: placed.append(message)}
    ) as producer:
        assert producer.produce_batch(topic, [{"value": b"a", "partition": 1}, {"value": b"b"}], 0) == 2
    assert {message.value(): message.partition() for message in placed} == {b"a": 1, b"b": 0}


@BOTH
def test_only_failures_are_told_where_that_is_set(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """A partition that is not there fails in the callback; what was delivered is not told."""
    told: list[Any] = []
    with kind({**kafka.client_config(), "delivery.report.only.error": True}) as producer:
        producer.produce(topic, b"v", b"k", 1, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(120) == 0
        with pytest.raises(KafkaException) as refused:
            producer.produce(topic, b"v", b"k", 7)
    assert told == []
    assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


@BOTH
def test_a_callback_that_raises_is_heard_once(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """By the call that polls; the other records' callbacks run."""
    heard: list[Any] = []

    def told(_: Any, message: Any) -> None:
        heard.append(message.value())
        if message.value() == b"0":
            raise ZeroDivisionError(message.value())

    with kind(kafka.client_config()) as producer:
        for n in range(3):
            producer.produce(topic, str(n), partition=0, on_delivery=told)
        with pytest.raises(ZeroDivisionError):
            producer.flush(120)
        assert producer.flush(120) == 0
    assert heard == [b"0", b"1", b"2"]


@BOTH
def test_placed_records_are_part_of_a_transaction(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """An aborted one is not seen; outside a transaction there is none."""
    producer = kind({**kafka.client_config(), "transactional.id": f"placed-{topic}"})
    producer.init_transactions(120)
    with pytest.raises(KafkaException) as outside:
        producer.produce(topic, b"none", partition=0)
    assert outside.value.args[0].code() == KafkaError._STATE
    for value, ends in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, b"k", 1)
        ends(120)
    producer.close()
    assert read(kafka, topic, 1) == [(1, b"k", b"committed", None)]


def test_a_topic_that_is_managed_takes_none(kafka: KafkaUnderTest, topic: str) -> None:
    """Whoever adopts it, and also after records were placed there: this producer, or another while this one goes on."""
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic, b"v", b"k", 1)
        assert producer.flush(120) == 0
        TopicAdmin(kafka.client_config()).adopt(topic)
        with pytest.raises(PartitionRefusedError) as refused:
            place_for_ever(producer, topic)
        assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
        producer.produce(topic, b"v", b"k")
        with pytest.raises(PartitionRefusedError):
            producer.produce(topic, b"v", b"k", 1)
    with OrderedProducer(kafka.client_config()) as another, pytest.raises(PartitionRefusedError):
        another.produce(topic, b"v", b"k", 1)


def test_a_keyed_record_adopts_the_topic_as_ever(kafka: KafkaUnderTest, topic: str) -> None:
    """From then on this producer places all records."""
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic, b"v", partition=1)
        producer.produce(topic, b"v", b"k")
        assert TopicAdmin(kafka.client_config()).managed(topic) is not None
        with pytest.raises(PartitionRefusedError):
            producer.produce(topic, b"v", partition=1)


def test_what_is_to_stay_unmanaged_or_was_given_back_is_said(kafka: KafkaUnderTest, topic: str) -> None:
    """`keyorder.adopt=false` refuses an unmanaged topic, and nobody writes a released one through keyorder."""
    with (
        OrderedProducer({**kafka.client_config(), "keyorder.adopt": False}) as producer,
        pytest.raises(UnmanagedTopicError),
    ):
        producer.produce(topic, b"v", b"k", 1)
    admin = TopicAdmin(kafka.client_config())
    admin.adopt(topic)
    admin.release(topic)
    with OrderedProducer(kafka.client_config()) as producer, pytest.raises(ReleasedTopicError):
        producer.produce(topic, b"v", b"k", 1)


def test_without_a_broker_the_call_says_so() -> None:
    """Whether the topic is managed cannot be known: nothing is queued."""
    told: list[Any] = []
    config = {"bootstrap.servers": "localhost:1", "keyorder.control.timeout.ms": 500, "delivery.timeout.ms": 1_000}
    with OrderedProducer(config) as producer, pytest.raises(BrokerUnreachableError):
        producer.produce("orders", b"v", b"k", 1, on_delivery=lambda error, _: told.append(error))
    assert told == []
