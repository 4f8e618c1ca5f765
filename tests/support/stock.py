"""Producers without keyorder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from support.cluster import KafkaUnderTest


def stock(kafka: KafkaUnderTest, **more: object) -> Producer:
    """A producer as Java's places keys."""
    return Producer({**kafka.client_config(), "partitioner": "murmur2_random", "linger.ms": 5, **more})


@contextmanager
def written_by_stock(kafka: KafkaUnderTest, topic: str) -> Iterator[None]:
    """A stock producer writes the topic without a pause; the first record has arrived."""
    producer, over, arrived = stock(kafka), threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            producer.produce(topic, b"v", b"k%d" % (number % 8), on_delivery=lambda *_: arrived.set())
            producer.flush(120)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert arrived.wait(120)
        yield
    finally:
        over.set()
        thread.join()


def with_open_transaction(kafka: KafkaUnderTest, topic: str) -> Producer:
    """A producer whose first record lies in the topic, in a transaction that goes on."""
    producer = Producer({**kafka.client_config(), "transactional.id": topic})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, b"open", b"k")
    assert producer.flush(120) == 0
    return producer
