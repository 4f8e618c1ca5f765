"""Exactly once: reads a topic, writes another, and both offsets and records are one transaction.

    python examples/transform.py localhost:9092 orders orders-in-euro

Both topics may grow and shrink while it runs. Start it several times for more throughput. A process that fails ends: its
transaction is aborted, and whoever takes its partitions begins at what was committed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from keyorder import OrderedConsumer, OrderedProducer


def main(servers: str, source: str, target: str) -> None:
    """Run until SIGTERM or Ctrl-C."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopped.append(received))
    group = f"{source}-to-{target}"
    writing = {"bootstrap.servers": servers, "transactional.id": f"{group}-{socket.gethostname()}-{os.getpid()}"}
    reading = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # the transaction commits
        "isolation.level": "read_committed",
    }
    with OrderedProducer(writing) as producer, OrderedConsumer(reading) as consumer:
        producer.init_transactions()
        consumer.subscribe([source])
        while not stopped:
            messages = consumer.consume(500, 1.0)
            if not messages:
                continue
            producer.begin_transaction()
            try:
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(message.error())
                    producer.produce(target, changed(message.value()), message.key())
                places = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
                producer.commit_transaction()
            except BaseException:
                producer.abort_transaction()
                raise


def changed(value: bytes | None) -> bytes | None:
    """What becomes of a value; a tombstone stays one."""
    return None if value is None else value + b" EUR"


if __name__ == "__main__":
    main(*sys.argv[1:4])
