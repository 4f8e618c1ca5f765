"""Looking at logs and groups of a topic: once, or twice for a pace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...partitioner.gates.starts import Commit
from .. import clock
from ..group_gates import GroupOffsets
from ..log_offsets import LogOffsets
from .forecast import Sample


def take_sample(
    config: Mapping[str, Any],
    offsets: GroupOffsets,
    topic: str,
    partitions: Iterable[int],
    groups: Sequence[str] | None,
) -> Sample:
    """One look. groups: these, or all that have committed offsets of the topic when None.

    Raises NotAuthorizedError, BrokerUnreachableError, KafkaOperationError.
    """
    places = [(topic, p) for p in partitions]
    logs = LogOffsets(config)
    at = clock.now()
    try:
        # Commits first: what is committed while the ends are asked for must not lie above them.
        committed: Mapping[str, Mapping[int, Commit]]
        committed = offsets.of_topic(topic) if groups is None else offsets.committed(groups, topic)
        starts, ends = logs.earliest(places), logs.high_watermarks(places)
    finally:
        logs.close()
    return Sample(at, _by_partition(starts), _by_partition(ends), committed)


def two_samples(take: Callable[[], Sample], seconds: float) -> tuple[Sample, Sample]:
    """(first, last), `seconds` apart; one and the same when that is 0."""
    first = take()
    if seconds <= 0:
        return first, first
    threading.Event().wait(seconds)
    return first, take()


def _by_partition(found: Mapping[tuple[str, int], int]) -> dict[int, int]:
    return {p: offset for (_, p), offset in found.items()}
