"""What a timeline is made of: committed epochs with their cuts, an open change, retired partitions on their way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .modes import Mode


@dataclass(frozen=True, slots=True)
class Epoch:
    """One committed layout. `number` grows strictly, with holes.

    committed_at_ms, held_ms: when it was committed, and how long the change had asked writers to hold records before that,
    as its controller saw it (0: not known). Both are for people, never for decisions.
    """

    number: int
    count: int
    ends: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)
    committed_at_ms: int = 0
    held_ms: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """What is kept of epochs that a timeline no longer lists.

    first_count: the count at adoption. highest_count: the highest that any of them had.
    """

    first_count: int
    highest_count: int


class ChangePhase(str, Enum):
    """How far an open change is. PLAN asks writers to show that they live; PREPARE makes them hold moving keys."""

    PLAN = "PLAN"
    PREPARE = "PREPARE"


@dataclass(frozen=True, slots=True)
class Retirement:
    """How the partitions that a shrink retires are to be emptied.

    immediate: without the delay. groups: consumer groups that have to have processed them to their cuts first.
    delay_ms: the delay of this shrink, None for the topic's own. forced: the groups are not waited for, by an operator's
    word; what they have not read is lost.
    """

    immediate: bool = False
    groups: tuple[str, ...] = ()
    delay_ms: int | None = None
    forced: bool = False

    @property
    def asked_for(self) -> bool:
        """Whether this shrink says itself how its partitions are to be emptied: only where the topic's switch is on."""
        return self.immediate or self.forced or self.delay_ms is not None

    def delay(self, of_topic_ms: int) -> int:
        """The delay in milliseconds, given the topic's own."""
        if self.immediate:
            return 0
        return of_topic_ms if self.delay_ms is None else self.delay_ms


@dataclass(frozen=True, slots=True)
class Slice:
    """Keys of a retired partition of a compacted topic whose last values are being re-homed.

    first, last: the topic's hash of them, both included. The keys are those that once lived in `partition`.
    """

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class OpenChange:
    """An attempt at a change that is neither committed nor given up. `epoch` is the number it would commit.

    slice: set when the attempt re-homes values, at the present count, and will commit no epoch.
    deadline_ms: how long its PREPARE may last at most before it is given up; 0 before that. For people alone.
    """

    epoch: int
    count: int
    phase: ChangePhase
    attempt: int = 1
    retirement: Retirement = field(default_factory=Retirement)
    slice: Slice | None = None
    deadline_ms: int = 0


class DrainState(str, Enum):
    """How far a retired partition is on its way to being emptied (KIP-694's replica states, mapped).

    waiting: for its delay or for groups, and readable. purging: its records are being deleted (ReplicaDeletionStarted).
    purged: they are gone (ReplicaDeletionSuccessful). purge_failed: it is tried again (ReplicaDeletionIneligible).
    """

    WAITING = "waiting"
    PURGING = "purging"
    PURGED = "purged"
    PURGE_FAILED = "purge_failed"


@dataclass(frozen=True, slots=True)
class Drain:
    """A retired partition's generation on its way to being emptied.

    epoch: the one that retired it. upto: its cut; records below it are deleted, and none above it, ever.
    mode: READ_ONLY until it may be emptied, NONE from then on. emptied: the records were deleted.
    tries: how often their deletion has failed. error: what the last one said, empty after none.
    """

    partition: int
    epoch: int
    upto: int
    mode: Mode = Mode.READ_ONLY
    retirement: Retirement = field(default_factory=Retirement)
    emptied: bool = False
    tries: int = 0
    error: str = ""

    @property
    def state(self) -> DrainState:
        """What mode, emptied and error say together."""
        if self.emptied:
            return DrainState.PURGED
        if self.mode is Mode.READ_ONLY:
            return DrainState.WAITING
        return DrainState.PURGE_FAILED if self.error else DrainState.PURGING
