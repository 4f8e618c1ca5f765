"""What a member that starts asks the cluster of its topics: of these alone, however many others there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.metadata import identities
from keyorder.partitioner.errors import BrokerUnreachableError
from support.cluster import KafkaUnderTest
from support.groups import send
from support.holding import until


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What admin clients were asked to list: None for the whole cluster."""
    listed: list[str | None] = []
    whole: Callable[..., Any] = AdminClient.list_topics

    def noted(self: AdminClient, topic: str | None = None, timeout: float = -1) -> Any:
        listed.append(topic)
        return whole(self, topic, timeout)

    monkeypatch.setattr(AdminClient, "list_topics", noted)
    return listed


@pytest.mark.kafka
def test_topics_are_told_by_their_ids_and_counts(kafka: KafkaUnderTest, topic_name: str) -> None:
    """One that is not there is left out, and a name that none can have."""
    admin = TopicAdmin(kafka.client_config())
    names = [admin.create(f"{topic_name}-{count}", count).topic for count in (1, 3)]
    timelines = [admin.timeline(name) for name in names]
    asked = [*names, f"{topic_name}-absent", "no name"]
    found = identities(kafka.admin(), asked, "servers", 30.0)
    assert {topic: (each.topic_id, each.cluster_id, each.partitions) for topic, each in found.items()} == {
        timeline.topic: (timeline.topic_id, timeline.cluster_id, timeline.newest.count) for timeline in timelines
    }
    assert identities(kafka.admin(), [], "servers", 30.0) == {}


def test_without_a_broker_it_is_looked_for_once_more_and_told(lists: list[str | None]) -> None:
    """Whoever asks again has a client that has looked for another broker."""
    with pytest.raises(BrokerUnreachableError, match=r"bootstrap\.servers='localhost:1'"):
        identities(AdminClient({"bootstrap.servers": "localhost:1"}), ["t"], "localhost:1", 0.2)
    assert lists == [None]


@pytest.mark.kafka
def test_a_start_lists_no_cluster(kafka: KafkaUnderTest, topic_name: str, lists: list[str | None]) -> None:
    """A list of all topics takes as long as the cluster is large."""
    TopicAdmin(kafka.client_config()).create(topic_name, 3)
    send(kafka, topic_name, *((f"k{number}", "v") for number in range(20)))
    config = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedConsumer(config) as consumer:
        lists.clear()
        consumer.subscribe([topic_name])
        seen: list[Any] = []

        def all_seen() -> bool:
            seen.extend(consumer.consume(20, 0.1))
            return len(seen) == 20

        until(all_seen)
        assert None not in lists


@pytest.mark.kafka
def test_an_assignment_awaits_a_topic_once(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many partitions of it there are."""
    TopicAdmin(kafka.client_config()).create(topic_name, 12)
    with OrderedConsumer({**kafka.client_config(), "group.id": topic_name}) as consumer:
        starts = consumer._members.starts
        awaited: list[str] = []
        whole: Callable[[str], None] = starts.add
        monkeypatch.setattr(starts, "add", lambda topic: (awaited.append(topic), whole(topic)))
        consumer.subscribe([topic_name])
        until(lambda: consumer.consume(1, 0.1) == [] and len(consumer.assignment()) == 12)
        assert awaited == [topic_name]
