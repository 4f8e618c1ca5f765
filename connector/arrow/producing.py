"""The Arrow half of an OrderedProducer: rows are routed as columns, and what must wait goes the way of single records.

Rows whose keys stay go to the client library by its C calls, partition by partition. Rows of moving keys, of keys that are
held, and those that move tombstones follow are records like produce()'s. Everything happens under the producer's lock, and
a key's rows in one chunk all go the same way, so its order is that of the rows.

A queue that is full in the middle of a chunk leaves rows behind that lie before others already taken. They are tried again,
judged anew, before any later row; if that ends in an error they count as taken and failed, like rows that the broker refuses.

While rows wait for room the callbacks of single records run. What one of them raises says nothing about the rows: it is put
off until they are taken or refused. What a signal handler raises breaks the call off.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from ...partitioner.errors import KeyBlockedError, KeyorderError
from ...partitioner.hashing import DEFAULT_HASH, key_hash
from ...partitioner.routing import Routing
from ...partitioner.writers.fast_path import InFlight
from ...partitioner.writers.sending import TopicSending
from .. import clock
from ..kafka_errors import may_still_arrive
from ..producing.reports import came_of_a_callback
from .delivery_counters import Block, Failure
from .hashing import hash_column
from .library import Library
from .sender import HeaderTypeError, Rows, most_bytes, sender
from .sending_kernels import group

if TYPE_CHECKING:
    from ..producing.producer import OrderedProducer

_CHUNK = 20_000
_ANY_KEY = -2
# How long callbacks that raise may keep rows from being tried again. Seconds.
_MOMENT = 0.1
# Hashes of blocked keys of one topic: some megabytes.
_MOST_BLOCKED = 50_000
# Dropped by purge(), by aborting, or by the library's fatal error: such rows are told of, but block no key.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class _Routes:
    """A routing as arrays over its slots.

    groups: where a slot's rows go: to which partition, or the last group, alone. hint: the epoch in which a slot's keys
    came to their home, 0 if at the start. hinted: the partitions to which keys with a hint go.
    """

    def __init__(self, routing: Routing, clears: bool) -> None:
        self.routing = routing
        routes = list(routing.all())
        self.count = max(routing.timeline.highest_count, 1 + max(route.home for route in routes)) + 1
        self.hint = np.array([route.hint for route in routes], np.int64)
        self.hinted = {route.home for route in routes if route.hint}
        alone = np.array([routing.may_wait(route) or (clears and route.hint > 0) for route in routes], np.bool_)
        home = np.array([route.home for route in routes], np.int32)
        self.groups = np.where(alone, self.count - 1, home).astype(np.int32)

    def hints(self, partition: int, placed: Any) -> Any:
        """The hint of each row that goes to a partition, 0 for none; None when no row has one."""
        if partition not in self.hinted:
            return None
        hints = np.where(placed >= 0, self.hint[placed % self.routing.period], 0)
        return hints if hints.any() else None


class ColumnProducing:
    """Rows of one producer. All but `produce` is called under the producer's lock."""

    def __init__(self, producer: OrderedProducer, library: Library | None) -> None:
        self._producer = producer
        self._sender = sender(producer._raw, library)
        self._most_bytes = most_bytes(producer._config)
        self._routes: dict[str, _Routes] = {}
        self._blocks: dict[InFlight, tuple[TopicSending[Any], Block]] = {}
        self._failures: list[Failure] = []
        self._noted: deque[Failure] = deque()
        self._refused: tuple[str, int] | None = None
        self._put_off = False
        self.blocked: dict[str, dict[int, str]] = {}

    def produce(self, topic: str, data: pa.RecordBatch | pa.Table) -> int:
        """See OrderedProducer.produce_arrow.

        The first error that a callback raises meanwhile comes out of the next poll(), flush(), close() or call of this, which
        then takes no row. KeyboardInterrupt, and what a signal handler raises outside of a callback, comes out at once: how
        many rows were taken is not told then, but rows left behind before others have failed as after any error.
        """
        if self._put_off:
            # An application that calls nothing but this has to hear of it as well: nothing is taken yet.
            self._put_off = False
            self._producer.poll(0)
        heard: list[Exception] = []
        try:
            taken = self._produce_all(topic, data, heard)
            if heard and self._producer._closed:
                raise heard[0]  # it was closed meanwhile: no later call can raise it
            return taken
        finally:
            if heard and not self._producer._closed:
                self._put_off = True
                self._producer._reports.raise_later(heard[0])
            heard.clear()  # its frames have this list, and the messages

    def _produce_all(self, topic: str, data: pa.RecordBatch | pa.Table, heard: list[Exception]) -> int:
        accepted, self._refused = 0, None
        for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
            try:
                n = self._produce_batch(topic, batch, heard)
            except Exception as raised:
                if not self._refuses(raised):
                    raise
                if accepted:
                    return accepted
                if self._refused is not None:
                    self.unblock(*self._refused)  # with this the application knows
                raise
            accepted += n
            if n < len(batch):
                break
        return accepted

    def _refuses(self, raised: BaseException) -> bool:
        """Whether it says that the next row cannot be taken. Anything else, such as a signal's, must come out at once."""
        if isinstance(raised, RuntimeError):
            return self._producer._closed
        return isinstance(raised, (BufferError, KafkaException, KeyorderError))

    def _produce_batch(self, topic: str, batch: pa.RecordBatch, heard: list[Exception]) -> int:
        producer = self._producer
        rows = Rows(batch)
        hashes = hash_column(rows.key)
        too_large = np.nonzero(rows.sizes() > self._most_bytes)[0]
        last = min(int(too_large[0]) if len(too_large) else rows.count, rows.sendable)
        if rows.count and not rows.sendable:
            raise HeaderTypeError("a header is null or has no name: give each a name, or leave it out")
        if rows.count and not last:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        sending = producer._topics.get(topic) or producer._registration.first_use(topic)
        # `hashes` names keys, whatever the topic; `placed` says where they go.
        placed = hashes
        if sending.routing.hash.name != DEFAULT_HASH:
            placed = hash_column(rows.key, sending.routing.hash)
        first = 0
        while first < last:
            end = min(last, first + _CHUNK)
            left = np.arange(first, end)
            patience = clock.now() + producer._settings.control_timeout
            while len(left):
                try:
                    with producer._lock:
                        after = self._take_counted(topic, sending, rows, hashes, placed, left)
                    if len(after) < len(left):
                        patience = clock.now() + producer._settings.control_timeout
                    elif clock.now() >= patience:
                        waited = producer._settings.control_timeout
                        raise BufferError(f"Local: Queue full (no row was taken in {waited:g} s)")
                    left = after
                    self._serve(0.01 if len(left) else 0, heard)
                except BaseException as raised:
                    taken = self._leave_behind(topic, hashes, first, end, left)
                    if taken and self._refuses(raised):
                        return taken
                    raise
            first = end
        return last

    def _serve(self, timeout: float, heard: list[Exception]) -> None:
        """What the library has delivered makes room; what waits for a layout change or a lease is awaited here.

        heard: takes the first error of a callback, no more: each keeps its frames, and they the messages.
        """
        end = clock.now() + _MOMENT
        while True:
            try:
                self._producer.poll(timeout)
                return
            except Exception as raised:
                if not came_of_a_callback(raised):
                    raise
                if not heard:
                    heard.append(raised)
                # One that raises ends the library's call. What lies behind it makes room, too.
                timeout = 0
                if clock.now() >= end:
                    return

    def _leave_behind(self, topic: str, hashes: Any, first: int, end: int, left: Any) -> int:
        """Rows `left` of [first, end) will not be sent. Returns how many rows of the batch count as taken.

        Those that lie before others which are on their way have failed, and their keys take no more. If a signal's exception
        came while they were handed over, some of them may be on their way as well.
        """
        gone = np.setdiff1d(np.arange(first, end), left, assume_unique=True)
        taken = int(gone[-1]) + 1 if len(gone) else first
        failed = KafkaError(KafkaError._FAIL, "an error stopped produce_arrow before this row, and behind later ones")
        with self._producer._lock:
            for key in hashes[left[left < taken]].tolist():
                self._failures.append(Failure(topic, -1, failed.code(), key))
                if key >= 0:
                    self._block(topic, key, failed.str())
        return taken

    def _take_counted(
        self, topic: str, sending: TopicSending[Any], rows: Rows, hashes: Any, placed: Any, wanted: Any
    ) -> Any:
        """See _take. An exception of a signal leaves counts that may be too high."""
        try:
            self.harvest()
            return self._take(topic, sending, rows, hashes, placed, wanted)
        except Exception:
            raise
        except BaseException:
            self._producer._deliveries.doubt()
            raise

    def _take(self, topic: str, sending: TopicSending[Any], rows: Rows, hashes: Any, placed: Any, wanted: Any) -> Any:
        """Take the rows `wanted`, in their order. Returns those that are left: there is no room, or no lease."""
        producer = self._producer
        if producer._closed:
            raise RuntimeError("Producer has been closed")
        producer._writer.check(topic)
        if clock.now() >= producer._writer.send_until:
            return wanted
        free = self._before_blocked(topic, hashes[wanted])
        wanted, behind = wanted[:free], wanted[free:]
        routes = self._routes.get(topic)
        if routes is None or routes.routing is not sending.routing:
            clears = producer._deliveries.tombstones.clears(topic) and sending.timeline.ordered
            routes = self._routes[topic] = _Routes(sending.routing, clears)
        alone: np.ndarray[Any, Any] = np.zeros(0, np.bool_)
        if sending.held_keys:
            held = [-1 if key is None else key_hash(key) for key in sending.held_keys]
            alone = np.isin(hashes[wanted], held)
        unkeyed = producer._record_sender.place_unkeyed(topic, sending)
        counts, order = np.zeros(routes.count, np.int64), np.empty(len(wanted), np.int64)
        places = np.empty(len(wanted), np.int64)
        group(placed, wanted, alone, routes.groups, unkeyed, places, counts, order)
        sent = self._send(topic, sending, rows, routes, placed, counts, order)
        return np.concatenate([np.sort(order[sent:]), behind]) if sent < len(order) else behind

    def _send(
        self, topic: str, sending: TopicSending[Any], rows: Rows, routes: _Routes, placed: Any, counts: Any, order: Any
    ) -> int:
        """Rows `order`, group by group. Returns how many were taken; raises only when none was."""
        at = 0
        try:
            for p in np.flatnonzero(counts).tolist():
                index = order[at : at + int(counts[p])]
                if p == routes.count - 1:
                    for row in index.tolist():
                        if not self._producer._record_sender.take_row(topic, sending, *rows.row(row)):
                            return at
                        at += 1
                    continue
                in_flight, hints = sending.in_flight(p), routes.hints(p, placed[index])
                block = self._count_in(topic, sending, in_flight)
                # Counted first, as single records are: READY must not come too early.
                in_flight.unresolved += len(index)
                try:
                    n = self._sender.send(topic, rows, p, block, hints, index)
                except Exception:
                    in_flight.unresolved -= len(index)
                    raise
                in_flight.unresolved -= len(index) - n
                at += n
                if n < len(index):
                    break
        except (KafkaException, KeyorderError):
            if not at:
                raise
        return at

    def _count_in(self, topic: str, sending: TopicSending[Any], in_flight: InFlight) -> int:
        """What rows have to carry that are counted here."""
        if in_flight not in self._blocks:
            self._blocks[in_flight] = sending, self._sender.counters.block(topic, in_flight.partition)
        return self._blocks[in_flight][1].opaque

    def _before_blocked(self, topic: str, hashes: Any) -> int:
        """How many rows come before the first whose key is blocked. Raises KeyBlockedError if that is the first one."""
        self._take_over_blocked(topic)
        mine = list(self.blocked.get(topic, ()))
        if not mine:
            return len(hashes)
        found = np.nonzero(np.isin(hashes, mine))[0] if _ANY_KEY not in mine else np.zeros(1, np.int64)
        if len(found) and not found[0]:
            self._refused = topic, _ANY_KEY if _ANY_KEY in mine else int(hashes[0])
            raise KeyBlockedError(topic, self.blocked[topic][self._refused[1]])
        return int(found[0]) if len(found) else len(hashes)

    def _take_over_blocked(self, topic: str) -> None:
        blocked = self._producer._deliveries.blocked
        if blocked.all_blocked(topic):
            blocked.refuse(topic, b"")
        for key, why in blocked.take(topic):
            self.blocked.setdefault(topic, {}).setdefault(key_hash(key), why)

    def note(self, topic: str, partition: int, code: int, key: bytes | None) -> None:
        """A row that went as a single record has failed, or was dropped while it was held. With or without the lock."""
        self._noted.append(Failure(topic, partition, code, -1 if key is None else key_hash(key)))

    def refuse(self, topic: str, hashed: int) -> None:
        """Raise once for a blocked key: with this the application knows."""
        mine = self.blocked.get(topic, {})
        for key in (hashed, _ANY_KEY):
            if key in mine:
                detail = mine[key]
                self.unblock(topic, key)
                raise KeyBlockedError(topic, detail)

    def unblock(self, topic: str, hashed: int) -> None:
        """The application knows."""
        mine = self.blocked.get(topic)
        if mine is not None:
            mine.pop(hashed, None)
            if not mine:
                del self.blocked[topic]

    def harvest(self) -> None:
        """Take in what has become of rows: counts first, and then the failures that they include."""
        for in_flight, (sending, block) in self._blocks.items():
            in_flight.unresolved -= block.harvest()
            if block.acknowledged > sending.acknowledged.get(block.partition, 0):
                sending.acknowledged[block.partition] = block.acknowledged
        failures, lost = self._sender.counters.failures()
        self._failures += failures
        while self._noted:
            self._failures.append(self._noted.popleft())
        for failure in failures:
            settings = self._producer._settings
            late = may_still_arrive(failure.code, settings.transactional_id is not None)
            for in_flight, (_, block) in self._blocks.items():
                if late and (block.topic, block.partition) == (failure.topic, failure.partition):
                    in_flight.settles_at = clock.now() + settings.request_timeout
            if failure.code in _PURGED:
                continue
            text = KafkaError(failure.code).str()
            if failure.key_hash >= 0:
                self._block(failure.topic, failure.key_hash, text)
                self._producer._record_sender.drop_behind(failure.topic, failure.key_hash, failure.code)
        if lost:
            for topic in {block.topic for _, block in self._blocks.values()}:
                self._block(topic, _ANY_KEY, "more records failed at once than could be noted")
        for in_flight, (sending, block) in list(self._blocks.items()):
            if not in_flight.on_the_way() and not sending.is_current(in_flight):
                del self._blocks[in_flight]
                self._sender.counters.release(block)

    def _block(self, topic: str, hashed: int, why: str) -> None:
        mine = self.blocked.setdefault(topic, {})
        if len(mine) >= _MOST_BLOCKED:
            hashed, why = _ANY_KEY, f"records of more keys have failed than are kept in mind; the last: {why}"
            mine.clear()
        if _ANY_KEY not in mine:
            mine[hashed] = why
        self._producer._record_sender.topics[topic].shut_fast_path()

    def failures(self) -> list[Failure]:
        """Rows that failed since the last call; their keys are free again, since the application knows now."""
        self.harvest()
        failures, self._failures = self._failures, []
        for failure in failures:
            self._take_over_blocked(failure.topic)
            self.unblock(failure.topic, failure.key_hash)
        return failures

    def forget_purged(self) -> None:
        """Rows of a transaction that the application has aborted: it knows.

        Only there: the library's fatal error purges what is queued as well, and a purge that nobody asked for is a failure.
        """
        self.harvest()
        self._failures = [failure for failure in self._failures if failure.code not in _PURGED]

    def close(self) -> None:
        """Release what was opened, before the producer is closed."""
        self._sender.close()
