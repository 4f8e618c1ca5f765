"""A new topic is not known to every broker at once: what one has told of, the next one may not have yet."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not re-exported
from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest


def unknown_at_first(
    monkeypatch: pytest.MonkeyPatch, name: str, when: Callable[..., bool], times: int = 2
) -> list[Any]:
    """Let a request of admin clients meet a broker that has not heard of the topic, some times. What was answered so."""
    asked: Callable[..., dict[Any, Future[Any]]] = getattr(AdminClient, name)
    refused: list[Any] = []

    def answer(self: AdminClient, resources: Any, **more: Any) -> dict[Any, Future[Any]]:
        if len(refused) == times or not when(resources, **more):
            return asked(self, resources, **more)
        unknown: Future[Any] = Future()
        unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        found = dict.fromkeys(asked(self, resources, **more), unknown)
        refused.extend(found)
        return found

    monkeypatch.setattr(AdminClient, name, answer)
    return refused


@pytest.mark.kafka
def test_the_settings_of_a_new_topic_are_asked_for_again(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`produce` looks whether the topic is compacted, at another broker than the one that told that it is there."""
    TopicAdmin(kafka.client_config()).create(f"{topic_name}-first", 1)  # the control topics are there
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 2)])[topic_name].result(30)
    refused = unknown_at_first(monkeypatch, "describe_configs", lambda resources, **_: resources[0].name == topic_name)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, b"v", b"k")
        assert producer.flush(60) == 0
    assert len(refused) == 2


@pytest.mark.kafka
def test_the_rights_on_new_topics_are_asked_for_again(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the control topics were made just now, for one."""
    refused = unknown_at_first(
        monkeypatch,
        "describe_topics",
        lambda _, include_authorized_operations=False, **__: include_authorized_operations,
    )
    assert TopicAdmin(kafka.client_config()).create(topic_name, 2).topic == topic_name
    assert len(refused) == 2
