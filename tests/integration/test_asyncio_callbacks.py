"""Callbacks of asyncio applications that raise, that are coroutines, that close: reports go on, and all is released."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from keyorder import TopicAdmin
from keyorder.aio import AIOConsumer, AIOProducer
from keyorder.partitioner.errors import KeyorderError
from support.cluster import KafkaUnderTest
from support.groups import QUICK, group_config, send

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


class Heard:
    """What the event loop's exception handler was told."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.any = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(self._take)

    def _take(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context["exception"])
        self.any.set()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 90))


@pytest.mark.parametrize(
    "error",
    [ValueError("boom"), RuntimeError("boom"), KafkaException(KafkaError(KafkaError._TRANSPORT)), SystemError()],
)
def test_reports_come_behind_an_event_callback_that_raises(
    kafka: KafkaUnderTest, topic_name: str, error: Exception
) -> None:
    """The event loop hears of it; nobody has to poll for the records that come after."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    async def main() -> None:
        heard = Heard()

        def stats(_: str) -> None:
            if not heard.errors:
                raise error

        config: dict[str, Any] = {**kafka.client_config(), "statistics.interval.ms": 20, "stats_cb": stats}
        async with AIOProducer(config) as producer:
            await heard.any.wait()
            message = await (await producer.produce(topic_name, "v", "k"))
            assert message.value() == b"v"
        assert error in heard.errors

    run(main())


@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close")
def test_records_of_a_fenced_producer_end_without_a_poll(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Their reports come behind the fatal error."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    config: dict[str, Any] = {**kafka.client_config(), "transactional.id": topic_name, "linger.ms": 50}

    async def main() -> None:
        Heard()
        old, new = AIOProducer(config), AIOProducer(config)
        await old.init_transactions()
        await old.begin_transaction()
        await (await old.produce(topic_name, "v", "k"))
        await new.init_transactions()
        waiting = [await old.produce(topic_name, "v", "k") for _ in range(100)]
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, KafkaException)
        await new.close()
        await old.close()

    run(main())


def test_a_delivery_callback_may_raise_and_may_be_a_coroutine_function(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The record's future ends all the same, and before it is called; the event loop hears what it raises."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    async def main() -> None:
        heard = Heard()
        told = asyncio.Event()

        def raising(error: KafkaError | None, message: Message) -> None:
            raise ValueError(message.value())

        async def waiting(error: KafkaError | None, message: Message) -> None:
            await asyncio.sleep(0)
            assert futures[1].result() is message
            told.set()

        async with AIOProducer(kafka.client_config()) as producer:
            futures = [await producer.produce(topic_name, "v", "k", on_delivery=each) for each in (raising, waiting)]
            for message in await asyncio.gather(*futures):
                assert message.value() == b"v"
            await told.wait()
        assert [str(error) for error in heard.errors] == ["b'v'"]

    run(main())


def test_close_releases_everything_when_callbacks_raise(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The threads end, the lease is given back, and the second time is nothing."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)

    async def main() -> None:
        Heard()

        def stats(_: str) -> None:
            raise ValueError

        config: dict[str, Any] = {**kafka.client_config(), "statistics.interval.ms": 1, "stats_cb": stats}
        producer = AIOProducer(config)
        future = await producer.produce(topic_name, "v", "k")
        with contextlib.suppress(ValueError):
            await producer.close()
        await producer.close()
        assert (await future).value() == b"v"
        assert not [thread for thread in threading.enumerate() if thread.name == "keyorder-aio-poll"]
        with pytest.raises(RuntimeError):
            producer.executor.submit(print)

    run(main())
    assert admin.describe(topic_name).writers == ()


def test_a_callback_may_close_the_producer() -> None:
    """It does not wait for itself: another call does."""

    async def main() -> None:
        closing = asyncio.Event()

        async def close(_: KafkaError) -> None:
            await producer.close()
            closing.set()

        producer = AIOProducer({**NOWHERE, "error_cb": close})
        await closing.wait()
        await producer.close()
        with pytest.raises(RuntimeError):
            await producer.poll()

    run(main())


def test_a_cancelled_close_goes_on(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Whoever calls it again waits for its end."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    async def main() -> None:
        producer = AIOProducer(kafka.client_config())
        future = await producer.produce(topic_name, "v", "k")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await producer.close()
        assert (await future).value() == b"v"
        with pytest.raises(RuntimeError):
            producer.executor.submit(print)

    run(main())


def test_a_consumer_whose_callback_raises_in_close_is_closed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its threads end; the second time is nothing."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("k", "v"))

    def revoked(*_: object) -> None:
        raise ValueError("boom")

    async def main() -> None:
        consumer = AIOConsumer(group_config(kafka, topic_name))
        await consumer.subscribe([topic_name], on_revoke=revoked)
        assert await consumer.poll() is not None
        with pytest.raises(ValueError, match="boom"):
            await consumer.close()
        assert consumer.executor is not None
        with pytest.raises(RuntimeError):
            consumer.executor.submit(print)
        await consumer.close()

    run(main())


CALLS: dict[str, Callable[[AIOProducer, str], Awaitable[object]]] = {
    "poll": lambda producer, _: producer.poll(0),
    "flush": lambda producer, _: producer.flush(),
    "list_topics": lambda producer, topic: producer.list_topics(topic, 10),
    "delivered": lambda producer, topic: delivered(producer, topic),
}


async def delivered(producer: AIOProducer, topic: str) -> Message:
    return await (await producer.produce(topic, "callback", "k"))


@pytest.mark.parametrize("workers", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("call", CALLS)
def test_callbacks_that_call_their_producer_never_wait_for_each_other(
    kafka: KafkaUnderTest, topic_name: str, call: str, workers: int
) -> None:
    """More calls than threads, and callbacks that call the producer; no more threads for it, and one callback at a time."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    async def main() -> None:
        calls = running = 0
        most_running = 0
        most = before = threading.active_count()

        async def stats(_: str) -> None:
            nonlocal calls, running, most, most_running
            running += 1
            if calls < 100:  # none may call it once it is closed
                await CALLS[call](producer, topic_name)
                calls += 1
            most, most_running = max(most, threading.active_count()), max(most_running, running)
            running -= 1

        config = {**kafka.client_config(), "statistics.interval.ms": 1, "stats_cb": stats}
        producer = AIOProducer(config, max_workers=workers)

        async def use() -> None:
            while calls < 100:
                await (await producer.produce(topic_name, "v", "k"))
                await producer.poll(0.1)

        await asyncio.gather(*(use() for _ in range(workers + 2)))
        await producer.close()
        assert most_running == 1
        assert most - before <= 20 + workers, f"{most} threads at most, {before} before"

    run(main())


def test_callbacks_wait_for_room_in_the_queue_as_other_calls_do(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Behind calls of tasks that wait for it, too: nothing that makes room waits for a callback."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    async def main() -> None:
        ended = 0
        futures: list[asyncio.Future[Message]] = []

        async def stats(_: str) -> None:
            nonlocal ended
            if ended < 20:
                for n in range(50):
                    futures.append(await producer.produce(topic_name, f"callback {n}", "k"))
            ended += 1

        config = {
            **kafka.client_config(),
            "statistics.interval.ms": 5,
            "stats_cb": stats,
            "queue.buffering.max.messages": 20,
        }
        producer = AIOProducer(config, max_workers=1)

        async def poll() -> None:
            while ended < 20:
                await producer.poll(0.1)

        async def send() -> None:
            while ended < 20:
                futures.append(await producer.produce(topic_name, "task", "k"))

        await asyncio.gather(*(poll() for _ in range(4)), *(send() for _ in range(4)))
        await producer.close()
        values = [(await future).value() for future in futures]
        assert values.count(b"callback 49") == 20
        assert b"task" in values

    run(main())


def test_close_ends_behind_the_callbacks(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What one of them awaits may raise, or be cancelled: those behind it run."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    async def main() -> None:
        heard = Heard()
        begun: list[int] = []
        ended: list[int] = []
        five = asyncio.Event()

        async def stats(_: str) -> None:
            begun.append(len(begun))
            me = begun[-1]
            if me == 5:
                five.set()
            for _ in range(me % 4):
                await asyncio.sleep(0)
            if me == 1:
                cancelled = asyncio.ensure_future(asyncio.sleep(60))
                cancelled.cancel()
                await cancelled  # the task of this callback ends as cancelled
            if me == 2:
                raise ValueError("boom")
            ended.append(me)

        config = {**kafka.client_config(), "statistics.interval.ms": 1, "stats_cb": stats}
        async with AIOProducer(config) as producer:
            await five.wait()
            await (await producer.produce(topic_name, "v", "k"))
        assert ended == [n for n in range(len(begun)) if n not in (1, 2)]
        assert [str(error) for error in heard.errors] == ["boom"]

    run(main())


def test_a_plain_callback_may_raise_what_cancelled_a_task(kafka: KafkaUnderTest) -> None:
    """The event loop hears of it, and those behind it run."""

    async def main() -> None:
        heard = Heard()
        called: list[str] = []

        def stats(text: str) -> None:
            called.append(text)
            if len(called) == 1:
                cancelled = asyncio.get_running_loop().create_future()
                cancelled.cancel()
                cancelled.result()

        async with AIOProducer({**kafka.client_config(), "statistics.interval.ms": 1, "stats_cb": stats}) as producer:
            while len(called) < 5:
                await producer.poll(0.1)
        assert [type(error) for error in heard.errors] == [asyncio.CancelledError]

    run(main())


def test_callbacks_that_close_each_others_clients_end(kafka: KafkaUnderTest) -> None:
    """Each waits until both are released, and not for the other one."""

    async def main() -> None:
        closed: list[str] = []

        async def close(_: object) -> None:
            await asyncio.gather(*(producer.close() for producer in producers))
            closed.append("")

        config = {**kafka.client_config(), "statistics.interval.ms": 20, "stats_cb": close}
        producers = [AIOProducer(config) for _ in range(2)]
        while len(closed) < 2:
            await asyncio.sleep(0.01)
        for producer in producers:
            await producer.close()
            with pytest.raises(RuntimeError):
                producer.executor.submit(print)

    run(main())


def test_a_close_whose_tasks_were_cancelled_is_made_again(kafka: KafkaUnderTest, topic_name: str) -> None:
    """As an application does that cancels all tasks, and closes its clients then."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    async def main() -> None:
        producer = AIOProducer({**kafka.client_config(), "linger.ms": 500})
        future = await producer.produce(topic_name, "v", "k")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await producer.close()
        assert (await future).value() == b"v"
        with pytest.raises(RuntimeError):
            await producer.list_topics()

    asyncio.run(main())  # `run` would be cancelled, too


def test_the_thread_ends_with_the_event_loop(kafka: KafkaUnderTest) -> None:
    """An application that forgets close() and makes a loop for each request would have one more with each."""

    async def main() -> None:
        config = {**kafka.client_config(), "statistics.interval.ms": 10, "stats_cb": lambda _: called.set()}
        called = asyncio.Event()
        producer = AIOProducer(config)
        await called.wait()
        assert producer

    run(main())
    for thread in threading.enumerate():
        if thread.name == "keyorder-aio-poll":
            thread.join(60)
            assert not thread.is_alive()


def test_calls_that_are_given_up_leave_no_threads_behind() -> None:
    """A cluster that is away, and time limits around produce(): there is one look for the topic, whoever waits for it."""

    async def main() -> None:
        producer = AIOProducer({**NOWHERE, "keyorder.control.timeout.ms": 3000})
        before = most = threading.active_count()
        for _ in range(100):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.produce("t", "v", "k"), 0.005)
            most = max(most, threading.active_count())
        assert most - before <= 5, f"{most} threads at most, {before} before"
        with pytest.raises(KeyorderError):
            await producer.produce("t", "v", "k")
        await producer.close()

    run(main())


def test_a_first_produce_needs_no_thread_of_the_executor(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It may have one, which waits for a callback that produces behind it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    TopicAdmin(kafka.client_config()).create(f"{topic_name}-out", 1, config=QUICK)

    async def main() -> None:
        inside, first = asyncio.Event(), asyncio.Event()
        with ThreadPoolExecutor(1) as executor:
            consumer = AIOConsumer(group_config(kafka, topic_name), executor=executor)
            producer = AIOProducer(kafka.client_config(), executor=executor)

            async def assigned(*_: object) -> None:
                inside.set()
                await first.wait()
                await (await producer.produce(f"{topic_name}-out", "of on_assign", "k"))

            await consumer.subscribe([topic_name], on_assign=assigned)
            sent = asyncio.Event()

            async def consume() -> None:
                while not sent.is_set():
                    await consumer.poll(0.1)

            consuming = asyncio.create_task(consume())
            await inside.wait()
            sending = asyncio.create_task(producer.produce(f"{topic_name}-out", "of a task", "k"))
            await asyncio.sleep(0)
            first.set()
            assert (await (await sending)).value() == b"of a task"
            sent.set()
            await consuming
            await consumer.close()
            await producer.close()

    run(main())


def test_a_callbacks_calls_need_no_thread_of_the_executor(kafka: KafkaUnderTest, topic_name: str) -> None:
    """All of these may be waiting for callbacks: here there is one, for two clients."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("k", "v"))

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            consumer = AIOConsumer(group_config(kafka, topic_name), executor=executor)
            producer = AIOProducer(kafka.client_config(), executor=executor)

            async def assigned(_: AIOConsumer, partitions: list[TopicPartition]) -> None:
                await consumer.committed(partitions, 10)
                await (await producer.produce(topic_name, "of on_assign", "k"))
                assert await producer.flush(10) == 0

            await consumer.subscribe([topic_name], on_assign=assigned)
            values = []
            while len(values) < 2:
                values += [message.value() for message in await consumer.consume(2)]
            assert values == [b"v", b"of on_assign"]
            await consumer.close()
            await producer.close()

    run(main())


@pytest.mark.parametrize("way", ["async with", "finally", "cancelled", "handled"])
def test_a_record_whose_handler_failed_comes_again(kafka: KafkaUnderTest, topic_name: str, way: str) -> None:
    """As with OrderedConsumer: close() takes the last record for processed unless an exception is on its way."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *(("k", str(n)) for n in range(3)))

    async def first(consumer: AIOConsumer) -> bytes:
        await consumer.subscribe([topic_name])
        while (message := await consumer.poll(1.0)) is None:
            pass
        value = message.value()
        assert value is not None
        return value

    async def main() -> None:
        config = group_config(kafka, topic_name)
        seen: list[bytes] = []

        async def fails() -> None:
            if way == "finally":
                consumer = AIOConsumer(config)
                try:
                    seen.append(await first(consumer))
                    raise ValueError
                finally:
                    await consumer.close()
            async with AIOConsumer(config) as consumer:
                seen.append(await first(consumer))
                if way == "cancelled":
                    working = asyncio.current_task()
                    assert working is not None
                    working.cancel()
                    await asyncio.Event().wait()
                if way == "async with":
                    raise ValueError

        ended = (await asyncio.gather(asyncio.create_task(fails()), return_exceptions=True))[0]
        assert isinstance(ended, (ValueError, asyncio.CancelledError)) is (way != "handled"), ended
        async with AIOConsumer(config) as consumer:
            again = await first(consumer)
        assert (again == seen[0]) is (way != "handled")

    run(main())
