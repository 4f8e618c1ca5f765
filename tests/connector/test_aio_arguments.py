"""Arguments that cannot be right, given to the asyncio clients: refused as the library's own and as our other clients do."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from confluent_kafka import aio
from confluent_kafka.admin import NewTopic
from keyorder import TopicAdmin
from keyorder.aio import AIOConsumer, AIOProducer
from keyorder.connector.producing.record_sender import RecordSender
from keyorder.connector.producing.unmanaged_topics import UnmanagedTopics
from keyorder.partitioner.errors import PartitionRefusedError
from support.cluster import KafkaUnderTest

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
LIBRARIES = pytest.mark.parametrize("library", [aio.AIOConsumer, AIOConsumer], ids=["confluent", "keyorder"])


def told(library: Any, *arguments: Any) -> list[Any]:
    """What consume() gives a consumer of nothing."""

    async def run() -> list[Any]:
        consumer = library(dict(NOWHERE))
        try:
            await consumer.subscribe(["t"])
            return list(await asyncio.wait_for(consumer.consume(*arguments), 60))
        finally:
            await consumer.close()

    return asyncio.run(run())


@LIBRARIES
@pytest.mark.parametrize("timeout", [(), (-1,), (3600,)], ids=str)
def test_no_records_are_wanted(library: Any, timeout: tuple[float, ...]) -> None:
    """They are there at once, whatever may be waited."""
    assert told(library, 0, *timeout) == []


@LIBRARIES
@pytest.mark.parametrize("count", [-1, 1_000_001])
def test_a_number_of_records_that_cannot_be(library: Any, count: int) -> None:
    """It is refused before anything is waited for."""
    with pytest.raises(ValueError, match="num_messages must be between 0 and 1000000"):
        told(library, count, 1.0)


def test_a_record_for_a_partition_adopts_no_topic(kafka: KafkaUnderTest, topic_name: str) -> None:
    """As by OrderedProducer: it goes where it is sent on a topic that is not managed, and is refused on one that is."""
    stock = kafka.admin()  # dropped, it would never answer
    stock.create_topics([NewTopic(topic_name, 2)])[topic_name].result(120)
    admin, managed = TopicAdmin(kafka.client_config()), f"{topic_name}-managed"
    admin.create(managed, 2)

    async def run() -> list[int | None]:
        async with AIOProducer(kafka.client_config()) as producer:
            calls = [producer.produce(topic_name, b"v", b"k", partition=p) for p in (1, 0, 1)]
            sent = await asyncio.gather(*await asyncio.gather(*calls))
            with pytest.raises(PartitionRefusedError):
                await producer.produce(managed, b"v", b"k", partition=1)
            return [message.partition() for message in sent]

    assert asyncio.run(asyncio.wait_for(run(), 120)) == [1, 0, 1]
    assert admin.managed(topic_name) is None


def test_where_a_record_may_go_is_not_asked_on_the_loop(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the queue is full for a time: heartbeats and all other tasks would stand still."""
    stock = kafka.admin()
    stock.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    asked: set[str] = set()
    full = iter([True, True])
    check, place = UnmanagedTopics.check, RecordSender.place

    def noted(self: UnmanagedTopics, *arguments: Any) -> None:
        asked.add(threading.current_thread().name)
        check(self, *arguments)

    def placed(self: RecordSender, *arguments: Any) -> None:
        if next(full, False):
            raise BufferError
        place(self, *arguments)

    monkeypatch.setattr(UnmanagedTopics, "check", noted)
    monkeypatch.setattr(RecordSender, "place", placed)

    async def run() -> None:
        async with AIOProducer(kafka.client_config()) as producer:
            await (await producer.produce(topic_name, b"v", partition=0))

    asyncio.run(asyncio.wait_for(run(), 120))
    assert asked
    assert threading.current_thread().name not in asked


def test_a_closed_producer_takes_no_record_for_a_partition() -> None:
    """It says so at once, as without a partition, and asks no cluster."""

    async def run() -> None:
        producer = AIOProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        await producer.close()
        with pytest.raises(RuntimeError, match="closed"):
            await producer.produce("t", b"v", partition=0)

    asyncio.run(asyncio.wait_for(run(), 120))
