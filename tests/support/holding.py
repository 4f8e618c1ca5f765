"""An attempt at a change that stays open, so that a test can look at what writers hold meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from keyorder import OrderedProducer
from keyorder.connector.control.timeline_edit import edit
from keyorder.partitioner.epochs import ChangePhase
from support.cluster import KafkaUnderTest


def until(condition: Callable[[], bool], what: str = "it holds", timeout: float = 120.0) -> None:
    """Return once it holds. what: what that means, for the failure."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


@contextmanager
def prepared(kafka: KafkaUnderTest, topic: str, count: int, *producers: OrderedProducer) -> Iterator[None]:
    """An open PREPARE that no controller ends, seen by these producers; given up at the end."""
    edit(kafka.client_config(), topic, lambda timeline: timeline.opened(count, ChangePhase.PLAN).prepared())
    try:
        for producer in producers:
            until(lambda p=producer: p._topics[topic].preparing)  # type: ignore[misc]
        yield
    finally:
        edit(kafka.client_config(), topic, lambda timeline: timeline.given_up(), even_open=True)


def log_values(
    kafka: KafkaUnderTest, topic: str, partition: int, isolation: str = "read_committed"
) -> list[tuple[bytes, bytes | None]]:
    """(key, value) of every record of a partition, as a plain reader sees them."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {**kafka.client_config(), "group.id": "log", "enable.partition.eof": True, "isolation.level": isolation}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[bytes, bytes | None]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        found.append((message.key() or b"", message.value()))
