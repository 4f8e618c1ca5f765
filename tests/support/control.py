"""Control records in a test: written by hand, and looked at."""

from __future__ import annotations

from confluent_kafka import Producer
from keyorder.connector.control.control_reader import readable
from keyorder.connector.control.control_topics import Slot, timeline_slot
from keyorder.partitioner.records.control_records import timeline_key
from support.cluster import KafkaUnderTest


def put(kafka: KafkaUnderTest, slot: Slot, key: bytes, value: bytes | None) -> int:
    """Write a control record past keyorder, as a foreign program or an operator would; its offset."""
    offsets: list[int] = []
    producer = Producer({**kafka.client_config(), "acks": "all"})
    producer.produce(slot[0], value, key, slot[1], on_delivery=lambda error, m: offsets.append(m.offset()))
    assert producer.flush(120) == 0
    return offsets[0]


def last_value(kafka: KafkaUnderTest, topic: str) -> bytes:
    """The bytes of a topic's timeline as it is now."""
    slot = timeline_slot(topic)
    values = [m.value for m in readable(kafka.client_config(), [slot], 10.0) if m.key == timeline_key(topic)]
    assert values[-1] is not None
    return values[-1]
