"""One group's consumers in a test: their settings, and reading until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.partitioner.records.control_records import encode_timeline, timeline_key
from support.asking import answered
from support.cluster import KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "400"}


def committed_by(connection: Mapping[str, Any], group: str, places: Collection[tuple[str, int]]) -> dict[int, int]:
    """What a group has committed on places of one topic, asked by a stock consumer that never joins it."""
    config = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted", "log_level": 0}
    client = Consumer({**connection, **config})
    try:
        answers = answered(lambda: client.committed([TopicPartition(*place) for place in places], timeout=120))
    finally:
        client.close()
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


def group_config(kafka: KafkaUnderTest, group: str, **more: object) -> dict[str, object]:
    return {
        **kafka.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def read(consumer: OrderedConsumer, count: int, timeout: float = 120.0) -> list[Message]:
    """Exactly `count` records, or a failure that names the gates."""
    deadline = time.monotonic() + timeout
    messages: list[Message] = []
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count}; gates: {consumer.gates()}"
        for message in consumer.consume(count - len(messages), 0.1):
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                # A topic that was just made may not be in every broker's metadata yet: told as an event, like a record.
                assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
    return messages


def await_that(consumer: OrderedConsumer, condition: Callable[[], bool], timeout: float = 120.0) -> list[Message]:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout
    messages: list[Message] = []
    while not condition():
        assert time.monotonic() < deadline, f"never; gates: {consumer.gates()}"
        message = consumer.poll(0.05)
        if message is not None:
            messages.append(message)
    return messages


def read_by_turns(
    consumers: Sequence[OrderedConsumer], done: Callable[[int], bool], silence: float = 120.0
) -> list[Message]:
    """Poll the members of a group in turns until `done` of the number of records: no member waits for one that is not polled.

    Fails when there is no record and no new assignment for `silence` seconds.
    """
    messages: list[Message] = []
    seen: object = None
    deadline = time.monotonic() + silence
    while not done(len(messages)):
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                messages.append(message)
        now = (len(messages), [str(consumer.assignment()) for consumer in consumers])
        if now != seen:
            seen, deadline = now, time.monotonic() + silence
        gates = [consumer.gates() for consumer in consumers]
        assert time.monotonic() < deadline, f"{len(messages)} records and no more; gates: {gates}"
    return messages


def grown(kafka: KafkaUnderTest, topic: str) -> str:
    """A topic of one partition, grown to two, with one record of a moved key before ("old") and one after ("new"): the key."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic, 1, config=QUICK)
    key = moving_key(admin, topic, 2)
    send(kafka, topic, (key, "old"))
    admin.expand(topic, 2)
    send(kafka, topic, (key, "new"))
    return key


def moving_key(admin: TopicAdmin, topic: str, count: int) -> str:
    """A key that a growth to `count` gives another home."""
    return _key(admin, topic, count, True)


def staying_key(admin: TopicAdmin, topic: str, count: int) -> str:
    """A key that a growth to `count` leaves where it is."""
    return _key(admin, topic, count, False)


def _key(admin: TopicAdmin, topic: str, count: int, moves: bool) -> str:
    layout = admin.describe(topic).layout
    keys = (f"k{i}" for i in range(1000))
    return next(k for k in keys if (layout.home(k) != layout.resized(count).home(k)) is moves)


def send(kafka: KafkaUnderTest, topic: str, *records: tuple[str, str]) -> None:
    with OrderedProducer(kafka.client_config()) as producer:
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(120) == 0


def await_gone(cluster: AdminClient, topic: str, timeout: float = 120.0) -> None:
    """Return once a deleted topic is not listed any more."""
    deadline = time.monotonic() + timeout
    while topic in cluster.list_topics(timeout=120).topics:
        assert time.monotonic() < deadline, f"{topic} is still there"


def upgrade_timeline(kafka: KafkaUnderTest, topic: str) -> None:
    """Write the topic's timeline as a version far newer than this one would."""
    with Producer({**kafka.client_config(), "transactional.id": f"newer-{topic}"}) as newer:
        newer.init_transactions(30)
        newer.begin_transaction()
        value = bytearray(encode_timeline(TopicAdmin(kafka.client_config()).timeline(topic)))
        value[3] = 99  # its major version
        control_topic, partition = timeline_slot(topic)
        newer.produce(control_topic, bytes(value), timeline_key(topic), partition)
        newer.commit_transaction(30)
