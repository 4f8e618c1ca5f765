"""Where failed records of a sink go: the task fails, they are skipped, dead-lettered, or their key is parked.

With the policy park-key no batch given to the task holds two records of one key. So when the task reports a record, none
that comes after it in its key's order has been put yet, and the key can be parked without an overtaking.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import NoReturn

from confluent_kafka import Message

from .....partitioner.errors import KeyorderError
from ....config import connection_of
from ....messages import offset_of
from ...api.errors import LateReportError, ParkedRecordsGoneError
from ...api.records import SinkRecord
from ...api.task import ErrantRecordReporter, SinkTask
from ..clients import dead_letter_config, worker_connection
from .dead_letters import DeadLetters
from .parking import Parked, ParkedRecords, ParkingList, ReleaseMode, parked_at
from .sink_records import Entry, SinkReader
from .task_base import TaskSpec
from .tolerance import FailedOperation, Stage, Tolerance

_LOG = logging.getLogger("keyorder.connect.task")
# What it holds waits for a release, however late; the defaults of the broker are for logs that somebody reads.
_KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
# The name that tools know for what a task reports; its own class has one of Python.
_SINK_TASK = "org.apache.kafka.connect.sink.SinkTask"
Place = tuple[str, int]
Where = tuple[str, int, int]


class ErrorRouting:
    """The errors of one sink task. dead: None without a queue. parking: None unless the policy is park-key."""

    def __init__(
        self,
        names: tuple[str, int],
        tolerance: Tolerance,
        dead: DeadLetters | None,
        parking: ParkingList | None,
        parked: ParkedRecords | None,
        redact: Callable[[str], str],
    ) -> None:
        self._connector = names[0]
        self._tolerance, self._dead, self.parking, self._parked = tolerance, dead, parking, parked
        self._redact = redact
        self.reporter: ErrantRecordReporter | None = _Reporter(self) if tolerance.tolerate or dead is not None else None
        self._batch: list[Entry] = []
        self._reports: dict[Where, FailedOperation] = {}
        self._stops: FailedOperation | None = None

    def refresh(self) -> None:
        """Know all keys that other tasks have parked."""
        if self.parking is not None:
            self.parking.refresh()

    def next_batch(self, pending: deque[Entry]) -> list[Entry]:
        """The next entries to put: failed and parked ones have been dealt with and carry no record any more.

        The same batch again until it was settled. Raises the failure when errors are not tolerated.
        """
        if self._batch:
            return self._batch
        seen: set[tuple[str, bytes]] = set()
        batch: list[Entry] = []
        for entry in pending:
            key = entry.key
            if self.parking is not None and key is not None and not entry.settled:
                if key in seen:
                    break  # if the first one is reported as failed, the next one of its key must not be in the same put
                if self.parking.holds(self._connector, *key):
                    self._follow(entry)
            if entry.failure is not None:
                if not self._tolerance.tolerate and any(e.record is not None for e in batch):
                    break  # what came before it is put first
                self._fail(entry, entry.failure)
            if entry.record is not None and key is not None:
                seen.add(key)
            batch.append(entry)
        self._batch = batch
        return batch

    def settle(self, batch: list[Entry]) -> None:
        """The batch was put: deal with what the task reported of it."""
        self._raise()
        for entry in batch:
            if entry.record is not None:
                failure = self._reports.pop(_where(entry.record), None)
                if failure is not None:
                    self._fail(entry, failure)
        self._batch = []
        self._reports.clear()

    def drop_batch(self) -> None:
        """What was pending has changed."""
        self._batch = []

    def forget_reports(self) -> None:
        """The batch will be put again, unless a report of it has ended the task."""
        self._raise()
        self._reports.clear()

    def flush(self) -> None:
        """Everything dead-lettered so far is durable when this returns."""
        self._raise()
        if self._dead is not None:
            self._dead.flush()

    def close(self) -> None:
        """Release the clients."""
        with ExitStack() as opened:
            for each in (self._dead, self.parking):
                if each is not None:
                    opened.callback(each.close)

    def report(self, record: SinkRecord, error: Exception) -> None:
        """The task reports a record. Raises its failure where errors are not tolerated.

        One that is being put is dealt with when put has returned, since it may be put again; an earlier one at once.
        """
        failure = self._tolerance.failed(Stage.TASK_PUT, _SINK_TASK, "{}[{}]@{}".format(*_where(record)), error)
        message = None if record.original is None else record.original.message
        if not self._tolerance.tolerate:
            self._stop(message, failure)
        if any(e.record is not None and _where(e.record) == _where(record) for e in self._batch):
            self._reports[_where(record)] = failure
            return
        if self.parking is not None and record.raw_key is not None:
            raise LateReportError(
                f"{failure.where} was reported after put had returned: later records of its key may have gone on. "
                "Report records inside put, or set errors.deadletterqueue.policy=record"
            )
        self._count_skipped()
        if self._dead is not None:
            if message is None:
                raise LateReportError(
                    f"{failure.where} was reported after put had returned, and its bytes are not known: report the "
                    "record that put was given, or what its method new makes"
                )
            self._dead.send(message, failure)

    # -- releasing -----------------------------------------------------------------------------------------------

    def due_releases(self, ours: Callable[[str, bytes, int], bool]) -> Iterator[tuple[Parked, ReleaseMode]]:
        """Entries to release now: asked for, and their key's next record would come here."""
        if self.parking is None:
            return
        self.parking.poll()
        for entry, mode in list(self.parking.releases()):
            if ours(entry.topic, entry.key, entry.partition):
                yield entry, mode

    def release(
        self,
        entry: Parked,
        mode: ReleaseMode,
        reader: SinkReader,
        task: SinkTask,
        offsets: dict[Place, int],
    ) -> int:
        """Deliver the parked records of a key, flush, and free the key. Returns how many were put.

        One that fails again keeps the key parked from there on. What RetriableError stops is tried again later.
        When the queue has lost records of the key, it stays parked and the request is dropped: a task that failed here
        would meet it again at every start.
        """
        assert self.parking is not None
        assert self._parked is not None
        self.flush()
        try:
            messages = [] if mode is ReleaseMode.DISCARD else self._parked.of(entry)
        except ParkedRecordsGoneError as refusal:
            _LOG.error("connector %s keeps a key of topic %s parked: %s", self._connector, entry.topic, refusal)
            self.parking.refuse_release(entry)
            return 0
        if mode is ReleaseMode.SKIP:
            messages = messages[1:]
        count = 0
        for message in messages:
            again = reader.parked(message)
            failure = again.failure
            if failure is None and again.record is not None:
                self._batch = [again]
                task.put([again.record])
                failure = self._reports.pop(_where(again.record), None)
                self._batch = []
                count += 1
            if failure is not None:
                self._park_again(entry, message, failure)
                break
        else:
            task.flush(dict(offsets))
            self.parking.free(entry)
            return count
        task.flush(dict(offsets))
        return count

    def _park_again(self, entry: Parked, message: Message, failure: FailedOperation) -> None:
        assert self.parking is not None
        made = parked_at(
            self._connector, message, (entry.dlq_partition, offset_of(message)), self._redact(str(failure))
        )
        self.parking.park(replace(made, topic=entry.topic, partition=entry.partition))

    # -- failing -------------------------------------------------------------------------------------------------

    def _follow(self, entry: Entry) -> None:
        assert self._dead is not None
        self._dead.send(entry.message, entry.failure)
        self._tolerance.metrics.add("parked_records_total")
        entry.record, entry.failure, entry.settled = None, None, True

    def _fail(self, entry: Entry, failure: FailedOperation) -> None:
        """Raise, skip, dead-letter or park."""
        if not self._tolerance.tolerate:
            self._stop(entry.message, failure)
        self._count_skipped()
        if self._dead is not None:
            if self.parking is not None and entry.key is not None:
                place = self._dead.send_and_locate(entry.message, failure)
                self.parking.park(parked_at(self._connector, entry.message, place, self._redact(str(failure))))
            else:
                self._dead.send(entry.message, failure)
        entry.record, entry.failure, entry.settled = None, None, True

    def _count_skipped(self) -> None:
        for name in ("total_record_failures", "total_records_skipped"):
            self._tolerance.metrics.add(name)

    def _stop(self, message: Message | None, failure: FailedOperation) -> NoReturn:
        """The task ends with this failure. As in Kafka Connect the queue, if there is one, has the record all the same."""
        self._tolerance.metrics.add("total_record_failures")
        self._stops = failure
        if self._dead is not None and message is not None:
            try:
                self._dead.send(message, failure)
                self._dead.flush()
            except KeyorderError as error:
                _LOG.error("connector %s could not write the record that stops it: %s", self._connector, error)
        raise failure

    def _raise(self) -> None:
        if self._stops is not None:  # the task may have kept the error of its report to itself
            raise self._stops


class _Reporter:
    def __init__(self, routing: ErrorRouting) -> None:
        self._routing = routing

    def report(self, record: SinkRecord, error: Exception) -> None:
        self._routing.report(record, error)


def _where(record: SinkRecord) -> Where:
    return record.original_topic, record.partition, record.offset


def error_routing(
    spec: TaskSpec, tolerance: Tolerance, parking_topic: str, redact: Callable[[str], str]
) -> ErrorRouting:
    """The routing that a connector's settings ask for."""
    parsed, names = spec.parsed, (spec.id.connector, spec.id.number)
    topic = parsed["errors.deadletterqueue.topic.name"]
    if not topic:
        return ErrorRouting(names, tolerance, None, None, None, redact)
    config = worker_connection(spec.worker)
    producer = dead_letter_config(spec.worker, spec.connector, *names)
    # Made, and read, with the worker's own rights, unless the producer was given another cluster.
    same = producer.get("bootstrap.servers") == config.get("bootstrap.servers")
    there = config if same else connection_of(producer)
    park = parsed["errors.deadletterqueue.policy"] == "park-key"
    replication = parsed["errors.deadletterqueue.topic.replication.factor"]
    context = park or parsed["errors.deadletterqueue.context.headers.enable"]
    made_with = _KEPT if park else {}
    dead = DeadLetters(there, producer, topic, replication, made_with, context, names, tolerance.metrics, redact)
    if not (park and tolerance.tolerate):
        return ErrorRouting(names, tolerance, dead, None, None, redact)
    with ExitStack() as opened:
        opened.callback(dead.close)
        parking = ParkingList(config, parking_topic, int(parsed["internal.replication.factor"]), names[0])
        opened.pop_all()
    return ErrorRouting(names, tolerance, dead, parking, ParkedRecords(there, topic), redact)
