"""A pause of a partition ends with its assignment."""

from __future__ import annotations

from confluent_kafka import Message
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest


def test_a_partition_that_was_paused_and_reassigned_flows(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The client library keeps a pause beyond the assignment; a partition that comes back is read all the same."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    config = {
        **kafka.client_config(),
        "group.id": topic_name,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
    }
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "1", "k")
        producer.flush()
        with OrderedConsumer(config) as consumer:
            consumer.subscribe([topic_name])

            def next_message() -> Message:
                deadline = clock.now() + 60
                while (message := consumer.poll(0.2)) is None:
                    assert clock.now() < deadline, "nothing comes"
                return message

            assert next_message().value() == b"1"
            rebalances: list[str] = []
            consumer.subscribe(
                [topic_name],
                on_assign=lambda *_: rebalances.append("assigned"),
                on_revoke=lambda *_: rebalances.append("revoked"),
            )
            consumer.pause(consumer.assignment())
            other = OrderedConsumer(config)
            other.subscribe([topic_name])
            deadline = clock.now() + 60
            while "revoked" not in rebalances:
                consumer.poll(0.1)
                other.poll(0.1)
                assert clock.now() < deadline
            other.close()
            producer.produce(topic_name, "2", "k")
            producer.flush()
            assert next_message().value() == b"2"
