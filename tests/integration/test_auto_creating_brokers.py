"""Brokers that make topics by themselves, as Kafka's do unless told otherwise: a look at a control topic must not make it."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector.control.control_topics import PARTITIONS
from support.cluster import KafkaFactory
from support.connect_rig import until


def test_a_consumer_that_comes_first_leaves_the_control_topics_to_whoever_makes_them(
    kafka_factory: KafkaFactory, topic_name: str
) -> None:
    """It reads an unmanaged topic without making `_keyorder` (one partition, no compaction); a producer makes it whole."""
    kafka = kafka_factory(properties={"auto.create.topics.enable": "true", "num.partitions": "1"})
    config = kafka.client_config()
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(30)
    stock = Producer(config)
    stock.produce(topic_name, b"1", b"k")
    assert stock.flush(30) == 0
    consumer = OrderedConsumer({**config, "group.id": "first", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic_name])
    try:
        until(lambda: [m for m in consumer.consume(1, 1.0) if m.error() is None], "the record is there", 120)
        assert not [name for name in admin.list_topics(timeout=10).topics if name.startswith("_keyorder")]
        with OrderedProducer(config) as producer:
            producer.produce(topic_name, "2", "k")
        topics = admin.list_topics(timeout=10).topics
        assert {len(t.partitions) for name, t in topics.items() if name.startswith("_keyorder")} == {PARTITIONS}
    finally:
        consumer.close()
