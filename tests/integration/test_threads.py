"""One producer, many threads: a change beneath them, and each key's records in the log in their order."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest

THREADS, KEYS = 4, 25
QUICK = {"keyorder.view.age.ms": "400"}


class Writer(threading.Thread):
    """Numbers its own keys' records, and sends as fast as the queue takes them, until told to stop."""

    def __init__(self, producer: OrderedProducer, topic: str, name: str, done: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._producer, self._topic, self._done = producer, topic, done
        self.sent: dict[str, int] = dict.fromkeys([f"{name}-{n}" for n in range(KEYS)], 0)
        self.acknowledged = 0
        self.problems: list[str] = []

    def run(self) -> None:
        """Send."""
        while not self._done.is_set():
            for key in self.sent:
                try:
                    self._producer.produce(self._topic, str(self.sent[key]), key, on_delivery=self._delivered)
                    self.sent[key] += 1
                except BufferError:
                    self._producer.poll(0.005)
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.problems.append(str(error))
        self.acknowledged += 1  # a look from outside, not a count: several threads serve reports


@pytest.mark.kip("K253-01", "K253-40")
def test_threads_of_one_producer_keep_every_keys_order_while_the_topic_changes(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """2 -> 5 -> 3 beneath four threads at full speed: each key's records are read once each, in the order they were sent."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    done = threading.Event()
    settings = {**kafka.client_config(), "queue.buffering.max.messages": 2_000, "linger.ms": 2}
    with OrderedProducer(settings) as producer:
        writers = [Writer(producer, topic_name, f"t{n}", done) for n in range(THREADS)]
        for writer in writers:
            writer.start()
        for change, count in ((admin.expand, 5), (admin.shrink, 3)):
            change(topic_name, count)
        done.set()
        for writer in writers:
            writer.join(120)
        assert producer.flush(120) == 0
    assert [writer.problems for writer in writers] == [[]] * THREADS
    sent = {key: count for writer in writers for key, count in writer.sent.items()}

    found: dict[str, list[int]] = defaultdict(list)
    settings = {"group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedConsumer({**kafka.client_config(), **settings}) as consumer:
        consumer.subscribe([topic_name])
        left = sum(sent.values())
        while left:
            messages = consumer.consume(min(1_000, left), 120)
            assert messages, f"{left} records are missing"
            for message in messages:
                assert message.error() is None
                found[message.key().decode()].append(int(message.value()))
            left -= len(messages)

    assert found == {key: list(range(count)) for key, count in sent.items() if count}
