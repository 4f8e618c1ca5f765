"""Brokers that make topics by themselves, as Kafka's do unless told otherwise: who looks at a topic must not make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector.control.control_topics import PARTITIONS
from support.cluster import ClusterSpec, KafkaUnderTest
from support.connect_rig import until
from support.groups import await_that, group_config


@pytest.fixture(scope="module")
def creating(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker of that kind."""
    started = start_kafka(ClusterSpec(1, {}, {"auto.create.topics.enable": "true", "num.partitions": "1"}))
    yield started
    started.stop()


def test_a_consumer_that_comes_first_leaves_the_control_topics_to_whoever_makes_them(
    creating: KafkaUnderTest, topic_name: str
) -> None:
    """It reads an unmanaged topic without making `_keyorder` (one partition, no compaction); a producer makes it whole."""
    config = creating.client_config()
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(120)
    stock = Producer(config)
    stock.produce(topic_name, b"1", b"k")
    assert stock.flush(120) == 0
    consumer = OrderedConsumer({**config, "group.id": "first", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic_name])
    try:
        until(lambda: [m for m in consumer.consume(1, 1.0) if m.error() is None], "the record is there", 120)
        assert not [name for name in admin.list_topics(timeout=120).topics if name.startswith("_keyorder")]
        with OrderedProducer(config) as producer:
            producer.produce(topic_name, "2", "k")
        topics = admin.list_topics(timeout=120).topics
        assert {len(t.partitions) for name, t in topics.items() if name.startswith("_keyorder")} == {PARTITIONS}
    finally:
        consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_subscription_makes_no_topic(creating: KafkaUnderTest, topic_name: str, strategy: str) -> None:
    """Nor does its look for new partitions: another topic of the subscription has grown and was found."""
    there, absent = f"{topic_name}-there", f"{topic_name}-absent"
    admin = creating.admin()
    admin.create_topics([NewTopic(there, 1, 1)])[there].result(120)
    config = group_config(
        creating, topic_name, partition_assignment_strategy=strategy, topic_metadata_refresh_interval_ms=200
    )
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([there, absent])
        await_that(consumer, lambda: len(consumer.assignment()) == 1)
        admin.create_partitions([NewPartitions(there, 2)])[there].result(120)
        await_that(consumer, lambda: len(consumer.assignment()) == 2)
        assert absent not in admin.list_topics(timeout=120).topics


@pytest.mark.parametrize("kind", [Consumer, OrderedConsumer])
def test_a_consumer_that_lists_a_topic_does_not_make_it(
    creating: KafkaUnderTest, topic_name: str, kind: type[Consumer]
) -> None:
    """list_topics(topic) says that it is not there; the client library's consumer leaves it at that too."""
    consumer = kind(group_config(creating, topic_name))
    try:
        for _ in range(2):
            found = consumer.list_topics(topic_name, timeout=120).topics[topic_name]
            assert found.error is not None
            assert found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        consumer.close()
    assert topic_name not in creating.admin().list_topics(timeout=120).topics
