"""OrderedProducer: confluent-kafka's Producer, whose records keep each key's order while the topic's count changes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from ...partitioner.errors import PartitionRefusedError
from ...partitioner.hashing import key_bytes
from ...partitioner.records.control_records import WRITERS_TOPIC
from ...partitioner.writers.sending import TopicSending
from .. import clock
from ..config import connection_of, given, producer_settings
from ..extras import needs_extra
from ..figures import ProducerFigures, shown
from ..forked import not_freed_in_children
from ..guarded_logger import passing
from ..interruptible import take_each
from ..library_calls import shielded
from ..link import ClusterLink
from ..metadata import cluster_id_of, take_id
from ..never_made import is_made, never_made
from ..weakly import weakly
from .at_exit import leave_at_exit
from .batches import produce_each
from .deliveries import Deliveries
from .exclusion import Exclusion
from .held_record import DeliveryCallback, Headers, Record, with_hint
from .holding import Holding
from .log_starts import LogStarts
from .lost_interrupts import raise_lost_interrupt
from .record_sender import REFUSED, RecordSender
from .report_poller import DeliveryReportPoller
from .reports import Reports, came_of_a_callback
from .topic_registration import TopicRegistration
from .transactions import Transactions
from .unmanaged_topics import UnmanagedTopics
from .writer_session import Sending, WriterSession, new_writer

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

    from ..arrow.delivery_counters import Failure

_now = clock.now
_EVENTS = ("error_cb", "throttle_cb", "stats_cb")
# What a method looks at first.
_PARTS = frozenset({"_exclusion", "_lock", "_raw", "_session", "_topics", "_transactions", "_writer"})
# How long close() waits for the session's thread to leave the writer set, and for other threads to leave the client. Seconds.
_PATIENCE = 10.0
# How long close(timeout) waits for the end of a transaction that it drops. Seconds.
_LAST_WORD = 1.0


class OrderedProducer(cimpl.Producer):
    """A producer for managed topics. Used as confluent_kafka.Producer, with the same settings; thread-safe.

    Keyed records go to their key's home and carry a hint header once the key has moved. While a layout change is
    prepared, records of moving keys are held (typically for some ten milliseconds) and all others flow. A topic that is
    not managed yet is adopted on first use unless `keyorder.adopt` is false.

    Raises ConfigError for settings that order does not allow (`acks`, `partitioner`, `enable.idempotence`).
    """

    # A Producer by type alone: what works is the client behind `_raw`, and every method is overridden. The base's instances
    # are not laid out as Python's own, which makes an attribute in the dict slow to read: what produce() reads has a slot.
    # The base comes from `cimpl`: a tracing library may have put a subclass in the place of confluent_kafka.Producer.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_closed",
        "_deliveries",
        "_exclusion",
        "_lock",
        "_on_delivery",
        "_produce",
        "_record_sender",
        "_registration",
        "_session",
        "_settings",
        "_told",
        "_topics",
        "_unmanaged",
        "_writer",
    )  # fmt: skip

    def __new__(cls, *_: Any, **__: Any) -> OrderedProducer:
        """Not usable before `__init__`, and says so."""
        made = super().__new__(cls)
        never_made(made, _PARTS, "Producer has been closed")
        return made

    def __init__(self, config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> None:
        self._settings, theirs = producer_settings(given(config, kwargs))
        self._config = dict(theirs)
        self._on_delivery: DeliveryCallback | None = self._settings.on_delivery
        connection = connection_of(theirs)
        self._reports = Reports({name: theirs[name] for name in _EVENTS if callable(theirs.get(name))})
        self._raw = Producer({**passing(theirs), **self._reports.noting_events()})
        self._exclusion = Exclusion()
        self._lock = self._exclusion.lock
        self._link = ClusterLink(connection)
        self._writer = new_writer(str(connection.get("client.id", "writer")), self._settings)
        self._log_starts = LogStarts(self._link)
        self._topics: dict[str, TopicSending[Record]] = {}
        limits = self._settings.hold_limit, self._settings.hold_limit_bytes, self._settings.terms.delivery_timeout
        self._holding = Holding(self._topics, *limits)
        self._transactions = Transactions(self._raw, self._settings.transactional_id is not None)
        self._deliveries = Deliveries(
            self._raw,
            self._reports,
            self._exclusion,
            self._settings,
            self._writer,
            self._holding,
            self._transactions,
            self._log_starts.of,
        )
        self._reports.hears = self._deliveries.hears
        broken_off = partial(self._exclusion.run, self._deliveries.doubt)
        self._serving = DeliveryReportPoller(self._raw, self._reports, self._exclusion.settle, broken_off)
        self._record_sender = RecordSender(
            self._raw,
            self._exclusion,
            self._writer,
            self._settings.most_bytes,
            self._deliveries,
            self._holding,
            self._transactions,
            self._topics,
        )
        sending = Sending(
            weakly(self._serving.for_session),
            weakly(self._deliveries.harvest),
            weakly(self._record_sender.pump),
            weakly(self._record_sender.fail_topic),
        )
        self._session = WriterSession(self._settings, self._writer, self._raw, self._lock, self._link, sending)
        self._unmanaged = UnmanagedTopics(self._link, self._settings)
        self._registration = TopicRegistration(
            self._config,
            self._raw,
            self._link,
            self._session,
            self._deliveries.tombstones,
            self._log_starts,
            self._topics,
        )
        self._produce, self._told = self._raw.produce, self._deliveries.told
        self._closed = False
        self._closing: Any = threading.RLock()  # not lost to a signal's exception: the same thread may try again
        self._close_wanted = self._released = False
        self._stop_showing = shown(self, self._settings.metrics_at)
        self._session.start()
        weakref.finalize(self, _let_go, self._session, self._log_starts).atexit = False
        leave_at_exit(self)
        not_freed_in_children(self)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """Queue a record. Arguments as confluent_kafka.Producer.produce.

        A partition is refused on a managed topic, unless allowed. On another one it is taken, and the topic is not adopted.

        Raises BufferError (the queue is full: call poll), KeyTypeError, PartitionRefusedError, KeyBlockedError,
        TopicNotFoundError, UnmanagedTopicError, NotAuthorizedError, BrokerUnreachableError, IneligibleWriterError;
        InterruptedError where the client library has lost what a signal handler raised: the record was not taken.
        """
        sending = self._topics.get(topic)
        # Not by what is true: a callable may be false, as a list of reports that is empty.
        done = on_delivery if on_delivery is not None else callback if callback is not None else self._on_delivery
        data = key if type(key) is bytes else None if key is None else key_bytes(key)
        if sending is not None and data is not None and partition < 0 and (fast_path := sending.fast_path) is not None:
            permit = fast_path.of[fast_path.slot(data, fast_path.period)]
            if permit is not None:
                # Without the lock: see FastPath. Started, then looked, then handed over: that order keeps the keys' order.
                in_flight = permit.in_flight
                known = in_flight.told
                told = known[1] if known[0] is done else self._told(sending, in_flight, done)
                more = with_hint(headers, permit.header) if headers or permit.header is not None else headers
                try:
                    for _ in in_flight.starts:  # a step of the counter without a call
                        break
                    if fast_path.open and _now() < self._writer.send_until:
                        self._produce(topic, value, data, in_flight.partition, told, None, timestamp, more)
                        return
                except REFUSED as error:
                    in_flight.ended()
                    raise_lost_interrupt(error, more)
                    raise
                except BaseException:
                    self._exclusion.run(self._deliveries.doubt)
                    self._settle()
                    raise
                in_flight.ended()
        if self._closed:
            raise RuntimeError("Producer has been closed")
        explicit = partition if partition >= 0 else None
        try:
            if explicit is not None and not self._settings.allow_explicit_partition:
                if sending is not None:
                    raise PartitionRefusedError(topic, partition)
                self._unmanaged.check(topic, partition)
                self._record_sender.place(topic, value, key, partition, done, timestamp, headers)
                return
            sending = sending or self._registration.first_use(topic)
            record = Record(topic, sending, value, done, timestamp, headers)
            if self._exclusion.interrupted:
                # A signal handler's record. It goes when the call that it interrupted has let go of the lock.
                self._exclusion.run(partial(self._record_sender.take_late, record, data, explicit))
                return
            with self._lock:
                self._record_sender.take(record, data, explicit)
        finally:
            self._settle()

    def join(self, topic: str) -> None:
        """Join the topic's writers now, which its first record does otherwise: it takes some round trips. Raises as produce()."""
        if self._closed:
            raise RuntimeError("Producer has been closed")
        try:
            self._registration.first_use(topic)
        finally:
            self._settle()

    def has_joined(self, topic: str) -> bool:
        """Whether this producer is one of the topic's writers, so that produce() asks the cluster nothing."""
        return topic in self._topics

    def produce_control_record(
        self, topic: str, partition: int, key: bytes, value: bytes, on_delivery: DeliveryCallback
    ) -> None:
        """A record of keyorder's own, in the same transaction as the user's, to a topic whose layout never changes."""
        self._raw.produce(topic, value, key, partition, on_delivery=shielded(on_delivery))

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Queue records given as dicts of `value`, `key`, `headers`, `partition`, `timestamp`, `callback`.

        Returns how many were queued. One that was not gets `_error`, and so do those of its key behind it. Raises
        TypeError for anything but a list of dicts, and as produce() what concerns the topic and not one record.
        """
        # A subclass's produce() may take other arguments, such as SerializingProducer's: not asked here, as in the base.
        heard = on_delivery if on_delivery is not None else callback
        return produce_each(partial(OrderedProducer.produce, self), topic, messages, partition, heard)

    def produce_arrow(self, topic: str, data: RecordBatch | Table) -> int:
        """Queue the rows of a pyarrow.RecordBatch or Table, in their order; waits for room in the queue.

        Columns: key, value (binary or string, null for none), headers (list of struct of key and value), timestamp; others
        are ignored. Order is kept as by produce(), also with records of that. There are no callbacks: `arrow_failures`
        tells of rows that were not delivered, once flush() has returned.

        Returns how many rows were taken. Fewer than given: the next one cannot be, and raises when it comes first: as
        produce(), and KafkaException for one that is too large, UsageError for a column of another type, BufferError when
        nothing was taken within `keyorder.control.timeout.ms`. Raises ModuleNotFoundError without `keyorder[arrow]`.
        An error in the middle may leave rows behind that lie before others taken: they count as taken and as failed.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        deliveries = self._deliveries
        if deliveries.columns is None:
            with needs_extra("arrow"):
                from ..arrow.library import native
                from ..arrow.producing import ColumnProducing

            with self._lock:
                deliveries.columns = deliveries.columns or ColumnProducing(
                    weakref.proxy(self), native({"keyorder.arrow.native": self._settings.arrow_native})
                )
        try:
            return deliveries.columns.produce(topic, data)
        finally:
            self._settle()

    def arrow_failures(self) -> list[Failure]:
        """Rows of produce_arrow that failed since the last call: topic, partition (-1: none yet), error code, hash of the key.

        Purged ones are among them. None, once flush() has left nothing: every row was acknowledged.

        A key of which a row has failed takes no more records until this, or a KeyBlockedError, has told.
        """
        if self._deliveries.columns is None:
            return []
        try:
            with self._lock:
                return self._deliveries.columns.failures()
        finally:
            self._settle()

    def poll(self, timeout: float = -1) -> int:
        """Run delivery callbacks for up to `timeout` seconds (-1: until there is one). Returns how many events ran."""
        try:
            self._record_sender.expire()
            return self._serving.poll(timeout)
        finally:
            self._settle()

    def flush(self, timeout: float = -1) -> int:
        """Wait until every record, held ones included, is delivered or failed. Returns how many are left.

        In a callback, or in a signal handler that interrupted another call of this producer, it does not wait for what only
        that call can do: such records are among those left.
        """
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        try:
            while True:
                self._record_sender.expire()
                self._serving.flush(deadline, bool(self._holding.count))
                left = len(self)
                if left:
                    self._writer.check()
                if not left or (deadline is not None and clock.now() >= deadline):
                    return left
                if self._serving.inside or (self._exclusion.interrupted and not len(self._raw)):
                    return left
        finally:
            self._settle()

    def __repr__(self) -> str:
        return f"<OrderedProducer {self._writer.writer_id}{', closed' if self._closed else ''}>"

    def __len__(self) -> int:
        """Records that are held or on their way, and callbacks not yet run."""
        if not is_made(self._raw):
            return 0
        return len(self._raw) + self._holding.count + self._deliveries.waiting

    def __bool__(self) -> bool:
        return True

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records; their callbacks hear of it. Held records count as queued.

        blocking: return when it is done; otherwise what is produced in the next moments may be dropped as well.

        While a topic of this producer is being changed, and for a minute after an attempt that was given up, what is in flight
        outside a transaction is told as it ends: it may still arrive, and the change would have to wait for each such purge
        until that is out of the question.
        """
        if in_queue:
            error = KafkaError(KafkaError._PURGE_QUEUE)
            self._exclusion.run(lambda: self._drop_held(error))
        if self._settings.transactional_id is None:
            now = clock.now()
            in_flight = in_flight and all(sending.purgeable(now) for sending in list(self._topics.values()))
        # The binding takes `blocking` the wrong way round: its default drops what is produced after the call, too, while later
        # records of the same key go out.
        self._in_client(partial(self._raw.purge, in_queue, in_flight, not blocking))

    def _drop_held(self, error: KafkaError) -> None:
        if self._holding.count:
            self._transactions.fail(error)
        self._holding.drop_all(self._deliveries.telling(error))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """The cluster's metadata, as confluent_kafka.Producer.list_topics."""
        if topic is None:
            return self._in_client(partial(self._raw.list_topics, timeout=timeout))
        return self._in_client(partial(self._raw.list_topics, topic, timeout))

    def cluster_id(self, timeout: float = -1) -> str:
        """As confluent_kafka.Producer.cluster_id."""
        return cluster_id_of(self._raw, self.list_topics, timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka.Producer.set_sasl_credentials; for the clients beside it as well."""
        self._raw.set_sasl_credentials(username, password)
        self._config |= {"sasl.username": username, "sasl.password": password}
        self._link.set_sasl_credentials(username, password)

    def init_transactions(self, timeout: float = -1) -> None:
        """As confluent_kafka.Producer.init_transactions."""
        log_end = self._session.log_end()
        # Without an end of its log there may be no such topic, and a question for it could make it.
        take = partial(take_id, self._raw, WRITERS_TOPIC) if log_end >= 0 else self._raw.init_transactions
        self._in_client(partial(take, timeout))
        self._session.took_id(log_end)

    def begin_transaction(self) -> None:
        """As confluent_kafka.Producer.begin_transaction."""
        try:
            with self._lock:
                self._transactions.begin()
        finally:
            self._settle()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Wait for held records, then commit, as confluent_kafka.Producer.commit_transaction.

        Raises KafkaException: `retriable()` while records are held or on their way (_TIMED_OUT: call it again),
        `txn_requires_abort()` if one of this transaction was held and then failed; _STATE if it was aborted meanwhile, by
        another thread or by a task that had cancelled this call. After another error its result is unknown: close this
        producer, make a new one under the same `transactional.id` and let it `init_transactions()`, which decides it.
        """
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        number = self._transactions.number
        OrderedProducer.flush(self, timeout)
        try:
            with self._lock:
                self._transactions.ending(number, len(self))
        finally:
            self._settle()
        left = -1 if deadline is None else max(0.0, deadline - clock.now())
        self._in_client(partial(self._transactions.commit, number, left))

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop held records (their callbacks hear of a purge), then abort the transaction."""
        purged = KafkaError(KafkaError._PURGE_QUEUE)
        with self._lock:
            over = self._transactions.aborting()
            tombstones = self._deliveries.tombstones.abort()
            self._holding.drop_all(self._deliveries.telling(purged))
        for told in tombstones:
            told(purged)
        # What the client library has queued it drops itself. To purge it here would skip sequence numbers.
        self._in_client(partial(self._transactions.abort, timeout))
        with self._lock:
            self._deliveries.blocked.forget_transactions(over)
            if self._deliveries.columns is not None:
                self._deliveries.columns.forget_purged()
        self._transactions.ended(False)

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: Any, timeout: float = -1) -> None:
        """As confluent_kafka.Producer.send_offsets_to_transaction, with what opens gates in the offsets' metadata.

        group_metadata: of OrderedConsumer.consumer_group_metadata(). Raises ConfigError when that one commits by itself.
        """
        self._in_client(partial(self._transactions.send_offsets, positions, group_metadata, timeout))

    def figures(self) -> ProducerFigures:
        """What it holds and knows now, for metrics; see `keyorder.metrics`. Any thread may ask, and nobody is waited for."""
        topics = dict(self._topics)
        return ProducerFigures(
            writer=self._writer.writer_id,
            held={topic: len(sending.held) for topic, sending in topics.items()},
            held_bytes={topic: sending.held_bytes for topic, sending in topics.items()},
            changing={topic: sending.preparing for topic, sending in topics.items()},
            epochs={topic: sending.timeline.newest.number for topic, sending in topics.items()},
            lease_left=max(0.0, self._writer.send_until - _now()),
            hold_times=self._holding.durations,
        )

    def hold_times(self) -> list[float]:
        """Seconds that held records waited before they were sent, since the last call; the newest 100 000 of them."""
        try:
            with self._lock:
                return self._holding.times()
        finally:
            self._settle()

    def close(self, timeout: float = -1) -> bool:
        """Deliver everything, leave the writer set, release all resources. True when nothing was left undelivered.

        timeout: seconds for the delivery. What is left then is dropped, and its callbacks hear of that.

        May be called anywhere. In a signal handler or a callback beneath another call of this producer it returns False at
        once: the producer is closed when that call ends.
        """
        if self._exclusion.interrupted or self._serving.inside:
            self._close_wanted = True
            return False
        if not self._closing.acquire(blocking=False):
            return False  # another thread, or the call that was interrupted here, is at it
        try:
            return self._close(timeout)
        finally:
            self._closing.release()

    def _close(self, timeout: float) -> bool:
        if self._released:
            return True
        told: list[BaseException] = []
        release = self._raw.close if timeout is None or timeout < 0 else self._release_at_once
        try:
            left = self._deliver_all(timeout, told)
        except KafkaException as raised:
            # Fenced or otherwise fatal: whoever sent through it has heard, and nothing more will be delivered.
            if not raised.args[0].fatal():
                raise
            left = len(self)
        finally:
            try:
                take_each(
                    [
                        self._end,
                        partial(self._session.stop, _PATIENCE),
                        self._log_starts.close,
                        self._close_columns,
                        partial(self._serving.end, _PATIENCE),
                        partial(self._serving.release, release),
                        partial(self._serving.release, release),  # if the first was broken off
                        self._note_released,
                        self._stop_showing,
                        partial(self._transactions.ended, None),
                    ]
                )
            except BaseException as raised:
                told.append(raised)
        if told:
            raise told[0]
        return left == 0

    def _deliver_all(self, timeout: float, told: list[BaseException]) -> int:
        """flush() to its end, whatever callbacks raise meanwhile. told: takes the first of that. Returns how many are left."""
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            try:
                return OrderedProducer.flush(self, -1 if deadline is None else max(0.0, deadline - clock.now()))
            except BaseException as raised:
                # What a signal handler raises breaks it off, and so does Ctrl-C wherever it comes.
                if isinstance(raised, (KeyboardInterrupt, SystemExit)) or not came_of_a_callback(raised):
                    raise
                if not told:
                    told.append(raised)  # no more: each keeps its frames, and they the messages
                if deadline is not None and clock.now() >= deadline:
                    return len(self)

    def _release_at_once(self) -> None:
        """The library's close() waits for what is left, and for the end of a transaction: that is dropped, and told as dropped.

        It may still arrive, so the lease was not given back. Where the transaction's coordinator is silent the client is left
        to end with this object.
        """
        if len(self._raw):
            self._raw.purge(True, True, False)  # see purge
        if self._transactions.transactional:
            try:
                self._transactions.abort(_LAST_WORD)
            except KafkaException as raised:
                if raised.args[0].code() == KafkaError._TIMED_OUT:
                    return
            except RuntimeError:
                return  # it has been closed: this is the second call, for a first one that was broken off
        self._raw.close()

    def _close_columns(self) -> None:
        if self._deliveries.columns is not None:
            self._deliveries.columns.close()

    def _note_released(self) -> None:
        self._released = True

    def leave(self, timeout: float = 2.0) -> None:
        """Leave the writer set if nothing is on its way; else the lease runs out by itself, as after a crash."""
        if not self._closed and not len(self._raw):
            self._end()
            self._session.stop(timeout)

    def __enter__(self) -> OrderedProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self) -> None:
        """Nothing more is taken."""
        with self._lock:
            self._closed = True
            for sending in self._topics.values():
                sending.shut_fast_path()

    def _in_client(self, call: Callable[[], Any]) -> Any:
        try:
            return self._serving.beneath(call)
        finally:
            self._settle()

    def _settle(self) -> None:
        """What a signal handler or a callback beneath the call that ends now could not do: see Exclusion."""
        self._exclusion.settle()
        if self._close_wanted and not self._exclusion.interrupted and not self._serving.inside:
            self._close_wanted = False
            self.close()


def _let_go(session: WriterSession, log_starts: LogStarts) -> None:
    """A producer was dropped without close(): its threads end by themselves."""
    session.let_go()
    log_starts.let_go()
