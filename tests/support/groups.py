"""One group's consumers in a test: their settings, and reading until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "400"}


def group_config(kafka: KafkaUnderTest, group: str, **more: object) -> dict[str, object]:
    return {
        **kafka.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def read(consumer: OrderedConsumer, count: int, timeout: float = 30.0) -> list[Message]:
    """Exactly `count` records, or a failure that names the gates."""
    deadline = time.monotonic() + timeout
    messages: list[Message] = []
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count}; gates: {consumer.gates()}"
        for message in consumer.consume(count - len(messages), 0.1):
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                # A topic that was just made may not be in every broker's metadata yet: told as an event, like a record.
                assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
    return messages


def await_that(consumer: OrderedConsumer, condition: Callable[[], bool], timeout: float = 30.0) -> list[Message]:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout
    messages: list[Message] = []
    while not condition():
        assert time.monotonic() < deadline, f"never; gates: {consumer.gates()}"
        message = consumer.poll(0.05)
        if message is not None:
            messages.append(message)
    return messages


def moving_key(admin: TopicAdmin, topic: str, count: int) -> str:
    """A key that a growth to `count` gives another home."""
    layout = admin.describe(topic).layout
    return next(k for k in (f"k{i}" for i in range(1000)) if layout.home(k) != layout.resized(count).home(k))


def send(kafka: KafkaUnderTest, topic: str, *records: tuple[str, str]) -> None:
    with OrderedProducer(kafka.client_config()) as producer:
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(20) == 0


def await_gone(cluster: AdminClient, topic: str, timeout: float = 30.0) -> None:
    """Return once a deleted topic is not listed any more."""
    deadline = time.monotonic() + timeout
    while topic in cluster.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, f"{topic} is still there"
