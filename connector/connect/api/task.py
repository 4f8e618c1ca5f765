"""Tasks: where the records pass. All methods of one task run on one thread of its own, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .records import SinkRecord, SourceRecord

Place = tuple[str, int]
Config = dict[str, str]


class ErrantRecordReporter(Protocol):
    """Takes a record that a sink task cannot store (KIP-610).

    There is one where the configuration tolerates errors or names a dead letter queue.
    """

    def report(self, record: SinkRecord, error: Exception) -> None:
        """Hand over a record that `put` was given, or what its `new` made. On the task's thread.

        With errors.deadletterqueue.policy=park-key only inside the `put` that was given it: its key is parked then. Otherwise
        until `pre_commit` has returned for its offset. With errors.tolerance=none it raises: let that end the task.
        """


class OffsetStorageReader(Protocol):
    """What a source task has stored before."""

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """The last stored offset of a source partition, of whichever task and worker."""

    def offsets(self, partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """The same for several."""


class SinkTaskContext(Protocol):
    """What the runtime offers a sink task."""

    errant_record_reporter: ErrantRecordReporter | None

    def configs(self) -> Config:
        """The task's settings."""

    def assignment(self) -> set[Place]:
        """The partitions that are this task's now."""

    def offset(self, offsets: Mapping[Place, int]) -> None:
        """Go on from these offsets after this call of `put`. A rewind closes the gates behind it again."""

    def timeout(self, seconds: float) -> None:
        """How long to wait before `put` is called again, after a RetriableError."""

    def pause(self, *places: Place) -> None:
        """Deliver no more of these partitions."""

    def resume(self, *places: Place) -> None:
        """Undo `pause`."""

    def request_commit(self) -> None:
        """Commit soon, without waiting for the interval."""


class SourceTaskContext(Protocol):
    """What the runtime offers a source task. exactly_once: whether records are written in transactions with their offsets."""

    offset_storage_reader: OffsetStorageReader
    transaction: TransactionContext | None
    exactly_once: bool

    def configs(self) -> Config:
        """The task's settings."""

    def wait(self, seconds: float) -> bool:
        """Wait inside `poll` for up to so many seconds; True as soon as the task is to stop."""

    def flush(self) -> None:
        """Return when every record that `poll` has returned is acknowledged, and its offsets are stored (or committed).

        For a task whose share of the work goes to another one: nothing of it may still be on its way then, and the other
        one goes on behind what is stored. Offsets that cannot be stored now are stored later, with a warning.
        """


class TransactionContext(Protocol):
    """Lets a source task say where its transactions end (transaction.boundary=connector).

    Nothing else ends one: a pause leaves it open, until `transaction.timeout.ms` of the producer, and a stop drops it.
    """

    def commit_transaction(self) -> None:
        """End the transaction after the records that this `poll` returns."""

    def abort_transaction(self) -> None:
        """Drop the transaction and the records that this `poll` returns. Their offsets are stored, as if they were written."""


class Task(ABC):
    """The base of both kinds."""

    @abstractmethod
    def start(self, config: Config) -> None:
        """Called once, before anything else. Raise ConnectError when the task cannot work."""

    def stop(self) -> None:  # noqa: B027  # a task may have nothing to release
        """Called once at the end, on the task's thread, whatever happened before."""


class SourceTask(Task):
    """Fetches records. Life: initialize, start, (poll, commit_record..., commit)*, stop."""

    context: SourceTaskContext

    def initialize(self, context: SourceTaskContext) -> None:
        """Called first."""
        self.context = context

    @abstractmethod
    def poll(self) -> list[SourceRecord] | None:
        """The next records, in order. Wait by `context.wait`, not longer than a second or so, when there are none.

        Raise RetriableError to be called again in a moment, any other error to fail.
        """

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        """This record was acknowledged at that place, or dropped by a transform (None).

        Written in a transaction: it is committed as well. The record may be forgotten where it came from.
        """

    def commit(self) -> None:
        """Offsets of records that were returned have been stored."""


class SinkTask(Task):
    """Stores records. Life: initialize, start, open, (put, flush)*, close, stop.

    Order: `put` is given the records of each key in order. A moved key's records come only after the task that had its
    origin has returned from `flush` and the group's position is committed.
    """

    context: SinkTaskContext

    def initialize(self, context: SinkTaskContext) -> None:
        """Called first."""
        self.context = context

    def open(self, places: Sequence[Place]) -> None:
        """These partitions are this task's from now on."""

    def keys_assigned(self, places: Sequence[Place]) -> None:
        """Keys have come to these partitions from others, whose task has flushed: load their state, if you keep any."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take these records; store them now or at the next `flush`.

        Raise RetriableError to be given the same records again, any other error to fail.
        """

    def flush(self, offsets: Mapping[Place, int]) -> None:
        """Make everything that `put` has taken durable. `offsets`: the next offset of each partition."""

    def pre_commit(self, offsets: Mapping[Place, int]) -> Mapping[Place, int]:
        """The offsets that may be committed, at most those given. By default flushes and allows all."""
        self.flush(offsets)
        return offsets

    def close(self, places: Sequence[Place]) -> None:
        """These partitions are about to be another task's; they have been flushed and committed."""
