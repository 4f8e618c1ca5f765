"""sentry-arroyo on the ordered clients: its consumer, its producer, and its stream processor, with a group that is new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.groups import group_config

pytest.importorskip("arroyo", reason="needs the extra `parity`")
from arroyo.backends.kafka import KafkaConsumer, KafkaPayload, KafkaProducer
from arroyo.backends.kafka import consumer as theirs
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategy, ProcessingStrategyFactory, RunTask
from arroyo.types import Commit, Message, Partition, Topic

RECORDS = 40


class Sender(theirs.ConfluentProducer, OrderedProducer):  # type: ignore[misc]
    """Arroyo's producer class in front of ours."""


OURS = ((theirs, "ConfluentConsumer", OrderedConsumer), (theirs, "ConfluentProducer", Sender))


def filled(kafka: KafkaUnderTest, topic: str) -> None:
    """Two partitions with RECORDS records, sent by arroyo's producer; each future is told where its record lies."""
    TopicAdmin(kafka.client_config()).create(topic, 2)
    producer = KafkaProducer(dict(kafka.client_config()))
    futures = [
        producer.produce(Topic(topic), KafkaPayload(f"k{n % 5}".encode(), str(n).encode(), [("n", b"1")]))
        for n in range(RECORDS)
    ]
    places = {(each.partition.index, each.offset) for each in (future.result(120) for future in futures)}
    assert len(places) == RECORDS
    producer.close().result(120)


def settings(kafka: KafkaUnderTest, topic: str, **more: object) -> dict[str, Any]:
    return group_config(kafka, topic, enable_auto_commit=False, enable_auto_offset_store=False, **more)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lenient"])
def test_its_consumer_in_a_new_group(kafka: KafkaUnderTest, topic_name: str, stock: bool, strict: bool) -> None:
    """Strict: it resolves where to begin by itself and forbids the library to. Staged offsets are what it commits."""
    filled(kafka, topic_name)
    assigned: dict[Partition, int] = {}
    consumer = KafkaConsumer(settings(kafka, topic_name, arroyo_strict_offset_reset=strict))
    consumer.subscribe([Topic(topic_name)], on_assign=lambda offsets: assigned.update(offsets))
    seen: dict[bytes, list[int]] = {}
    deadline, count, last = clock.now() + 180, 0, dict[Partition, int]()
    while count < RECORDS:
        assert clock.now() < deadline
        if (value := consumer.poll(0.2)) is not None:
            assert value.payload.key is not None
            seen.setdefault(value.payload.key, []).append(int(value.payload.value))
            assert value.payload.headers[0] == ("n", b"1")
            last[value.partition] = value.offset + 1
            count += 1
    assert sorted(assigned) == [Partition(Topic(topic_name), 0), Partition(Topic(topic_name), 1)]
    assert set(assigned.values()) == {0}
    assert seen == {f"k{key}".encode(): list(range(key, RECORDS, 5)) for key in range(5)}
    consumer.stage_offsets(last)
    assert consumer.commit_offsets() == last
    consumer.close()
    check = Consumer(group_config(kafka, topic_name))
    places = check.committed([TopicPartition(topic_name, each.index) for each in last], timeout=120)
    check.close()
    assert {place.partition: place.offset for place in places} == {each.index: end for each, end in last.items()}


def test_it_pauses_seeks_and_tells(kafka: KafkaUnderTest, topic_name: str, stock: bool) -> None:
    filled(kafka, topic_name)
    consumer = KafkaConsumer(settings(kafka, topic_name))
    consumer.subscribe([Topic(topic_name)])
    deadline, first = clock.now() + 180, None
    while first is None:
        assert clock.now() < deadline
        first = consumer.poll(0.2)
    assert first.offset == 0
    consumer.pause([first.partition])
    assert consumer.paused() == [first.partition]
    consumer.seek({first.partition: 3})
    consumer.resume([first.partition])
    assert consumer.tell()[first.partition] == 3
    while (again := consumer.poll(0.2)) is None or again.partition != first.partition:
        assert clock.now() < deadline
    assert again.offset == 3
    consumer.close()


class Steps(ProcessingStrategyFactory[KafkaPayload]):
    """Notes each value, then commits."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def create_with_partitions(
        self, commit: Commit, partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        def note(message: Message[KafkaPayload]) -> None:
            self.seen.append(int(message.payload.value))

        return RunTask(note, CommitOffsets(commit))


def test_its_processor_stops_and_goes_on(kafka: KafkaUnderTest, topic_name: str, stock: bool) -> None:
    """Everything once over two runs of the processor, each key in its order."""
    filled(kafka, topic_name)
    steps = Steps()

    def run(upto: int) -> None:
        processor = StreamProcessor(
            KafkaConsumer(settings(kafka, topic_name)), Topic(topic_name), steps, ONCE_PER_SECOND
        )
        deadline = clock.now() + 180
        while len(steps.seen) < upto:
            assert clock.now() < deadline
            processor._run_once()
        processor._shutdown()

    run(15)
    run(RECORDS)
    assert len(steps.seen) == RECORDS
    for key in range(5):
        assert [n for n in steps.seen if n % 5 == key] == list(range(key, RECORDS, 5))
