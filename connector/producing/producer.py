"""OrderedProducer: confluent-kafka's Producer, whose records keep each key's order while the topic's count changes."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import randrange
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from ...partitioner.errors import KeyBlockedError, PartitionRefusedError, UnmanagedTopicError
from ...partitioner.hashing import key_bytes, key_hash
from ...partitioner.routing import HINT_HEADER, Route
from ...partitioner.writers.sending import Cohort, Held, TopicSending
from .. import clock
from ..admin import TopicAdmin
from ..callbacks import wrapped
from ..config import connection_of, producer_settings
from ..consuming.group_metadata import GroupMetadata, TransactionalOffsets
from ..control.control_topics import ensure
from ..metadata import TopicIdentity, identify, is_compacted, patiently
from .log_starts import LogStarts
from .tombstoning import MoveTombstones
from .writer_session import WriterSession

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

    from ..arrow.producing import ColumnProducing
    from ..arrow.tally import Failure

DeliveryCallback = Callable[[KafkaError | None, Message], None]
Headers = list[tuple[str, Any]] | dict[str, Any] | None
_STICKY_SECONDS = 0.01
_HOLD_TIMES = 100_000
# The application dropped these by purge() or by aborting: it knows.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_UNRESOLVED = {KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT}


# A program may end without close(), as confluent_kafka lets it: its lease must not keep the next change waiting.
_OPEN: WeakSet[OrderedProducer] = WeakSet()


@atexit.register
def _leave_all() -> None:
    for producer in list(_OPEN):
        producer.leave()


class _Record:
    """What produce() was given, kept while the record is held."""

    __slots__ = ("callback", "headers", "sending", "timestamp", "topic", "value")

    def __init__(
        self,
        topic: str,
        sending: TopicSending[_Record],
        value: Any,
        callback: DeliveryCallback | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        self.topic, self.sending, self.value = topic, sending, value
        self.callback, self.timestamp, self.headers = callback, timestamp, headers


def _row_failed(error: KafkaError | None, message: Message) -> None:
    """Stands where a callback would: the record is a row of produce_arrow, whose failures are kept for arrow_failures."""


class OrderedProducer:
    """A producer for managed topics. Used as confluent_kafka.Producer, with the same settings; thread-safe.

    Keyed records go to their key's home and carry a hint header once the key has moved. While a layout change is
    prepared, records of moving keys are held (typically for some ten milliseconds) and all others flow. A topic that is
    not managed yet is adopted on first use unless `keyorder.adopt` is false.

    Raises ConfigError for settings that order does not allow (`acks`, `partitioner`, `enable.idempotence`).
    """

    def __init__(self, config: Mapping[str, Any], /, **kwargs: Any) -> None:
        self._settings, theirs = producer_settings({**config, **kwargs} if kwargs else config)
        self._config = dict(theirs)
        self._bootstrap = str(theirs.get("bootstrap.servers"))
        self._events: deque[Callable[[], object]] = deque()
        self._raw = Producer(wrapped(theirs, self._run_event))
        self._produce_raw = self._raw.produce
        self._lock = threading.Lock()
        self._session = WriterSession(connection_of(theirs), self._settings, self._raw, self._lock, self._pump)
        self._topics: dict[str, TopicSending[_Record]] = {}
        self._first_use_lock = threading.Lock()
        self._deferred: deque[tuple[DeliveryCallback, KafkaError | None, Message]] = deque()
        self._blocked: dict[tuple[str, bytes], str] = {}
        self._sticky: dict[str, tuple[int, float]] = {}
        self._log_starts = LogStarts(connection_of(theirs))
        self._tombstones = MoveTombstones(self._raw, self._tombstone_resolved, self._log_starts.of)
        self._offsets: set[TransactionalOffsets] = set()
        self._columns: ColumnProducing | None = None
        self._session.harvest = self._harvest
        self._clearing = 0
        self._held = 0
        self._hold_times: deque[float] = deque(maxlen=_HOLD_TIMES)
        self._closed = False
        self._session.start()
        _OPEN.add(self)

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
        """Queue a record. Arguments as confluent_kafka.Producer.produce; a partition is refused unless allowed.

        Raises BufferError (the queue is full: call poll), KeyTypeError, PartitionRefusedError, KeyBlockedError,
        TopicNotFoundError, UnmanagedTopicError, NotAuthorizedError, BrokerUnreachableError, IneligibleWriterError.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        data = None if key is None else key_bytes(key)
        known = self._topics.get(topic)
        if data is not None and partition < 0 and known is not None:
            with self._lock:
                if self._flows(known, topic, data, value, on_delivery or callback, timestamp, headers):
                    return
        explicit = partition if partition >= 0 else None
        if explicit is not None and not self._settings.allow_explicit_partition:
            raise PartitionRefusedError(topic, partition)
        sending = self._topics.get(topic) or self._first_use(topic)
        record = _Record(topic, sending, value, on_delivery or callback, timestamp, headers)
        with self._lock:
            if self._session.failure is not None:
                raise self._session.failure
            if data is not None and (self._blocked or (self._columns is not None and self._columns.blocked)):
                self._refuse_blocked(topic, data)
            route = sending.routing.of(data) if data is not None and explicit is None else None
            now = clock.now()
            if explicit is not None and explicit >= sending.timeline.newest.count:
                raise PartitionRefusedError(topic, explicit, sending.timeline.newest.count)
            retiring = explicit is not None and sending.retiring(explicit)
            if now >= self._session.send_until or retiring or sending.must_wait(data, route):
                if self._held >= self._settings.hold_limit:
                    raise BufferError("Local: Queue full (records are held by a layout change or a lapsed lease)")
                sending.hold(data, record, now, explicit)
                self._held += 1
            else:
                self._hand_over(record, data, route, explicit)

    def _flows(
        self,
        sending: TopicSending[_Record],
        topic: str,
        key: bytes,
        value: Any,
        callback: DeliveryCallback | None,
        timestamp: int,
        headers: Headers,
    ) -> bool:
        """Send the usual record at once: nothing is held, blocked or being prepared, and its key never moved.

        Under the lock. The short way of what `produce` does for all others.
        """
        routing = sending.routing
        if sending.held or routing.preparing or self._blocked or self._session.failure is not None:
            return False
        if clock.now() >= self._session.send_until:
            return False
        route = routing.of(key)
        if route.hint or (self._columns is not None and self._columns.blocked):
            return False
        cohort = sending.cohort(route.home)
        told = cohort.told
        if told is None or told[0] is not callback:
            told = cohort.told = callback, partial(self._delivered, sending, cohort, callback)
        if headers is None:
            self._produce_raw(topic, value, key, route.home, told[1], None, timestamp)
        else:
            self._produce_raw(topic, value, key, route.home, told[1], None, timestamp, headers)
        cohort.unresolved += 1
        return True

    def produce_control_record(
        self, topic: str, partition: int, key: bytes, value: bytes, on_delivery: DeliveryCallback
    ) -> None:
        """A record of keyorder's own, in the same transaction as the user's, to a topic whose layout never changes."""
        self._raw.produce(topic, value, key, partition, on_delivery=on_delivery)

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
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise TypeError("messages must be a list of dicts")
        queued, stopped = 0, dict[Any, KafkaError]()
        for message in messages:
            key = message.get("key")
            if key in stopped:
                message["_error"] = stopped[key]
                continue
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    key,
                    message.get("partition", partition),
                    on_delivery=message.get("callback") or message.get("on_delivery") or on_delivery or callback,
                    timestamp=message.get("timestamp", 0),
                    headers=message.get("headers"),
                )
                queued += 1
            except BufferError as error:
                message["_error"] = stopped[key] = KafkaError(KafkaError._QUEUE_FULL, str(error))
            except (KafkaException, KeyBlockedError) as error:
                cause = error.args[0]
                failed = cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
                message["_error"] = stopped[key] = failed
        return queued

    def produce_arrow(self, topic: str, data: RecordBatch | Table) -> int:
        """Queue the rows of a pyarrow.RecordBatch or Table, in their order; waits for room in the queue.

        Columns: key, value (binary or string, null for none), headers (list of struct of key and value), timestamp; others
        are ignored. Order is kept as by produce(), also with records of that. There are no callbacks: `arrow_failures`
        tells of rows that were not delivered, once flush() has returned.

        Returns how many rows were taken. Fewer than given: the next one cannot be, and raises when it comes first: as
        produce(), and KafkaException for one that is too large, UsageError for a column of another type, BufferError when
        nothing was taken within `keyorder.control.timeout.ms`. Raises ModuleNotFoundError without `keyorder[arrow]`.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        if self._columns is None:
            from ..arrow.library import native
            from ..arrow.producing import ColumnProducing

            with self._lock:
                self._columns = self._columns or ColumnProducing(
                    self, native({"keyorder.arrow.native": self._settings.arrow_native})
                )
        return self._columns.produce(topic, data)

    def arrow_failures(self) -> list[Failure]:
        """Rows of produce_arrow that failed since the last call: topic, partition (-1: none yet), error code, hash of the key.

        Purged ones are among them. None, once flush() has left nothing: every row was acknowledged.

        A key of which a row has failed takes no more records until this, or a KeyBlockedError, has told.
        """
        if self._columns is None:
            return []
        with self._lock:
            return self._columns.failures()

    def poll(self, timeout: float = -1) -> int:
        """Run delivery callbacks for up to `timeout` seconds (-1: until there is one). Returns how many events ran."""
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            served = self._run_deferred() + int(self._raw.poll(self._slice(deadline)))
            served += self._run_deferred()
            if served or (deadline is not None and clock.now() >= deadline):
                return served

    def flush(self, timeout: float = -1) -> int:
        """Wait until every record, held ones included, is delivered or failed. Returns how many are left."""
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            self._run_deferred()
            self._raw.flush(self._slice(deadline))
            self._run_deferred()
            left = len(self)
            if left and self._session.failure is not None:
                raise self._session.failure
            if not left or (deadline is not None and clock.now() >= deadline):
                return left

    def __len__(self) -> int:
        """Records that are held or on their way, and callbacks not yet run."""
        return len(self._raw) + self._held + self._clearing + len(self._deferred)

    def __bool__(self) -> bool:
        return True

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records; their callbacks hear of it. Held records count as queued."""
        if in_queue:
            with self._lock:
                dropped = [held for sending in self._topics.values() for held in sending.drop_held()]
                self._held -= len(dropped)
            self._report(dropped, KafkaError(KafkaError._PURGE_QUEUE))
        self._raw.purge(in_queue, in_flight, blocking)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """The cluster's metadata, as confluent_kafka.Producer.list_topics."""
        return self._raw.list_topics(topic, timeout) if topic is not None else self._raw.list_topics(timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """As confluent_kafka.Producer.cluster_id."""
        return self._raw.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka.Producer.set_sasl_credentials; for the clients beside it as well."""
        self._raw.set_sasl_credentials(username, password)
        self._config |= {"sasl.username": username, "sasl.password": password}
        self._session.set_sasl_credentials(username, password)

    def init_transactions(self, timeout: float = -1) -> None:
        """As confluent_kafka.Producer.init_transactions."""
        self._raw.init_transactions(timeout)

    def begin_transaction(self) -> None:
        """As confluent_kafka.Producer.begin_transaction."""
        self._raw.begin_transaction()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Wait for held records, then commit, as confluent_kafka.Producer.commit_transaction.

        After an error that is neither retriable nor asks for an abort its result is unknown: close this producer, make a
        new one under the same `transactional.id` and let it `init_transactions()`, which decides it.
        """
        self.flush(timeout)
        self._raw.commit_transaction(timeout)
        self._end_offsets(True)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop held records (their callbacks hear of a purge), then abort the transaction."""
        self.purge(in_queue=True, in_flight=False)
        self._raw.abort_transaction(timeout)
        if self._columns is not None:
            with self._lock:
                self._columns.forget_purged()
        self._end_offsets(False)

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: Any, timeout: float = -1) -> None:
        """As confluent_kafka.Producer.send_offsets_to_transaction, with what opens gates in the offsets' metadata.

        group_metadata: of OrderedConsumer.consumer_group_metadata(). Raises ConfigError when that one commits by itself.
        """
        if isinstance(group_metadata, GroupMetadata):
            positions = group_metadata.offsets.stamp(positions)
            self._offsets.add(group_metadata.offsets)
        self._raw.send_offsets_to_transaction(positions, group_metadata, timeout)

    def _end_offsets(self, committed: bool | None) -> None:
        while self._offsets:
            self._offsets.pop().ended(committed)

    def hold_times(self) -> list[float]:
        """Seconds that held records waited before they were sent, since the last call; the newest 100 000 of them."""
        with self._lock:
            times = list(self._hold_times)
            self._hold_times.clear()
        return times

    def close(self, timeout: float = -1) -> bool:
        """Deliver everything, leave the writer set, release all resources. True when nothing was left undelivered."""
        if self._closed:
            return True
        try:
            left = self.flush(timeout)
        except KafkaException as raised:
            # Fenced or otherwise fatal: whoever sent through it has heard, and nothing more will be delivered.
            if not raised.args[0].fatal():
                raise
            left = len(self)
        finally:
            self._closed = True
            self._session.stop(10)
            self._log_starts.close()
            if self._columns is not None:
                self._columns.close()
            self._raw.close()
            self._end_offsets(None)
        return left == 0

    def leave(self, timeout: float = 2.0) -> None:
        """Leave the writer set if nothing is on its way; else the lease runs out by itself, as after a crash."""
        if not self._closed and not len(self._raw):
            self._closed = True
            self._session.stop(timeout)

    def __enter__(self) -> OrderedProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first_use(self, topic: str) -> TopicSending[_Record]:
        """Join the topic's writers: once per topic and process, on the caller's thread, so that errors reach it."""
        with self._first_use_lock:
            known = self._topics.get(topic)
            if known is not None:
                return known
            if self._session.failure is not None:
                raise self._session.failure
            identity = patiently(lambda: self._look_up(topic), self._settings.control_timeout)
            try:
                sending = self._session.admit(topic)
            except UnmanagedTopicError:
                if not self._settings.adopt:
                    raise
                TopicAdmin(connection_of(self._config)).adopt(topic)
                sending = self._session.admit(topic)
            sending.timeline.check_identity(identity.topic_id, identity.cluster_id)
            if self._tombstones.clears(topic):
                self._log_starts.follow(topic, lambda: sending.timeline.highest_count)
            self._topics[topic] = sending
            return sending

    def _look_up(self, topic: str) -> TopicIdentity:
        """See that the topic and the control topics are there, through a client that knows no dead broker yet."""
        admin = AdminClient(connection_of(self._config))
        identity = identify(admin, topic, self._bootstrap, 5.0)
        ensure(admin, self._bootstrap, 5.0)
        self._tombstones.topic_is(topic, is_compacted(admin, topic, self._bootstrap))
        return identity

    def _hand_over(self, record: _Record, key: bytes | None, route: Route | None, explicit: int | None) -> None:
        """Give a record to the client library. Under the lock. Raises BufferError when its queue is full."""
        headers = record.headers
        if explicit is not None:
            partition = explicit
        elif route is None:
            partition = self._place_unkeyed(record.topic, record.sending)
        else:
            partition = route.home
            if route.header is not None:
                headers = _with_hint(headers, route.header)
        cohort = record.sending.cohort(partition)
        done: DeliveryCallback
        if key is not None and route is not None and self._tombstones.needed(record.topic, key, route):
            done = partial(self._delivered_moved, record, cohort, key, route)
        else:
            told = cohort.told
            if told is None or told[0] is not record.callback:
                told = cohort.told = record.callback, partial(self._delivered, record.sending, cohort, record.callback)
            done = told[1]
        if headers is None:
            self._raw.produce(record.topic, record.value, key, partition, on_delivery=done, timestamp=record.timestamp)
        else:
            self._raw.produce(
                record.topic,
                record.value,
                key,
                partition,
                on_delivery=done,
                timestamp=record.timestamp,
                headers=headers,
            )
        cohort.unresolved += 1

    def _harvest(self) -> None:
        """Under the lock: count what has become of rows."""
        if self._columns is not None:
            self._columns.harvest()

    def _take_row(
        self,
        topic: str,
        sending: TopicSending[_Record],
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> bool:
        """A row that goes as a single record. Under the lock. False when there is no room for it."""
        record = _Record(topic, sending, value, _row_failed, timestamp, headers)
        route = None if key is None else sending.routing.of(key)
        if sending.must_wait(key, route):
            if self._held >= self._settings.hold_limit:
                return False
            sending.hold(key, record, clock.now())
            self._held += 1
            return True
        try:
            self._hand_over(record, key, route, None)
        except BufferError:
            return False
        return True

    def _drop_behind(self, topic: str, hashed: int, code: int) -> None:
        """A row has failed: what is held of its key must not overtake it. Under the lock."""
        sending = self._topics[topic]
        for key in [key for key in sending.held_keys if key is not None and key_hash(key) == hashed]:
            dropped = sending.drop_key(key)
            self._held -= len(dropped)
            self._report(dropped, KafkaError(code))

    def _place_unkeyed(self, topic: str, sending: TopicSending[_Record]) -> int:
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

    def _delivered(
        self,
        sending: TopicSending[_Record],
        cohort: Cohort,
        callback: DeliveryCallback | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """A record's fate. Runs on whichever thread polls; the user's callback only ever on a thread of the user's."""
        ours = threading.get_ident() == self._session.ident
        if error is None and not ours:
            with self._lock:
                cohort.unresolved -= 1
                offset = message.offset()
                if offset is not None and offset >= sending.acknowledged.get(cohort.partition, 0):
                    sending.acknowledged[cohort.partition] = offset + 1
            if callback is not None:
                callback(None, message)
            return
        dropped: list[Held[_Record]] = []
        with self._lock:
            cohort.unresolved -= 1
            if error is None:
                offset = message.offset()
                if offset is not None and offset >= sending.acknowledged.get(cohort.partition, 0):
                    sending.acknowledged[cohort.partition] = offset + 1
            else:
                if error.code() in _UNRESOLVED:
                    cohort.settles_at = clock.now() + self._settings.request_timeout
                key = message.key()
                if key is not None:
                    # What was held behind it must not overtake it; and until the application knows, nothing may.
                    key = key_bytes(key)
                    dropped = sending.drop_key(key)
                    self._held -= len(dropped)
                    if (ours or callback in (None, _row_failed)) and error.code() not in _PURGED:
                        self._blocked[(message.topic() or "", key)] = error.str()
        if callback is _row_failed:
            if error is not None:
                self._row_failed(error, message)
        elif callback is not None:
            if ours:
                self._deferred.append((callback, error, message))
            else:
                callback(error, message)
        if error is not None:
            self._report(dropped, error)

    def _delivered_moved(
        self, record: _Record, cohort: Cohort, key: bytes, route: Route, error: KafkaError | None, message: Message
    ) -> None:
        """The first write of a moved key on a compacted topic: the application hears when its old homes are cleared."""
        if error is not None:
            self._delivered(record.sending, cohort, record.callback, error, message)
            return

        def cleared(failure: KafkaError | None) -> None:
            if record.callback is _row_failed:
                if failure is not None:
                    self._row_failed(failure, message)
            elif record.callback is not None:
                self._deferred.append((record.callback, failure, message))
            with self._lock:
                self._clearing -= 1

        with self._lock:
            # Before the record itself counts as resolved: READY has to wait for what follows from it.
            self._clearing += 1
            self._tombstones.send(record.topic, record.sending, key, route, cleared)
        self._delivered(record.sending, cohort, None, None, message)

    def _tombstone_resolved(self, cohort: Cohort, error: KafkaError | None) -> None:
        with self._lock:
            cohort.unresolved -= 1
            if error is not None and error.code() in _UNRESOLVED:
                cohort.settles_at = clock.now() + self._settings.request_timeout

    def _report(self, dropped: list[Held[_Record]], error: KafkaError) -> None:
        for held in dropped:
            if held.record.callback is _row_failed:
                self._row_failed(error, _undelivered(held))
            elif held.record.callback is not None:
                self._deferred.append((held.record.callback, error, _undelivered(held)))

    def _row_failed(self, error: KafkaError, message: Message) -> None:
        """A row of produce_arrow that went as a single record. With or without the lock."""
        if self._columns is not None:
            place, key = message.partition(), message.key()
            self._columns.note(
                message.topic() or "",
                -1 if place is None else place,
                error.code(),
                None if key is None else key_bytes(key),
            )

    def _run_event(self, call: Callable[[], object]) -> None:
        """An event callback of the application: on its own threads alone."""
        if threading.current_thread() is self._session:
            self._events.append(call)
        else:
            call()

    def _run_deferred(self) -> int:
        count = 0
        while self._events:
            self._events.popleft()()
            count += 1
        while self._deferred:
            callback, error, message = self._deferred.popleft()
            key = message.key()
            if error is not None and key is not None:
                with self._lock:
                    self._blocked.pop((message.topic() or "", key_bytes(key)), None)
                    if self._columns is not None:
                        self._columns.blocked.pop((message.topic() or "", key_hash(key_bytes(key))), None)
            callback(error, message)
            count += 1
        return count

    def _refuse_blocked(self, topic: str, key: bytes) -> None:
        """Raise once for a key whose earlier record failed unheard: with this the application knows."""
        detail = self._blocked.pop((topic, key), None)
        if detail is not None:
            raise KeyBlockedError(topic, detail)
        if self._columns is not None:
            self._columns.refuse(topic, key_hash(key))

    def _pump(self) -> None:
        """Send what no longer has to wait. Called by the session's thread after every turn."""
        self._tombstones.pump()
        with self._lock:
            self._harvest()
            for sending in self._topics.values():
                if sending.held:
                    self._held -= sending.release(self._release_one)

    def _release_one(self, held: Held[_Record], route: Route | None) -> bool:
        now = clock.now()
        if now >= self._session.send_until:
            return False
        timeline = held.record.sending.timeline
        if held.partition is not None and held.partition >= timeline.newest.count:
            self._report([held], KafkaError(KafkaError._UNKNOWN_PARTITION))  # it was retired while the record waited
            return True
        try:
            self._hand_over(held.record, held.key, route, held.partition)
        except BufferError:
            return False
        except KafkaException as raised:
            self._report([held], raised.args[0])
        self._hold_times.append(now - held.since)
        return True

    def _slice(self, deadline: float | None) -> float:
        """A wait short enough to notice what the session's thread has put aside for this one."""
        return 0.05 if deadline is None else max(0.0, min(0.05, deadline - clock.now()))


def _undelivered(held: Held[_Record]) -> Message:
    record = held.record
    return Message(topic=record.topic, key=held.key, value=record.value, headers=None, error=None)


def _with_hint(headers: Headers, hint: bytes) -> list[tuple[str, Any]]:
    """The user's headers and the hint; a header of that name from the user gives way."""
    if not headers:
        return [(HINT_HEADER, hint)]
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [*(pair for pair in pairs if pair[0] != HINT_HEADER), (HINT_HEADER, hint)]
