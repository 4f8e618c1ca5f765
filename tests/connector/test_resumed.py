"""A pause or a resume that the client library drops: it does so when one of its own, as a rebalance begins, meets it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.consuming.resumed import Resumed
from support.cluster import KafkaUnderTest
from support.groups import send
from support.holding import until

PLACE, OTHER = ("t", 0), ("t", 1)
CALLS = 20


class Deaf:
    """A client that takes no notice of some calls of one name. lost: how many more. heard: what the others named."""

    def __init__(self, raw: Any, name: str) -> None:
        self._raw, self._name = raw, name
        self.lost = 0
        self.heard: list[list[TopicPartition]] = []

    def _called(self, places: list[TopicPartition]) -> None:
        if self.lost:
            self.lost -= 1
        else:
            self.heard.append(places)
            getattr(self._raw, self._name)(places)

    def __getattr__(self, name: str) -> Any:
        return self._called if name == self._name else getattr(self._raw, name)


def test_what_is_silent_is_told_again_and_then_fetched_anew() -> None:
    resumed = Resumed()
    assert not resumed.any_due(1e9)
    resumed.told([PLACE, OTHER], 100.0)
    assert not resumed.any_due(100.9)
    resumed.over(OTHER)
    assert resumed.due(101.0) == ([PLACE], [])
    assert resumed.due(101.0) == ([], [])
    assert not resumed.any_due(105.9)
    assert resumed.due(106.0) == ([], [PLACE])
    assert resumed.due(115.9) == ([], [])
    assert resumed.due(116.0) == ([], [PLACE])
    resumed.over(PLACE)
    assert resumed.due(1e9) == ([], [])
    assert not resumed.any_due(1e9)


def test_no_silence_is_waited_for_longer_than_a_minute() -> None:
    resumed, now, waits = Resumed(), 0.0, []
    resumed.told([PLACE], now)
    for _ in range(8):
        told_at = now
        while resumed.due(now) == ([], []):
            now += 1.0
        waits.append(now - told_at)
    assert waits == [1.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0]


def test_a_new_resume_begins_anew() -> None:
    resumed = Resumed()
    resumed.told([PLACE], 0.0)
    assert resumed.due(1.0) == ([PLACE], [])
    resumed.told([PLACE], 5.5)
    assert resumed.due(6.0) == ([], [])
    assert resumed.due(6.5) == ([PLACE], [])


def test_what_begins_anew_while_it_is_silent_goes_on_waiting() -> None:
    """Else it would be fetched anew every six seconds for as long as its leader is away, and not less and less often."""
    resumed = Resumed()
    resumed.told([PLACE], 0.0)
    assert resumed.due(1.0) == ([PLACE], [])
    assert resumed.due(6.0) == ([], [PLACE])
    resumed.begun([PLACE, OTHER], 6.0)
    assert resumed.due(7.0) == ([OTHER], [])
    resumed.over(OTHER)
    assert resumed.due(15.9) == ([], [])
    assert resumed.due(16.0) == ([], [PLACE])


def deaf(consumer: OrderedConsumer, name: str) -> Deaf:
    """Its client, which can be made to miss calls of this name."""
    fetching = consumer._assignment.fetching
    fetching.raw = made = Deaf(fetching.raw, name)  # type: ignore[assignment]
    return made


def fill(kafka: KafkaUnderTest, topic: str) -> None:
    """Its next records."""
    send(kafka, topic, *[("k", str(number)) for number in range(CALLS)])


def read(consumer: OrderedConsumer, count: int) -> list[int | None]:
    """The offsets of so many records."""
    found: list[int | None] = []

    def all_there() -> bool:
        found.extend(message.offset() for message in consumer.consume(count - len(found), 0.1))
        return len(found) == count

    until(all_there, "all records are there")
    return found


@pytest.fixture
def consumer(kafka: KafkaUnderTest, topic_name: str) -> Any:
    """Of a topic of one partition, which has read its first records."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    fill(kafka, topic_name)
    settings = {"group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedConsumer({**kafka.client_config(), **settings}) as made:
        made.subscribe([topic_name])
        assert read(made, CALLS) == list(range(CALLS))
        yield made


@pytest.mark.kafka
def test_a_resume_that_the_library_drops_is_told_again(
    kafka: KafkaUnderTest, topic_name: str, consumer: OrderedConsumer
) -> None:
    """Else the partition would stand still for good."""
    raw, here = deaf(consumer, "resume"), [TopicPartition(topic_name, 0)]
    consumer.pause(here)
    raw.lost = 1
    consumer.resume(here)
    assert raw.lost == 0
    fill(kafka, topic_name)
    assert read(consumer, CALLS) == list(range(CALLS, 2 * CALLS))


@pytest.mark.kafka
def test_a_pause_that_the_library_drops_is_told_again(
    kafka: KafkaUnderTest, topic_name: str, consumer: OrderedConsumer
) -> None:
    """With the first records that come in spite of it; they are given out after the resume."""
    raw, here = deaf(consumer, "pause"), [TopicPartition(topic_name, 0)]
    raw.lost = 1
    consumer.pause(here)
    assert (raw.lost, raw.heard) == (0, [])
    fill(kafka, topic_name)
    until(lambda: not consumer.consume(1, 0.1) and bool(raw.heard), "the library is told again")
    assert [(place.topic, place.partition) for place in raw.heard[0]] == [(topic_name, 0)]
    consumer.resume(here)
    assert read(consumer, CALLS) == list(range(CALLS, 2 * CALLS))


@pytest.mark.kafka
def test_a_resume_that_is_dropped_as_a_partition_comes_back_is_told_again(
    kafka: KafkaUnderTest, topic_name: str, consumer: OrderedConsumer
) -> None:
    """The library keeps the pause of the last assignment; whoever lost the partition meanwhile would never read it again."""
    raw, here = deaf(consumer, "resume"), [TopicPartition(topic_name, 0)]
    consumer.pause(here)
    raw.lost = 2
    consumer.unsubscribe()
    until(lambda: not consumer.consume(1, 0.1) and not consumer.assignment(), "the partition is gone")
    consumer.resume(here)
    consumer.subscribe([topic_name])
    fill(kafka, topic_name)
    assert read(consumer, CALLS) == list(range(CALLS, 2 * CALLS))
    assert raw.lost == 0
