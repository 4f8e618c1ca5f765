"""What becomes of an OrderedProducer's records: counted, told to the application, and what failed blocks its key.

A delivery report runs on whichever thread polls; the application's callbacks run on the application's threads alone. What
the session's thread has served is put aside (`deferred`) until one of those comes by.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer

from ...partitioner.errors import KeyBlockedError
from ...partitioner.hashing import key_bytes, key_hash
from ...partitioner.routing import Route
from ...partitioner.writers.lanes import Cohort
from ...partitioner.writers.sending import Held, TopicSending
from .. import clock
from ..kafka_errors import may_still_arrive
from .held_record import DeliveryCallback, Record, row_failed, undelivered
from .holding import Holding
from .serving import Serving
from .tombstoning import MoveTombstones
from .writer_session import WriterSession

if TYPE_CHECKING:
    from ..arrow.producing import ColumnProducing

# The application dropped these by purge() or by aborting: it knows.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class Deliveries:
    """The delivery reports of one producer.

    columns: the rows of produce_arrow, once it was used. serving: who serves the reports. blocked: {(topic, key): why}
    of keys of which a record failed unheard. clearing: records that wait for the move tombstones that they caused.
    log_starts: see MoveTombstones.
    """

    def __init__(
        self,
        raw: Producer,
        lock: threading.Lock,
        session: WriterSession,
        holding: Holding,
        log_starts: Callable[[str], Mapping[int, int]],
    ) -> None:
        self._lock, self._session, self._holding = lock, session, holding
        self._request_timeout = session.settings.request_timeout
        self._transactional = session.settings.transactional_id is not None
        self._events: deque[Callable[[], object]] = deque()
        self._deferred: deque[tuple[DeliveryCallback, KafkaError | None, Message]] = deque()
        self.serving = Serving(raw, self._run_deferred)
        self.tombstones = MoveTombstones(raw, self._tombstone_resolved, log_starts)
        self.columns: ColumnProducing | None = None
        self.blocked: dict[tuple[str, bytes], str] = {}
        self.clearing = 0

    @property
    def waiting(self) -> int:
        """Records acknowledged whose callbacks have not run yet."""
        return self.clearing + len(self._deferred)

    @property
    def any_blocked(self) -> bool:
        """Whether a key of any topic is blocked."""
        return bool(self.blocked) or (self.columns is not None and bool(self.columns.blocked))

    def told(
        self, sending: TopicSending[Record], cohort: Cohort, callback: DeliveryCallback | None
    ) -> Callable[..., None]:
        """What the client library is to call for a record that is counted in `cohort`; one object for runs of records."""
        known = cohort.told
        if known[0] is callback:
            return known[1]
        ended, serving = cohort.ended, self.serving

        def delivered(error: KafkaError | None, message: Message) -> None:
            """A record's fate. The usual one costs no lock."""
            if error is not None or serving.by_session:
                self._delivered(sending, cohort, callback, error, message)
                return
            cohort.last = message  # before it counts as resolved, so that READY can name it
            ended()
            if callback is not None:
                callback(None, message)

        cohort.told = callback, delivered
        return delivered

    def told_moved(self, record: Record, cohort: Cohort, key: bytes, route: Route) -> DeliveryCallback:
        """The same for the first write of a moved key on a compacted topic."""
        return partial(self._delivered_moved, record, cohort, key, route)

    def harvest(self) -> None:
        """Under the lock: count what has become of rows."""
        if self.columns is not None:
            self.columns.harvest()

    def report(self, dropped: list[Held[Record]], error: KafkaError) -> None:
        """Held records that will not be sent: the application hears of them."""
        for held in dropped:
            if held.record.callback is row_failed:
                self._row_failed(error, undelivered(held))
            elif held.record.callback is not None:
                self._deferred.append((held.record.callback, error, undelivered(held)))

    def refuse_blocked(self, topic: str, key: bytes) -> None:
        """Raise once for a key whose earlier record failed unheard: with this the application knows."""
        detail = self.blocked.pop((topic, key), None)
        if detail is not None:
            raise KeyBlockedError(topic, detail)
        if self.columns is not None:
            self.columns.refuse(topic, key_hash(key))

    def run_event(self, call: Callable[[], object]) -> None:
        """An event callback of the application: on its own threads alone."""
        if threading.current_thread() is self._session:
            self._events.append(call)
        else:
            call()

    def _run_deferred(self) -> int:
        """Run what was put aside, on a thread of the application's. Returns how many."""
        count = 0
        while self._events:
            self._events.popleft()()
            count += 1
        while self._deferred:
            callback, error, message = self._deferred.popleft()
            key = message.key()
            if error is not None and key is not None:
                with self._lock:
                    self.blocked.pop((message.topic() or "", key_bytes(key)), None)
                    if self.columns is not None:
                        self.columns.blocked.pop((message.topic() or "", key_hash(key_bytes(key))), None)
            callback(error, message)
            count += 1
        return count

    def _block(self, topic: str, key: bytes, error: KafkaError) -> None:
        self.blocked[topic, key] = error.str()
        for sending in self._session.topics.values():
            sending.close_lanes()

    def _delivered(
        self,
        sending: TopicSending[Record],
        cohort: Cohort,
        callback: DeliveryCallback | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """The fate of a record that failed, or of one that the session's thread may have served."""
        ours = threading.get_ident() == self._session.ident
        dropped: list[Held[Record]] = []
        with self._lock:
            if error is None:
                cohort.last = message
            else:
                if may_still_arrive(error.code(), self._transactional):
                    cohort.settles_at = clock.now() + self._request_timeout
                key = message.key()
                if key is not None:
                    # What was held behind it must not overtake it; and until the application knows, nothing may.
                    key = key_bytes(key)
                    dropped = self._holding.drop_key(sending, key)
                    if (ours or callback in (None, row_failed)) and error.code() not in _PURGED:
                        self._block(message.topic() or "", key, error)
            cohort.ended()
        if callback is row_failed:
            if error is not None:
                self._row_failed(error, message)
        elif callback is not None:
            if ours:
                self._deferred.append((callback, error, message))
            else:
                callback(error, message)
        if error is not None:
            self.report(dropped, error)

    def _delivered_moved(
        self, record: Record, cohort: Cohort, key: bytes, route: Route, error: KafkaError | None, message: Message
    ) -> None:
        """The first write of a moved key on a compacted topic: the application hears when its old homes are cleared."""
        if error is not None:
            self._delivered(record.sending, cohort, record.callback, error, message)
            return

        def cleared(failure: KafkaError | None) -> None:
            if record.callback is row_failed:
                if failure is not None:
                    self._row_failed(failure, message)
            elif record.callback is not None:
                self._deferred.append((record.callback, failure, message))
            with self._lock:
                self.clearing -= 1

        with self._lock:
            # Before the record itself counts as resolved: READY has to wait for what follows from it.
            self.clearing += 1
            self.tombstones.send(record.topic, record.sending, key, route, cleared)
        self._delivered(record.sending, cohort, None, None, message)

    def _tombstone_resolved(self, cohort: Cohort, error: KafkaError | None) -> None:
        with self._lock:
            cohort.unresolved -= 1
            if error is not None and may_still_arrive(error.code(), self._transactional):
                cohort.settles_at = clock.now() + self._request_timeout

    def _row_failed(self, error: KafkaError, message: Message) -> None:
        """A row of produce_arrow that went as a single record. With or without the lock."""
        if self.columns is not None:
            place, key = message.partition(), message.key()
            self.columns.note(
                message.topic() or "",
                -1 if place is None else place,
                error.code(),
                None if key is None else key_bytes(key),
            )
