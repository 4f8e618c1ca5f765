"""Which piece of which write a task is: what its transactions and its versions are named after."""

from __future__ import annotations

from dataclasses import dataclass

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"  # a streaming query runs its jobs as a group of that name


@dataclass(frozen=True)
class Task:
    """query: the streaming query's id, which outlives restarts, or the id of one batch write. attempt: 0, 1, …

    batch: grows from batch to batch of a query; a batch write has 0. run: of the streaming query, another one after each
    restart; empty where it is not known.
    """

    query: str
    batch: int
    partition: int
    attempt: int = 0
    run: str = ""

    @property
    def slot(self) -> str:
        """What attempts of this task, and the same task of other batches, have in common."""
        return f"{self.query}/{self.partition}"


def transactional_id(slot: str) -> str:
    """Of the transactions in which the task of a slot writes."""
    return f"keyorder-spark-{slot.replace('/', '-')}"


def this_task(write_id: str | None) -> Task:
    """The task that runs here. write_id: the id of a batch write, None in a streaming query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a sink's write() runs inside a Spark task only")
    if write_id is not None:
        return Task(write_id, 0, context.partitionId(), context.attemptNumber())
    query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query is None or batch is None:
        raise RuntimeError("this Spark does not tell a task its query and batch; keyorder needs Spark 4.2 or newer")
    run = context.getLocalProperty(_RUN_ID) or ""
    return Task(query, int(batch), context.partitionId(), context.attemptNumber(), run)
