"""Orders come in, totals per customer go out: a program for confluent_kafka that needs no change but its import.

    python examples/orders.py localhost:9092 shop

It uses the topics <prefix>-orders and <prefix>-totals. With

    from keyorder import OrderedConsumer as Consumer, OrderedProducer as Producer

for these two names of the import below, both topics may grow and shrink while it runs: each customer's orders stay in order.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

log = logging.getLogger("orders")


class OrderWriter:
    """Sends orders; each is acknowledged or the program stops."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.failed: list[KafkaError] = []
        self.delivered = 0
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "client.id": "order-writer",
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "zstd",
                "error_cb": lambda error: log.warning("the client says %s", error),
            }
        )

    def send(self, customer: str, number: int, amount: int) -> None:
        """Queue one order."""
        value = json.dumps({"customer": customer, "number": number, "amount": amount})
        while True:
            try:
                self.producer.produce(
                    self.topic, value=value, key=customer, headers={"source": b"shop"}, on_delivery=self.report
                )
                break
            except BufferError:
                self.producer.poll(0.1)  # the queue is full: serve delivery reports
        self.producer.poll(0)

    def report(self, error: KafkaError | None, message) -> None:
        """Called once per order."""
        if error is not None:
            self.failed.append(error)
        else:
            self.delivered += 1
            log.debug("%s is at %s[%d]@%d", message.key(), message.topic(), message.partition(), message.offset())

    def finish(self) -> int:
        """Wait until all are delivered. Returns how many."""
        left = self.producer.flush(30)
        self.producer.close()
        if left or self.failed:
            raise KafkaException(self.failed[0] if self.failed else KafkaError(KafkaError._TIMED_OUT))
        return self.delivered


class Totals:
    """Reads orders, keeps one total per customer, and writes it with its offsets in one transaction."""

    def __init__(self, servers: str, orders: str, totals: str, group: str) -> None:
        self.topic = totals
        self.state: dict[str, dict[str, int]] = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{group}-totals"})
        self.producer.init_transactions(30)
        self.consumer.subscribe([orders], on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, consumer, partitions: list[TopicPartition]) -> None:
        """Called by poll() when partitions come."""
        log.info("assigned %s", sorted(p.partition for p in partitions))

    def revoked(self, consumer, partitions: list[TopicPartition]) -> None:
        """Called by poll() or close() when partitions go."""
        log.info("revoked %s", sorted(p.partition for p in partitions))

    def work(self, batch: int = 20, timeout: float = 1.0) -> int:
        """One batch: read, add up, write, all or nothing. Returns how many orders it had."""
        messages = []
        for message in self.consumer.consume(batch, timeout):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
        if not messages:
            return 0
        self.producer.begin_transaction()
        try:
            for message in messages:
                self.add(message)
            positions = self.consumer.position(self.consumer.assignment())
            known = [place for place in positions if place.offset >= 0]
            self.producer.send_offsets_to_transaction(known, self.consumer.consumer_group_metadata(), 30)
            self.producer.commit_transaction(30)
        except KafkaException:
            self.producer.abort_transaction(30)
            raise
        return len(messages)

    def add(self, message) -> None:
        """One order. Out of order or twice, the sum would be wrong, so it is checked."""
        order = json.loads(message.value())
        customer = message.key().decode()
        total = self.state.setdefault(customer, {"orders": 0, "amount": 0, "last": -1})
        if order["number"] != total["last"] + 1:
            raise ValueError(f"order {order['number']} of {customer} came after order {total['last']}")
        total["orders"] += 1
        total["amount"] += order["amount"]
        total["last"] = order["number"]
        self.producer.produce(self.topic, json.dumps(total), customer)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
        self.producer.close()


def read_totals(servers: str, topic: str) -> dict[str, dict[str, int]]:
    """The newest total of each customer, from the beginning of the topic to its present end."""
    found: dict[str, dict[str, int]] = {}
    with Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"view-{uuid.uuid4().hex}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    ) as consumer:
        count = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
        ended: set[int] = set()
        while len(ended) < count:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(message.error())
                ended.add(message.partition())
                continue
            found[message.key().decode()] = json.loads(message.value())
    return found


def amount_of(customer: int, number: int) -> int:
    """What an order costs."""
    return 1 + (customer * 31 + number * 7) % 100


def expected(customers: int, orders: int) -> dict[str, dict[str, int]]:
    """What has to come out."""
    totals = {}
    for customer in range(customers):
        numbers = range(orders // customers)
        amount = sum(amount_of(customer, number) for number in numbers)
        totals[f"customer-{customer}"] = {"orders": len(numbers), "amount": amount, "last": len(numbers) - 1}
    return totals


def run(servers: str, prefix: str, customers: int = 10, orders: int = 1000) -> dict[str, dict[str, int]]:
    """Send the orders, add them up, and read the totals back."""
    writer = OrderWriter(servers, f"{prefix}-orders")
    for number in range(orders // customers):
        for customer in range(customers):
            writer.send(f"customer-{customer}", number, amount_of(customer, number))
    sent = writer.finish()
    totals = Totals(servers, f"{prefix}-orders", f"{prefix}-totals", group=f"{prefix}-totals")
    done, deadline = 0, time.monotonic() + 60
    while done < sent and time.monotonic() < deadline:
        done += totals.work()
    totals.close()
    return read_totals(servers, f"{prefix}-totals")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    print(json.dumps(run(*sys.argv[1:3]), indent=2))
