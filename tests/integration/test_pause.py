"""A pause lasts until a resume, as the client library's does, whatever becomes of the assignment meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.groups import QUICK, group_config, send

HOWS = ["assign", "incremental_assign", "range", "cooperative-sticky", "consumer"]


def filled(kafka: KafkaUnderTest, topic: str) -> None:
    TopicAdmin(kafka.client_config()).create(topic, 2, config=QUICK)
    send(kafka, topic, *((f"k{n}", f"{n}") for n in range(60)))


def next_record(consumer: Any) -> TopicPartition:
    deadline = clock.now() + 120
    while True:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            return TopicPartition(message.topic(), message.partition(), message.offset())
        assert clock.now() < deadline, "nothing comes"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("api", [Consumer, OrderedConsumer])
def test_a_pause_outlasts_the_assignment(kafka: KafkaUnderTest, topic_name: str, api: Any, how: str) -> None:
    """What was paused comes back paused, by hand and in each group protocol, and flows when it is resumed."""
    filled(kafka, topic_name)
    both = [TopicPartition(topic_name, p, 0) for p in (0, 1)]
    names = ["revoked"]
    more: dict[str, object] = {"enable_auto_commit": False}
    if how == "consumer":
        more["group_protocol"] = how
    elif "assign" not in how:
        more |= {"partition_assignment_strategy": how, "heartbeat_interval_ms": 500}
    config = group_config(kafka, topic_name, **more)
    consumer = api(config)
    if "assign" in how:
        getattr(consumer, how)(both)
    else:
        consumer.subscribe([topic_name], on_revoke=lambda *_: names.clear())
    next_record(consumer)
    consumer.pause(both)

    if how == "assign":
        consumer.unassign()
        consumer.assign(both)
    elif how == "incremental_assign":
        consumer.incremental_unassign(both)
        consumer.incremental_assign(both)
    else:
        other = api(config)
        other.subscribe([topic_name])
        deadline = clock.now() + 120
        while names:
            assert consumer.poll(0.1) is None
            other.poll(0.1)
            assert clock.now() < deadline, "no partition was taken away"
        other.close()
        while len(consumer.assignment()) < 2:
            assert consumer.poll(0.1) is None
            assert clock.now() < deadline, "it did not come back"
    for _ in range(10):
        assert consumer.poll(0.1) is None

    consumer.resume([both[1]])
    assert next_record(consumer).partition == 1
    consumer.resume([both[0]])
    while next_record(consumer).partition != 0:
        pass
    consumer.close()
