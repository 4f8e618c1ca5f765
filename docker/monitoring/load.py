"""A load for a look at the dashboard: a hundred orders a second by one writer, read by one group."""

from __future__ import annotations

import os
import threading
import time

from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin

SERVERS = {
    "bootstrap.servers": os.environ["KEYORDER_BOOTSTRAP_SERVERS"],
    "keyorder.metrics.host": "0.0.0.0",  # for Prometheus beside it; the compose file publishes no port of this container
    "keyorder.metrics.port": 9405,
}
TOPIC = "orders"


def create() -> None:
    """A managed topic on all brokers, unless it is there."""
    with TopicAdmin({"bootstrap.servers": SERVERS["bootstrap.servers"]}) as admin:
        if TOPIC not in admin.topics():
            admin.create(TOPIC, 6, replication_factor=3)


def read() -> None:
    """Process orders, some of them slowly."""
    with OrderedConsumer({**SERVERS, "group.id": "shipping", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([TOPIC])
        while True:
            if consumer.consume(100, 1.0):
                time.sleep(0.2)


def write() -> None:
    """A few hundred customers order, and order again."""
    with OrderedProducer(SERVERS) as producer:
        number = 0
        while True:
            for _ in range(10):
                number += 1
                producer.produce(TOPIC, f"order {number}", f"customer {number % 500}")
            producer.poll(0)
            time.sleep(0.1)


if __name__ == "__main__":
    create()
    threading.Thread(target=read, daemon=True).start()
    write()
