"""KIP-694's answer to deletePartitions: an outcome for each partition. The text leaves its status codes open; here they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from confluent_kafka import KafkaError

from ...partitioner.epochs import DrainState
from ...partitioner.errors import (
    ConfigError,
    CountError,
    KeyorderError,
    NotAuthorizedError,
    TopicNotFoundError,
    UnmanagedTopicError,
)
from ...partitioner.timeline import Timeline
from ..topology.draining import DrainStep
from ..topology.results import Change


class PartitionStatus(IntEnum):
    """`status_code` of a partition: how far it is on its way to being emptied."""

    PURGED = 0
    WAITING = 1
    PURGING = 2
    PURGE_FAILED = 3


_NAME = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")
# Kafka's codes: all is well, and an error that the broker has no code for.
NONE, UNKNOWN_SERVER_ERROR = 0, -1
_OF_ERROR: dict[type[KeyorderError], int] = {
    ConfigError: KafkaError.POLICY_VIOLATION,  # the switch is off
    CountError: KafkaError.INVALID_PARTITIONS,
    TopicNotFoundError: KafkaError.UNKNOWN_TOPIC_OR_PART,
    UnmanagedTopicError: KafkaError.UNKNOWN_TOPIC_OR_PART,
    NotAuthorizedError: KafkaError.TOPIC_AUTHORIZATION_FAILED,
}
_STATUS = {
    DrainState.PURGED: PartitionStatus.PURGED,
    DrainState.WAITING: PartitionStatus.WAITING,
    DrainState.PURGING: PartitionStatus.PURGING,
    DrainState.PURGE_FAILED: PartitionStatus.PURGE_FAILED,
}


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One partition of the answer (KIP-694, DeletePartitionsResponse).

    status_code: see PartitionStatus. error_code: 0, or Kafka's code of what was refused (-1 where there is none), with the
    reason in error_message. waits_for: in words, for a partition that waits.
    """

    partition_index: int
    status_code: PartitionStatus
    error_code: int
    error_message: str | None
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class DeletePartitions:
    """What KIP-694 asks of one topic. total_count: how many partitions remain. immediate_delete: without the delay."""

    total_count: int
    immediate_delete: bool = False


@dataclass(frozen=True, slots=True)
class DeletePartitionsResult:
    """The answer for one topic: what the shrink did, and each retired partition, those of earlier shrinks included.

    error_code, error_message: of a topic among several that could not be shrunk; `change` is None then.
    """

    name: str
    change: Change | None
    partitions: tuple[PartitionOutcome, ...]
    error_code: int = NONE
    error_message: str | None = None


def refused(name: str, error: KeyorderError) -> DeletePartitionsResult:
    """The answer for a topic that could not be shrunk."""
    code = next((code for kind, code in _OF_ERROR.items() if isinstance(error, kind)), UNKNOWN_SERVER_ERROR)
    return DeletePartitionsResult(name, None, (), code, str(error))


def error_code_of(text: str) -> int:
    """Kafka's code of an error whose text names it, as those of refused deletions do; -1 for any other text."""
    for word in _NAME.findall(text):
        code = getattr(KafkaError, word, None)
        if isinstance(code, int) and code > 0:
            return code
    return UNKNOWN_SERVER_ERROR


def outcomes(timeline: Timeline, steps: Sequence[DrainStep]) -> tuple[PartitionOutcome, ...]:
    """One for each retired partition. timeline: read after `steps` were made."""
    waits = {step.partition: step.what for step in steps if step.state is DrainState.WAITING}
    return tuple(
        PartitionOutcome(
            partition_index=drain.partition,
            status_code=_STATUS[drain.state],
            error_code=error_code_of(drain.error) if drain.state is DrainState.PURGE_FAILED else NONE,
            error_message=drain.error or None,
            waits_for=waits.get(drain.partition, "") if drain.state is DrainState.WAITING else "",
        )
        for drain in timeline.drains
    )
