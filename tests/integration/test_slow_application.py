"""An application that is slower than its topic: what it has not asked for stays in the client library, which is bounded."""

from __future__ import annotations

import pytest
from confluent_kafka import Message
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.consuming import delivery
from support.cluster import KafkaUnderTest

RECORDS = 8_000


def test_polls_of_a_slow_application_gather_no_records(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library has to be polled every second, whatever waits. Here every call of the application is a second late."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(RECORDS):
            producer.produce(topic_name, str(number), "k")
        assert producer.flush(120) == 0
    monkeypatch.setattr(delivery, "_KEEPALIVE", 0.0)
    config = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])
        out = consumer._delivery.out
        seen: list[int] = []
        most = 0
        deadline = clock.now() + 120
        while len(seen) < 60:
            assert clock.now() < deadline
            message = consumer.poll(1.0)
            if message is not None:
                seen.append(int(message.value() or b""))
                waiting = sum(1 if isinstance(item, Message) else item.rows for item in out.ready)
                most = max(most, waiting + (0 if out.run is None else len(out.run.messages)))
        assert seen == list(range(60))
        assert most <= 600, "one batch, and a record for each poll of the library"
        while len(seen) < RECORDS:
            assert clock.now() < deadline
            if more := consumer.consume(RECORDS - len(seen), 1.0):
                seen += [int(message.value() or b"") for message in more]
                deadline = clock.now() + 120
        assert seen == list(range(RECORDS))
