"""A stock producer beside ours: its records are found where they do not belong, and treated as the policy says."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.consuming.records.strays import StrayPolicy, Strays
from keyorder.partitioner.errors import ConfigError, KeyorderError, NotAuthorizedError, StrayError, TopicNotFoundError
from support.cluster import KafkaUnderTest
from support.connect_rig import until
from support.groups import QUICK, await_that, group_config, read, send
from support.rights import Right, grant, grant_exactly, rights

KEYS = [f"k{i}" for i in range(60)]


@pytest.fixture
def misplaced(kafka: KafkaUnderTest, topic_name: str) -> set[str]:
    """Keys whose stock record is a stray, see `misplace`."""
    return misplace(kafka, topic_name)


def misplace(kafka: KafkaUnderTest, topic_name: str) -> set[str]:
    """A grown topic with one record of each key by ours, then one by a stock producer: keys whose stock record is a stray."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    admin.expand(topic_name, 3)
    layout = admin.describe(topic_name).layout
    send(kafka, topic_name, *((key, "ours") for key in KEYS))
    producer = Producer({**kafka.client_config(), "partitioner": "murmur2_random"})
    places: dict[str, int] = {}
    for key in KEYS:
        producer.produce(
            topic_name, b"stock", key, headers=[("h", b"x"), ("keyorder-epoch", b"1")],
            on_delivery=lambda error, m: places.update({(m.key() or b"").decode(): m.partition()}),
        )  # fmt: skip
    assert producer.flush(120) == 0
    strays = {key for key, partition in places.items() if layout.home(key) != partition}
    assert strays
    return strays


@pytest.mark.kip("K253-30", "C-20")
def test_strays_are_delivered_counted_and_logged(
    kafka: KafkaUnderTest, topic_name: str, misplaced: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The default: nothing is lost, nothing is silent."""
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    with caplog.at_level(logging.WARNING, "keyorder.strays"):
        read(consumer, 2 * len(KEYS))

    assert consumer.strays == len(misplaced)
    first = [r.getMessage() for r in caplog.records if r.getMessage().startswith("misplaced record number 1 in")]
    assert first
    assert all("not an OrderedProducer" in text for text in first)
    consumer.close()


@pytest.mark.kip("C-20")
def test_a_stray_stops_a_group_that_says_fail(kafka: KafkaUnderTest, topic_name: str, misplaced: set[str]) -> None:
    """Again at each poll, until the application seeks past it; the record itself is not passed by a commit."""
    consumer = OrderedConsumer(group_config(kafka, topic_name, keyorder_strays="fail"))
    consumer.subscribe([topic_name])
    passed: list[Message] = []
    errors: list[StrayError] = []
    deadline = time.monotonic() + 120
    while len(passed) < 2 * len(KEYS) - len(misplaced) or len(errors) < 2 * len(misplaced):
        assert time.monotonic() < deadline
        try:
            passed += consumer.consume(50, 0.1)
        except StrayError as error:
            if errors and (error.partition, error.offset) == (errors[-1].partition, errors[-1].offset):
                consumer.seek(TopicPartition(error.topic, error.partition, error.offset + 1))
            errors.append(error)

    assert "find the producer" in str(errors[0])
    assert len({(m.partition(), m.offset()) for m in passed}) == len(passed)
    stock = {(m.key() or b"").decode() for m in passed if m.value() == b"stock"}
    assert stock == set(KEYS) - misplaced
    consumer.close()


@pytest.mark.kip("C-20")
def test_strays_go_to_the_dead_letter_topic(kafka: KafkaUnderTest, topic_name: str, misplaced: set[str]) -> None:
    """With where they were found and where their key lives, and no hint; what the application sees is in order without them."""
    dead = f"{topic_name}-dead"
    settings = {"keyorder_strays": "dead-letter", "keyorder_strays_dead_letter_topic": dead}
    consumer = OrderedConsumer(group_config(kafka, topic_name, auto_commit_interval_ms=100, **settings))
    with pytest.raises(TopicNotFoundError):
        consumer.subscribe([topic_name])
    cluster = kafka.admin()
    cluster.create_topics([NewTopic(dead, 1)])[dead].result(120)
    with pytest.raises(ConfigError, match="is read here"):
        consumer.subscribe([topic_name, dead])
    consumer.subscribe([topic_name])
    messages = read(consumer, 2 * len(KEYS) - len(misplaced))
    places = [TopicPartition(topic_name, p) for p in range(3)]
    await_that(consumer, lambda: [p.offset for p in consumer.committed(places, 120)] == ends_of(kafka, topic_name))
    assert {(m.key() or b"").decode() for m in messages if m.value() == b"stock"} == set(KEYS) - misplaced
    consumer.close()
    assert consumer.strays == len(misplaced)

    found = dead_letters(kafka, dead, len(misplaced))
    assert set(found) == misplaced
    for key, headers in found.items():
        home = TopicAdmin(kafka.client_config()).describe(topic_name).layout.home(key) if key == min(found) else None
        assert headers["h"] == b"x"
        assert headers["keyorder-stray-topic"].decode() == topic_name
        assert home is None or headers["keyorder-stray-home"] == str(home).encode()
        assert set(headers) == {"h", *(f"keyorder-stray-{name}" for name in (
            "topic", "partition", "offset", "timestamp", "group", "home", "epoch"))}  # fmt: skip


@pytest.mark.parametrize("call", ["assign", "incremental_assign"])
def test_partitions_by_hand_need_the_dead_letter_topic_too(
    kafka: KafkaUnderTest, topic_name: str, misplaced: set[str], call: str
) -> None:
    """It is missed before the first record, not by the first stray."""
    dead = f"{topic_name}-dead"
    settings = {"keyorder_strays": "dead-letter", "keyorder_strays_dead_letter_topic": dead}
    with OrderedConsumer(group_config(kafka, topic_name, **settings)) as consumer:
        places = [TopicPartition(topic_name, p, 0) for p in range(3)]
        with pytest.raises(TopicNotFoundError):
            getattr(consumer, call)(places)
        assert consumer.assignment() == []
        cluster = kafka.admin()
        cluster.create_topics([NewTopic(dead, 1)])[dead].result(120)
        getattr(consumer, call)(places)
        await_that(consumer, lambda: consumer.strays == len(misplaced))
    assert set(dead_letters(kafka, dead, len(misplaced))) == misplaced


def test_dead_letters_that_may_not_be_written_are_kept(guarded: KafkaUnderTest, topic_name: str) -> None:
    """Each poll names the topic and what its broker said; once the right is granted each of them is written.

    The broker gives no producer id to who may write no topic, and to the client library that is a fatal error.
    """
    misplaced = misplace(guarded, topic_name)
    dead = f"{topic_name}-dead"
    cluster = guarded.admin()
    cluster.create_topics([NewTopic(dead, 1)])[dead].result(120)
    names = {"TOPIC": topic_name, "GROUP": topic_name}
    mine = [right for right in rights() if right.role == "consumer"]
    described = Right("consumer", "topic", dead, "Describe")
    grant_exactly(cluster, "app", [*mine, described], names)
    settings = {"keyorder_strays": "dead-letter", "keyorder_strays_dead_letter_topic": dead}
    config = group_config(guarded, topic_name, auto_commit_interval_ms=100, **settings)
    with OrderedConsumer({**config, **guarded.client_config("app")}) as consumer:
        consumer.subscribe([topic_name])
        messages: list[Message] = []
        refused: list[KeyorderError] = []
        deadline = time.monotonic() + 120
        while len(messages) < 2 * len(KEYS) - len(misplaced):
            assert time.monotonic() < deadline
            try:
                messages += consumer.consume(50, 0.1)
            except KeyorderError as error:
                refused.append(error)
                with pytest.raises(NotAuthorizedError):  # no offset passes them either
                    consumer.commit(asynchronous=False)
                if len(refused) == 3:
                    grant(cluster, "app", [Right("consumer", "topic", dead, "Write")], names)
        assert len(refused) >= 3
        assert {(type(error), dead in str(error)) for error in refused} == {(NotAuthorizedError, True)}
        places = [TopicPartition(topic_name, p) for p in range(3)]
        await_that(
            consumer, lambda: [p.offset for p in consumer.committed(places, 120)] == ends_of(guarded, topic_name)
        )
        assert consumer.strays == len(misplaced)
    assert {(m.key() or b"").decode() for m in messages if m.value() == b"stock"} == set(KEYS) - misplaced
    assert set(dead_letters(guarded, dead, len(misplaced))) == misplaced


def test_who_may_write_no_dead_letter_closes_its_consumer(guarded: KafkaUnderTest, topic_name: str) -> None:
    """Where no stray was found, too: the producer's fatal error is nothing that close() tells of."""
    cluster = guarded.admin()
    cluster.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    grant_exactly(cluster, "app", [Right("consumer", "topic", topic_name, "Describe")], {})
    strays = Strays(guarded.client_config("app"), "g", StrayPolicy.DEAD_LETTER, topic_name)
    strays.check()
    producer = strays._producer
    assert producer is not None
    with pytest.raises(KafkaException, match="Fatal error"):
        until(lambda: producer.produce(topic_name), "it knows that it gets no producer id", 120)

    strays.close()


def test_a_dead_letter_topic_that_may_not_be_seen_is_no_missing_one(guarded: KafkaUnderTest, topic_name: str) -> None:
    """Who makes it anew would be told that it exists."""
    cluster = guarded.admin()
    cluster.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    grant_exactly(cluster, "app", [], {})
    strays = Strays(guarded.client_config("app"), "g", StrayPolicy.DEAD_LETTER, topic_name)
    with pytest.raises(NotAuthorizedError, match=topic_name):
        strays.check()


def test_a_dead_letter_may_be_as_large_as_its_topic_takes(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its headers make it larger than the record that was found, and a client's own limit is lower than a broker's."""
    cluster = kafka.admin()
    cluster.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    strays = Strays(kafka.client_config(), "g", StrayPolicy.DEAD_LETTER, topic_name)
    strays.check()
    strays.found(Message(topic="t", partition=1, offset=7, key=b"k", value=b"v" * 1_000_000), 0, 1)
    strays.settle()
    strays.close()
    assert set(dead_letters(kafka, topic_name, 1)) == {"k"}


def test_a_signal_among_dead_letters_loses_none(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What was handed over before it came is written once, and the others with the next call."""
    cluster = kafka.admin()
    cluster.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    strays = Strays(kafka.client_config(), "g", StrayPolicy.DEAD_LETTER, topic_name)
    strays.check()
    for offset in range(3):
        strays.found(Interrupting(offset), 0, 1)
    with pytest.raises(InterruptedError):
        strays.settle()
    assert strays.pending
    strays.settle()
    assert not strays.pending
    strays.close()
    assert ends_of(kafka, topic_name, 1) == [3]
    assert set(dead_letters(kafka, topic_name, 3)) == {"k0", "k1", "k2"}


class Interrupting(Message):
    """A record of which number 1 meets a signal when it is read first."""

    def __init__(self, offset: int) -> None:
        super().__init__(topic="t", partition=1, offset=offset, key=f"k{offset}".encode(), value=b"v")
        self.interrupts = offset == 1

    def key(self, *args: Any) -> Any:
        if self.interrupts:
            self.interrupts = False
            raise InterruptedError
        return super().key(*args)


def dead_letters(kafka: KafkaUnderTest, topic: str, count: int) -> dict[str, dict[str, bytes]]:
    """The headers of each key's dead letter, of `count` keys."""
    found: dict[str, dict[str, bytes]] = {}
    with closing(Consumer(group_config(kafka, topic))) as stock:
        stock.assign([TopicPartition(topic, 0, 0)])
        while len(found) < count:
            message = stock.poll(30)
            assert message is not None
            assert message.error() is None
            found[(message.key() or b"").decode()] = dict(message.headers() or [])
    return found


def ends_of(kafka: KafkaUnderTest, topic: str, count: int = 3) -> list[int]:
    """The end of each partition's log."""
    client = Consumer(group_config(kafka, "ends"))
    try:
        return [client.get_watermark_offsets(TopicPartition(topic, p), 120)[1] for p in range(count)]
    finally:
        client.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"keyorder.strays": "ignore"},
        {"keyorder.strays": "dead-letter"},
        {"keyorder.strays.dead.letter.topic": "t"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(settings: dict[str, str]) -> None:
    """Before anything connects."""
    with pytest.raises(ConfigError, match=r"keyorder\.strays"):
        OrderedConsumer({"bootstrap.servers": "localhost:1", "group.id": "g", **settings})
