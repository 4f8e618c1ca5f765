"""A running source task: a SourceTask in front of an OrderedProducer.

Without exactly-once, offsets follow acknowledged records. With it, records and offsets go in one transaction, under a
transactional id that each newer run of the task takes over, so that an older one can write nothing more (KIP-618).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from .....partitioner.errors import KeyorderError, PeerError
from .... import clock
from ....kafka_errors import translate
from ....messages import offset_of
from ....producing.producer import OrderedProducer
from ...api.errors import RetriableError, TransactionError
from ...api.records import SourceRecord
from ...api.task import SourceTask
from ..clients import producer_config
from ..offsets import OffsetReader, OffsetStore, SubmittedRecords, canonical
from ..pipeline import Chain, Converters
from ..plugins import Plugins
from ..settings import seconds
from .source_context import SourceContext
from .source_records import Made, SourceWriter
from .task_base import State, TaskSpec, WorkerTask
from .tolerance import FailedOperation, Stage, StoppedError
from .topic_creation import TopicCreation

_LOG = logging.getLogger("keyorder.connect.task")
_TIMEOUT = 60.0
_TOPIC_LOOK = 1.0
_POLL_AGAIN = 1.0
_FATAL = {KafkaError._FATAL, KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class RefusedRecord(FailedOperation):
    """The producer did not take a record. (What the broker refuses is a batch: its other records are good.)"""


class WorkerSourceTask(WorkerTask):
    """One source task on its thread. offsets_topic: set when it is to write exactly once."""

    def __init__(
        self,
        spec: TaskSpec,
        plugins: Plugins,
        store: OffsetStore,
        offsets_topic: str | None,
        listener: Any,
        redact: Any,
    ) -> None:
        super().__init__(spec, listener, redact)
        self._plugins, self._store, self._offsets_topic = plugins, store, offsets_topic
        self._interval = seconds(spec.parsed, "offset.flush.interval.ms")
        self.boundary: str = spec.parsed["transaction.boundary"].lower() if offsets_topic else "none"
        if self.boundary == "interval" and spec.parsed["transaction.boundary.interval.ms"]:
            self._interval = seconds(spec.parsed, "transaction.boundary.interval.ms")
        self._submitted = SubmittedRecords()
        self._failure: FailedOperation | None = None
        self._due: dict[str, Mapping[str, Any]] = {}
        self._fatal: KafkaError | None = None
        self._in_transaction = self._torn = False
        self._in_this: dict[str, Mapping[str, Any]] = {}
        self._to_tell: list[tuple[SourceRecord, int | None, int | None]] = []

    def execute(self, opened: ExitStack) -> None:
        spec = self.spec
        stopped = opened.enter_context(ExitStack())  # the task itself, when all around it has ended
        chain = opened.enter_context(closing(Chain(self._plugins, spec.connector)))
        converters = Converters(self._plugins, spec.worker, spec.connector)
        self._writer = SourceWriter(chain, converters, self.tolerance, self.where)
        names, exactly_once = (spec.id.connector, spec.id.number), self._offsets_topic is not None
        config = producer_config(spec.worker, spec.connector, *names, exactly_once)
        self._topics = TopicCreation(config, spec.connector, spec.parsed)
        self._producer = OrderedProducer(config)
        opened.callback(self._end)
        try:
            self.task: SourceTask = spec.task_class()
            if exactly_once:
                self._kafka("fence older runs of", self._producer.init_transactions, _TIMEOUT)
            # Behind the fence: what an older run has committed is there, and nothing more will come from it.
            self._store.refresh()
            self.context = SourceContext(self, OffsetReader(self._store, spec.id.connector))
            self.task.initialize(self.context)
            self.task.start(dict(spec.config))
            stopped.callback(self.task.stop)
            self._loop()
        except KafkaException as raised:
            self.failed = True
            self._if_fatal(raised.args[0])
            raise translate(raised.args[0], "write the records of", f"task {self.where}") from raised
        except BaseException:
            self.failed = True
            raise

    def _loop(self) -> None:
        due = clock.now() + self._interval
        while not self.stopping.is_set():
            if self.wanted_paused != (self._told is State.PAUSED):
                self.tell(State.PAUSED if self.wanted_paused else State.RUNNING)
            if self.wanted_paused:
                if self._may_commit():
                    self._commit()
                self._serve(0.0)
                self.stopping.wait(0.1)
                continue
            records = self._poll()
            if not self._send(records):
                self._torn = True
                return
            self._serve(0.0)
            self.metrics.gauge("active_count", len(self._producer))
            if self.boundary in ("poll", "connector"):
                if self._may_commit():
                    self._commit()
            elif clock.now() >= due:
                due = clock.now() + self._interval
                self._commit()

    def _poll(self) -> list[SourceRecord]:
        since = clock.now()
        try:
            polled = self.tolerance.run(Stage.TASK_POLL, type(self.task).__name__, self.where, self._polled)
        except StoppedError:
            polled = None
        records = list(polled or ())
        if records:
            self.metrics.measure("poll_batch", clock.now() - since)
            self.metrics.measure("batch_size", len(records))
        self.metrics.add("source_record_poll_total", len(records))
        return records

    def _polled(self) -> list[SourceRecord] | None:
        """As in Kafka Connect a task that cannot poll now polls later, for as long as it takes: errors.retry.* is for records."""
        try:
            return self.task.poll()
        except RetriableError as error:
            _LOG.warning("task %s will poll again: %s", self.where, self._redact(str(error)))
            self.metrics.add("total_retries")
            self.stopping.wait(_POLL_AGAIN)
            return None

    def _asked_to_end(self) -> bool:
        transaction = self.context.transaction
        assert transaction is not None
        if transaction.abort:
            transaction.abort = transaction.commit = False
            self._abort()
            return True  # as in Kafka Connect the offsets are stored all the same, or the records were polled again
        asked, transaction.commit = transaction.commit, False
        return asked

    # -- sending -------------------------------------------------------------------------------------------------

    def _send(self, records: list[SourceRecord]) -> bool:
        """False when the task is to stop before it is known what becomes of a record: it and those behind it are polled again."""
        for record in records:
            try:
                made = self._writer.made(record)
            except StoppedError:
                return False
            except FailedOperation as failure:
                if not self.tolerance.tolerate:
                    raise
                self._skip(failure)
                made = None
            if made is not None and not self._topic_there(made[0].topic):
                return False
            self._submit(record, made)
            if self._failure is not None:
                self._serve(0.0)
        return True

    def _skip(self, failure: FailedOperation) -> None:
        self.metrics.add("total_record_failures")
        self.metrics.add("total_records_skipped")
        _LOG.warning("task %s skips a record: %s", self.where, self._redact(str(failure)))

    def _submit(self, record: SourceRecord, made: Made) -> None:
        if self._offsets_topic is not None:
            self._in_this[canonical(dict(record.source_partition))] = record.source_offset
            self._begin()
        books = self._submitted
        submitted = books.submit(record.source_partition, record.source_offset)

        def passed_over() -> None:
            submitted.done = True
            self._settled(record, None, None)

        if made is None:
            passed_over()
            return
        changed, key, value, headers = made

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                submitted.done = True
                self.metrics.add("source_record_write_total")
                self._settled(record, message.partition(), offset_of(message))
            elif self._failure is None and books is self._submitted:  # else its transaction was aborted: it is dropped
                self._fatal = error
                failure = translate(error, "write", f"topic {changed.topic}")
                self._failure = FailedOperation(Stage.KAFKA_PRODUCE, "producer", f"topic {changed.topic}", failure)

        self.topics.add(changed.topic)
        try:
            self._produce(changed.topic, value, key, headers or None, changed.timestamp or 0, delivered)
        except RefusedRecord as refused:
            if self._offsets_topic is not None or not self.tolerance.tolerate:
                raise
            self.metrics.add("total_record_errors")
            self._skip(refused)
            passed_over()

    def _settled(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        """Tell the task of a record. Acknowledged inside a transaction it may be dropped yet: then once that is committed."""
        if self._offsets_topic is not None:
            self._to_tell.append((record, partition, offset))
        else:
            self.task.commit_record(record, partition, offset)

    def _topic_there(self, topic: str) -> bool:
        """Whether the topic is there. As in Kafka Connect a missing one is waited for; False when the task is to stop."""
        told = False
        while not self._topics.ensure(topic):
            if not told:
                told = True
                _LOG.warning("task %s waits for topic %s, which does not exist and may not be made", self.where, topic)
            self._serve(0.0)
            if self.stopping.wait(_TOPIC_LOOK):
                return False
        return True

    def _produce(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Any, timestamp: int, delivered: Any
    ) -> None:
        deadline = clock.now() + _TIMEOUT
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, timestamp=timestamp, on_delivery=delivered)
                return
            except BufferError:
                self._serve(0.1)
            except PeerError as error:
                # The first record of a topic asks the cluster; nothing was sent yet.
                if not error.retriable or self.stopping.is_set() or clock.now() > deadline:
                    raise
                _LOG.warning("task %s waits for the cluster: %s", self.where, error)
                self._serve(0.1)
            except KafkaException as raised:
                self._if_fatal(raised.args[0])
                failure = translate(raised.args[0], "write", f"topic {topic}")
                if raised.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise RefusedRecord(Stage.KAFKA_PRODUCE, "producer", f"topic {topic}", failure) from raised
                raise failure from raised

    def flush(self) -> None:
        """Everything that poll has returned is acknowledged, and its offsets are stored: who takes over goes on behind it."""
        if self._producer.flush(_TIMEOUT):
            raise TransactionError(f"the records of task {self.where} were not acknowledged in {_TIMEOUT:.0f} s")
        self._serve(0.0)
        self._commit()

    def _serve(self, wait: float) -> None:
        """Run delivery callbacks. Raises what one of them found."""
        self._producer.poll(wait)
        if self._failure is not None:
            self._if_fatal(self._fatal)
            raise self._failure

    def _if_fatal(self, error: KafkaError | None) -> None:
        """A transactional producer's fatal error means that a newer run has fenced this one, or that its fate is unknown."""
        if error is not None and self._offsets_topic is not None and (error.fatal() or error.code() in _FATAL):
            raise TransactionError(
                f"task {self.where} was fenced by a newer run, or its transaction failed: {error.name()}"
            )

    # -- committing ----------------------------------------------------------------------------------------------

    def _may_commit(self) -> bool:
        """A transaction whose task says where it ends is committed only there: not by a pause, and not at the end.

        One with a part of a batch is not committed at all: the batch is polled again as a whole.
        """
        if self._torn and self._offsets_topic is not None:
            return False
        return self.boundary != "connector" or self._asked_to_end()

    def _commit(self) -> None:
        if self._offsets_topic is not None:
            if self._in_this:
                self._commit_transaction()
            return
        self._due.update(self._submitted.take_due())
        if self._due:
            since = clock.now()
            try:
                self._store.write(self.spec.id.connector, self._due)
            except PeerError as error:
                if not error.retriable or self.stopping.is_set():
                    raise
                self.metrics.add("offset_commit_failed_total")
                _LOG.warning("task %s will store its offsets later: %s", self.where, error)
                return
            self._due = {}
            self.metrics.add("offset_commit_completed_total")
            self.metrics.measure("offset_commit", clock.now() - since)
            self.task.commit()

    def _commit_transaction(self) -> None:
        assert self._offsets_topic is not None
        since = clock.now()
        self._begin()  # it was aborted at the task's word, otherwise it is open
        for partition, offset in self._in_this.items():
            key = canonical([self.spec.id.connector, json.loads(partition)])
            self._produce(
                self._offsets_topic, canonical(dict(offset)).encode(), key.encode(), None, 0, self._offset_sent
            )
        self._producer.flush(_TIMEOUT)
        self._serve(0.0)
        self._kafka("commit a transaction of", self._producer.commit_transaction, _TIMEOUT)
        self._in_transaction = False
        self._in_this.clear()
        self._submitted.take_due()
        told, self._to_tell = self._to_tell, []
        for settled in told:
            self.task.commit_record(*settled)
        self.metrics.add("offset_commit_completed_total")
        self.metrics.measure("offset_commit", clock.now() - since)
        self.task.commit()

    def _offset_sent(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            failure = translate(error, "write", f"topic {self._offsets_topic}")
            self._failure = FailedOperation(Stage.KAFKA_PRODUCE, "producer", f"topic {self._offsets_topic}", failure)

    def _begin(self) -> None:
        if not self._in_transaction:
            self._kafka("begin a transaction of", self._producer.begin_transaction)
            self._in_transaction = True

    def _abort(self) -> None:
        """Drop the records of the open transaction. Its offsets are kept for the next one."""
        if self._in_transaction:
            self._submitted = SubmittedRecords()  # first: the client tells of the records that it drops
            self._kafka("abort a transaction of", self._producer.abort_transaction, _TIMEOUT)
            self._in_transaction = False

    def _kafka(self, what: str, call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except KafkaException as raised:
            error = raised.args[0]
            raise TransactionError(f"could not {what} task {self.where}: {error.name()}: {error.str()}") from raised
        except KeyorderError as raised:
            raise TransactionError(f"could not {what} task {self.where}: {raised}") from raised

    def _end(self) -> None:
        """Gracefully: everything sent is acknowledged and its offsets are stored. After a failure: nothing more is.

        A transaction that its task has not ended is dropped, and polled again.
        """
        try:
            if not self.failed and not self._may_commit():
                self._abort_quietly()
            elif not self.failed:
                self._producer.flush(_TIMEOUT)
                self._serve(0.0)
                self._commit()
        finally:
            try:
                if self.failed:
                    self._abort_quietly()
                self._producer.close(1.0 if self.failed else _TIMEOUT)
            except (KafkaException, KeyorderError) as error:
                _LOG.warning("task %s: its producer ended with %s", self.where, error)

    def _abort_quietly(self) -> None:
        try:
            self._abort()
        except TransactionError as error:
            _LOG.warning("%s", error)  # fenced: the newer run has aborted it
        self._producer.purge()
