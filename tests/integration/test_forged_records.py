"""Records that somebody forges: by whom the broker refuses, by whom nothing changes, and what stops with an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_topics import timeline_slot, writer_slot
from keyorder.partitioner.errors import KeyorderError, OrderError
from keyorder.partitioner.records.control_records import decode_timeline, encode_timeline, lease_key, timeline_key
from support.asking import answered
from support.cluster import ClusterSpec, KafkaUnderTest
from support.control import last_value, put
from support.groups import committed_by, group_config, grown, read, send

#: What anybody may put into the hint header: none of it is an epoch of the topic, or all of it lies in the future.
HINTS: list[bytes | None] = [
    None, b"", b"0", b"1", b"2", b"-1", b"999999999", b"9" * 5000, b"\xff\xfe", "²".encode(), b"1 ", b"1e3", b"\x00" * 100,
]  # fmt: skip
#: What any member of a group may commit beside an offset.
METADATA = [
    "",
    "ko1:",
    "ko1:-1",
    "ko1:²",
    "ko1:" + "9" * 2000,
    "ko2:1",
    "ko9:" + "x" * 500,
    "{}",
    "ko1:1+AAAA",
    "ko1:2+" + "A" * 999,
]


@pytest.fixture(scope="module")
def guarded(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker with an authoriser."""
    started = start_kafka(ClusterSpec(1, {"root": "root-secret", "stranger": "s3cret"}))
    yield started
    started.stop()


def test_who_has_no_rights_changes_nothing(guarded: KafkaUnderTest, topic_name: str) -> None:
    """The broker refuses every record and every commit; the topic grows, and its group reads on in order."""
    key = grown(guarded, topic_name)
    good = last_value(guarded, topic_name)
    slots = {
        timeline_slot(topic_name): timeline_key(topic_name),
        writer_slot("w"): lease_key("w", "n"),
        (topic_name, 0): key.encode(),
    }
    refused: list[int] = []
    stranger = {**guarded.client_config("stranger"), "log_level": 0}
    producer = Producer(stranger)
    for (topic, partition), name in slots.items():
        for value in (b"\x00 no record", good, None):
            producer.produce(
                topic, value, name, partition, on_delivery=lambda error, _: refused.append(error.code() if error else 0)
            )
    assert producer.flush(120) == 0
    assert set(refused) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert len(refused) == 9
    committer = Consumer({**stranger, "group.id": f"group-{topic_name}"})
    with pytest.raises(KafkaException):  # of the group, or only that no coordinator will have it
        committer.commit(offsets=[TopicPartition(topic_name, 0, 99, "ko1:1")], asynchronous=False)  # type: ignore[call-arg]
    committer.close()
    assert committed_by(guarded.client_config(), f"group-{topic_name}", [(topic_name, 0)]) == {}

    assert last_value(guarded, topic_name) == good
    assert TopicAdmin(guarded.client_config()).expand(topic_name, 3).changed
    send(guarded, topic_name, (key, "newest"))
    with OrderedConsumer(group_config(guarded, f"group-{topic_name}")) as consumer:
        consumer.subscribe([topic_name])
        assert [m.value() for m in read(consumer, 3)] == [b"old", b"new", b"newest"]


def test_hints_that_a_writer_of_the_topic_forges(kafka: KafkaUnderTest, topic_name: str) -> None:
    """They lie where their keys belong: all are delivered, in order, none is a stray, and a growth goes through."""
    admin = TopicAdmin(kafka.client_config())
    key = grown(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    values = [(m.value() or b"").decode() for m in read(consumer, 2)]
    for count in (2, 3):
        home = admin.describe(topic_name).layout.home(key.encode())
        forger = Producer(kafka.client_config())
        for number, hint in enumerate(HINTS):
            forger.produce(topic_name, f"{count}-{number}", key, home, headers=[("keyorder-epoch", hint)])
        assert forger.flush(120) == 0
        send(kafka, topic_name, (key, f"{count}-ours"))
        if count == 2:
            admin.expand(topic_name, 3)
    values += [(m.value() or b"").decode() for m in read(consumer, 2 * len(HINTS) + 2)]
    assert values == [
        "old", "new", *(f"{count}-{n}" for count in (2, 3) for n in [*range(len(HINTS)), "ours"]),
    ]  # fmt: skip
    assert consumer.strays == 0
    consumer.close()


@pytest.mark.parametrize("metadata", METADATA, ids=lambda text: text[:12] or "none")
def test_metadata_that_a_member_forges_opens_no_gate_too_early(
    kafka: KafkaUnderTest, topic_name: str, metadata: str
) -> None:
    """With an offset below the cut: the gate is closed until the records before it were read, and they come first."""
    key = grown(kafka, topic_name)
    forger = Consumer({**kafka.client_config(), "group.id": topic_name})
    place = TopicPartition(topic_name, 0, 0, metadata)
    (done,) = answered(lambda: forger.commit(offsets=[place], asynchronous=False))  # type: ignore[call-overload]
    assert done.error is None
    forger.close()
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        assert [(m.key(), m.value()) for m in read(consumer, 2)] == [(key.encode(), b"old"), (key.encode(), b"new")]


def forged(good: bytes, how: str) -> bytes:
    """A timeline that no controller has written."""
    line = decode_timeline(good)
    newest = line.epochs[-1]
    if how == "an epoch is missing":
        return encode_timeline(replace(line, epochs=line.epochs[:-1], last_number=line.epochs[-2].number))
    if how == "an epoch has other cuts":
        moved = {partition: end + 1 for partition, end in newest.ends.items()}
        return encode_timeline(replace(line, epochs=(*line.epochs[:-1], replace(newest, ends=moved))))
    return encode_timeline(replace(line, topic_id="AAAAAAAAAAAAAAAAAAAAAA"))


@pytest.mark.parametrize("how", ["an epoch is missing", "an epoch has other cuts", "another topic's identity"])
def test_a_timeline_that_follows_from_no_change_stops_who_meets_it(
    kafka: KafkaUnderTest, topic_name: str, how: str
) -> None:
    """By somebody who may write `_keyorder`: writer and reader stop with OrderError, and go on with the right one."""
    key = grown(kafka, topic_name)
    good = last_value(kafka, topic_name)
    slot, name = timeline_slot(topic_name), timeline_key(topic_name)
    producer = OrderedProducer(kafka.client_config())
    producer.produce(topic_name, "before", key)
    assert producer.flush(120) == 0
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    assert [m.value() for m in read(consumer, 3)] == [b"old", b"new", b"before"]

    put(kafka, slot, name, forged(good, how))
    try:
        assert isinstance(stopped(lambda: producer.produce(topic_name, "never", key)), OrderError)
        assert isinstance(stopped(lambda: consumer.poll(0.1)), OrderError)
    finally:
        put(kafka, slot, name, good)
        for client in (producer, consumer):
            with suppress(OrderError):
                client.close()

    send(kafka, topic_name, (key, "after"))
    with OrderedConsumer(group_config(kafka, f"{topic_name}-2")) as again:
        again.subscribe([topic_name])
        values: list[Any] = []
        await_that_last(again, values, b"after")
    assert values[:3] == [b"old", b"new", b"before"]


def stopped(call: Callable[[], Any]) -> KeyorderError:
    """Call until it raises a typed error: clients hear of a control record when it reaches them."""
    deadline = clock.now() + 180
    while clock.now() < deadline:
        try:
            call()
        except KeyorderError as error:
            return error
    raise AssertionError("it went on")


def await_that_last(consumer: OrderedConsumer, values: list[Any], last: bytes) -> None:
    """Read until a value."""
    while last not in values:
        values += [m.value() for m in read(consumer, 1)]
