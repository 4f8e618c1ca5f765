"""A topic that grows while its group rebalances: nothing changes hands unasked, and nobody drops out of the rebalances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from keyorder import OrderedConsumer, TopicAdmin, TopicNotFoundError
from keyorder.connector import clock
from keyorder.connector.consuming.growth_watch import GrowthWatch
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_that, group_config

_LIMIT = 120


def quick_to_hear(kafka: KafkaUnderTest, group: str, strategy: str, **more: object) -> dict[str, object]:
    return group_config(kafka, group, partition_assignment_strategy=strategy, heartbeat_interval_ms=300, **more)


def cooperative(kafka: KafkaUnderTest, group: str, **more: object) -> dict[str, object]:
    return quick_to_hear(kafka, group, "cooperative-sticky", **more)


class Member:
    """A member, and what it was told that it owns."""

    def __init__(self, kafka: KafkaUnderTest, topic: str, strategy: str) -> None:
        self.owned: set[int] = set()
        self.told = 0
        self.consumer = OrderedConsumer(quick_to_hear(kafka, topic, strategy))
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.owned |= {p.partition for p in partitions}
        self.told += 1

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.owned -= {p.partition for p in partitions}
        self.told += 1


@pytest.fixture
def topic(kafka: KafkaUnderTest, topic_name: str) -> str:
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    return topic_name


def owning(kafka: KafkaUnderTest, topic: str, strategy: str) -> Member:
    """A member that owns both partitions."""
    member = Member(kafka, topic, strategy)
    await_that(member.consumer, lambda: member.owned == {0, 1})
    return member


def grow_unseen(kafka: KafkaUnderTest, topic: str, count: int, first: Member, second: Member, seconds: float) -> None:
    """The first member sees the growth, and is not polled for so long: what it has is not given to the second one."""
    before = first.consumer.figures().epochs[topic]
    TopicAdmin(kafka.client_config()).expand(topic, count)
    await_that(second.consumer, lambda: first.consumer.figures().epochs[topic] != before)
    until = clock.now() + seconds
    while clock.now() < until:
        second.consumer.poll(0.1)
        assert not first.owned & second.owned, "it was given away before on_revoke"


def share_and_leave(first: Member, second: Member, partitions: set[int]) -> None:
    """Both own all of these, nobody any twice; then the first one alone."""
    deadline = clock.now() + _LIMIT
    while first.owned | second.owned != partitions or first.owned & second.owned:
        assert clock.now() < deadline, (first.owned, second.owned)
        first.consumer.poll(0.05)
        second.consumer.poll(0.05)
    second.consumer.close()
    await_that(first.consumer, lambda: first.owned == partitions)
    first.consumer.close()


def test_a_member_that_sees_growth_before_it_was_told_of_a_revocation_stays_in_the_group(
    kafka: KafkaUnderTest, topic: str
) -> None:
    """It gives nothing up before `on_revoke` was called, and takes part in the rebalances that follow."""
    first = owning(kafka, topic, "cooperative-sticky")
    second = Member(kafka, topic, "cooperative-sticky")
    # The first one joins again without being polled, and is to give up one.
    await_that(second.consumer, lambda: bool(second.told))
    grow_unseen(kafka, topic, 3, first, second, 2)
    share_and_leave(first, second, {0, 1, 2})


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_an_eager_member_that_sees_growth_before_it_was_told_of_a_revocation_keeps_what_it_has(
    kafka: KafkaUnderTest, topic: str, strategy: str
) -> None:
    """The group waits for it, and all partitions find their owners when it is polled again."""
    first, second = owning(kafka, topic, strategy), Member(kafka, topic, strategy)
    until = clock.now() + 2
    while clock.now() < until:  # the first one hears of the rebalance, and is not polled: it has not been told
        second.consumer.poll(0.1)
    grow_unseen(kafka, topic, 4, first, second, 3)
    share_and_leave(first, second, {0, 1, 2, 3})


@pytest.mark.parametrize("pattern", [False, True])
def test_topics_that_come_and_grow_are_found(kafka: KafkaUnderTest, topic_name: str, pattern: bool) -> None:
    """Named before they are there, or by a pattern; managed or not."""
    names = [f"{topic_name}-{letter}" for letter in "abc"]
    cluster = kafka.admin()
    TopicAdmin(kafka.client_config()).create(names[0], 1, config=QUICK)
    consumer = OrderedConsumer(cooperative(kafka, topic_name, topic_metadata_refresh_interval_ms=300))
    consumer.subscribe([f"^{topic_name}-.*"] if pattern else names)

    def owned() -> set[tuple[str, int]]:
        return {(place.topic, place.partition) for place in consumer.assignment()}

    await_that(consumer, lambda: owned() == {(names[0], 0)})
    TopicAdmin(kafka.client_config()).create(names[1], 1, config=QUICK)
    cluster.create_topics([NewTopic(names[2], 1, 1)])[names[2]].result(_LIMIT)
    await_that(consumer, lambda: owned() == {(name, 0) for name in names})
    TopicAdmin(kafka.client_config()).expand(names[0], 2)
    cluster.create_partitions([NewPartitions(names[2], 2)])[names[2]].result(_LIMIT)
    await_that(consumer, lambda: owned() == {(names[0], 0), (names[0], 1), (names[1], 0), (names[2], 0), (names[2], 1)})
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_pattern_that_matches_nothing_yet_finds_its_topic(
    kafka: KafkaUnderTest, topic_name: str, strategy: str
) -> None:
    """The member has joined nothing so far, and does when the topic is made."""
    more = {"partition_assignment_strategy": strategy, "topic_metadata_refresh_interval_ms": 300}
    with OrderedConsumer(group_config(kafka, topic_name, **more)) as consumer:
        consumer.subscribe([f"^{topic_name}-.*"])
        for _ in range(20):
            consumer.poll(0.1)
        TopicAdmin(kafka.client_config()).create(f"{topic_name}-a", 1, config=QUICK)
        await_that(consumer, lambda: len(consumer.assignment()) == 1)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_topic_that_goes_is_given_up(kafka: KafkaUnderTest, topic_name: str, strategy: str) -> None:
    """As by the client library's own member, which looks at all topics for it."""
    names = [f"{topic_name}-{letter}" for letter in "ab"]
    cluster = kafka.admin()
    for made in cluster.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        made.result(_LIMIT)
    more = {"partition_assignment_strategy": strategy, "topic_metadata_refresh_interval_ms": 300}
    with OrderedConsumer(group_config(kafka, topic_name, **more)) as consumer:
        consumer.subscribe(names)

        def owned() -> set[str]:
            return {place.topic for place in consumer.assignment()}

        deadline = clock.now() + _LIMIT
        while owned() != set(names):
            assert clock.now() < deadline
            consumer.poll(0.1)
        cluster.delete_topics([names[1]])[names[1]].result(_LIMIT)
        told = []
        while owned() != {names[0]}:
            assert clock.now() < deadline
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None:
                told.append(message.error().code())
        assert set(told) <= {KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_an_eager_member_describes_its_group_only_where_a_count_has_changed(
    kafka: KafkaUnderTest, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A description is as long as the group is large, and each member would ask for it every ten seconds."""
    described: list[list[str]] = []
    looks: list[bool | None] = []
    describe: Callable[..., Any] = AdminClient.describe_consumer_groups
    look: Callable[..., bool | None] = GrowthWatch._look

    def noted(self: AdminClient, groups: list[str], **more: Any) -> Any:
        described.append(groups)
        return describe(self, groups, **more)

    def looked(self: GrowthWatch, topics: frozenset[str]) -> bool | None:
        looks.append(look(self, topics))
        return looks[-1]

    monkeypatch.setattr(GrowthWatch, "_look", looked)
    config = quick_to_hear(kafka, topic, "range", topic_metadata_refresh_interval_ms=100)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic])
        await_that(consumer, lambda: False in looks)
        looks.clear()
        monkeypatch.setattr(AdminClient, "describe_consumer_groups", noted)
        await_that(consumer, lambda: len(looks) >= 5)
        assert not described
        TopicAdmin(kafka.client_config()).expand(topic, 3)
        await_that(consumer, lambda: len(consumer.assignment()) == 3)
        assert described


def test_an_eager_member_finds_a_topic_that_is_made_again_however_often(kafka: KafkaUnderTest, topic_name: str) -> None:
    """With the same count each time: how often it joins for one count is limited only as long as that leads nowhere."""
    names, cluster = [f"{topic_name}-{letter}" for letter in "ab"], kafka.admin()
    for made in cluster.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        made.result(_LIMIT)
    config = quick_to_hear(kafka, topic_name, "range", topic_metadata_refresh_interval_ms=100)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe(names)

        def owns(*topics: str) -> None:
            deadline = clock.now() + _LIMIT
            while {place.topic for place in consumer.assignment()} != set(topics):
                assert clock.now() < deadline
                try:
                    consumer.poll(0.1)
                except TopicNotFoundError:  # it was gone before it could be started
                    continue

        owns(*names)
        for _ in range(5):
            cluster.delete_topics([names[1]])[names[1]].result(_LIMIT)
            owns(names[0])
            cluster.create_topics([NewTopic(names[1], 2, 1)])[names[1]].result(_LIMIT)
            owns(*names)
