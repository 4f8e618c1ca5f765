"""Surviving values of a compacted topic's retired partitions go home: under live writers, killed anywhere, called off."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.rehoming import RehomingTerms
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.rehoming import REHOMED_HEADER, origin_of_copy
from support.cluster import KafkaUnderTest

COMPACTED = {"keyorder.view.age.ms": "300", "cleanup.policy": "compact"}
Table = dict[bytes, bytes]


def log(kafka: KafkaUnderTest, topic: str, partition: int) -> list[Message]:
    """Every record of a partition, as a plain reader sees it."""
    consumer = Consumer({**kafka.client_config(), "group.id": "log", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append(message)


def last_values(kafka: KafkaUnderTest, topic: str, partition: int) -> Table:
    """What the cleaner would leave of a partition."""
    found: dict[bytes, bytes | None] = {m.key(): m.value() for m in log(kafka, topic, partition)}  # type: ignore[misc]
    return {key: value for key, value in found.items() if value is not None}


def rebuilt(kafka: KafkaUnderTest, topic: str, group: str) -> Table:
    """The table that a fresh ordered group builds from the beginning."""
    config = {**kafka.client_config(), "group.id": group, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    wanted = {p: len(log(kafka, topic, p)) for p in range(TopicAdmin(kafka.client_config()).describe(topic).partitions)}
    table: Table = {}
    read = dict.fromkeys(wanted, 0)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic])
        quiet = 0
        deadline = time.monotonic() + 60
        while quiet < 4 or consumer.gates():
            assert time.monotonic() < deadline, (read, wanted, consumer.gates())
            messages = consumer.consume(500, 0.5)
            quiet = 0 if messages or not sum(read.values()) else quiet + 1
            for message in messages:
                assert message.error() is None
                read[message.partition() or 0] += 1
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = bytes(value)
        assert consumer.strays == 0
    return table


def keys_of(admin: TopicAdmin, topic: str, partition: int, count: int, wanted: int) -> list[str]:
    """Keys that live in `partition` when the topic has `count` partitions."""
    layout = admin.describe(topic).layout.resized(count)
    return [k for k in (f"k{i}" for i in range(wanted * count * 4)) if layout.home(k) == partition][:wanted]


def retire(
    kafka: KafkaUnderTest, topic: str, config: dict[str, str] | None = None
) -> tuple[TopicAdmin, list[str], Table]:
    """1 -> 2 -> 1 with 12 keys written at 2, some deleted there, one written again at home: the state before a drain."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic, 1, config=config or COMPACTED)
    names = keys_of(admin, topic, 1, 2, 12)
    table: Table = {}
    with OrderedProducer(kafka.client_config()) as producer:
        for name in names[6:]:
            producer.produce(topic, "old", name)
        producer.flush(10)
        admin.expand(topic, 2)
        for name in names:
            producer.produce(topic, f"{name} at 1", name, headers={"mine": b"x"})
            table[name.encode()] = f"{name} at 1".encode()
        for name in names[:2]:
            producer.produce(topic, None, name)
            del table[name.encode()]
        producer.flush(10)
        admin.shrink(topic, 1, immediate=True)
        producer.produce(topic, "again", names[2])
        producer.produce(topic, None, names[3])
        table[names[2].encode()] = b"again"
        del table[names[3].encode()]
        assert producer.flush(10) == 0
    return admin, names, table


@pytest.mark.kip("C-22")
def test_surviving_values_go_home_and_are_tombstoned(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Copies with their headers and times where no newer record is; nothing is left behind, nothing deleted comes back."""
    admin, names, table = retire(kafka, topic_name)
    before = {m.key(): m for m in log(kafka, topic_name, 1) if m.value() is not None}
    (plan,) = admin.rehoming_plans(topic_name)
    assert (plan.partition, plan.keys, plan.superseded, plan.foreign) == (1, 8, 0, 0)
    assert rebuilt(kafka, topic_name, f"{topic_name}-before") == table

    (step,) = admin.drain(topic_name, rehoming=RehomingTerms(slice_keys=3))

    assert (step.done, step.what) == (True, "8 values re-homed, 8 keys cleared")
    (retired,) = admin.describe(topic_name).retired
    assert (retired.mode, retired.emptied) == (Mode.NONE, True)
    assert admin.timeline(topic_name).purged == {1: retired.upto}
    assert last_values(kafka, topic_name, 1) == {}
    assert last_values(kafka, topic_name, 0) == table
    copies = {m.key(): m for m in log(kafka, topic_name, 0) if REHOMED_HEADER in dict(m.headers() or [])}
    assert {key for key in copies if key is not None} == {name.encode() for name in names[4:]}
    for key, copy in copies.items():
        original, headers = before[key], dict(copy.headers() or [])
        assert copy.timestamp() == original.timestamp()
        assert headers["mine"] == b"x"
        assert origin_of_copy(headers[REHOMED_HEADER]) == (1, original.offset())
    assert rebuilt(kafka, topic_name, f"{topic_name}-after") == table
    assert admin.drain(topic_name, rehoming=RehomingTerms()) == []
