"""Where a change is (phases), what it is told (events) and what it asks for (actions)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ..epochs import Slice
from ..errors import KeyorderError
from ..stamps import Stamp
from ..timeline import Timeline


@dataclass(frozen=True, slots=True)
class WriterWait:
    """A writer that a change waits for. Times are seconds of the controller's clock.

    ready: for its READY, to PREPARE; otherwise for a sign of life, to PLAN. since: when it was last heard of, or asked to
    get ready. until: when the change stops waiting for it at the latest.
    """

    writer: str
    ready: bool
    since: float
    until: float


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
    """The timeline was read to its end, after this controller had fenced all others. Writers were read once too.

    stamp: when its newest record was appended.
    """

    timeline: Timeline
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class TimelineVisible:
    """The timeline that was last written is committed and was read back. stamp: when it was appended."""

    timeline: Timeline
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class PartitionsReady:
    """All physical partitions exist and have leaders, which answer."""


@dataclass(frozen=True, slots=True)
class WritersLooked:
    """`_keyorder_writers` was read to an end that was asked for at `began`."""

    began: float


@dataclass(frozen=True, slots=True)
class WritersRead:
    """Further records of `_keyorder_writers` were folded in, or just time passed."""


@dataclass(frozen=True, slots=True)
class WritersStamped:
    """A record of the controller's own was appended to these partitions of `_keyorder_writers`, and read back.

    stamps: by partition; one that is missing could not be had. wall_ms: the controller's wall clock now.
    """

    stamps: Mapping[int, Stamp]
    wall_ms: int


@dataclass(frozen=True, slots=True)
class CutsRead:
    """{partition: high watermark} at the leaders, READ_UNCOMMITTED, asked for after the last READY."""

    high_watermarks: Mapping[int, int]
    at_ms: int


@dataclass(frozen=True, slots=True)
class CopyTooLate:
    """The slice could not be read up to the cuts before the deadline; nothing was written."""


Event = (
    Started | TimelineVisible | PartitionsReady | WritersLooked | WritersRead | WritersStamped | CutsRead | CopyTooLate
)


# Actions: what the adapter has to do, in order.
@dataclass(frozen=True, slots=True)
class WriteTimeline:
    """Write this in a transaction of its own, then report TimelineVisible when it was read back."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class EnsurePartitions:
    """Make sure that `count` partitions exist and have leaders (idempotent); then report PartitionsReady.

    asked: those whose offsets will be asked for while writers hold records: their leaders have to answer before.
    """

    count: int
    asked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAtWriters:
    """Ask for the writers' end now, read up to it, report WritersLooked."""


@dataclass(frozen=True, slots=True)
class StampWriters:
    """Append a record to each of these partitions of `_keyorder_writers`, read it back, report WritersStamped."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expel:
    """Fence the writer's transactional id if it has one, then write EXPELLED under the join's own key.

    over_before: its lease was over before the change began, by the leader's stamps.
    """

    nonce: str
    over_before: bool = False


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


Action = WriteTimeline | EnsurePartitions | LookAtWriters | StampWriters | Expel | ReadCuts | CopySlice | Finish | Fail


class IllegalEventError(KeyorderError):
    """An event that cannot happen in this phase; nothing was changed."""
