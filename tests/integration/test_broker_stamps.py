"""What the brokers' stamps on control records save a change, on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_reader import readable
from keyorder.connector.control.control_topics import all_writer_slots, timeline_slot
from keyorder.partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC, Lease
from support.cluster import ClusterSpec, KafkaUnderTest
from support.silent_writer import SilentWriter

QUICK = {"keyorder.view.age.ms": "100"}


class DeadWriter(SilentWriter):
    """A process that was killed: it has joined, and neither renews nor leaves."""

    def __enter__(self) -> DeadWriter:
        super().__enter__()
        self._leaving.set()
        self.join()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is said any more."""


def die(kafka: KafkaUnderTest, topic: str, lease_ms: int) -> str:
    """A writer dies, and its lease runs out, by the broker's clock and with the margin. Returns its id."""
    with DeadWriter(kafka.client_config(), topic, lease_ms) as dead:
        pass
    leases = [m for m in readable(kafka.client_config(), all_writer_slots(), 30.0) if isinstance(m.record, Lease)]
    (last,) = [m for m in leases if isinstance(m.record, Lease) and m.record.writer == dead.writer]
    assert last.at_ms is not None
    pause = threading.Event()
    while clock.wall_ms() < last.at_ms + lease_ms + 2_500:
        pause.wait(0.05)
    return dead.writer


@pytest.fixture(scope="module")
def unstamped(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker whose control topics were made before brokers stamped their records."""
    started = start_kafka(ClusterSpec(1))
    TopicAdmin(started.client_config()).create("first", 1)
    client = started.admin()
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    for name in (CONTROL_TOPIC, WRITERS_TOPIC):
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(120)
    yield started
    started.stop()


def test_control_records_bear_the_brokers_time(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Timelines and leases are stamped by their leaders, who can be told apart."""
    config = kafka.client_config()
    TopicAdmin(config).create(topic_name, 1)
    with OrderedProducer(config) as producer:
        producer.produce(topic_name, b"v", b"k")
        assert producer.flush(120) == 0
        found = readable(config, [timeline_slot(topic_name), *all_writer_slots()], 30.0)

    assert {m.slot[0] for m in found} == {CONTROL_TOPIC, WRITERS_TOPIC}
    for message in found:
        assert message.stamp is not None
        assert (message.stamp.partition, message.stamp.at_ms) == (message.slot[1], message.at_ms)
        assert message.stamp.leader_epoch >= 0


def test_a_writer_that_died_long_ago_is_not_waited_for(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its lease was over before the change began: it is expelled as that, and nobody's records are held for it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    dead = die(kafka, topic_name, 3_000)

    change = TopicAdmin(kafka.client_config()).expand(topic_name, 2)

    assert f"expelled {dead}, gone before the change" in [step.name for step in change.steps]
    assert (change.attempts, change.after) == (1, 2)
    assert [wait.writer for wait in change.waited_for if wait.ready] == []


def test_where_brokers_do_not_stamp_the_lease_is_waited_for(unstamped: KafkaUnderTest, topic_name: str) -> None:
    """CreateTime is the writer's own clock: its lease is counted from the controller's reading, and it says whom it waits for."""
    TopicAdmin(unstamped.client_config()).create(topic_name, 1, config=QUICK)
    dead = die(unstamped, topic_name, 3_000)
    said: list[str] = []

    change = TopicAdmin(unstamped.client_config(), said.append).expand(topic_name, 2)

    assert f"expelled {dead}" in [step.name for step in change.steps]
    (wait,) = change.waited_for
    assert (wait.writer, wait.ready) == (dead, False)
    assert wait.seconds > 0
    assert any(f"waiting for writer {dead}" in line and "at most" in line for line in said), said
