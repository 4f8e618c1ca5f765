"""Settings that a topic's timeline keeps: given at creation and adoption, and changed while clients use it."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.partitioner.errors import ConfigError
from support.cluster import KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "100"}
ENABLE, DELAY = "delete.topic.partition.enable", "delete.topic.partition.interval.delay.ms"
ORDERED = "enable.ordered.delivery"


def moved_key(admin: TopicAdmin, topic: str, count: int) -> bytes:
    """A key that a growth to `count` partitions moves away from partition 0."""
    layout = admin.describe(topic).layout
    grown = layout.resized(count)
    return next(
        key for key in (b"k%d" % n for n in range(1000)) if layout.home(key) == 0 and grown.home(key) >= layout.count
    )


@pytest.mark.kip("K253-22", "K253-61")
def test_a_topic_made_with_ordered_delivery_off_holds_nothing_until_it_is_switched_on(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """The new partition's records come though the origin is unread; switched on, the next change's wait for their origin."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config={**QUICK, ORDERED: "false"})
    key = moved_key(admin, topic_name, 2)
    later = moved_key(admin, topic_name, 3)
    with OrderedProducer(config) as producer:
        for value in (b"1", b"2"):
            producer.produce(topic_name, value, key)
            producer.produce(topic_name, value, later)
            assert producer.flush(120) == 0
            if value == b"1":
                admin.expand(topic_name, 2)
        group = {**config, "group.id": topic_name, "auto.offset.reset": "earliest", "max.poll.interval.ms": 300_000}
        with OrderedConsumer(group) as consumer:
            consumer.subscribe([topic_name])
            while len(consumer.assignment()) < 2:
                assert consumer.poll(0.1) is None or True
            assert consumer.gates() == []

        altered = admin.alter(topic_name, {ORDERED: "true"})

        assert altered.ordered
        assert admin.timeline(topic_name).newest.number == 1
        admin.expand(topic_name, 3)
        producer.produce(topic_name, b"3", later)
        assert producer.flush(120) == 0
    (described,) = admin.describe(topic_name, groups=[topic_name]).groups
    assert described.gates > 0


@pytest.mark.kip("K694-03")
def test_an_adopted_topic_gets_settings_then_or_later(kafka: KafkaUnderTest, topic_name: str) -> None:
    """`adopt(config)` and `alter`; a second adoption with others is refused, and so are settings that belong elsewhere."""
    client = kafka.admin()
    client.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(120)
    admin = TopicAdmin(kafka.client_config())

    admin.adopt(topic_name, config={ENABLE: "true", **QUICK})

    timeline = admin.timeline(topic_name)
    assert (dict(timeline.settings), timeline.view_age_s, timeline.ordered) == ({ENABLE: "true"}, 0.1, True)
    admin.adopt(topic_name, config={ENABLE: "true"})
    with pytest.raises(ConfigError, match="use `alter`"):
        admin.adopt(topic_name, config={ENABLE: "false"})
    admin.alter(topic_name, {DELAY: "1000", "keyorder.view.age.ms": "200"})
    timeline = admin.timeline(topic_name)
    assert (dict(timeline.settings), timeline.view_age_s) == ({ENABLE: "true", DELAY: "1000"}, 0.2)
    for name, value, text in (
        ("keyorder.view.age.ms", "100", "only be raised"),
        ("compaction.strategy", "timestamp", "set-strategy"),
        ("retention.ms", "1", "kafka-configs"),
        (ORDERED, "perhaps", "neither true nor false"),
    ):
        with pytest.raises(ConfigError, match=text):
            admin.alter(topic_name, {name: value})
    assert admin.timeline(topic_name) == timeline
