"""What a record is made of and what its delivery tells: the same by both producers, read by both consumers."""

from __future__ import annotations

import copy
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.groups import group_config

KINDS = {"stock": (Producer, Consumer), "ordered": (OrderedProducer, OrderedConsumer)}


class Pair:
    """A producer, and a consumer of its topic that has been assigned."""

    def __init__(self, kind: str, kafka: KafkaUnderTest) -> None:
        self.topic = f"records-{kind}-{uuid.uuid4().hex[:8]}"
        TopicAdmin(kafka.client_config()).create(self.topic, 1)
        self.kafka = kafka
        self.producer: Any = KINDS[kind][0]({**kafka.client_config(), "linger.ms": 0})
        self.consumer: Any = KINDS[kind][1](group_config(kafka, self.topic))
        self.consumer.subscribe([self.topic])

    def sent(self, **record: Any) -> tuple[Message, Message]:
        """A record as its delivery report shows it, and as it is read."""
        told: list[tuple[KafkaError | None, Message]] = []
        self.producer.produce(self.topic, on_delivery=lambda *report: told.append(report), **record)
        assert self.producer.flush(120) == 0
        ((error, report),) = told
        assert error is None
        while (message := self.read()).offset() != report.offset():
            pass  # what another test has left
        return report, message

    def read(self) -> Message:
        """The next record."""
        deadline = clock.now() + 180
        while True:
            assert clock.now() < deadline
            message: Message | None = self.consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                return message


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request: pytest.FixtureRequest, kafka: KafkaUnderTest) -> Iterator[Pair]:
    made = Pair(request.param, kafka)
    yield made
    made.producer.close()
    made.consumer.close()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, None),
        ([], None),
        ({"a": "x"}, [("a", b"x")]),
        ({"a": b"\x00\xff", "b": None}, [("a", b"\x00\xff"), ("b", None)]),
        ([("a", "1"), ("a", b"2"), ("a", None)], [("a", b"1"), ("a", b"2"), ("a", None)]),
        ([("", b"")], [("", b"")]),
        ([("ключ", "värde")], [("ключ", "värde".encode())]),
    ],
    ids=["no-dict", "no-list", "text", "bytes-and-none", "repeated", "empty", "unicode"],
)
def test_headers(pair: Pair, given: Any, read: Any) -> None:
    _, message = pair.sent(value=b"v", headers=given)
    assert message.headers() == read


@pytest.mark.parametrize("headers", ["text", [("a",)], [("a", 1)], {"a": 5}], ids=str)
def test_headers_that_are_none(pair: Pair, headers: Any) -> None:
    """Refused before anything is queued."""
    with pytest.raises((TypeError, ValueError)):
        pair.producer.produce(pair.topic, b"v", headers=headers)
    assert pair.producer.flush(120) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"", b""), ("k", None), (None, "v"), ("schlüssel", "wert ß"), (b"\x00\xff", b"\xff" * 100_000)],
    ids=["neither", "empty", "no-value", "no-key", "text", "bytes"],
)
def test_keys_and_values(pair: Pair, key: Any, value: Any) -> None:
    report, message = pair.sent(key=key, value=value)
    for seen in (report, message):
        assert seen.key() == (key.encode() if isinstance(key, str) else key)
        assert seen.value() == (value.encode() if isinstance(value, str) else value)
    assert len(message) == len(message.value() or b"")


@pytest.mark.parametrize("bad", [{"key": 5}, {"value": 5}, {"value": ["v"]}, {"timestamp": "now"}], ids=str)
def test_arguments_of_another_type(pair: Pair, bad: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        pair.producer.produce(pair.topic, **bad)
    assert pair.producer.flush(120) == 0


@pytest.mark.parametrize("milliseconds", [1, 1_500_000_000_000])
def test_times(pair: Pair, milliseconds: int) -> None:
    report, message = pair.sent(value=b"v", timestamp=milliseconds)
    assert report.timestamp() == message.timestamp() == (TIMESTAMP_CREATE_TIME, milliseconds)


def test_a_report_says_where_and_how_long(pair: Pair) -> None:
    """Place, latency in seconds, and no error; the place is the read record's."""
    report, message = pair.sent(value=b"v")
    assert (report.topic(), report.partition(), report.offset()) == (pair.topic, 0, message.offset())
    latency = report.latency()
    assert latency is not None
    assert 0 < latency < 120
    assert report.error() is None
    assert message.leader_epoch() is not None


def test_callback_and_on_delivery_are_one(pair: Pair) -> None:
    told: list[str] = []
    pair.producer.produce(pair.topic, b"1", callback=lambda *_: told.append("callback"))
    pair.producer.produce(pair.topic, b"2", on_delivery=lambda *_: told.append("on_delivery"))
    assert pair.producer.flush(120) == 0
    assert told == ["callback", "on_delivery"]
    assert [pair.read().value() for _ in range(2)] == [b"1", b"2"]


def test_a_record_that_is_too_large(pair: Pair) -> None:
    with pytest.raises(KafkaException) as raised:
        pair.producer.produce(pair.topic, b"x" * 2_000_000)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert len(pair.producer) == 0


def test_what_is_queued_is_counted(pair: Pair) -> None:
    """len() counts a record until its report has run; both clients count a report that waits as one more."""
    held = {"linger.ms": 120_000, "delivery.timeout.ms": 240_000}
    lingering = type(pair.producer)({**pair.kafka.client_config(), **held})
    for _ in range(3):
        lingering.produce(pair.topic, b"v", on_delivery=lambda *_: None)
    assert len(lingering) == 3
    assert lingering.flush(120) == 0
    assert len(lingering) == 0
    lingering.close()
    pair.producer.produce(pair.topic, b"v", on_delivery=lambda *_: None)
    deadline = clock.now() + 240
    while len(pair.producer):
        assert clock.now() < deadline
        pair.producer.poll(1)
    assert bool(pair.producer)
    for _ in range(4):
        pair.read()


def test_the_cluster_is_described(pair: Pair) -> None:
    """Both clients: the topic's partitions, and the cluster's id."""
    for client in (pair.producer, pair.consumer):
        found = client.list_topics(pair.topic, timeout=120)
        assert list(found.topics[pair.topic].partitions) == [0]
        everything = client.list_topics(timeout=120)
        assert pair.topic in everything.topics
        if hasattr(client, "cluster_id"):  # the library's own from 2.16 on
            assert client.cluster_id(60) == everything.cluster_id


def test_ends_times_and_positions(pair: Pair) -> None:
    """Watermarks (asked and kept), the first offset at or after a time, the position behind what was read."""
    _, first = pair.sent(value=b"1")
    _, second = pair.sent(value=b"2")
    offset = second.offset()
    assert offset is not None
    place = TopicPartition(pair.topic, 0)
    assert pair.consumer.get_watermark_offsets(place, timeout=120) == (0, offset + 1)
    assert pair.consumer.get_watermark_offsets(place, cached=True)[1] <= offset + 1
    asked = [TopicPartition(pair.topic, 0, second.timestamp()[1])]
    (found,) = pair.consumer.offsets_for_times(asked, timeout=120)
    assert found.offset in (offset - 1, offset)  # both within one millisecond, perhaps
    (after,) = pair.consumer.offsets_for_times([TopicPartition(pair.topic, 0, 4_000_000_000_000)], timeout=120)
    assert after.offset == -1
    (position,) = pair.consumer.position([place])
    assert position.offset == offset + 1
    assert first.offset() == offset - 1


def test_who_and_what_is_assigned(pair: Pair) -> None:
    pair.sent(value=b"v")
    assert [(p.topic, p.partition) for p in pair.consumer.assignment()] == [(pair.topic, 0)]
    assert pair.consumer.memberid()
    metadata = pair.consumer.consumer_group_metadata()
    for sent in (pickle.loads(pickle.dumps(metadata)), copy.deepcopy(metadata)):  # to another process, for example
        assert (type(sent), sent) == (bytes, metadata)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_consume_takes_as_many_as_asked_for(pair: Pair, count: int) -> None:
    for n in range(count):
        pair.producer.produce(pair.topic, str(n))
    assert pair.producer.flush(120) == 0
    seen: list[Message] = []
    deadline = clock.now() + 120
    while len(seen) < count:
        assert clock.now() < deadline
        got = pair.consumer.consume(count - len(seen), 1)
        assert len(got) <= count - len(seen)
        seen += got
    assert [message.value() for message in seen] == [str(n).encode() for n in range(count)]
    assert pair.consumer.consume(5, 0) == []
