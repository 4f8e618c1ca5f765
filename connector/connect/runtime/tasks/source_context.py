"""What a source task sees of the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..offsets import OffsetReader

if TYPE_CHECKING:
    from .source_task import WorkerSourceTask


class SourceContext:
    """What the task sees of the runtime (SourceTaskContext)."""

    def __init__(self, worker: WorkerSourceTask, reader: OffsetReader) -> None:
        self._worker = worker
        self.offset_storage_reader = reader
        self.exactly_once = worker.boundary != "none"
        self.transaction = Boundary() if worker.boundary == "connector" else None

    def configs(self) -> dict[str, str]:
        return dict(self._worker.spec.config)

    def wait(self, seconds: float) -> bool:
        return self._worker.stopping.wait(seconds)

    def flush(self) -> None:
        self._worker.flush()


class Boundary:
    """The task's own word on where transactions end (TransactionContext)."""

    def __init__(self) -> None:
        self.commit = self.abort = False

    def commit_transaction(self) -> None:
        self.commit = True

    def abort_transaction(self) -> None:
        self.abort = True
