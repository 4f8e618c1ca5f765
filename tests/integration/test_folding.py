"""Folding on a real broker: clients that live through it, and what makes a timeline fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.topology.claims import Claims
from keyorder.connector.topology.folding import FoldJob
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.errors import TimelineTooLargeError
from keyorder.partitioner.folding import FOLD_AFTER_S
from support.cluster import ClusterSpec, KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "100"}
KEYS = [b"key %d" % number for number in range(40)]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the wall clock go on by as long as an epoch stays: no test can wait for a day."""
    real = clock.wall_ms

    def jump() -> None:
        monkeypatch.setattr(clock, "wall_ms", lambda: real() + FOLD_AFTER_S * 1000 + 60_000)

    return jump


@pytest.fixture(scope="module")
def own_kafka(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker whose control topics may be set up in odd ways."""
    started = start_kafka(ClusterSpec(1))
    yield started
    started.stop()


def empty(kafka: KafkaUnderTest, topic: str) -> None:
    """What retention would do in a week: every record that is there now is deleted."""
    client = kafka.admin()
    count = len(client.list_topics(topic, timeout=120).topics[topic].partitions)
    for future in client.delete_records([TopicPartition(topic, p, -1) for p in range(count)]).values():
        future.result(120)


def job(kafka: KafkaUnderTest, topic: str) -> FoldJob:
    admin = TopicAdmin(kafka.client_config())
    return FoldJob(kafka.client_config(), lambda: {topic: admin.timeline(topic)}, Claims())


def test_clients_live_through_folding(kafka: KafkaUnderTest, topic_name: str, later: Callable[[], None]) -> None:
    """A producer and a consumer hold the whole timeline: they go on with the folded one, each key in order, unhinted."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 2, config=QUICK)
    fold = job(kafka, topic_name)
    seen: dict[bytes, list[bytes]] = {key: [] for key in KEYS}
    hints: list[object] = []

    with (
        OrderedProducer(config) as producer,
        OrderedConsumer({**config, "group.id": topic_name, "auto.offset.reset": "earliest"}) as consumer,
    ):
        consumer.subscribe([topic_name])

        def write_and_read(value: bytes) -> None:
            for key in KEYS:
                producer.produce(topic_name, value, key)
            assert producer.flush(120) == 0
            hints.clear()
            missing = len(KEYS)
            while missing:
                message = consumer.poll(60)
                assert message is not None
                assert message.error() is None
                seen[message.key()].append(message.value())
                hints.append(message.headers())
                missing -= 1

        write_and_read(b"1")
        admin.expand(topic_name, 4)
        write_and_read(b"2")
        assert any(hints)
        assert fold.run() is None
        assert admin.timeline(topic_name).foldable == {}
        empty(kafka, topic_name)
        assert fold.run() is None
        assert list(admin.timeline(topic_name).foldable) == [1]
        later()
        assert fold.run() == {"folded": [{"topic": topic_name, "epoch": 1}]}
        assert fold.run() is None
        write_and_read(b"3")
        # The producer hears of it when it next looks: until then it hints, which nobody minds.
        while any(hints):
            write_and_read(b"3")
        admin.expand(topic_name, 5)
        write_and_read(b"4")
        assert any(hints)
    assert {key: sorted(values) for key, values in seen.items()} == seen
    assert all(set(values) == {b"1", b"2", b"3", b"4"} for values in seen.values())
    timeline = admin.timeline(topic_name)
    assert [(e.number, e.count) for e in timeline.epochs] == [(1, 4), (2, 5)]
    assert timeline.first_count == 2


def test_a_change_folds_in_the_same_record(kafka: KafkaUnderTest, topic_name: str, later: Callable[[], None]) -> None:
    """Nobody runs a controller that stays: each change notes what is over, and folds what has been noted for long enough."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    with OrderedProducer(config) as producer:
        for key in KEYS:
            producer.produce(topic_name, b"v", key)
        assert producer.flush(120) == 0
    admin.expand(topic_name, 2)
    empty(kafka, topic_name)
    admin.expand(topic_name, 3)
    assert list(admin.timeline(topic_name).foldable) == [1]
    later()

    admin.expand(topic_name, 4)

    assert [e.number for e in admin.timeline(topic_name).epochs] == [1, 2, 3]


def test_a_compacted_topic_never_folds(kafka: KafkaUnderTest, topic_name: str, later: Callable[[], None]) -> None:
    """Its logs keep old values and tombstones that name old epochs, also where records are deleted as well."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config={**QUICK, "cleanup.policy": "compact,delete"})
    admin.expand(topic_name, 2)
    empty(kafka, topic_name)

    for _ in range(2):
        assert job(kafka, topic_name).run() is None
        later()
    assert admin.timeline(topic_name).foldable == {}


def test_a_timeline_that_would_be_too_large_is_refused_before_anything_is_held(
    own_kafka: KafkaUnderTest, topic_name: str
) -> None:
    """The COMMIT would not fit into the control topic: no attempt is begun, no partition made, and the way out is named."""
    config = own_kafka.client_config()
    steps: list[str] = []
    admin = TopicAdmin(config, steps.append)
    admin.create(topic_name, 2, config=QUICK)
    entry = ConfigEntry("max.message.bytes", "3000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "_keyorder", incremental_configs=[entry])
    client = own_kafka.admin()
    client.incremental_alter_configs([resource])[resource].result(120)
    before = admin.timeline(topic_name)

    with pytest.raises(TimelineTooLargeError, match=r"max\.message\.bytes of _keyorder"):
        admin.expand(topic_name, 500)

    assert admin.timeline(topic_name) == before
    assert admin.describe(topic_name).partitions == 2
    assert not any(step == ChangePhase.PREPARE.value.lower() or step == "collecting" for step in steps)
    assert admin.expand(topic_name, 3).after == 3
