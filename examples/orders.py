"""Orders come in, totals per customer go out: a program for confluent_kafka that needs no change but its import.

    python examples/orders.py localhost:9092 orders totals

With `from keyorder import OrderedConsumer as Consumer, OrderedProducer as Producer` for these two names of the import below, both
topics may grow and shrink while it runs, and each customer's orders stay in order.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

log = logging.getLogger("orders")


def send(servers: str, topic: str, orders: Iterable[tuple[str, int, int]]) -> None:
    """Send orders (customer, number, amount); return when all are acknowledged, or raise what the first failure was."""
    failed: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": servers, "linger.ms": 5, "compression.type": "zstd", "enable.idempotence": True}
    producer = Producer({**settings, "error_cb": lambda error: log.warning("the client reports %s", error)})
    for customer, number, amount in orders:
        value = json.dumps({"number": number, "amount": amount})
        while True:
            try:
                producer.produce(topic, value, customer, headers={"source": b"shop"}, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.1)  # the queue is full: serve delivery reports
        producer.poll(0)
    if producer.flush(60) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    producer.close()


class Totals:
    """Reads orders, keeps one total per customer, and writes it with its offsets in one transaction."""

    def __init__(self, servers: str, orders: str, totals: str) -> None:
        self.topic, group = totals, f"{orders}-to-{totals}"
        self.state: dict[bytes, dict[str, int]] = {}
        settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": group})
        self.producer.init_transactions(60)
        self.consumer.subscribe([orders], on_assign=self.assigned)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called by consume() when partitions come."""
        log.info("assigned %s", sorted(p.partition for p in partitions))

    def work(self, batch: int = 20) -> int:
        """One batch: read, add up, write, all or nothing. Returns how many orders it had."""
        messages = self.consumer.consume(batch, 1.0)
        if not messages:
            return 0
        self.producer.begin_transaction()
        try:
            for message in messages:
                self.add(message)
            places = [p for p in self.consumer.position(self.consumer.assignment()) if p.offset >= 0]
            self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), 60)
            self.producer.commit_transaction(60)
        except BaseException:
            self.producer.abort_transaction(60)
            raise
        return len(messages)

    def add(self, message: Message) -> None:
        """One order. Out of order or twice, the sum would be wrong, so it is checked."""
        if message.error() is not None:
            raise KafkaException(message.error())
        order, total = json.loads(message.value()), self.state.setdefault(message.key(), {"amount": 0, "last": -1})
        if order["number"] != total["last"] + 1:
            raise ValueError(f"order {order['number']} of {message.key()} came after order {total['last']}")
        total.update(amount=total["amount"] + order["amount"], last=order["number"])
        self.producer.produce(self.topic, json.dumps(total), message.key())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    servers, orders, totals = sys.argv[1:4]
    send(servers, orders, ((f"customer-{n % 10}", n // 10, n % 7) for n in range(1000)))
    program, done = Totals(servers, orders, totals), 0
    while done < 1000:
        done += program.work()
    program.consumer.close()
    program.producer.close()
