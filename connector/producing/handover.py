"""Records on their way from produce() to the client library: handed over at once, or held until they may go.

Everything here happens under the producer's lock, so that a record is either handed over before a PREPARE is taken in, and
is waited for, or is judged by it.
"""

from __future__ import annotations

import sys
import threading
from random import randrange
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ...partitioner.errors import PartitionRefusedError
from ...partitioner.hashing import key_hash
from ...partitioner.routing import Route
from ...partitioner.writers.sending import Held, TopicSending
from .. import clock
from .deliveries import Deliveries
from .held_record import Headers, Record, row_failed, with_hint
from .holding import Holding
from .writer_session import WriterSession

_STICKY_SECONDS = 0.01
# Lanes are safe where one thread at a time runs, each of whose steps the others see in their order.
_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


class Handover:
    """Where the records of one producer go. topics: those that were used."""

    def __init__(
        self, raw: Producer, lock: threading.Lock, session: WriterSession, deliveries: Deliveries, holding: Holding
    ) -> None:
        self._raw, self._lock, self._session = raw, lock, session
        self._deliveries, self._holding = deliveries, holding
        self._tombstones = deliveries.tombstones
        self._sticky: dict[str, tuple[int, float]] = {}
        self._produce = raw.produce
        self.topics: dict[str, TopicSending[Record]] = {}

    def take(self, record: Record, key: bytes | None, explicit: int | None) -> None:
        """Hand over or hold. explicit: where the application placed the record itself.

        Raises BufferError, KeyBlockedError, PartitionRefusedError and what ended the session.
        """
        sending, deliveries = record.sending, self._deliveries
        if self._session.failure is not None:
            raise self._session.failure
        if key is not None and (deliveries.blocked or (deliveries.columns is not None and deliveries.columns.blocked)):
            deliveries.refuse_blocked(record.topic, key)
        route = sending.routing.of(key) if key is not None and explicit is None else None
        now = clock.now()
        if explicit is not None and explicit >= sending.timeline.newest.count:
            raise PartitionRefusedError(record.topic, explicit, sending.timeline.newest.count)
        retiring = explicit is not None and sending.retiring(explicit)
        if now >= self._session.send_until or retiring or sending.must_wait(key, route):
            if self._holding.full:
                raise BufferError("Local: Queue full (records are held by a layout change or a lapsed lease)")
            self._holding.hold(key, record, now, explicit)
        else:
            self._hand_over(record, key, route, explicit)
            if key is not None and route is not None and self._plain(record.topic, route):
                sending.open_lane(key, route)

    def _plain(self, topic: str, route: Route) -> bool:
        """Whether records of a route may go without the lock: no key is blocked, and none has to be cleared elsewhere."""
        return _GIL and not self._deliveries.any_blocked and not (route.hint and self._tombstones.clears(topic))

    def take_row(
        self,
        topic: str,
        sending: TopicSending[Record],
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> bool:
        """A row of produce_arrow that goes as a single record. False when there is no room for it."""
        record = Record(topic, sending, value, row_failed, timestamp, headers)
        route = None if key is None else sending.routing.of(key)
        if sending.must_wait(key, route):
            if self._holding.full:
                return False
            self._holding.hold(key, record, clock.now())
            return True
        try:
            self._hand_over(record, key, route, None)
        except BufferError:
            return False
        return True

    def drop_behind(self, topic: str, hashed: int, code: int) -> None:
        """A row has failed: what is held of its key must not overtake it."""
        sending = self.topics[topic]
        for key in [key for key in sending.held_keys if key is not None and key_hash(key) == hashed]:
            self._deliveries.report(self._holding.drop_key(sending, key), KafkaError(code))

    def place_unkeyed(self, topic: str, sending: TopicSending[Any]) -> int:
        """Unkeyed records go to any active partition, staying with one for a while so that batches fill."""
        timeline = sending.timeline
        count = timeline.newest.count
        if timeline.change is not None:
            count = min(count, timeline.change.count)
        now = clock.now()
        partition, until = self._sticky.get(topic, (0, float("-inf")))
        if now >= until or partition >= count:
            partition = randrange(count)
            self._sticky[topic] = (partition, now + _STICKY_SECONDS)
        return partition

    def pump(self) -> None:
        """Send what no longer has to wait. Called by the session's thread after every turn, without the lock."""
        self._tombstones.pump()
        with self._lock:
            self._deliveries.harvest()
            for sending in self.topics.values():
                if sending.held:
                    self._holding.release(sending, self._release_one)

    def _hand_over(self, record: Record, key: bytes | None, route: Route | None, explicit: int | None) -> None:
        """Give a record to the client library. Raises BufferError when its queue is full."""
        headers = record.headers
        if explicit is not None:
            partition = explicit
        elif route is None:
            partition = self.place_unkeyed(record.topic, record.sending)
        else:
            partition = route.home
            if route.header is not None:
                headers = with_hint(headers, route.header)
        cohort = record.sending.cohort(partition)
        if key is not None and route is not None and self._tombstones.needed(record.topic, key, route):
            done = self._deliveries.told_moved(record, cohort, key, route)
        else:
            done = self._deliveries.told(record.sending, cohort, record.callback)
        if headers is None:
            self._produce(record.topic, record.value, key, partition, done, None, record.timestamp)
        else:
            self._produce(record.topic, record.value, key, partition, done, None, record.timestamp, headers)
        cohort.started()

    def _release_one(self, held: Held[Record], route: Route | None) -> bool:
        now = clock.now()
        if now >= self._session.send_until:
            return False
        timeline = held.record.sending.timeline
        if held.partition is not None and held.partition >= timeline.newest.count:
            # it was retired while the record waited
            self._deliveries.report([held], KafkaError(KafkaError._UNKNOWN_PARTITION))
            return True
        try:
            self._hand_over(held.record, held.key, route, held.partition)
        except BufferError:
            return False
        except KafkaException as raised:
            self._deliveries.report([held], raised.args[0])
        self._holding.waited(now - held.since)
        return True
