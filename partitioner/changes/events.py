"""Where a change is (phases), what it is told (events) and what it asks for (actions)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ..epochs import Slice
from ..errors import KeyorderError
from ..timeline import Timeline


class Phase(Enum):
    """Where a change is."""

    BEGIN = "BEGIN"
    CLEARING = "CLEARING"
    ROLL_CALL = "ROLL_CALL"
    PREPARING = "PREPARING"
    COLLECTING = "COLLECTING"
    CUTTING = "CUTTING"
    COMMITTING = "COMMITTING"
    COPYING = "COPYING"
    ABORTING = "ABORTING"
    DONE = "DONE"
    FAILED = "FAILED"


# Events: what the adapter saw.
@dataclass(frozen=True, slots=True)
class Started:
    """The timeline was read to its end, after this controller had fenced all others. Writers were read once too."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class TimelineVisible:
    """The timeline that was last written is committed and was read back."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class PartitionsReady:
    """All physical partitions exist and have leaders."""


@dataclass(frozen=True, slots=True)
class WritersLooked:
    """`_keyorder_writers` was read to an end that was asked for at `began`."""

    began: float


@dataclass(frozen=True, slots=True)
class WritersRead:
    """Further records of `_keyorder_writers` were folded in, or just time passed."""


@dataclass(frozen=True, slots=True)
class CutsRead:
    """{partition: high watermark} at the leaders, READ_UNCOMMITTED, asked for after the last READY."""

    high_watermarks: Mapping[int, int]
    at_ms: int


@dataclass(frozen=True, slots=True)
class CopyTooLate:
    """The slice could not be read up to the cuts before the deadline; nothing was written."""


Event = Started | TimelineVisible | PartitionsReady | WritersLooked | WritersRead | CutsRead | CopyTooLate


# Actions: what the adapter has to do, in order.
@dataclass(frozen=True, slots=True)
class WriteTimeline:
    """Write this in a transaction of its own, then report TimelineVisible when it was read back."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class EnsurePartitions:
    """Make sure that `count` partitions exist and have leaders (idempotent); then report PartitionsReady."""

    count: int


@dataclass(frozen=True, slots=True)
class LookAtWriters:
    """Ask for the writers' end now, read up to it, report WritersLooked."""


@dataclass(frozen=True, slots=True)
class Expel:
    """Fence the writer's transactional id if it has one, then write EXPELLED under the join's own key."""

    nonce: str


@dataclass(frozen=True, slots=True)
class ReadCuts:
    """Ask the leaders for the high watermarks of these partitions, report CutsRead."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CopySlice:
    """Read the keys' later homes up to `marks`, then write copies, tombstones and `timeline` in one transaction.

    Report TimelineVisible when the timeline was read back; CopyTooLate, with nothing written, if reading lasts beyond
    `deadline` (the controller's clock).
    """

    piece: Slice
    marks: Mapping[int, int]
    timeline: Timeline
    deadline: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The change is done; `changed` is False when there was nothing to do."""

    timeline: Timeline
    changed: bool


@dataclass(frozen=True, slots=True)
class Fail:
    """The change is over without effect."""

    error: KeyorderError


Action = WriteTimeline | EnsurePartitions | LookAtWriters | Expel | ReadCuts | CopySlice | Finish | Fail


class IllegalEventError(KeyorderError):
    """An event that cannot happen in this phase; nothing was changed."""
