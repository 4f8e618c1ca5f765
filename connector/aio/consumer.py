"""AIOConsumer: OrderedConsumer for asyncio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any

from confluent_kafka import Message, TopicPartition

from .. import clock
from ..consuming.consumer import OrderedConsumer
from ..consuming.gates.gate_status import Gate
from ..consuming.listener import KeyRebalanceListener
from .calling import in_callback, on_loop, start, with_callbacks

# The consumer is one thread's at a time; a long poll is cut, so that a commit or a pause gets its turn.
_SLICE = 0.1
# So long calls may follow each other without the event loop's other tasks. Seconds.
_GIVE_WAY = 0.001


class AIOConsumer:
    """An OrderedConsumer whose methods are coroutines. Used as confluent_kafka.aio.AIOConsumer, with the same settings.

    Calls take turns. Callbacks, plain or coroutine functions, run on the event loop; they may call the consumer.
    What a callback awaits runs on a thread of its own, not on the executor's: the call that caused it waits there.
    Raises ConfigError as OrderedConsumer does.
    """

    def __init__(
        self, consumer_conf: Mapping[str, Any], max_workers: int = 100, executor: Executor | None = None
    ) -> None:
        if max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._loop = asyncio.get_running_loop()
        self._own_executor = ThreadPoolExecutor(min(max_workers, 8)) if executor is None else None
        self.executor = executor or self._own_executor
        self._consumer = OrderedConsumer(with_callbacks(consumer_conf, self._loop, self._identity))
        self._turn = asyncio.Lock()
        self._closed = False
        self._gave_way = 0.0

    async def __aenter__(self) -> AIOConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _identity(self) -> int:
        return self._consumer.turns

    async def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await self._run(None, function, *arguments, **named)

    async def _run(
        self, then: Callable[[Any], None] | None, function: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        """A call on a thread, and `then` with its result before anybody else's turn, unless it was cancelled."""
        if self._closed:
            raise RuntimeError("Consumer closed")
        assert self.executor is not None
        callback = in_callback(self._identity())
        turn = self._turn if callback is None else callback.lock
        await turn.acquire()
        if callback is not None and callback.over:
            turn.release()
            return await self._run(then, function, *arguments, **named)
        try:
            running = start(self.executor, callback, function, *arguments, **named)
        except BaseException:
            turn.release()
            raise
        try:
            result = await asyncio.shield(running)
            if then is not None:
                then(result)
        except asyncio.CancelledError:
            # The thread goes on, and nobody else's call may come in between.
            running.add_done_callback(partial(_end, turn))
            raise
        except BaseException:
            turn.release()
            raise
        turn.release()
        return result

    async def poll(self, timeout: float = -1) -> Message | None:
        """As OrderedConsumer.poll. What is ready comes without a thread; others still get the loop every millisecond."""
        if not (self._closed or self._turn.locked()) and in_callback(self._identity()) is None:
            now = clock.now()
            if now - self._gave_way >= _GIVE_WAY:
                await asyncio.sleep(0)
                self._gave_way = clock.now()
            # From here on nothing is awaited, so that no cancellation can take the record.
            message = None if self._turn.locked() else self._consumer.given(ahead=False)
            if message is not None:
                return message
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        found: list[Message | None] = [None]

        def give(prepared: bool) -> None:
            found[0] = self._consumer.given() if prepared else None

        while True:
            # What a cancelled call has prepared is not given out: the next one gets it.
            await self._run(give, self._consumer.prepare, _left(deadline))
            self._gave_way = clock.now()
            if found[0] is not None or (deadline is not None and clock.now() >= deadline):
                return found[0]

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As OrderedConsumer.consume, but returns soon after the first record, as the client library does."""
        # take() does not look: consume() does it before it.
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        if num_messages == 0:
            timeout = 0
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            # What a cancelled call has taken was not accepted: the next one gets it.
            taken = await self._run(
                lambda taken: self._consumer.accept(taken[1]), self._consumer.take, num_messages, _left(deadline)
            )
            messages: list[Message] = taken[0]
            if messages or (deadline is not None and clock.now() >= deadline):
                return messages

    async def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
        listener: KeyRebalanceListener | None = None,
    ) -> None:
        """As OrderedConsumer.subscribe; callbacks are given this consumer. A listener runs on the consumer's thread."""

        def bound(callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
            if callback is None:
                return None
            return on_loop(self._loop, lambda _, places: callback(self, places), self._identity)

        await self._call(self._consumer.subscribe, topics, bound(on_assign), bound(on_revoke), bound(on_lost), listener)

    async def unsubscribe(self) -> None:
        """As OrderedConsumer.unsubscribe."""
        await self._call(self._consumer.unsubscribe)

    async def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """As OrderedConsumer.store_offsets."""
        await self._call(self._consumer.store_offsets, message, offsets)

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool | None = None,
        **named: bool,
    ) -> list[TopicPartition] | None:
        """As OrderedConsumer.commit."""
        result: list[TopicPartition] | None = await self._call(
            self._consumer.commit, message, offsets, asynchronous, **named
        )
        return result

    async def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As OrderedConsumer.committed."""
        found: list[TopicPartition] = await self._call(self._consumer.committed, partitions, timeout)
        return found

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """As OrderedConsumer.position."""
        found: list[TopicPartition] = await self._call(self._consumer.position, partitions)
        return found

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """As OrderedConsumer.assign."""
        await self._call(self._consumer.assign, partitions)

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As OrderedConsumer.incremental_assign."""
        await self._call(self._consumer.incremental_assign, partitions)

    async def unassign(self) -> None:
        """As OrderedConsumer.unassign."""
        await self._call(self._consumer.unassign)

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As OrderedConsumer.incremental_unassign."""
        await self._call(self._consumer.incremental_unassign, partitions)

    async def assignment(self) -> list[TopicPartition]:
        """As OrderedConsumer.assignment."""
        found: list[TopicPartition] = await self._call(self._consumer.assignment)
        return found

    async def seek(self, partition: TopicPartition) -> None:
        """As OrderedConsumer.seek."""
        await self._call(self._consumer.seek, partition)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """As OrderedConsumer.pause."""
        await self._call(self._consumer.pause, partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """As OrderedConsumer.resume."""
        await self._call(self._consumer.resume, partitions)

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """As OrderedConsumer.get_watermark_offsets."""
        found: tuple[int, int] | None = await self._call(
            self._consumer.get_watermark_offsets, partition, timeout, cached
        )
        return found

    async def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As OrderedConsumer.offsets_for_times."""
        found: list[TopicPartition] = await self._call(self._consumer.offsets_for_times, partitions, timeout)
        return found

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """As OrderedConsumer.list_topics."""
        return await self._call(self._consumer.list_topics, topic, timeout)

    async def cluster_id(self, timeout: float = -1) -> str:
        """As OrderedConsumer.cluster_id."""
        return str(await self._call(self._consumer.cluster_id, timeout))

    async def consumer_group_metadata(self) -> Any:
        """As OrderedConsumer.consumer_group_metadata."""
        return await self._call(self._consumer.consumer_group_metadata)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """As OrderedConsumer.set_sasl_credentials."""
        await self._call(self._consumer.set_sasl_credentials, username, password)

    async def gates(self) -> list[Gate]:
        """As OrderedConsumer.gates."""
        found: list[Gate] = await self._call(self._consumer.gates)
        return found

    async def close(self) -> None:
        """As OrderedConsumer.close."""
        if self._closed:
            return
        closing: Callable[[], None] = self._consumer.close
        if sys.exc_info()[0] is not None:  # on its way through the caller: the thread that closes does not see it
            closing = partial(_close_amid, self._consumer)
        try:
            await self._call(closing)
        except Exception:
            self._release()  # it is closed, and tells what a callback has raised
            raise
        self._release()

    def _release(self) -> None:
        self._closed = True
        if self._own_executor is not None:
            self._own_executor.shutdown(wait=False)


class _OnItsWay(Exception):
    """Stands for an exception of the event loop's thread."""


def _close_amid(consumer: OrderedConsumer) -> None:
    """Close while an exception is on its way through the caller: what was returned last was not processed."""
    try:
        raise _OnItsWay
    except _OnItsWay:
        consumer.close()


def _left(deadline: float | None) -> float:
    """How long the next slice of a call may take."""
    return _SLICE if deadline is None else max(0.0, min(_SLICE, deadline - clock.now()))


def _end(turn: asyncio.Lock, done: asyncio.Future[Any]) -> None:
    turn.release()
    if not done.cancelled():
        done.exception()  # nobody waits for it: it counts as seen
