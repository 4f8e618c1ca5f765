"""The Arrow half of an OrderedProducer: rows are routed as columns, and what must wait goes the way of single records.

Whole runs of rows whose keys stay go to the client library by its C calls. Rows of moving keys, of keys that are held,
and those that move tombstones follow are records like produce()'s. Everything happens under the producer's lock, and a
key's rows in one chunk all go the same way, so its order is that of the rows.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from ...partitioner.errors import KeyBlockedError, KeyorderError
from ...partitioner.hashing import key_hash
from ...partitioner.routing import Routing
from ...partitioner.writers.sending import Cohort, TopicSending
from .. import clock
from ..kafka_errors import may_still_arrive
from .hashing import hash_column
from .library import Library
from .sender import Rows, most_bytes, sender
from .tally import Block, Failure

if TYPE_CHECKING:
    from ..producing.producer import OrderedProducer

_CHUNK = 20_000
_ANY_KEY = -2
# Dropped by purge(), by aborting, or by the library's fatal error: such rows are told of, but block no key.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class _Routes:
    """A routing as arrays over its slots. hint: the epoch in which a slot's keys came to their home, 0 if at the start."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        routes = list(routing.all())
        self.home = np.array([route.home for route in routes], np.int32)
        self.hint = np.array([route.hint for route in routes], np.int64)
        self.waiting = np.array([routing.may_wait(route) for route in routes], np.bool_)


class ColumnProducing:
    """Rows of one producer. All but `produce` is called under the producer's lock."""

    def __init__(self, producer: OrderedProducer, library: Library | None) -> None:
        self._producer = producer
        self._sender = sender(producer._raw, library)
        self._most_bytes = most_bytes(producer._config)
        self._routes: dict[str, _Routes] = {}
        self._blocks: dict[Cohort, tuple[TopicSending[Any], Block]] = {}
        self._failures: list[Failure] = []
        self._noted: deque[Failure] = deque()
        self._refused: tuple[str, int] | None = None
        self.blocked: dict[tuple[str, int], str] = {}

    def produce(self, topic: str, data: pa.RecordBatch | pa.Table) -> int:
        """See OrderedProducer.produce_arrow."""
        accepted, self._refused = 0, None
        for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
            try:
                n = self._produce_batch(topic, batch)
            except (KafkaException, KeyorderError):
                if accepted:
                    return accepted
                if self._refused is not None:
                    self.blocked.pop(self._refused, None)  # with this the application knows
                raise
            accepted += n
            if n < len(batch):
                break
        return accepted

    def _produce_batch(self, topic: str, batch: pa.RecordBatch) -> int:
        producer = self._producer
        rows = Rows(batch)
        hashes = hash_column(rows.key)
        too_large = np.nonzero(rows.sizes() > self._most_bytes)[0]
        last = int(too_large[0]) if len(too_large) else rows.count
        if rows.count and not last:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        sending = producer._topics.get(topic) or producer._admission.first_use(topic)
        accepted, patience = 0, clock.now() + producer._settings.control_timeout
        homes, hints = np.empty(rows.count, np.int32), np.zeros(rows.count, np.int64)
        opaques = np.empty(rows.count, np.int64)
        while accepted < last:
            try:
                with producer._lock:
                    self.harvest()
                    n = self._chunk(
                        topic, sending, rows, hashes, homes, hints, opaques, accepted, min(last, accepted + _CHUNK)
                    )
            except (KafkaException, KeyorderError):
                if accepted:
                    return accepted
                raise
            accepted += n
            # What the library has delivered makes room; what waits for a layout change or a lease is awaited here.
            producer.poll(0 if n else 0.01)
            if n:
                patience = clock.now() + producer._settings.control_timeout
            elif clock.now() >= patience:
                if accepted:
                    return accepted
                raise BufferError(f"Local: Queue full (no row was taken in {producer._settings.control_timeout:g} s)")
        return accepted

    def _chunk(
        self, topic: str, sending: TopicSending[Any], rows: Rows, hashes: Any, homes: Any, hints: Any, opaques: Any,
        first: int, last: int,
    ) -> int:  # fmt: skip
        """Take rows from `first` on, up to `last`. Returns how many; 0 when there is no room or no lease."""
        producer = self._producer
        if producer._closed:
            raise RuntimeError("Producer has been closed")
        if producer._session.failure is not None:
            raise producer._session.failure
        if clock.now() >= producer._session.send_until:
            return 0
        here = hashes[first:last]
        last = first + self._before_blocked(topic, here)
        here = hashes[first:last]
        routes = self._routes.get(topic)
        if routes is None or routes.routing is not sending.routing:
            routes = self._routes[topic] = _Routes(sending.routing)
        slots = here % routes.routing.period
        keyed = here >= 0
        homes[first:last] = np.where(keyed, routes.home[slots], -1)
        hints[first:last] = np.where(keyed, routes.hint[slots], 0)
        if not keyed.all():
            homes[first:last][~keyed] = producer._handover.place_unkeyed(topic, sending)
        alone = keyed & routes.waiting[slots]
        if sending.held_keys:
            held = [-1 if key is None else key_hash(key) for key in sending.held_keys]
            alone |= np.isin(here, held)
        if producer._deliveries.tombstones.clears(topic):
            alone |= hints[first:last] > 0
        self._count_in(topic, sending, homes[first:last], opaques[first:last])
        return self._send(topic, sending, rows, homes, hints, opaques, first, last, np.nonzero(alone)[0] + first)

    def _send(
        self, topic: str, sending: TopicSending[Any], rows: Rows, homes: Any, hints: Any, opaques: Any, first: int, last: int,
        alone: Any,
    ) -> int:  # fmt: skip
        """Rows [first, last) in their order, those of `alone` as single records. Returns how many were taken."""
        at = first
        try:
            for row in [*alone.tolist(), last]:
                if row > at:
                    own = hints if hints[at:row].any() else None
                    n = self._sender.send(topic, rows, homes, opaques, own, at, row - at)
                    for p, count in enumerate(np.bincount(homes[at : at + n]).tolist()):
                        if count:
                            sending.cohort(p).unresolved += count
                    at += n
                    if at < row:
                        break
                if row < last:
                    if not self._producer._handover.take_row(topic, sending, *rows.row(row)):
                        break
                    at = row + 1
        except (KafkaException, KeyorderError):
            if at == first:
                raise
        return at - first

    def _count_in(self, topic: str, sending: TopicSending[Any], homes: Any, opaques: Any) -> None:
        """Let each row carry the counters of its partition's present cohort."""
        known = np.zeros(int(homes.max(initial=0)) + 1, np.int64)
        for p in np.unique(homes).tolist():
            cohort = sending.cohort(p)
            if cohort not in self._blocks:
                self._blocks[cohort] = sending, self._sender.tally.block(topic, p)
            known[p] = self._blocks[cohort][1].opaque
        opaques[:] = known[homes]

    def _before_blocked(self, topic: str, hashes: Any) -> int:
        """How many rows come before the first whose key is blocked. Raises KeyBlockedError if that is the first one."""
        self._take_over_blocked()
        mine = [key for own_topic, key in self.blocked if own_topic == topic]
        if not mine:
            return len(hashes)
        found = np.nonzero(np.isin(hashes, mine))[0] if _ANY_KEY not in mine else np.zeros(1, np.int64)
        if len(found) and not found[0]:
            self._refused = topic, _ANY_KEY if _ANY_KEY in mine else int(hashes[0])
            raise KeyBlockedError(topic, self.blocked[self._refused])
        return int(found[0]) if len(found) else len(hashes)

    def _take_over_blocked(self) -> None:
        blocked = self._producer._deliveries.blocked
        for topic, key in list(blocked):
            self.blocked.setdefault((topic, key_hash(key)), blocked.pop((topic, key)))

    def note(self, topic: str, partition: int, code: int, key: bytes | None) -> None:
        """A row that went as a single record has failed, or was dropped while it was held. With or without the lock."""
        self._noted.append(Failure(topic, partition, code, -1 if key is None else key_hash(key)))

    def refuse(self, topic: str, hashed: int) -> None:
        """Raise once for a blocked key: with this the application knows."""
        detail = self.blocked.pop((topic, hashed), None) or self.blocked.pop((topic, _ANY_KEY), None)
        if detail is not None:
            raise KeyBlockedError(topic, detail)

    def harvest(self) -> None:
        """Take in what has become of rows: counts first, and then the failures that they include."""
        for cohort, (sending, block) in self._blocks.items():
            cohort.unresolved -= block.harvest()
            if block.acknowledged > sending.acknowledged.get(block.partition, 0):
                sending.acknowledged[block.partition] = block.acknowledged
        failures, lost = self._sender.tally.failures()
        self._failures += failures
        while self._noted:
            self._failures.append(self._noted.popleft())
        for failure in failures:
            settings = self._producer._settings
            late = may_still_arrive(failure.code, settings.transactional_id is not None)
            for cohort, (_, block) in self._blocks.items():
                if late and (block.topic, block.partition) == (failure.topic, failure.partition):
                    cohort.settles_at = clock.now() + settings.request_timeout
            if failure.code in _PURGED:
                continue
            text = KafkaError(failure.code).str()
            if failure.key_hash >= 0:
                self._block((failure.topic, failure.key_hash), text)
                self._producer._handover.drop_behind(failure.topic, failure.key_hash, failure.code)
        if lost:
            for topic in {block.topic for _, block in self._blocks.values()}:
                self._block((topic, _ANY_KEY), "more records failed at once than could be noted")
        for cohort, (sending, block) in list(self._blocks.items()):
            if not cohort.on_the_way() and not sending.is_current(cohort):
                del self._blocks[cohort]
                self._sender.tally.release(block)

    def _block(self, key: tuple[str, int], why: str) -> None:
        self.blocked[key] = why
        self._producer._handover.topics[key[0]].close_lanes()

    def failures(self) -> list[Failure]:
        """Rows that failed since the last call; their keys are free again, since the application knows now."""
        self.harvest()
        self._take_over_blocked()
        failures, self._failures = self._failures, []
        for failure in failures:
            self.blocked.pop((failure.topic, failure.key_hash), None)
        return failures

    def forget_purged(self) -> None:
        """Rows of a transaction that the application has aborted: it knows."""
        self.harvest()
        self._failures = [failure for failure in self._failures if failure.code not in _PURGED]

    def close(self) -> None:
        """Release what was opened, before the producer is closed."""
        self._sender.close()
