"""`keyorder.gate=key`: only keys that moved wait at a closed gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from keyorder import Layout, OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.partitioner.errors import ConfigError, UsageError
from support.cluster import KafkaUnderTest
from support.workload import Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "300"}
BEFORE = Layout(1, 2)
OWN, MOVED = (
    [k for k in (b"%d" % n for n in range(40)) if BEFORE.home(k) == 0][:4],
    [k for k in (b"%d" % n for n in range(40)) if BEFORE.home(k) == 1][:4],
)


def write(config: dict[str, Any], topic: str, value: bytes) -> None:
    """One record of each key."""
    with OrderedProducer(config) as producer:
        for pair in zip(OWN, MOVED, strict=True):
            for key in pair:
                producer.produce(topic, value, key)


def shrunk(kafka: KafkaUnderTest, topic: str) -> dict[str, Any]:
    """A topic that went from two partitions to one between two records of each key. Returns a client's settings."""
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    admin = TopicAdmin(config)
    admin.create(topic, 2, config=QUICK, initial_partition_count=1)
    write(config, topic, b"old")
    admin.shrink(topic, 1)
    write(config, topic, b"new")
    return config


def read(consumer: OrderedConsumer, count: int) -> list[tuple[bytes, bytes]]:
    """(key, value) of the next `count` records."""
    found: list[tuple[bytes, bytes]] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"only {found}"
        assert message.error() is None
        found.append((message.key(), message.value()))
    return found


def committed(consumer: OrderedConsumer, topic: str, partition: int) -> int:
    return int(consumer.committed([TopicPartition(topic, partition)], 30)[0].offset)


def test_own_keys_of_a_shrinks_target_flow_and_the_commit_stays_below_what_waits(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    config = shrunk(kafka, topic_name)
    group = {**config, "group.id": topic_name, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 100}
    consumer = OrderedConsumer({**group, "keyorder.gate": "key"})
    origin = TopicPartition(topic_name, 1)
    consumer.assign([TopicPartition(topic_name, 0), origin])
    consumer.pause([origin])
    try:
        assert read(consumer, 8) == [(k, b"old") for k in OWN] + [(k, b"new") for k in OWN]
        while consumer.gates()[0].records_held < 4:
            assert consumer.poll(0.05) is None
        oldest_held = 4 + 1  # behind the old records of its own keys; the first new record is of an own key
        assert consumer.position([TopicPartition(topic_name, 0)])[0].offset == oldest_held
        consumer.commit(asynchronous=False)
        assert committed(consumer, topic_name, 0) == oldest_held

        consumer.resume([origin])
        assert read(consumer, 8) == [(k, b"old") for k in MOVED] + [(k, b"new") for k in MOVED]
        consumer.commit(asynchronous=False)
        assert committed(consumer, topic_name, 0) == 12
    finally:
        consumer.close()


def test_an_application_that_names_the_highest_offset_of_each_batch_ends_at_the_end(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """The records that waited lie below the one that was named last, and no other record comes."""
    config = shrunk(kafka, topic_name)
    with OrderedProducer(config) as producer:
        producer.produce(topic_name, b"last", OWN[0])
    group = {**config, "group.id": topic_name, "auto.offset.reset": "earliest", "enable.auto.offset.store": False}
    with OrderedConsumer({**group, "keyorder.gate": "key"}) as consumer:
        places = [TopicPartition(topic_name, p) for p in (0, 1)]
        consumer.assign(places)
        consumer.pause(places[1:])

        def finish(count: int) -> None:
            highest: dict[int, int] = {}
            for _ in range(count):
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                highest[message.partition()] = max(highest.get(message.partition(), 0), message.offset() + 1)
            consumer.store_offsets(offsets=[TopicPartition(topic_name, p, o) for p, o in highest.items()])
            consumer.commit(asynchronous=False)

        finish(9)
        while consumer.gates()[0].records_held < 4:
            assert consumer.poll(0.05) is None
        consumer.resume(places[1:])
        finish(4)  # what opens the gate
        finish(4)
        assert committed(consumer, topic_name, 0) == 13


@pytest.mark.parametrize("successor", ["key", "partition"])
def test_a_new_owner_returns_only_what_waited(kafka: KafkaUnderTest, topic_name: str, successor: str) -> None:
    config = shrunk(kafka, topic_name)
    group = {**config, "group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedConsumer({**group, "keyorder.gate": "key"}) as first:
        first.assign([TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)])
        first.pause([TopicPartition(topic_name, 1)])
        assert read(first, 8) == [(k, b"old") for k in OWN] + [(k, b"new") for k in OWN]
        while first.gates()[0].records_held < 4:
            assert first.poll(0.05) is None
        first.commit(asynchronous=False)
    with OrderedConsumer({**group, "keyorder.gate": successor}) as second:
        second.assign([TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)])

        assert read(second, 8) == [(k, b"old") for k in MOVED] + [(k, b"new") for k in MOVED]

        second.commit(asynchronous=False)
        assert committed(second, topic_name, 0) == 12


def test_growth_and_shrink_under_load_with_single_keys_held(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    settings = {"keyorder.gate": "key", "keyorder.hold.max.messages": 200}
    with Workload(kafka, tmp_path, topic_name, partitions=1, config=QUICK) as run:
        first = run.consumer("c1", "g", work_s=0.001, config=settings)
        run.consumer("c2", "g", work_s=0.0005, config=settings)
        run.writer("w1", rate=700, keys=60, seed=1)
        run.writer("w2", rate=700, keys=60, seed=2)
        for count in (3, 1, 4, 2):
            assert run.resize(count) == 0
        run.consumer("c3", "g", config=settings)
        run.kill(first)
        assert run.resize(1) == 0

        assert_in_order(run.finish())


def test_what_cannot_be_with_single_keys_is_refused(kafka: KafkaUnderTest, topic_name: str) -> None:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic_name}
    with pytest.raises(ConfigError, match=r"keyorder\.gate"):
        OrderedConsumer({**config, "keyorder.gate": "record"})
    with (
        OrderedConsumer({**config, "keyorder.gate": "key"}) as consumer,
        pytest.raises(UsageError, match=r"keyorder\.gate=partition"),
    ):
        consumer.consumer_group_metadata()


@pytest.mark.parametrize("gate", ["partition", "key"])
def test_a_partition_that_was_full_flows_again_after_it_was_revoked(
    kafka: KafkaUnderTest, topic_name: str, gate: str
) -> None:
    """The client library keeps a pause through revocation and assignment; nobody would have lifted it."""
    config = shrunk(kafka, topic_name)
    group = {**config, "group.id": topic_name, "auto.offset.reset": "earliest", "keyorder.gate": gate}
    both = [TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)]
    with OrderedConsumer({**group, "keyorder.hold.max.messages": 2}) as consumer:
        consumer.assign(both)
        consumer.pause(both[1:])
        seen = read(consumer, 4)
        while not (gates := consumer.gates()) or gates[0].records_held < 2:
            message = consumer.poll(0.05)
            if message is not None:
                seen.append((message.key(), message.value()))
        consumer.assign(both)
        consumer.resume(both[1:])
        # 16 in all; what was returned last is processed with the next call, what lay behind held records comes again.
        while {pair for pair in seen if pair[0] in MOVED} != {(k, v) for k in MOVED for v in (b"old", b"new")}:
            seen += read(consumer, 1)
