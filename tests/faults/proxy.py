"""A network between clients and brokers that can be told what to do with single Kafka messages.

A proxy stands before each listener of a broker. It reads whole messages, knows from a request's header what is asked and
by whom, and from the number in an answer's header which request it answers. Rules decide what happens to a message:

    hold      it waits, and all behind it on its connection, until the rule is lifted; then it arrives, late. Both ends
              may have given the connection up meanwhile: the broker then gets a request that nobody waits for any more.
    cut       it is not passed on, and its connection is reset. For an answer: the request was carried out, nobody knows.
    delay     it arrives later, by the rule's seconds on average
    throttle  its connection carries so many bytes per second
    disown    an answer to OffsetFetch becomes NOT_COORDINATOR, as from a broker from which the group has gone

The proxies run on a thread of their own.
"""

from __future__ import annotations

import asyncio
import random
import re
import struct
import threading
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError
from keyorder.connector import clock
from keyorder.connector.local.properties import HOST

# The numbers of requests in Kafka's protocol.
APIS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "SyncGroup": 14,
    "ApiVersions": 18,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "WriteTxnMarkers": 27,
    "TxnOffsetCommit": 28,
    "ConsumerGroupHeartbeat": 68,
}
_NAMES = {number: name for name, number in APIS.items()}


class Way(Enum):
    """Which way a message goes."""

    REQUEST = "request"
    ANSWER = "answer"


class Effect(Enum):
    """What a rule does to a message."""

    HOLD = "hold"
    CUT = "cut"
    DELAY = "delay"
    THROTTLE = "throttle"
    DISOWN = "disown"


@dataclass(eq=False)
class Rule:
    """What happens to which messages.

    apis: names as in APIS, None for all. clients: a regular expression that the whole client.id fits, None for all.
    brokers: ids, None for all. amount: seconds of a delay, bytes per second of a throttle. share: of the messages that
    fit, at random. limit: so many messages, then the rule does nothing any more. `hits`: the times (of keyorder's clock)
    at which it did something.
    """

    effect: Effect
    way: Way
    apis: frozenset[str] | None = None
    clients: str | None = None
    brokers: frozenset[int] | None = None
    amount: float = 0.0
    share: float = 1.0
    limit: int | None = None
    seed: int = 0
    hits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        unknown = (self.apis or frozenset()) - APIS.keys()
        if unknown:
            raise ValueError(f"no such requests: {sorted(unknown)}")
        if self.effect is Effect.DISOWN and (self.way, self.apis) != (Way.ANSWER, frozenset({"OffsetFetch"})):
            raise ValueError("only answers to OffsetFetch can be disowned")
        self._pattern = None if self.clients is None else re.compile(self.clients)
        self._chance = random.Random(self.seed)

    def concerns(self, way: Way, broker: int, client: str, api: str | None) -> bool:
        """Whether it is about such a message. api None: an end of the connection, which only a hold of all can hide."""
        if way is not self.way or (self.brokers is not None and broker not in self.brokers):
            return False
        if self._pattern is not None and not self._pattern.fullmatch(client):
            return False
        if self.limit is not None and len(self.hits) >= self.limit:
            return False
        if self.apis is not None and api not in self.apis:
            return False
        return self.share >= 1.0 or self._chance.random() < self.share

    def lateness(self, size: int) -> float:
        """Seconds by which a message of that many bytes is late."""
        if self.effect is Effect.THROTTLE:
            return size / self.amount
        return self._chance.uniform(0, 2 * self.amount)


def request_header(message: bytes) -> tuple[str, int, str]:
    """(request, correlation id, client.id) of a request, without its length; ValueError if it has no such header."""
    if len(message) < 10:
        raise ValueError(f"{len(message)} bytes are no request")
    api, _, correlation, length = struct.unpack_from(">hhih", message)
    client = message[10 : 10 + max(0, length)].decode("utf-8", "replace")
    return _NAMES.get(api, str(api)), correlation, client


def disowned(answer: bytes, version: int) -> bytes:
    """The same answer to an OffsetFetch of one group, with NOT_COORDINATOR and no offsets. ValueError for other versions."""
    # Number, no tags, throttle time, one group with a short name.
    if version not in (8, 9) or answer[4] != 0 or answer[9] != 2 or not 0 < answer[10] < 0x80:
        raise ValueError(f"no answer to an OffsetFetch of version 8 or 9 with one group: {version}, {answer[:20]!r}")
    no_topics, no_tags = b"\1", b"\0"
    return answer[: 10 + answer[10]] + no_topics + struct.pack(">h", KafkaError.NOT_COORDINATOR) + 2 * no_tags


async def read_message(stream: asyncio.StreamReader) -> bytes | None:
    """The next message without its length; None where the stream ends."""
    try:
        (size,) = struct.unpack(">i", await stream.readexactly(4))
        return await stream.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class Reset(Exception):
    """The connection is to be cut off."""


@dataclass
class Link:
    """One connection through a proxy. client: its client.id, once a request has told it."""

    broker: int
    client: str = ""
    asked: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The request and its version, by the number of the answer."""


class Network:
    """All proxies and the rules in force. Use as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._rules: dict[Rule, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.seen: set[tuple[str, str]] = set()
        """Every (client.id, request) that has passed."""

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self, broker: int, target: int) -> int:
        """Put a proxy before a broker's port; its own port."""
        return self._call(self._listen(broker, target))

    def apply(self, rules: Iterable[Rule]) -> None:
        """Put rules in force."""
        self._call(self._set(list(rules)))

    def lift(self, rules: Iterable[Rule]) -> None:
        """Take rules back; what they hold goes on."""
        self._call(self._unset(list(rules)))

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def _set(self, rules: list[Rule]) -> None:
        self._rules.update((rule, asyncio.Event()) for rule in rules)

    async def _unset(self, rules: list[Rule]) -> None:
        for rule in rules:
            lifted = self._rules.pop(rule, None)
            if lifted is not None:
                lifted.set()

    async def _listen(self, broker: int, target: int) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await self._serve(Link(broker), target, reader, writer)

        server = await asyncio.start_server(connected, HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, link: Link, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection(HOST, target)
        except OSError:
            writer.transport.abort()  # the broker is down: a client sees its connection refused or reset
            return
        pumps = [
            asyncio.ensure_future(self._pump(link, Way.REQUEST, reader, requests)),
            asyncio.ensure_future(self._pump(link, Way.ANSWER, answers, writer)),
        ]
        try:
            await asyncio.gather(*pumps)
        except (Reset, OSError):  # its end may have gone by the time that it is shut
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.transport.abort()
            requests.transport.abort()

    async def _pump(self, link: Link, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass messages on until one side ends. Returns when its sender has ended; Reset when its receiver is to see it."""
        while (message := await read_message(source)) is not None:
            message = await self._pass(link, way, message)
            sink.write(struct.pack(">i", len(message)) + message)
            await sink.drain()
        await self._pass(link, way, None)
        if way is Way.ANSWER:
            raise Reset
        sink.write_eof()

    async def _pass(self, link: Link, way: Way, message: bytes | None) -> bytes:
        """Do to a message, or to the end of the connection (None), what the rules say; what is to be passed on."""
        api, version = None, 0
        if message is not None and way is Way.REQUEST:
            api, correlation, link.client = request_header(message)
            link.asked[correlation] = api, struct.unpack_from(">h", message, 2)[0]
            self.seen.add((link.client, api))
        elif message is not None:
            api, version = link.asked.pop(struct.unpack_from(">i", message)[0], ("?", 0))
        for rule, lifted in list(self._rules.items()):
            if not rule.concerns(way, link.broker, link.client, api) or lifted.is_set():
                continue
            if message is None and rule.effect is not Effect.HOLD:
                continue
            rule.hits.append(clock.now())
            if rule.effect is Effect.CUT:
                raise Reset
            if rule.effect is Effect.HOLD:
                await lifted.wait()
            elif rule.effect is Effect.DISOWN:
                message = disowned(message or b"", version)
            else:
                await _either(lifted, rule.lateness(len(message or b"")))
        return message or b""


async def _either(lifted: asyncio.Event, seconds: float) -> None:
    """Wait so long, and not beyond the end of the rule."""
    try:
        await asyncio.wait_for(lifted.wait(), seconds)
    except asyncio.TimeoutError:  # not the built-in one in Python 3.10
        pass
