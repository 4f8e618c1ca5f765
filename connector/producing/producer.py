"""OrderedProducer: confluent-kafka's Producer, whose records keep each key's order while the topic's count changes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ...partitioner.errors import PartitionRefusedError
from ...partitioner.hashing import key_bytes
from .. import clock
from ..callbacks import wrapped
from ..config import connection_of, producer_settings
from .admission import Admission
from .at_exit import leave_at_exit
from .batches import produce_each
from .deliveries import Deliveries
from .handover import Handover
from .held_record import DeliveryCallback, Headers, Record, with_hint
from .holding import Holding
from .log_starts import LogStarts
from .transactions import Transactions
from .writer_session import WriterSession

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

    from ..arrow.tally import Failure

_now = clock.now
# What the client library raises for a record that it has not taken. After anything else (a signal's) it may have.
_REFUSED = (BufferError, KafkaException, TypeError, ValueError, OverflowError, RuntimeError)


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
        connection = connection_of(theirs)
        self._raw = Producer(wrapped(theirs, lambda call: self._deliveries.run_event(call)))
        self._lock = threading.Lock()
        self._session = WriterSession(connection, self._settings, self._raw, self._lock, lambda: self._handover.pump())
        self._log_starts = LogStarts(connection)
        self._holding = Holding(self._settings.hold_limit)
        self._deliveries = Deliveries(self._raw, self._lock, self._session, self._holding, self._log_starts.of)
        self._serving = self._deliveries.serving
        self._handover = Handover(self._raw, self._lock, self._session, self._deliveries, self._holding)
        self._topics = self._handover.topics
        self._admission = Admission(
            self._config, self._session, self._deliveries.tombstones, self._log_starts, self._topics
        )
        self._transactions = Transactions(self._raw)
        self._session.harvest, self._session.serve = self._deliveries.harvest, self._serving.for_session
        self._produce, self._told = self._raw.produce, self._deliveries.told
        self._closed = False
        self._session.start()
        leave_at_exit(self)

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
        sending, done = self._topics.get(topic), on_delivery or callback
        data = key if type(key) is bytes else None if key is None else key_bytes(key)
        if sending is not None and data is not None and partition < 0 and (lanes := sending.lanes) is not None:
            lane = lanes.of[lanes.slot(data, lanes.period)]
            if lane is not None:
                # Without the lock: see Lanes. Started, then looked, then handed over: that order keeps the keys' order.
                cohort = lane.cohort
                known = cohort.told
                told = known[1] if known[0] is done else self._told(sending, cohort, done)
                more = headers if lane.header is None else with_hint(headers, lane.header)
                cohort.started()
                if lanes.open and _now() < self._session.send_until:
                    try:
                        self._produce(topic, value, data, cohort.partition, told, None, timestamp, more)
                    except _REFUSED:
                        cohort.ended()
                        raise
                    return
                cohort.ended()
        if self._closed:
            raise RuntimeError("Producer has been closed")
        explicit = partition if partition >= 0 else None
        if explicit is not None and not self._settings.allow_explicit_partition:
            raise PartitionRefusedError(topic, partition)
        sending = sending or self._admission.first_use(topic)
        record = Record(topic, sending, value, done, timestamp, headers)
        with self._lock:
            self._handover.take(record, data, explicit)

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
        return produce_each(self.produce, topic, messages, partition, on_delivery or callback)

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
            from ..arrow.library import native
            from ..arrow.producing import ColumnProducing

            with self._lock:
                deliveries.columns = deliveries.columns or ColumnProducing(
                    self, native({"keyorder.arrow.native": self._settings.arrow_native})
                )
        return deliveries.columns.produce(topic, data)

    def arrow_failures(self) -> list[Failure]:
        """Rows of produce_arrow that failed since the last call: topic, partition (-1: none yet), error code, hash of the key.

        Purged ones are among them. None, once flush() has left nothing: every row was acknowledged.

        A key of which a row has failed takes no more records until this, or a KeyBlockedError, has told.
        """
        if self._deliveries.columns is None:
            return []
        with self._lock:
            return self._deliveries.columns.failures()

    def poll(self, timeout: float = -1) -> int:
        """Run delivery callbacks for up to `timeout` seconds (-1: until there is one). Returns how many events ran."""
        return self._serving.poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        """Wait until every record, held ones included, is delivered or failed. Returns how many are left."""
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            self._serving.flush(deadline)
            left = len(self)
            if left and self._session.failure is not None:
                raise self._session.failure
            if not left or (deadline is not None and clock.now() >= deadline):
                return left

    def __len__(self) -> int:
        """Records that are held or on their way, and callbacks not yet run."""
        return len(self._raw) + self._holding.count + self._deliveries.waiting

    def __bool__(self) -> bool:
        return True

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records; their callbacks hear of it. Held records count as queued."""
        if in_queue:
            with self._lock:
                dropped = self._holding.drop_all(self._topics.values())
            self._deliveries.report(dropped, KafkaError(KafkaError._PURGE_QUEUE))
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
        self._session.initialized = True

    def begin_transaction(self) -> None:
        """As confluent_kafka.Producer.begin_transaction."""
        self._raw.begin_transaction()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Wait for held records, then commit, as confluent_kafka.Producer.commit_transaction.

        After an error that is neither retriable nor asks for an abort its result is unknown: close this producer, make a
        new one under the same `transactional.id` and let it `init_transactions()`, which decides it.
        """
        self.flush(timeout)
        self._transactions.commit(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop held records (their callbacks hear of a purge), then abort the transaction."""
        self.purge(in_queue=True, in_flight=False)
        self._transactions.abort(timeout)
        if self._deliveries.columns is not None:
            with self._lock:
                self._deliveries.columns.forget_purged()
        self._transactions.ended(False)

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: Any, timeout: float = -1) -> None:
        """As confluent_kafka.Producer.send_offsets_to_transaction, with what opens gates in the offsets' metadata.

        group_metadata: of OrderedConsumer.consumer_group_metadata(). Raises ConfigError when that one commits by itself.
        """
        self._transactions.send_offsets(positions, group_metadata, timeout)

    def hold_times(self) -> list[float]:
        """Seconds that held records waited before they were sent, since the last call; the newest 100 000 of them."""
        with self._lock:
            return self._holding.times()

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
            self._end()
            self._session.stop(10)
            self._log_starts.close()
            if self._deliveries.columns is not None:
                self._deliveries.columns.close()
            self._raw.close()
            self._transactions.ended(None)
        return left == 0

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
                sending.close_lanes()
