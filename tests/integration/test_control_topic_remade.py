"""A control topic that is deleted and made again: nobody goes on by what it said, and nobody starts as if nothing had been."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control import control_reader
from keyorder.connector.control.control_reader import ControlReader, ControlTopics
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.partitioner.errors import KeyorderError, TimelineRegressionError
from keyorder.partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from support.cluster import KafkaFactory, KafkaUnderTest
from support.groups import QUICK, await_gone, group_config, grown, read
from support.holding import until


def make_again(kafka: KafkaUnderTest, topic: str, *records: tuple[int, int]) -> None:
    """Delete a topic and make it again, with so many foreign records in some of its partitions. records: (partition, count)."""
    cluster = kafka.admin()
    partitions = len(cluster.list_topics(topic, timeout=120).topics[topic].partitions)
    cluster.delete_topics([topic])[topic].result(120)
    await_gone(cluster, topic)
    made = NewTopic(topic, partitions, config={"cleanup.policy": "compact"})
    cluster.create_topics([made])[topic].result(120)
    with Producer(kafka.client_config()) as producer:
        for partition, count in records:
            for _ in range(count):
                producer.produce(topic, b"v", b"foreign", partition)
        assert producer.flush(120) == 0


@pytest.fixture
def always_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may ask for the ids of the control topics does so each time."""
    monkeypatch.setattr(control_reader, "_IDENTITY_AGE", 0.0)
    monkeypatch.setattr(control_reader, "_FIRST_IDENTITY", 0.0)


@pytest.mark.parametrize("which", [CONTROL_TOPIC, WRITERS_TOPIC])
def test_a_running_producer_stops(kafka_factory: KafkaFactory, topic_name: str, which: str) -> None:
    """At its next renewal at the latest, with the error that readers raise."""
    kafka = kafka_factory()
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    config = {
        **kafka.client_config(),
        "delivery.timeout.ms": 5_000,
        "keyorder.lease.ms": 9_000,
        "keyorder.lease.renew.interval.ms": 1_000,
    }
    producer = OrderedProducer(config)
    producer.produce(topic_name, "v", "k")
    assert producer.flush(120) == 0
    until(lambda: which in producer._link._clients.feed._topics._ids)  # what its later looks compare with

    make_again(kafka, which)

    raised = stopped(lambda: (producer.produce(topic_name, "v", "k"), producer.poll(0.2)), 180.0)
    assert isinstance(raised, TimelineRegressionError)
    assert which in str(raised)
    producer._raw.purge()
    with contextlib.suppress(TimelineRegressionError):
        producer.close()


@pytest.mark.usefixtures("always_asked")
def test_a_control_topic_that_has_grown_past_what_was_read_is_noticed(
    kafka_factory: KafkaFactory, topic_name: str
) -> None:
    """Its offsets say nothing then: its topic id does."""
    kafka = kafka_factory()
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    slot = timeline_slot(topic_name)
    reader = ControlReader(kafka.client_config())
    reader.add([slot])
    assert reader.read_to_end()
    reader.look()

    make_again(kafka, CONTROL_TOPIC, (slot[1], 100))

    with pytest.raises(TimelineRegressionError, match="its id was"):
        until(lambda: reader.look().ends[slot] < 0)
    reader.close()


def test_running_clients_stop_and_a_new_reader_does_not_take_the_topic_for_unmanaged(
    kafka_factory: KafkaFactory, topic_name: str
) -> None:
    kafka = kafka_factory()
    grown(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    assert [m.value() for m in read(consumer, 2)] == [b"old", b"new"]

    make_again(kafka, CONTROL_TOPIC)

    raised = stopped(lambda: consumer.poll(0.2))
    assert isinstance(raised, TimelineRegressionError)
    assert CONTROL_TOPIC in str(raised)
    consumer.close()
    with OrderedConsumer(group_config(kafka, f"{topic_name}-2")) as new:
        new.subscribe([topic_name])
        with pytest.raises(TimelineRegressionError):
            read(new, 3)


def stopped(call: object, timeout: float = 120.0) -> KeyorderError:
    """Call until it raises a typed error that says more than that Kafka is away."""
    deadline = clock.now() + timeout
    last: KeyorderError | None = None
    while clock.now() < deadline:
        try:
            call()  # type: ignore[operator]
        except KeyorderError as error:
            if not error.retriable:
                return error
            last = error
    raise AssertionError(f"it goes on; the last that it raised: {last!r}")


@pytest.mark.usefixtures("always_asked")
def test_a_change_asks_for_it_before_writers_hold(
    kafka_factory: KafkaFactory, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question needs a client of its own: writers would hold their records until it is connected and answered."""
    kafka = kafka_factory()
    caller = threading.current_thread()
    steps: list[str] = []
    asked: list[str] = []
    admin = TopicAdmin(kafka.client_config(), steps.append)
    admin.create(topic_name, 1, config=QUICK)
    check = ControlTopics.check

    def noting(self: ControlTopics, *arguments: Any) -> None:
        if steps and threading.current_thread() is caller:  # a producer asks on its own thread
            asked.append(steps[-1])
        check(self, *arguments)

    monkeypatch.setattr(ControlTopics, "check", noting)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "v", "k")
        assert producer.flush(120) == 0
        asked.clear()
        admin.expand(topic_name, 2)

    assert "preparing" in asked
    assert not {"collecting", "cutting", "committing"} & set(asked)
