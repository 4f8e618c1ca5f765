"""Members with a group.instance.id: they come back without a rebalance."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupState
from keyorder import OrderedConsumer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_that, group_config, moving_key, read, send


def member(kafka: KafkaUnderTest, topic: str, name: str, strategy: str) -> OrderedConsumer:
    """One that nobody misses while the test lasts: its session is longer."""
    config = group_config(
        kafka,
        topic,
        group_instance_id=name,
        client_id=name,
        session_timeout_ms=300_000,
        partition_assignment_strategy=strategy,
    )
    consumer = OrderedConsumer(config)
    consumer.subscribe([topic])
    return consumer


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_leader_that_was_away_during_a_growth_has_the_new_partitions_assigned(
    kafka: KafkaUnderTest, topic_name: str, strategy: str
) -> None:
    """The broker gives it back what it had, and its new client has never seen the smaller count."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    send(kafka, topic_name, (key, "old"))
    with member(kafka, topic_name, "a", strategy) as leader:
        assert [m.value() for m in read(leader, 1)] == [b"old"]
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new"))

    with member(kafka, topic_name, "a", strategy) as leader:
        assert [(m.partition(), m.value()) for m in read(leader, 1, timeout=120)] == [(1, b"new")]


def test_beside_a_member_that_saw_the_growth(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The other one joins again because of it, which is no rebalance for the broker either: it does not lead."""
    admin, cluster = TopicAdmin(kafka.client_config()), kafka.admin()
    admin.create(topic_name, 2, config=QUICK)
    leader = member(kafka, topic_name, "a", "roundrobin")
    await_that(leader, lambda: len(leader.assignment()) == 2)
    other = member(kafka, topic_name, "b", "roundrobin")

    def settled() -> bool:
        leader.poll(0)
        group = cluster.describe_consumer_groups([topic_name])[topic_name].result(120)
        return group.state == ConsumerGroupState.STABLE and len(leader.assignment()) == len(other.assignment()) == 1

    await_that(other, settled, timeout=120)
    leader.close()
    admin.expand(topic_name, 4)
    await_that(
        other, lambda: other.list_topics(topic_name, timeout=120).topics[topic_name].partitions.keys() == {0, 1, 2, 3}
    )
    leader = member(kafka, topic_name, "a", "roundrobin")

    def all_owned() -> bool:
        leader.poll(0.01)
        return sorted(p.partition for p in leader.assignment() + other.assignment()) == [0, 1, 2, 3]

    await_that(other, all_owned, timeout=120)
    leader.close()
    other.close()
