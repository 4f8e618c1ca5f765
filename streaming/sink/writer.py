"""The writers that Spark's Python Data Source API asks for, batch and streaming. They travel to the executors."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ...partitioner.errors import UsageError
from ..process import answer_at_once, spare_loaded_objects
from .markers import ensure_marker_topic
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
    """What a task tells the driver. replayed: an earlier attempt had committed the rows already. stale: rows left out."""

    partition: int
    rows: int
    replayed: bool = False
    stale: int = 0


def write_task(batches: Iterator[RecordBatch], options: SinkOptions, task: Task) -> Written:
    """Write one task's rows; returns when all are acknowledged. Runs in an executor's Python worker."""
    from .delivery import Delivery
    from .transaction import write_transaction
    from .warm import WARM

    if options.exactly_once:
        rows, replayed, stale = write_transaction(iter(batches), options, task)
        spare_loaded_objects()
        return Written(task.partition, rows, replayed, stale)
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
