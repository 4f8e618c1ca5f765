"""What can go wrong in a write, beside what any producer may meet."""

from __future__ import annotations

from ...partitioner.errors import OrderError, PeerError

_NEW_CHECKPOINT = (
    "a new checkpoint (versions of keyorder.sink.version.header start anew with it: in a topic compacted by that header its "
    "rows lose to older ones)"
)


_FIXED_TASKS = (
    'for the tasks repartition(n, "key") with a fixed n, or spark.sql.adaptive.streaming.stateless.enabled=false'
)


class SinkDeliveryError(PeerError):
    """Rows that the cluster did not acknowledge. Spark tries the task again."""

    retriable = True

    def __init__(self, topic: str, failed: int, detail: str) -> None:
        super().__init__(topic, failed, detail)
        self.topic, self.failed, self.detail = topic, failed, detail

    def __str__(self) -> str:
        return f"{self.failed} rows were not acknowledged by topic {self.topic}: {self.detail}"


class ReplayMismatchError(OrderError):
    """A task was run again for a batch that it has committed, and now has other rows.

    Writing them would lose or double rows, so nothing is written.
    """

    def __init__(self, slot: str, batch: int, before: str, now: str) -> None:
        super().__init__(slot, batch, before, now)
        self.slot, self.batch, self.before, self.now = slot, batch, before, now

    def __str__(self) -> str:
        return (
            f"task {self.slot} has committed batch {self.batch} with other rows ({self.before} then, {self.now} now): the "
            "query gives other rows when it is run again (random values, current time, another number of tasks), so its "
            f"output cannot be exactly once; make it deterministic ({_FIXED_TASKS}) and start it with "
            f"{_NEW_CHECKPOINT}"
        )


class TaskCountError(OrderError):
    """A batch that was run again with fewer tasks than before, when tasks that are missing now had committed it.

    Their rows were in other tasks now, and were written twice. The batch stays unfinished.
    """

    def __init__(self, query: str, batch: int, tasks: int, over: list[int]) -> None:
        super().__init__(query, batch, tasks, over)
        self.query, self.batch, self.tasks, self.over = query, batch, tasks, over

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.over[:20])) + (", …" if len(self.over) > 20 else "")
        tasks = f"task {numbers}" if len(self.over) == 1 else f"tasks {numbers}"
        return (
            f"batch {self.batch} of query {self.query} has {self.tasks} tasks now and had more before: an earlier attempt has "
            f"committed {tasks}, whose rows may now be in the topic twice. Fix the number of tasks "
            f"({_FIXED_TASKS}), and start the query with {_NEW_CHECKPOINT}; this checkpoint stops at the batch each time"
        )


class StaleTaskError(PeerError):
    """An attempt at a batch that lies behind what the task has committed: another driver runs the same query."""

    def __init__(self, slot: str, batch: int, committed: int) -> None:
        super().__init__(slot, batch, committed)
        self.slot, self.batch, self.committed = slot, batch, committed

    def __str__(self) -> str:
        return (
            f"task {self.slot} of batch {self.batch} comes after batch {self.committed} was committed: the query runs twice, "
            "or its checkpoint was set back; run it once, or start it with "
            f"{_NEW_CHECKPOINT}"
        )


class StaleVersionError(OrderError):
    """A row whose version is below the one that its key has in the topic. Only with keyorder.sink.stale=fail."""

    def __init__(self, topic: str, version: int | None, known: int) -> None:
        super().__init__(topic, version, known)
        self.topic, self.version, self.known = topic, version, known

    def __str__(self) -> str:
        return (
            f"a row for topic {self.topic} has {'no version' if self.version is None else f'version {self.version}'}, and its "
            f"key has version {self.known} already: with keyorder.sink.stale=skip such rows are left out"
        )
