"""A control topic that is deleted and made again: nobody goes on by what it said, and nobody starts as if nothing had been."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector import clock
from keyorder.partitioner.errors import KeyorderError, TimelineRegressionError
from keyorder.partitioner.records.control_records import CONTROL_TOPIC
from support.cluster import KafkaFactory
from support.groups import QUICK, await_gone, group_config, moving_key, read, send


def test_running_clients_stop_and_a_new_reader_does_not_take_the_topic_for_unmanaged(
    kafka_factory: KafkaFactory, topic_name: str
) -> None:
    kafka = kafka_factory()
    admin, cluster = TopicAdmin(kafka.client_config()), kafka.admin()
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    send(kafka, topic_name, (key, "old"))
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new"))
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    assert [m.value() for m in read(consumer, 2)] == [b"old", b"new"]
    partitions = len(cluster.list_topics(CONTROL_TOPIC, timeout=10).topics[CONTROL_TOPIC].partitions)

    cluster.delete_topics([CONTROL_TOPIC])[CONTROL_TOPIC].result(20)
    await_gone(cluster, CONTROL_TOPIC)
    made = NewTopic(CONTROL_TOPIC, partitions, config={"cleanup.policy": "compact"})
    cluster.create_topics([made])[CONTROL_TOPIC].result(20)

    raised = stopped(lambda: consumer.poll(0.2))
    assert isinstance(raised, TimelineRegressionError)
    assert CONTROL_TOPIC in str(raised)
    consumer.close()
    with OrderedConsumer(group_config(kafka, f"{topic_name}-2")) as new:
        new.subscribe([topic_name])
        with pytest.raises(TimelineRegressionError):
            read(new, 3)


def stopped(call: object, timeout: float = 60.0) -> KeyorderError:
    """Call until it raises a typed error that says more than that Kafka is away."""
    deadline = clock.now() + timeout
    while clock.now() < deadline:
        try:
            call()  # type: ignore[operator]
        except KeyorderError as error:
            if not error.retriable:
                return error
    raise AssertionError("it goes on")
