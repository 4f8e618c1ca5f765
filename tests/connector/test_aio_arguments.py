"""Arguments that cannot be right, given to the asyncio clients: refused as the library's own and as our other clients do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import aio
from confluent_kafka.admin import NewTopic
from keyorder import TopicAdmin
from keyorder.aio import AIOConsumer, AIOProducer
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
