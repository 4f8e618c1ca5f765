"""FastStream's confluent broker on the ordered clients: publish with a key, subscribe, reply, batches.

Its defaults `enable_idempotence=False` and `partitioner="consistent_random"` are refused by ours.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest

pytest.importorskip("faststream.confluent", reason="needs the extra `parity`")
from faststream.confluent import KafkaBroker
from faststream.confluent.helpers import client

WAIT = 180.0
OURS = ((client, "Consumer", OrderedConsumer), (client, "Producer", OrderedProducer))


def test_a_subscriber_that_publishes_on(kafka: KafkaUnderTest, topic_name: str, stock: bool) -> None:
    """Each key in its order through a subscriber with a reply topic; publish() returns when the record is acknowledged."""
    topics = topic_name, f"{topic_name}.out"
    for topic in topics:
        TopicAdmin(kafka.client_config()).create(topic, 2)

    async def run() -> list[tuple[bytes, str]]:
        broker = KafkaBroker(kafka.bootstrap_servers, enable_idempotence=True, partitioner="murmur2_random")
        seen: list[tuple[bytes, str]] = []
        all_seen = asyncio.Event()

        @broker.subscriber(topics[0], group_id=topics[0], auto_offset_reset="earliest")
        @broker.publisher(topics[1])
        async def double(number: int) -> int:
            return 2 * number

        @broker.subscriber(topics[1], group_id=topics[1], auto_offset_reset="earliest")
        async def note(number: int) -> None:
            seen.append((b"", str(number)))
            if len(seen) == 20:
                all_seen.set()

        async with broker:
            await broker.start()
            assert await broker.ping(WAIT)
            for n in range(20):
                sent = await broker.publish(n, topics[0], key=b"k")
                assert sent.offset() >= 0
            await asyncio.wait_for(all_seen.wait(), WAIT)
        return seen

    assert sorted(int(number) for _, number in asyncio.run(run())) == [2 * n for n in range(20)]


def test_batches(kafka: KafkaUnderTest, topic_name: str, stock: bool) -> None:
    TopicAdmin(kafka.client_config()).create(topic_name, 1)

    async def run() -> list[Any]:
        broker = KafkaBroker(kafka.bootstrap_servers, enable_idempotence=True, partitioner="murmur2_random")
        seen: list[Any] = []
        all_seen = asyncio.Event()

        @broker.subscriber(topic_name, group_id=topic_name, auto_offset_reset="earliest", batch=True)
        async def note(numbers: list[int]) -> None:
            seen.extend(numbers)
            if len(seen) == 10:
                all_seen.set()

        async with broker:
            await broker.start()
            await broker.publish_batch(*range(10), topic=topic_name)
            await asyncio.wait_for(all_seen.wait(), WAIT)
        return seen

    assert sorted(asyncio.run(run())) == list(range(10))
