"""What stands around a sink task's thread: the task's view of the runtime, and the consumer's callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from ....consuming.listener import KeyRebalanceListener
from ...api.task import Place

if TYPE_CHECKING:
    from .sink_task import WorkerSinkTask


class SinkContext:
    """What the task sees of the runtime (SinkTaskContext)."""

    def __init__(self, worker: WorkerSinkTask) -> None:
        self._worker = worker
        self.errant_record_reporter = worker.routing.reporter
        self.rewinds: dict[Place, int] = {}
        self.backoff = 1.0
        self.commit_requested = False

    def configs(self) -> dict[str, str]:
        return dict(self._worker.spec.config)

    def assignment(self) -> set[Place]:
        return {(p.topic, p.partition) for p in self._worker.consumer.assignment()}

    def offset(self, offsets: Mapping[Place, int]) -> None:
        self.rewinds.update(offsets)

    def timeout(self, seconds: float) -> None:
        self.backoff = seconds

    def pause(self, *places: Place) -> None:
        self._worker.paused_by_task.update(places)
        self._worker.consumer.pause([TopicPartition(*place) for place in places])

    def resume(self, *places: Place) -> None:
        self._worker.paused_by_task.difference_update(places)
        if not self._worker.holding:
            self._worker.consumer.resume([TopicPartition(*place) for place in places])

    def request_commit(self) -> None:
        self.commit_requested = True


class Callbacks(KeyRebalanceListener):
    """A consumer's callbacks, handed to the task whose consumer it is."""

    def __init__(self, worker: WorkerSinkTask) -> None:
        self._worker = worker

    def on_assign(self, partitions: list[TopicPartition]) -> None:
        self._worker.assigned(_places(partitions))

    def on_revoke(self, partitions: list[TopicPartition]) -> None:
        self._worker.revoked(_places(partitions), lost=False)

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self._worker.revoked(_places(partitions), lost=True)

    def on_partition_key_maybe_revoked(self, partitions: list[TopicPartition]) -> None:
        self._worker.keys_leave(_places(partitions))

    def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
        self._worker.keys_come(_places(partitions))


def _places(partitions: list[TopicPartition]) -> list[Place]:
    return [(p.topic, p.partition) for p in partitions]
