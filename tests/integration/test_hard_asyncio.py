"""Asyncio applications that cancel, that call from callbacks, that leave tasks behind: nothing is lost or out of order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition, aio
from keyorder import TopicAdmin
from keyorder.aio import AIOConsumer, AIOProducer
from support.cluster import KafkaUnderTest
from support.groups import QUICK, group_config, send
from support.holding import log_values


def filled(kafka: KafkaUnderTest, topic: str, records: int) -> None:
    TopicAdmin(kafka.client_config()).create(topic, 1, config=QUICK)
    send(kafka, topic, *((f"k{n % 7}", f"{n}") for n in range(records)))


@pytest.mark.parametrize("api", [aio.AIOConsumer, AIOConsumer])
def test_a_callback_may_call_whatever_the_consumer_has(kafka: KafkaUnderTest, topic_name: str, api: Any) -> None:
    """Upstream's own example does so; from 2.16 on the client library lets a callback's thread in by its identity alone."""
    filled(kafka, topic_name, 3)
    seen: list[str] = []

    async def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        await consumer.committed(partitions, timeout=120)
        await consumer.get_watermark_offsets(partitions[0], timeout=120)
        await consumer.assignment()
        seen.append("assign")

    async def on_revoke(consumer: Any, partitions: list[TopicPartition]) -> None:
        await consumer.commit(asynchronous=False)
        await consumer.position(partitions)
        seen.append("revoke")

    async def run() -> int:
        consumer = api(group_config(kafka, topic_name, enable_auto_commit=False))
        await consumer.subscribe([topic_name], on_assign=on_assign, on_revoke=on_revoke)
        got = 0
        while got < 3:
            message = await consumer.poll(timeout=1.0)
            got += message is not None and message.error() is None
        await consumer.close()
        check = api(group_config(kafka, topic_name))
        (place,) = await check.committed([TopicPartition(topic_name, 0)], timeout=120)
        await check.close()
        return int(place.offset)

    assert asyncio.run(asyncio.wait_for(run(), 90)) == 3
    assert seen == ["assign", "revoke"]


def test_a_task_of_a_callback_takes_its_turn(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It runs on after the callback has returned: its calls are nobody's callback any more."""
    filled(kafka, topic_name, 400)
    problems: list[BaseException] = []
    inside = [0]

    async def run() -> list[int]:
        consumer = AIOConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
        real = consumer._consumer
        for name in ("take", "assignment"):
            whole = getattr(real, name)

            def counted(*arguments: Any, _whole: Any = whole) -> Any:
                inside[0] += 1
                try:
                    if inside[0] > 1:
                        problems.append(AssertionError("two calls at once"))
                    return _whole(*arguments)
                finally:
                    inside[0] -= 1

            setattr(real, name, counted)
        done = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async def afterwards() -> None:
            while not done.is_set():
                await consumer.assignment()

        async def on_assign(*_: Any) -> None:
            tasks.append(asyncio.create_task(_later(afterwards)))

        await consumer.subscribe([topic_name], on_assign=on_assign)
        found: list[int] = []
        while len(found) < 400:
            for message in await consumer.consume(3, 1.0):
                found.append(message.offset() or 0)
            await asyncio.sleep(0)
        done.set()
        await asyncio.gather(*tasks)
        await consumer.close()
        return found

    assert asyncio.run(asyncio.wait_for(run(), 90)) == list(range(400))
    assert problems == []


async def _later(function: Any) -> None:
    for _ in range(3):
        await asyncio.sleep(0.01)
    await function()


def test_cancelled_polls_lose_nothing_and_keep_the_order(kafka: KafkaUnderTest, topic_name: str) -> None:
    """wait_for() ends polls and consumes at any await; commits in between; each record comes once, in its order."""
    filled(kafka, topic_name, 3_000)
    rng = random.Random(1)

    async def run() -> list[int]:
        consumer = AIOConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
        await consumer.subscribe([topic_name])
        found: list[int] = []
        while len(found) < 3_000:
            try:
                if rng.random() < 0.5:
                    message = await asyncio.wait_for(consumer.poll(1.0), rng.random() * 0.004)
                    messages = [] if message is None else [message]
                else:
                    messages = await asyncio.wait_for(consumer.consume(20, 1.0), rng.random() * 0.004)
            except asyncio.TimeoutError:
                messages = []
            found += [message.offset() or 0 for message in messages]
            if rng.random() < 0.02 and found:
                try:
                    await consumer.commit(asynchronous=False)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing new
                        raise
        await consumer.close()
        return found

    assert asyncio.run(asyncio.wait_for(run(), 150)) == list(range(3_000))


@pytest.mark.parametrize("where", ["at the first use of a topic", "at a full queue"])
def test_tasks_that_produce_come_in_the_order_in_which_they_were_made(
    kafka: KafkaUnderTest, topic_name: str, where: str
) -> None:
    """Also where a call has to wait, and where some of those that wait are cancelled: none behind it is taken before it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    config = {**kafka.client_config(), "queue.buffering.max.messages": 20} if "full" in where else kafka.client_config()

    async def run() -> list[str]:
        producer = AIOProducer(config)
        if "full" in where:
            await producer.produce(topic_name, "first", "k")
            await producer.flush()
        waiting = []
        for number in range(400):
            waiting.append(asyncio.create_task(producer.produce(topic_name, str(number), "k")))
            if number % 50 == 7:
                await asyncio.sleep(0.001)
                waiting[-1].cancel()
                waiting[-3].cancel()
        futures = await asyncio.gather(*waiting, return_exceptions=True)
        await producer.flush()
        await producer.close()
        return [str(number) for number, future in enumerate(futures) if isinstance(future, asyncio.Future)]

    taken = asyncio.run(asyncio.wait_for(run(), 150))
    found = [str(value, "ascii") for _, value in log_values(kafka, topic_name, 0) if value not in (b"first", None)]
    assert found == sorted(found, key=int)
    assert set(taken) <= set(found)
    assert len(found) == len(set(found))
