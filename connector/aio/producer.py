"""AIOProducer: OrderedProducer for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from ..messages import Headers
from ..producing.producer import OrderedProducer
from .calling import in_any_callback, start
from .events import EventCallbacks, in_event_callback

_POLL = 0.1
# Seconds after an exception: one that came with every poll would fill the event loop.
_PAUSE = 0.01


class _Turn:
    """Whose record of a topic is next. calls: those that wait for it and the one that has it."""

    __slots__ = ("calls", "lock")

    def __init__(self) -> None:
        self.calls, self.lock = 0, asyncio.Lock()


class AIOProducer:
    """An OrderedProducer whose methods are coroutines. Used as confluent_kafka.aio.AIOProducer, with the same settings.

    A thread serves delivery reports and events. `error_cb`, `throttle_cb` and `stats_cb`, plain or coroutine functions, run
    on the event loop, one by one; they may await any call of the producer. Only close() waits for them: one may be running
    when poll() or flush() returns. What they raise the loop's exception handler hears.
    The client library batches by itself (`linger.ms`, `batch.size`), so `batch_size` and `buffer_timeout` are taken and not
    needed. Unlike the library's own class this one takes headers.
    Raises ConfigError as OrderedProducer does.
    """

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        if batch_size <= 0:
            raise ValueError("batch_size must be positive")
        self._loop = asyncio.get_running_loop()
        self._own_executor = ThreadPoolExecutor(max_workers) if executor is None else None
        self.executor: Executor = executor or self._own_executor  # type: ignore[assignment]  # one of them is there
        self._events = EventCallbacks(self._loop)
        self._producer = OrderedProducer(self._events.wrapped(producer_conf))
        self._turns: dict[str, _Turn] = {}
        self._telling: set[asyncio.Future[Any]] = set()  # the loop itself keeps no task alive
        self._joining: dict[str, asyncio.Future[None]] = {}
        self._ending: tuple[asyncio.Future[None], asyncio.Task[None]] | None = None  # the client's end, and all
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._serve, name="keyorder-aio-poll", daemon=True)
        self._poller.start()

    async def __aenter__(self) -> AIOProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __len__(self) -> int:
        return 0 if self._closing.is_set() else len(self._producer)

    def __bool__(self) -> bool:
        return True

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Headers | dict[str, Any] | None = None,
        on_delivery: Callable[[KafkaError | None, Message], Any] | None = None,
        callback: Callable[[KafkaError | None, Message], Any] | None = None,
    ) -> asyncio.Future[Message]:
        """Queue a record. Returns a future of the delivered message, or of the KafkaException why it was not.

        Waits while the queue is full, and calls for the same topic behind it: records go in the order of the calls, also
        those of several tasks. Raises as OrderedProducer.produce.
        """
        future: asyncio.Future[Message] = self._loop.create_future()
        on_delivery = callback if on_delivery is None else on_delivery  # two names of one, as Producer.produce has them

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._loop.call_soon_threadsafe(self._settle, future, error, message, on_delivery)

        def queued() -> bool:
            try:
                self._producer.produce(
                    topic, value, key, partition, on_delivery=delivered, timestamp=timestamp, headers=headers
                )
            except BufferError:
                return False
            return True

        if topic not in self._turns and self._producer.has_joined(topic) and queued():
            return future
        if partition >= 0 and not self._producer._settings.allow_explicit_partition:
            # Such a record makes nobody a writer of the topic, and adopts none.
            async with self._turn_of(topic):
                await self._place(topic, partition, queued)
            return future
        async with self._turn_of(topic):
            # The first use of a topic talks to the cluster. A call that is cancelled meanwhile has taken nothing.
            while not self._producer.has_joined(topic):
                # On a thread of its own: those of the executor may be waiting, in a consumer's callbacks, for calls that
                # come behind this one.
                await asyncio.shield(self._joining_of(topic))
            while not queued():
                await asyncio.sleep(0.01)
        return future

    async def poll(self, timeout: float = 0) -> int:
        """As OrderedProducer.poll; delivery reports are served without it."""
        return int(await self._call(self._producer.poll, timeout))

    async def flush(self, timeout: float = -1) -> int:
        """As OrderedProducer.flush."""
        return int(await self._call(self._producer.flush, timeout))

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """As OrderedProducer.purge; the futures of what is dropped fail."""
        await self._call(self._producer.purge, in_queue, in_flight, blocking)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """As OrderedProducer.list_topics."""
        return await self._call(self._producer.list_topics, topic, timeout)

    async def cluster_id(self, timeout: float = -1) -> str:
        """As OrderedProducer.cluster_id."""
        return str(await self._call(self._producer.cluster_id, timeout))

    async def init_transactions(self, timeout: float = -1) -> None:
        """As OrderedProducer.init_transactions."""
        await self._call(self._producer.init_transactions, timeout)

    async def begin_transaction(self) -> None:
        """As OrderedProducer.begin_transaction, when everything before it is delivered."""
        await self.flush()
        await self._call(self._producer.begin_transaction)

    async def send_offsets_to_transaction(self, positions: list[Any], group_metadata: Any, timeout: float = -1) -> None:
        """As OrderedProducer.send_offsets_to_transaction."""
        await self._call(self._producer.send_offsets_to_transaction, positions, group_metadata, timeout)

    async def commit_transaction(self, timeout: float = -1) -> None:
        """As OrderedProducer.commit_transaction."""
        await self._call(self._producer.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float = -1) -> None:
        """As OrderedProducer.abort_transaction."""
        await self._call(self._producer.abort_transaction, timeout)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """As OrderedProducer.set_sasl_credentials."""
        await self._call(self._producer.set_sasl_credentials, username, password)

    async def close(self) -> None:
        """Deliver everything, release all resources, wait for event callbacks; then raise what was raised meanwhile.

        It goes on when this call is cancelled, and another call waits for its end. In a callback, of whatever client, it
        waits for no event callbacks: they may wait for that one.
        """
        ending = self._ending
        if ending is None or ending[1].cancelled():
            # On one thread of its own: those of the executor may be waiting, in a consumer's callbacks, for this producer,
            # and whoever cancels all tasks does not cancel this.
            self._closing.set()
            releasing = start(None, None, self._release) if ending is None else ending[0]
            ending = self._ending = releasing, asyncio.create_task(self._end(releasing))
        elif ending[1].done():
            return
        released, ended = ending
        await asyncio.wait({released})
        if not (in_event_callback() or in_any_callback()):
            await asyncio.wait({ended})
        released.result()

    def _release(self) -> None:
        self._poller.join()
        self._producer.close()

    async def _end(self, releasing: asyncio.Future[None]) -> None:
        await asyncio.wait({releasing})
        await self._events.end()
        if self._own_executor is not None:
            self._own_executor.shutdown(wait=False)

    async def _place(self, topic: str, partition: int, queued: Callable[[], bool]) -> None:
        """Queue a record for a partition that the caller names. Whether it may go the cluster is asked, and produce() may ask
        once more, so that both run on a thread. A call that is cancelled while it is asked has taken nothing.
        """
        given_up = threading.Event()

        def placed() -> bool:
            if self._closing.is_set():
                raise RuntimeError("Producer has been closed")
            self._producer._unmanaged.check(topic, partition)
            return given_up.is_set() or queued()

        try:
            while not await start(None, None, placed):
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _joining_of(self, topic: str) -> asyncio.Future[None]:
        """One for all calls that wait for it; it goes on without them."""
        joining = self._joining.get(topic)
        if joining is None:
            joining = self._joining[topic] = start(None, None, self._producer.join, topic)
            joining.add_done_callback(partial(self._joined, topic))
        return joining

    def _joined(self, topic: str, joining: asyncio.Future[None]) -> None:
        del self._joining[topic]
        if not joining.cancelled():
            joining.exception()  # whoever waits for it hears of it, and nobody may be waiting

    @asynccontextmanager
    async def _turn_of(self, topic: str) -> AsyncIterator[None]:
        """First come, first served. A topic is among the turns as long as a call waits for one, or has it."""
        turn = self._turns.setdefault(topic, _Turn())
        turn.calls += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.calls -= 1
            if not turn.calls:
                del self._turns[topic]

    async def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await start(self.executor, None, function, *arguments, **named)

    def _serve(self) -> None:
        """Until it is closed: behind what a callback raises, and behind a fatal error, come the reports of other records."""
        while not (self._closing.is_set() or self._loop.is_closed()):
            try:
                self._producer.poll(_POLL)
            except BaseException as raised:
                try:
                    self._loop.call_soon_threadsafe(
                        self._loop.call_exception_handler,
                        {"message": "exception while delivery reports were served", "exception": raised},
                    )
                except RuntimeError:
                    return  # the loop is closed: nobody is left to hear of a record
                self._closing.wait(_PAUSE)

    def _settle(
        self,
        future: asyncio.Future[Message],
        error: KafkaError | None,
        message: Message,
        on_delivery: Callable[[KafkaError | None, Message], Any] | None,
    ) -> None:
        """On the loop, which hears what `on_delivery` raises."""
        if not future.done():  # else cancelled by its owner
            if error is not None:
                future.set_exception(KafkaException(error))
            else:
                future.set_result(message)
        result = None if on_delivery is None else on_delivery(error, message)
        if inspect.isawaitable(result):
            telling = asyncio.ensure_future(result)
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
