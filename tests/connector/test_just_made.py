"""A topic that is not found: made just now, so that a broker has not heard of it yet, or never made."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import TopicDescription
from keyorder.connector import metadata
from keyorder.partitioner.errors import TopicNotFoundError
from support.cluster import KafkaUnderTest
from support.spark_source import create


class Looks:
    """Stands before `described`: the first `late` looks find nothing. Counts them all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, late: int = 0) -> None:
        self._late, self.count, self._described = late, 0, metadata.described
        monkeypatch.setattr(metadata, "described", self)

    def __call__(self, admin: Any, topic: str, *more: Any, **named: Any) -> TopicDescription:
        self.count += 1
        if self.count <= self._late:
            raise TopicNotFoundError(topic)
        return self._described(admin, topic, *more, **named)


def test_a_topic_that_the_controller_does_not_know_is_looked_for_once(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt name is told at once, not after the time that a new topic may take."""
    looks = Looks(monkeypatch)
    with pytest.raises(TopicNotFoundError):
        metadata.identify(kafka.admin(), topic_name, kafka.bootstrap_servers, just_made=60.0, ask_controller=True)
    assert looks.count == 1


def test_a_topic_that_the_controller_knows_is_waited_for(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker hears of a new topic late."""
    create(kafka, topic_name, 3)
    looks = Looks(monkeypatch, late=3)
    assert (
        metadata.identify(
            kafka.admin(), topic_name, kafka.bootstrap_servers, just_made=60.0, ask_controller=True
        ).partitions
        == 3
    )
    assert looks.count == 4


def test_a_topic_that_may_still_be_made_is_waited_for(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers wait as the library's do, for `topic.metadata.propagation.max.ms`, whoever makes the topic meanwhile."""
    looks = Looks(monkeypatch)

    def made_late(*_: Any, **__: Any) -> TopicDescription:
        if looks.count == 2:
            create(kafka, topic_name, 2)
        return looks(*_, **__)

    monkeypatch.setattr(metadata, "described", made_late)
    found = metadata.identify(kafka.admin(), topic_name, kafka.bootstrap_servers, just_made=60.0)
    assert found.partitions == 2


def test_whether_a_topic_exists_does_not_make_it(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The question is a request to make it, which is only judged."""
    assert metadata.known_to_controller(kafka.admin(), topic_name) is False
    assert topic_name not in kafka.admin().list_topics(timeout=30).topics
    create(kafka, topic_name, 1)
    assert metadata.known_to_controller(kafka.admin(), topic_name) is True
