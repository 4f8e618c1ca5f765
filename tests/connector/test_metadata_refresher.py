"""A consumer is shown new partitions by looks at all topics: as few as may be, and none that is waited for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.consuming.metadata_refresher import MetadataRefresher
from support.cluster import KafkaUnderTest
from support.holding import until

TOPICS = 24


class Looks:
    """A client whose looks at all topics end when they may."""

    def __init__(self) -> None:
        self.began = 0
        self.may_end = threading.Semaphore(0)
        self.error: Exception | None = None

    def list_topics(self, timeout: float) -> None:
        """One look."""
        self.began += 1
        assert self.may_end.acquire(timeout=120)
        if self.error is not None:
            raise self.error


def refreshers() -> int:
    """The threads that look now."""
    return sum(thread.name == "keyorder-refresher" for thread in threading.enumerate())


@pytest.fixture
def looks() -> Any:
    """None is left behind."""
    looks = Looks()
    yield looks
    looks.may_end.release(1_000)
    until(lambda: not refreshers(), "no thread looks any more")


def test_wakes_during_a_look_have_one_more_in_common(looks: Any) -> None:
    refresher = MetadataRefresher(looks)
    refresher.wake()
    until(lambda: looks.began == 1)
    for _ in range(300):
        refresher.wake()
    assert refreshers() == 1
    looks.may_end.release()
    until(lambda: looks.began == 2)
    looks.may_end.release()
    until(lambda: not refreshers())
    assert looks.began == 2


@pytest.mark.parametrize("error", [None, KafkaException(KafkaError(KafkaError._TIMED_OUT)), RuntimeError("closed")])
def test_a_wake_after_a_look_is_a_new_look(looks: Any, error: Exception | None) -> None:
    looks.error = error
    refresher = MetadataRefresher(looks)
    for number in range(1, 4):
        refresher.wake()
        until(lambda wanted=number: looks.began == wanted)  # type: ignore[misc]
        looks.may_end.release()
        until(lambda: not refreshers())
    assert looks.began == 3


def test_a_look_that_does_not_return_is_left_to_its_thread(looks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now: Callable[[], float] = clock.now
    refresher = MetadataRefresher(looks)
    refresher.wake()
    until(lambda: looks.began == 1)
    refresher.wake()
    assert looks.began == 1
    monkeypatch.setattr(clock, "now", lambda: now() + 60)
    refresher.wake()
    until(lambda: looks.began == 2, "another thread looks")
    looks.may_end.release(2)
    until(lambda: not refreshers())
    assert looks.began == 2


@pytest.mark.kafka
def test_a_member_of_many_topics_does_not_look_at_all_for_each_of_them(kafka: KafkaUnderTest, topic_name: str) -> None:
    """As its view learns of them, one after the other."""
    topics = [f"{topic_name}-{number}" for number in range(TOPICS)]
    admin = TopicAdmin(kafka.client_config())
    with OrderedProducer(kafka.client_config()) as producer:
        for topic in topics:
            admin.create(topic, 1)
            producer.produce(topic, b"v", b"k")
        assert producer.flush(120) == 0
    told: list[str] = []
    settings = {"group.id": topic_name, "auto.offset.reset": "earliest", "partition.assignment.strategy": "range"}
    statistics = {"statistics.interval.ms": 100, "stats_cb": told.append}
    with OrderedConsumer({**kafka.client_config(), **settings, **statistics}) as consumer:
        consumer.subscribe(topics)
        seen = set[str]()
        while len(seen) < TOPICS:
            seen |= {message.topic() for message in consumer.consume(TOPICS, 0.1)}
        told.clear()
        until(lambda: bool(consumer.consume(1, 0.1) or told))
    brokers = json.loads(told[-1])["brokers"].values()
    assert sum(broker["req"].get("Metadata", 0) for broker in brokers) <= TOPICS / 3
