"""kombu's queue on Kafka, on which Celery works: `kombu_queue.py BROKER QUEUE KIND`, prints what was read."""

from __future__ import annotations

import json
import sys

from keyorder import OrderedConsumer, OrderedProducer
from kombu import Connection
from kombu.transport import confluentkafka


def main(broker: str, name: str, kind: str) -> None:
    """Five messages in one connection, and one more in another connection."""
    if kind == "ordered":
        confluentkafka.Consumer, confluentkafka.Producer = OrderedConsumer, OrderedProducer
    read = []
    with Connection(f"confluentkafka://{broker}/") as connection:
        queue = connection.SimpleQueue(name)  # makes the topic, and does not wait for it
        for number in range(5):
            queue.put({"number": number})
        for _ in range(5):
            message = queue.get(timeout=120)
            read.append(message.payload["number"])
            message.ack()
        left = queue.qsize()
        queue.close()
    with Connection(f"confluentkafka://{broker}/") as connection:
        queue = connection.SimpleQueue(name)
        queue.put({"number": 5})
        read.append(queue.get(timeout=120).payload["number"])
        queue.close()
    print(json.dumps({"read": read, "left": left}))


if __name__ == "__main__":
    main(*sys.argv[1:])
