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

from ...partitioner.hashing import key_bytes, key_hash
from ...partitioner.routing import Route
from ...partitioner.writers.lanes import Cohort
from ...partitioner.writers.sending import Held, Telling, TopicSending
from .. import clock
from ..kafka_errors import may_still_arrive
from .blocked import BlockedKeys
from .exclusion import Exclusion
from .held_record import DeliveryCallback, Record, row_failed, undelivered
from .holding import Holding
from .serving import Serving
from .tombstoning import MoveTombstones
from .transactions import Transactions
from .writer_session import WriterSession

if TYPE_CHECKING:
    from ..arrow.producing import ColumnProducing

_Report = tuple[DeliveryCallback, "KafkaError | None", Message]
# The application dropped these by purge() or by aborting: it knows.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class Deliveries:
    """The delivery reports of one producer.

    columns: the rows of produce_arrow, once it was used. serving: who serves the reports. blocked: keys of which a record
    failed unheard. clearing: records that wait for the move tombstones that they caused. log_starts: see MoveTombstones.
    """

    def __init__(
        self,
        raw: Producer,
        exclusion: Exclusion,
        session: WriterSession,
        holding: Holding,
        transactions: Transactions,
        log_starts: Callable[[str], Mapping[int, int]],
    ) -> None:
        self._exclusion, self._session, self._holding = exclusion, session, holding
        self._transactions = transactions
        self._request_timeout = session.settings.request_timeout
        self._given_up_after = session.settings.terms.delivery_timeout + session.settings.terms.margin
        self._only_errors = session.settings.only_errors
        self._transactional = session.settings.transactional_id is not None
        self._events: deque[Callable[[], object]] = deque()
        self._deferred: deque[_Report] = deque()
        self.serving = Serving(raw, self._run_deferred, lambda: exclusion.run(self.doubt))
        self.tombstones = MoveTombstones(raw, self._tombstone_resolved, log_starts, transactions, exclusion)
        self.columns: ColumnProducing | None = None
        self.blocked = BlockedKeys()
        self.clearing = 0

    @property
    def waiting(self) -> int:
        """Records acknowledged whose callbacks have not run yet."""
        return self.clearing + len(self._deferred)

    def any_blocked(self, topic: str) -> bool:
        """Whether a key of this topic is blocked."""
        return self.blocked.any(topic) or (self.columns is not None and bool(self.columns.blocked.get(topic)))

    def told(
        self, sending: TopicSending[Record], cohort: Cohort, callback: DeliveryCallback | None
    ) -> Callable[..., None]:
        """What the client library is to call for a record that is counted in `cohort`; one object for runs of records."""
        known = cohort.told
        if known[0] is callback:
            return known[1]
        ended, serving = cohort.ended, self.serving
        wanted = callback is not None and not self._only_errors

        def delivered(error: KafkaError | None, message: Message) -> None:
            """A record's fate. The usual one costs no lock."""
            begun = [not wanted]
            try:
                if error is not None or serving.by_session:
                    begun[0] = False
                    self._delivered(sending, cohort, callback, error, message, begun)
                    return
                cohort.last = message  # before it counts as resolved, so that READY can name it
                ended()
                if wanted:
                    begun[0] = True
                    callback(None, message)  # type: ignore[misc]  # it is there
            except BaseException:
                if not begun[0]:
                    self._tell_later(sending, cohort, callback, error, message)
                raise

        cohort.told = callback, delivered
        return delivered

    def told_moved(self, record: Record, cohort: Cohort, key: bytes, route: Route) -> DeliveryCallback:
        """The same for the first write of a moved key on a compacted topic."""
        return partial(self._delivered_moved, record, cohort, key, route, self._transactions.number)

    def harvest(self) -> None:
        """Under the lock: count what has become of rows."""
        if self.columns is not None:
            self.columns.harvest()

    def doubt(self) -> None:
        """Under the lock: an exception came at an unknown step, so a record may have been counted and never be resolved."""
        now = clock.now()
        for sending in self._session.topics.values():
            sending.doubt(now, now + self._given_up_after)

    def telling(self, error: KafkaError, block: bool = False) -> Telling[Record]:
        """How the application hears of held records that will not be sent: see Telling. Used under the lock.

        block: nothing of their keys may be sent before it has.
        """

        def told(dropped: list[Held[Record]]) -> Callable[[], object]:
            if error.code() not in _PURGED:
                self._transactions.fail(error)
            reports: list[_Report] = []
            for held in dropped:
                if block and held.key is not None and held.partition is None:
                    self._block(held.record.topic, held.key, error)
                if held.record.callback is row_failed:
                    self._row_failed(error, undelivered(held))
                elif held.record.callback is not None:
                    reports.append((held.record.callback, error, undelivered(held)))
            return partial(self._deferred.extend, reports)

        return told

    def refuse_blocked(self, topic: str, key: bytes) -> None:
        """Raise once for a key whose earlier record failed unheard: with this the application knows."""
        self.blocked.refuse(topic, key)
        if self.columns is not None and self.columns.blocked.get(topic):
            self.columns.refuse(topic, key_hash(key))

    def run_event(self, call: Callable[[], object]) -> None:
        """An event callback of the application: on its own threads alone."""
        if threading.current_thread() is self._session:
            self._events.append(call)
        else:
            call()

    def _run_deferred(self) -> int:
        """Run what was put aside, on a thread of the application's. Returns how many."""
        self._exclusion.settle()
        count = 0
        while self._events:
            self._events.popleft()()
            count += 1
        while self._deferred:
            if not self._run_one_deferred():
                break  # another thread was faster
            count += 1
        return count

    def _run_one_deferred(self) -> bool:
        taken: list[_Report] = []
        begun = False
        try:
            try:
                # In one step of the interpreter: a signal's exception comes before it or after it, and nobody's report is lost.
                taken.extend(map(deque.popleft, (self._deferred,)))
            except IndexError:
                return False
            callback, error, message = taken[0]
            key = message.key()
            if error is not None and key is not None:
                self._exclusion.run(partial(self._unblock, message.topic() or "", key_bytes(key)))
            begun = True
            callback(error, message)
        except BaseException:
            if taken and not begun:
                self._deferred.appendleft(taken[0])
            raise
        return True

    def _block(self, topic: str, key: bytes, error: KafkaError) -> None:
        self.blocked.block(topic, key, error.str(), self._transactions.number)
        sending = self._session.topics.get(topic)
        if sending is not None:
            sending.close_lanes()

    def _unblock(self, topic: str, key: bytes) -> None:
        self.blocked.unblock(topic, key)
        if self.columns is not None:
            self.columns.unblock(topic, key_hash(key))

    def _delivered(
        self,
        sending: TopicSending[Record],
        cohort: Cohort,
        callback: DeliveryCallback | None,
        error: KafkaError | None,
        message: Message,
        begun: list[bool],
    ) -> None:
        """The fate of a record that failed, or of one that the session's thread may have served.

        begun: becomes true right before the application is told. A signal's exception before that leaves it to the caller,
        whom the client has called, once, to tell it later.
        """
        ours = threading.get_ident() == self._session.ident
        self._exclusion.run(partial(self._resolved, sending, cohort, callback, ours, error, message))
        if callback is row_failed:
            if error is not None:
                self._row_failed(error, message)
            begun[0] = True
        elif callback is not None and (error is not None or not self._only_errors):
            begun[0] = True
            if ours:
                self._deferred.append((callback, error, message))
            else:
                callback(error, message)

    def _tell_later(
        self,
        sending: TopicSending[Record],
        cohort: Cohort,
        callback: DeliveryCallback | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """The fate of a record whose report was broken off. It may be counted already, so it is not counted here."""
        self._exclusion.run(partial(self._note_fate, sending, cohort, callback, True, error, message))
        if callback is row_failed:
            if error is not None:
                self._row_failed(error, message)
        elif callback is not None and (error is not None or not self._only_errors):
            self._deferred.append((callback, error, message))

    def _resolved(
        self,
        sending: TopicSending[Record],
        cohort: Cohort,
        callback: DeliveryCallback | None,
        ours: bool,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        self._note_fate(sending, cohort, callback, ours, error, message)
        cohort.ended()

    def _note_fate(
        self,
        sending: TopicSending[Record],
        cohort: Cohort,
        callback: DeliveryCallback | None,
        later: bool,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """Under the lock. later: the application hears of it later."""
        if error is None:
            cohort.last = message
        else:
            if may_still_arrive(error.code(), self._transactional):
                cohort.settles_at = clock.now() + self._request_timeout
            key = message.key()
            if key is not None:
                # What was held behind it must not overtake it; and until the application knows, nothing may.
                key = key_bytes(key)
                if (later or callback in (None, row_failed)) and error.code() not in _PURGED:
                    self._block(message.topic() or "", key, error)
                sending.drop_key(key, self.telling(error))

    def _delivered_moved(
        self,
        record: Record,
        cohort: Cohort,
        key: bytes,
        route: Route,
        transaction: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """The first write of a moved key on a compacted topic: the application hears when its old homes are cleared."""
        if error is not None:
            begun = [False]
            try:
                self._delivered(record.sending, cohort, record.callback, error, message, begun)
            except BaseException:
                if not begun[0]:
                    self._tell_later(record.sending, cohort, record.callback, error, message)
                raise
            return

        def told(failure: KafkaError | None) -> None:
            if record.callback is row_failed:
                if failure is not None:
                    self._row_failed(failure, message)
            elif record.callback is not None and (failure is not None or not self._only_errors):
                self._deferred.append((record.callback, failure, message))

        def cleared(failure: KafkaError | None) -> None:
            told(failure)
            self._exclusion.run(self._cleared)

        def acknowledged() -> None:
            # Before the record itself counts as resolved: READY has to wait for what follows from it.
            # One that was aborted is not there: its key's old value is the newest, and stays.
            if transaction == self._transactions.number:
                self.clearing += 1
                if self.tombstones.send(record.topic, record.sending, key, route, cleared):
                    return
                self.clearing -= 1
            told(None)

        self._exclusion.run(acknowledged)
        self._delivered(record.sending, cohort, None, None, message, [False])

    def _cleared(self) -> None:
        self.clearing -= 1

    def _tombstone_resolved(self, cohort: Cohort, error: KafkaError | None) -> None:
        def resolved() -> None:
            cohort.unresolved -= 1
            if error is not None and may_still_arrive(error.code(), self._transactional):
                cohort.settles_at = clock.now() + self._request_timeout

        self._exclusion.run(resolved)

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
