"""One topic's trouble concerns that topic: told once, by type, while the others are read on."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.partitioner.errors import IdentityMismatchError, KeyorderError, RecordVersionError
from keyorder.partitioner.records.control_records import timeline_key
from support.cluster import KafkaUnderTest
from support.control import last_value, put
from support.groups import QUICK, await_gone, await_that, group_config, read, send


def read_through(consumer: OrderedConsumer, wanted: bytes) -> list[Exception]:
    """Poll until this value comes; what was raised and what error events were returned meanwhile."""
    told: list[Exception] = []
    deadline = clock.now() + 180
    while clock.now() < deadline:
        try:
            message = consumer.poll(0.2)
        except KeyorderError as error:
            told.append(error)
            continue
        if message is None:
            continue
        error_event = message.error()
        if error_event is not None:
            told.append(KafkaException(error_event))
        elif message.value() == wanted:
            return told
    raise AssertionError(f"{wanted!r} never came; told: {told}")


def until_unassigned(consumer: OrderedConsumer, topic: str) -> list[Exception]:
    """Poll until nothing of the topic is assigned any more; what was raised and what error events were returned meanwhile."""
    told: list[Exception] = []
    deadline = clock.now() + 180
    while topic in {place.topic for place in consumer.assignment()}:
        assert clock.now() < deadline, told
        try:
            message = consumer.poll(0.2)
        except KeyorderError as error:
            told.append(error)
            continue
        error_event = None if message is None else message.error()
        if error_event is not None:
            told.append(KafkaException(error_event))
    return told


def typed(told: list[Exception]) -> list[type[Exception]]:
    return [type(error) for error in told if isinstance(error, KeyorderError)]


@pytest.fixture
def two(kafka: KafkaUnderTest, topic_name: str) -> tuple[str, str]:
    """Two topics with one partition each, in slots of their own or not, as it comes."""
    admin = TopicAdmin(kafka.client_config())
    names = f"{topic_name}-a", f"{topic_name}-b"
    for name in names:
        admin.create(name, 1, config=QUICK)
    return names


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_timeline_that_cannot_be_read_stops_its_topic_alone(
    kafka: KafkaUnderTest, two: tuple[str, str], strategy: str
) -> None:
    good, bad = two
    consumer = OrderedConsumer(group_config(kafka, good, partition_assignment_strategy=strategy))
    consumer.subscribe([good, bad])
    send(kafka, good, ("k", "0"))
    send(kafka, bad, ("k", "0"))
    assert [m.value() for m in read(consumer, 2)] == [b"0", b"0"]
    value = last_value(kafka, bad)

    put(kafka, timeline_slot(bad), timeline_key(bad), value[:3] + b"\x09" + value[4:])
    with pytest.raises(RecordVersionError):
        await_that(consumer, lambda: False)

    for number in range(1, 4):
        send(kafka, good, ("k", str(number)))
        assert typed(read_through(consumer, str(number).encode())) == []
    consumer.close()
    put(kafka, timeline_slot(bad), timeline_key(bad), value)
    send(kafka, bad, ("k", "1"))
    with OrderedConsumer(group_config(kafka, good)) as again:
        again.subscribe([good, bad])
        assert typed(read_through(again, b"1")) == []


def test_a_topic_that_is_made_again_is_told_once_and_read_after_it_was_assigned_anew(
    kafka: KafkaUnderTest, two: tuple[str, str]
) -> None:
    """The other topic's records come without a pause; a member that joins reads the new topic."""
    good, remade = two
    admin, cluster = TopicAdmin(kafka.client_config()), kafka.admin()
    consumer = OrderedConsumer(group_config(kafka, good, topic_metadata_refresh_interval_ms=500))
    consumer.subscribe([good, remade])
    send(kafka, good, ("k", "0"))
    send(kafka, remade, ("k", "0"))
    assert [m.value() for m in read(consumer, 2)] == [b"0", b"0"]

    cluster.delete_topics([remade])[remade].result(120)
    await_gone(cluster, remade)
    send(kafka, good, ("k", "1"))
    told = read_through(consumer, b"1")
    # The client library looks every 500 ms: a topic that is made again before it has looked was never away for the group.
    told += until_unassigned(consumer, remade)
    admin.create(remade, 1, config=QUICK)
    for number in range(2, 8):
        send(kafka, good, ("k", str(number)))
        told += read_through(consumer, str(number).encode())
    send(kafka, remade, ("k", "anew"))
    told += read_through(consumer, b"anew")
    assert typed(told) in ([], [IdentityMismatchError])
    consumer.close()


def test_a_topic_that_goes_between_assignment_and_start_stops_nobody_else(
    kafka: KafkaUnderTest, two: tuple[str, str]
) -> None:
    """Its error is told, the client library is served, so its revocation comes, and the other topic is read."""
    good, gone = two
    cluster = kafka.admin()
    deleted: list[str] = []

    def on_assign(_: object, __: object) -> None:
        if not deleted:
            cluster.delete_topics([gone])[gone].result(120)
            await_gone(cluster, gone)
            deleted.append(gone)

    consumer = OrderedConsumer(group_config(kafka, good, topic_metadata_refresh_interval_ms=500))
    consumer.subscribe([good, gone], on_assign=on_assign)
    send(kafka, good, ("k", "0"))

    told = typed(read_through(consumer, b"0"))

    assert len(told) <= 1
    await_that(consumer, lambda: gone not in {place.topic for place in consumer.assignment()})
    consumer.close()
