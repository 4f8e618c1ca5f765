"""What becomes of an OrderedProducer's records: counted, told to the application, and what failed blocks its key.

A delivery report is noted on whichever thread polls (`reports`), and worked off when the client library has returned; the
application's callbacks run on the application's threads alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, Producer

from ...partitioner.hashing import key_bytes, key_hash
from ...partitioner.routing import Route
from ...partitioner.writers.fast_path import InFlight
from ...partitioner.writers.sending import Held, Telling, TopicSending
from ...partitioner.writers.writer import Writer
from .. import clock
from ..config import ProducerSettings
from ..kafka_errors import may_still_arrive
from .blocked import BlockedKeys
from .exclusion import Exclusion
from .held_record import DeliveryCallback, Record, row_failed, undelivered
from .holding import Holding
from .reports import Call, PutAside, Reports
from .tombstoning import MoveTombstones
from .transactions import Transactions

if TYPE_CHECKING:
    from ..arrow.producing import ColumnProducing

# The application dropped these by purge() or by aborting: it knows.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class _RecordFate:
    """The failure of a record that is counted in `in_flight`."""

    __slots__ = ("callback", "deliveries", "in_flight", "sending")

    def __init__(
        self,
        deliveries: Deliveries,
        sending: TopicSending[Record],
        in_flight: InFlight,
        callback: DeliveryCallback | None,
    ) -> None:
        self.deliveries, self.sending, self.in_flight, self.callback = deliveries, sending, in_flight, callback

    def settle(self, report: Any, error: Any, message: Any, later: bool) -> Call | None:
        """See Fate."""
        return self.deliveries.failed(report, self.sending, self.in_flight, self.callback, error, message, later)


class _PlacedFate:
    """What becomes of a record of an unmanaged topic: nothing is counted, the application hears."""

    __slots__ = ("callback", "only_errors")

    def __init__(self, callback: DeliveryCallback, only_errors: bool) -> None:
        self.callback, self.only_errors = callback, only_errors

    def settle(self, report: Any, error: Any, message: Any, later: bool) -> Call | None:
        """See Fate."""
        return None if error is None and self.only_errors else (self.callback, (error, message))


class _MovedFate:
    """What becomes of the first write of a moved key on a compacted topic."""

    __slots__ = ("deliveries", "in_flight", "key", "record", "route", "told", "transaction")

    def __init__(
        self, deliveries: Deliveries, record: Record, in_flight: InFlight, key: bytes, route: Route, transaction: int
    ) -> None:
        self.deliveries, self.record, self.in_flight, self.key, self.route = deliveries, record, in_flight, key, route
        self.transaction, self.told = transaction, False

    def settle(self, report: Any, error: Any, message: Any, later: bool) -> Call | None:
        """See Fate."""
        record = self.record
        if error is not None:
            return self.deliveries.failed(
                report, record.sending, self.in_flight, record.callback, error, message, later
            )
        self.deliveries.moved(report, self, message)
        return None


class Deliveries:
    """The delivery reports of one producer.

    columns: the rows of produce_arrow, once it was used. blocked: keys of which a record
    failed unheard. reports: those that were not worked off yet. log_starts: see MoveTombstones.
    """

    def __init__(
        self,
        raw: Producer,
        reports: Reports,
        exclusion: Exclusion,
        settings: ProducerSettings,
        writer: Writer[Record],
        holding: Holding,
        transactions: Transactions,
        log_starts: Callable[[str], Mapping[int, int]],
    ) -> None:
        self._exclusion, self._writer, self._holding = exclusion, writer, holding
        self._transactions = transactions
        self._request_timeout = settings.request_timeout
        self._given_up_after = settings.terms.delivery_timeout + settings.terms.margin
        self._only_errors = settings.only_errors
        self._transactional = settings.transactional_id is not None
        self._clearing: set[_MovedFate] = set()
        self.reports = reports
        self.tombstones = MoveTombstones(
            raw, reports.noting, self._tombstone_resolved, log_starts, transactions, exclusion
        )
        self.columns: ColumnProducing | None = None
        self.blocked = BlockedKeys()

    @property
    def waiting(self) -> int:
        """Records whose callbacks have not run yet, though the client library has told their fate."""
        return len(self._clearing) + self.reports.waiting

    def any_blocked(self, topic: str) -> bool:
        """Whether a key of this topic is blocked."""
        return self.blocked.any(topic) or (self.columns is not None and bool(self.columns.blocked.get(topic)))

    def told(
        self, sending: TopicSending[Record], in_flight: InFlight, callback: DeliveryCallback | None
    ) -> Callable[..., None]:
        """What the client library is to call for a record that is counted in `in_flight`; one object for runs of records."""
        known = in_flight.told
        if known[0] is callback:
            return known[1]
        heard = None if self._only_errors or callback is row_failed else callback
        fate = _RecordFate(self, sending, in_flight, callback)
        noting = self.reports.noting((in_flight, in_flight.ends, heard, fate))
        in_flight.told = callback, noting
        return noting

    def told_placed(self, callback: DeliveryCallback) -> Callable[..., None]:
        """The same for a record of an unmanaged topic."""
        return self.reports.noting((None, None, None, _PlacedFate(callback, self._only_errors)))

    def told_moved(self, record: Record, in_flight: InFlight, key: bytes, route: Route) -> Callable[..., None]:
        """The same for the first write of a moved key on a compacted topic."""
        return self.reports.noting(
            (None, None, None, _MovedFate(self, record, in_flight, key, route, self._transactions.number))
        )

    def harvest(self) -> None:
        """Under the lock: count what has become of rows."""
        if self.columns is not None:
            self.columns.harvest()

    def doubt(self) -> None:
        """Under the lock: an exception came at an unknown step, so a record may have been counted and never be resolved."""
        now = clock.now()
        for sending in self._writer.topics.values():
            sending.doubt(now, now + self._given_up_after)

    def telling(self, error: KafkaError, block: bool = False) -> Telling[Record]:
        """How the application hears of held records that will not be sent: see Telling. Used under the lock.

        block: nothing of their keys may be sent before it has.
        """

        def told(dropped: list[Held[Record]]) -> Callable[[], object]:
            if error.code() not in _PURGED:
                self._transactions.fail(error)
            reports: list[PutAside] = []
            now = clock.now()
            for held in dropped:
                if block and held.key is not None and held.partition is None:
                    self._block(held.record.topic, held.key, error)
                if held.record.callback is row_failed:
                    self._row_failed(error, undelivered(held, error, now))
                elif held.record.callback is not None:
                    message = undelivered(held, error, now)
                    reports.append(PutAside((held.record.callback, (error, message)), self.hears(error, message)))
            return partial(self.reports.deferred.extend, reports)

        return told

    def refuse_blocked(self, topic: str, key: bytes) -> None:
        """Raise once for a key whose earlier record failed unheard: with this the application knows."""
        self.blocked.refuse(topic, key)
        if self.columns is not None and self.columns.blocked.get(topic):
            self.columns.refuse(topic, key_hash(key))

    def _block(self, topic: str, key: bytes, error: KafkaError) -> None:
        self.blocked.block(topic, key, error.str(), self._transactions.number)
        sending = self._writer.topics.get(topic)
        if sending is not None:
            sending.shut_fast_path()

    def _unblock(self, topic: str, key: bytes) -> None:
        self.blocked.unblock(topic, key)
        if self.columns is not None:
            self.columns.unblock(topic, key_hash(key))

    def hears(self, error: Any, message: Any) -> Callable[[], object] | None:
        """What to do before the application hears of a failure: it knows then, and the key takes records again."""
        key = message.key() if isinstance(error, KafkaError) else None
        if key is None:
            return None
        return partial(self._exclusion.run, partial(self._unblock, message.topic() or "", key_bytes(key)))

    def failed(
        self,
        report: Any,
        sending: TopicSending[Record],
        in_flight: InFlight,
        callback: DeliveryCallback | None,
        error: KafkaError,
        message: Message,
        later: bool,
    ) -> Call | None:
        """The fate of a record that failed. See Fate.settle."""
        self._exclusion.run(partial(self._resolved, report, sending, in_flight, callback, later, error, message))
        if callback is row_failed:
            if not report.heard:
                report.heard = True
                self._row_failed(error, message)
            return None
        return None if callback is None else (callback, (error, message))

    def _resolved(
        self,
        report: Any,
        sending: TopicSending[Record],
        in_flight: InFlight,
        callback: DeliveryCallback | None,
        later: bool,
        error: KafkaError,
        message: Message,
    ) -> None:
        """Under the lock."""
        if report.counted:
            return
        self._note_fate(sending, in_flight, callback, later, error, message)
        report.counted = True
        in_flight.ended()

    def _note_fate(
        self,
        sending: TopicSending[Record],
        in_flight: InFlight,
        callback: DeliveryCallback | None,
        later: bool,
        error: KafkaError,
        message: Message,
    ) -> None:
        """Under the lock. later: the application hears of it later."""
        if may_still_arrive(error.code(), self._transactional):
            in_flight.settles_at = clock.now() + self._request_timeout
        key = message.key()
        if key is not None:
            # What was held behind it must not overtake it; and until the application knows, nothing may.
            key = key_bytes(key)
            if (later or callback in (None, row_failed)) and error.code() not in _PURGED:
                self._block(message.topic() or "", key, error)
            sending.drop_key(key, self.telling(error))

    def moved(self, report: Any, fate: _MovedFate, message: Message) -> None:
        """A moved key's first write was acknowledged: the application hears when the key's old homes are cleared."""

        def told(failure: KafkaError | None) -> None:
            callback = fate.record.callback
            if fate.told:
                pass
            elif callback is row_failed:
                fate.told = True
                if failure is not None:
                    self._row_failed(failure, message)
            elif callback is not None and (failure is not None or not self._only_errors):
                aside = PutAside((callback, (failure, message)), self.hears(failure, message))
                fate.told = True
                self.reports.deferred.append(aside)
            self._exclusion.run(partial(self._clearing.discard, fate))

        def acknowledged() -> None:
            # Before the record itself counts as resolved: READY has to wait for what follows from it.
            # One that was aborted is not there: its key's old value is the newest, and stays.
            if report.counted:
                return
            sent = False
            if fate.transaction == self._transactions.number:
                self._clearing.add(fate)
                sent = self.tombstones.send(fate.record.topic, fate.record.sending, fate.key, fate.route, told)
            if not sent:
                told(None)
            fate.in_flight.last = message
            report.counted = True
            fate.in_flight.ended()

        self._exclusion.run(acknowledged)

    def _tombstone_resolved(self, report: Any, in_flight: InFlight, error: KafkaError | None) -> None:
        def resolved() -> None:
            if report.counted:
                return
            if error is not None and may_still_arrive(error.code(), self._transactional):
                in_flight.settles_at = clock.now() + self._request_timeout
            report.counted = True
            in_flight.unresolved -= 1

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
