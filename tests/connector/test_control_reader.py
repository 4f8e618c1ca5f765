"""Reading a control topic to its end: transaction markers are passed as soon as they are known to be all that is left."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from keyorder.connector import clock
from keyorder.connector.control.control_reader import ControlReader, Look
from support.cluster import KafkaUnderTest


def _write(producer: Producer, topic: str, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(topic, value, b"key", 0)
    producer.commit_transaction()


def _read(reader: ControlReader) -> bytes | None:
    deadline = clock.now() + 180
    while clock.now() < deadline:
        for message in reader.poll(0.1):
            return message.value
    raise AssertionError("nothing came")


def _look(reader: ControlReader, end: int) -> Look:
    """A look at an end that is decided: the markers follow a commit in their own time."""
    deadline = clock.now() + 180
    while clock.now() < deadline:
        look = reader.look()
        if max(look.ends.values()) == end:
            return look
    raise AssertionError("the transaction was not decided")


def test_markers_are_passed_without_waiting_for_an_empty_fetch(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The reader's own fetch would stay at the broker for a minute; a record that is not read yet is never passed."""
    config = kafka.client_config()
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(120)
    producer = Producer({**config, "transactional.id": topic_name})
    producer.init_transactions(30)
    reader = ControlReader(config, fetch_wait_ms=60_000)
    try:
        reader.add([(topic_name, 0)])
        _write(producer, topic_name, b"first")
        assert _read(reader) == b"first"
        look = _look(reader, 2)
        assert not reader.reached(look)
        deadline = clock.now() + 180
        while not reader.reached(look):
            assert clock.now() < deadline
            reader.pass_markers(look)

        _write(producer, topic_name, b"second")
        look = _look(reader, 4)
        reader.pass_markers(look)
        assert not reader.reached(look)
        assert _read(reader) == b"second"
    finally:
        reader.close()


def test_what_a_slot_held_is_read_to_its_end_without_waiting_for_an_empty_fetch(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """A past that ends with a marker is handed out, of each key the last record, with the reader's fetch still at the broker."""
    config = kafka.client_config()
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(120)
    producer = Producer({**config, "transactional.id": topic_name})
    producer.init_transactions(30)
    for value in (b"first", b"second"):
        _write(producer, topic_name, value)
    reader = ControlReader(config, fetch_wait_ms=60_000)
    try:
        reader.add([(topic_name, 0)])
        _look(reader, 4)

        assert [message.value for message in reader.read_to_end(timeout=120)] == [b"second"]
        assert reader.read_to_end(timeout=120) == []
    finally:
        reader.close()
