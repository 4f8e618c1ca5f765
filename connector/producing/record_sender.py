"""Records on their way from produce() to the client library: handed over at once, or held until they may go.

Everything here happens under the producer's lock, so that a record is either handed over before a PREPARE is taken in, and
is waited for, or is judged by it.
"""

from __future__ import annotations

import sys
from random import randrange
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ...partitioner.errors import KeyorderError, PartitionRefusedError
from ...partitioner.hashing import key_hash
from ...partitioner.routing import Route
from ...partitioner.writers.sending import Held, TopicSending
from ...partitioner.writers.writer import Writer
from .. import clock
from .deliveries import Deliveries
from .exclusion import Exclusion
from .held_record import DeliveryCallback, Headers, Record, row_failed, sendable_size, with_hint
from .holding import Holding
from .lost_interrupts import raise_lost_interrupt
from .transactions import Transactions

# What the client library raises for a record that it has not taken. After anything else (a signal's) it may have.
REFUSED = (BufferError, KafkaException, TypeError, ValueError, OverflowError, RuntimeError)
_STICKY_SECONDS = 0.01
# The fast path is safe where one thread at a time runs, each of whose steps the others see in their order.
_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


class RecordSender:
    """Where the records of one producer go. topics: those that were used."""

    def __init__(
        self,
        raw: Producer,
        exclusion: Exclusion,
        writer: Writer[Record],
        most_bytes: int,
        deliveries: Deliveries,
        holding: Holding,
        transactions: Transactions,
        topics: dict[str, TopicSending[Record]],
    ) -> None:
        self._exclusion, self._writer = exclusion, writer
        self._deliveries, self._holding, self._transactions = deliveries, holding, transactions
        self._tombstones = deliveries.tombstones
        self._most_bytes = most_bytes
        self._sticky: dict[str, tuple[int, float]] = {}
        self._refused: dict[bytes, KafkaError] = {}
        self._produce = raw.produce
        self.topics = topics

    def take(self, record: Record, key: bytes | None, explicit: int | None) -> None:
        """Hand over or hold. explicit: where the application placed the record itself.

        Raises BufferError, KafkaException, KeyBlockedError, PartitionRefusedError and what ended the session.
        """
        sending, deliveries = record.sending, self._deliveries
        self._writer.check(record.topic)
        if key is not None and deliveries.any_blocked(record.topic):
            deliveries.refuse_blocked(record.topic, key)
        route = sending.routing.of(key) if key is not None and explicit is None else None
        now = clock.now()
        if explicit is not None and explicit >= sending.timeline.newest.count:
            raise PartitionRefusedError(record.topic, explicit, sending.timeline.newest.count)
        if self._writer.sends(sending, key, route, now, explicit):
            self._hand_over(record, key, route, explicit)
            if key is not None and route is not None and self._plain(record.topic, sending, route):
                sending.open_fast_path(key, route)
            return
        self._transactions.check_open()
        size = self._size(record, key, route)
        if not self._holding.room(size):
            raise BufferError("Local: Queue full (records are held by a layout change or a lapsed lease)")
        self._holding.hold(key, record, now, explicit, size)

    def place(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        callback: DeliveryCallback | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Hand over a record of a topic that is not managed, where the application has placed it. Without the lock.

        Raises as confluent_kafka.Producer.produce.
        """
        told = None if callback is None else self._deliveries.told_placed(callback)
        more = () if headers is None else (with_hint(headers, None),)
        try:
            self._produce(topic, value, key, partition, told, None, timestamp, *more)
        except REFUSED as error:
            raise_lost_interrupt(error, headers)
            raise

    def take_late(self, record: Record, key: bytes | None, explicit: int | None) -> None:
        """The same for a record from a signal handler that interrupted this: nobody is there to be told but the callback.

        May be called again when an exception has broken it off: the record is taken once.
        """
        if record.taken or any(held.record is record for held in record.sending.held):
            return
        try:
            self.take(record, key, explicit)
        except Exception as error:  # whatever it is, the record was not taken
            cause = error.args[0] if error.args else None
            failed = cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
            tell = self._deliveries.telling(failed, block=True)([Held(key, record, clock.now(), explicit)])
            record.taken = True  # no signal is handled between this and the next step
            tell()

    def _size(self, record: Record, key: bytes | None, route: Route | None) -> int:
        """The record's bytes when it is sent, with the hint that it may have by then."""
        change = record.sending.timeline.change
        hint = None if route is None else route.header if change is None else str(change.epoch).encode()
        return sendable_size(record, key, hint, self._most_bytes)

    def _plain(self, topic: str, sending: TopicSending[Any], route: Route) -> bool:
        """Whether records of a route may go without the lock: no key is blocked, and none has to be cleared elsewhere."""
        clears = route.hint and sending.timeline.ordered and self._tombstones.clears(topic)
        return _GIL and not self._deliveries.any_blocked(topic) and not clears

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
            self._transactions.check_open()
            size = self._size(record, key, route)
            if not self._holding.room(size):
                return False
            self._holding.hold(key, record, clock.now(), size=size)
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
            sending.drop_key(key, self._deliveries.telling(KafkaError(code)))

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
        self._exclusion.settle()
        self._tombstones.pump()
        with self._exclusion.lock:
            self._deliveries.harvest()
            for sending in self.topics.values():
                if sending.held:
                    self._refused.clear()
                    self._holding.release(sending, self._release_one)
            self._expire()

    def expire(self) -> None:
        """Give up on what has been held too long: as the client library on what it cannot send. Without the lock."""
        if self._holding.count:
            self._exclusion.run(self._expire)

    def fail_topic(self, topic: str, error: KeyorderError) -> None:
        """Under the lock: nothing more goes to this topic."""
        sending = self.topics.get(topic)
        if sending is not None:
            sending.drop_held(self._deliveries.telling(KafkaError(KafkaError._FAIL, str(error))))

    def _expire(self) -> None:
        timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
        self._holding.drop_expired(clock.now(), self._deliveries.telling(timed_out, block=True))

    def _hand_over(self, record: Record, key: bytes | None, route: Route | None, explicit: int | None) -> None:
        """Give a record to the client library. Raises BufferError when its queue is full."""
        headers = record.headers
        header = None
        if explicit is not None:
            partition = explicit
        elif route is None:
            partition = self.place_unkeyed(record.topic, record.sending)
        else:
            partition, header = route.home, route.header
        if headers or header is not None:
            headers = with_hint(headers, header)
        sending = record.sending
        in_flight = sending.in_flight(partition)
        if (
            key is not None
            and route is not None
            and self._tombstones.needed(record.topic, key, route, sending.timeline)
        ):
            done = self._deliveries.told_moved(record, in_flight, key, route)
        else:
            done = self._deliveries.told(sending, in_flight, record.callback)
        try:
            # Counted first: what is counted too often keeps READY waiting, what is counted too late lets it come too early.
            in_flight.started()
            if headers is None:
                record.taken = True
                self._produce(record.topic, record.value, key, partition, done, None, record.timestamp)
            else:
                record.taken = True
                self._produce(record.topic, record.value, key, partition, done, None, record.timestamp, headers)
        except REFUSED as error:
            in_flight.ended()
            raise_lost_interrupt(error, headers)
            raise
        except BaseException:
            self._deliveries.doubt()
            raise

    def _release_one(self, held: Held[Record], route: Route | None) -> bool:
        now = clock.now()
        if now >= self._writer.send_until:
            return False
        timeline = held.record.sending.timeline
        error: KafkaError | None = None
        if held.partition is not None and held.partition >= timeline.newest.count:
            # it was retired while the record waited
            error = KafkaError(KafkaError._UNKNOWN_PARTITION)
        elif held.key is not None and held.key in self._refused:
            error = self._refused[held.key]  # it would overtake the one before it
        else:
            try:
                self._hand_over(held.record, held.key, route, held.partition)
            except BufferError:
                return False
            except KafkaException as raised:
                error = raised.args[0]
            except (TypeError, ValueError, OverflowError) as raised:
                error = KafkaError(KafkaError._INVALID_ARG, str(raised))
        if error is not None:
            self._deliveries.telling(error, block=True)([held])()
            if held.key is not None:
                self._refused[held.key] = error
        self._holding.waited(now - held.since)
        return True
