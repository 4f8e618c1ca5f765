"""The writers that Spark's Python Data Source API asks for, batch and streaming. They travel to the executors."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ...connector.settings import milliseconds
from ...partitioner.errors import UsageError
from ..process import answer_at_once, spare_loaded_objects
from .errors import TaskCountError
from .markers import MarkerReader, ensure_marker_topic
from .options import SinkOptions
from .task import Task, this_task

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class SaveModeError(UsageError, ValueError):
    """Overwriting is asked for, which a log cannot do."""

    def __str__(self) -> str:
        return 'Save mode Overwrite not allowed for Kafka: a log is never overwritten. Write with .mode("append").'


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver. replayed: an earlier attempt had committed the rows already. stale: rows left out.

    query, follows: as in Task and in Outcome, with exactly once.
    """

    partition: int
    rows: int
    replayed: bool = False
    stale: int = 0
    query: str = ""
    follows: bool = False


def write_task(batches: Iterator[RecordBatch], options: SinkOptions, task: Task) -> Written:
    """Write one task's rows; returns when all are acknowledged. Runs in an executor's Python worker."""
    from .delivery import Delivery
    from .transaction import write_transaction
    from .warm import WARM

    if options.exactly_once:
        outcome = write_transaction(iter(batches), options, task)
        spare_loaded_objects()
        return Written(task.partition, outcome.rows, outcome.replayed, outcome.stale, task.query, outcome.follows)
    producer, _ = WARM.producer(options.client)
    delivery = Delivery(producer, options, task)
    try:
        delivery.send(batches)
        delivery.settle()
    except BaseException:
        WARM.discard(options.client)
        raise
    WARM.done(options.client)
    spare_loaded_objects()
    return Written(task.partition, delivery.rows, stale=delivery.stale)


def check_task_count(options: SinkOptions, written: list[Written], batch: int) -> None:
    """Whether an earlier attempt at the batch has committed tasks that this one does not have: with fewer tasks the rows of
    those are in others, which cannot know that. A task is not told how many there are, so that only the driver can look.

    Only the first batch of a query's run can have an earlier attempt. Raises TaskCountError, and what MarkerReader.last raises.
    """
    if any(each.follows for each in written) or not any(each.rows for each in written):
        return
    with closing(MarkerReader(options.client, query=written[0].query)) as reader:
        timeout = 60.0 + milliseconds(options.client, "transaction.timeout.ms", 60_000)  # as long as a task waits
        committed = reader.of_batch(written[0].query, batch, timeout)
    over = sorted(set(committed) - {each.partition for each in written})
    if over:
        raise TaskCountError(written[0].query, batch, len(written), over)


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch after the other. At least once; exactly once with `keyorder.sink.exactly.once`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        if options.exactly_once:
            ensure_marker_topic(options.client)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        answer_at_once()

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        """Runs in a task. All rows are acknowledged, or their transaction committed, before it returns."""
        return write_task(iterator, self._options, this_task(None))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs in the driver when all tasks have written. Raises TaskCountError."""
        if self._options.exactly_once:
            check_task_count(self._options, [m for m in messages if isinstance(m, Written)], batchId)


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame. With `keyorder.sink.exactly.once` a task that is tried again doubles nothing."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write_id = uuid.uuid4().hex
        if options.exactly_once:
            ensure_marker_topic(options.client)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        answer_at_once()

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        """Runs in a task, as StreamWriter.write."""
        return write_task(iterator, self._options, this_task(self._write_id))
