"""KIP-694's answer to deletePartitions: an outcome for each partition. The text leaves its status codes open; here they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ...partitioner.epochs import DrainState
from ...partitioner.timeline import Timeline
from ..topology.draining import DrainStep
from ..topology.results import Change


class PartitionStatus(IntEnum):
    """`status_code` of a partition: how far it is on its way to being emptied."""

    PURGED = 0
    WAITING = 1
    PURGING = 2
    PURGE_FAILED = 3


# Kafka's codes: all is well, and an error that the broker has no code for.
NONE, UNKNOWN_SERVER_ERROR = 0, -1
_STATUS = {
    DrainState.PURGED: PartitionStatus.PURGED,
    DrainState.WAITING: PartitionStatus.WAITING,
    DrainState.PURGING: PartitionStatus.PURGING,
    DrainState.PURGE_FAILED: PartitionStatus.PURGE_FAILED,
}


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One partition of the answer (KIP-694, DeletePartitionsResponse).

    status_code: see PartitionStatus. error_code: 0, or -1 with the reason in error_message. waits_for: in words, for a
    partition that waits.
    """

    partition_index: int
    status_code: PartitionStatus
    error_code: int
    error_message: str | None
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class DeletePartitionsResult:
    """The answer for one topic: what the shrink did, and each retired partition, those of earlier shrinks included."""

    name: str
    change: Change
    partitions: tuple[PartitionOutcome, ...]


def outcomes(timeline: Timeline, steps: Sequence[DrainStep]) -> tuple[PartitionOutcome, ...]:
    """One for each retired partition. timeline: read after `steps` were made."""
    waits = {step.partition: step.what for step in steps if step.state is DrainState.WAITING}
    return tuple(
        PartitionOutcome(
            partition_index=drain.partition,
            status_code=_STATUS[drain.state],
            error_code=UNKNOWN_SERVER_ERROR if drain.state is DrainState.PURGE_FAILED else NONE,
            error_message=drain.error or None,
            waits_for=waits.get(drain.partition, "") if drain.state is DrainState.WAITING else "",
        )
        for drain in timeline.drains
    )
