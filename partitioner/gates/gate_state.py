"""Where one partition stands with its gates, and what the gates ask of a partition. Pure: offsets in, a standing out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Protocol

from .gate import Gate
from .starts import Commit

#: (topic, partition).
Place = tuple[str, int]


class Standing(Enum):
    """What a partition that has started waits for.

    UNTOLD: its gate is open, and the application could not be told yet: nothing behind it is returned.
    SEALED: a retired partition that nobody reads any more, but for what lies below its cut.
    """

    READING = "reading"
    GATED = "gated"
    UNTOLD = "untold"
    SEALED = "sealed"


@dataclass(slots=True, eq=False)
class GateState:
    """Where the partition stands with its gates. Written by the `GateMachine` but for `flushed` and `held_keys`.

    closed: its first closed gate. limit: records at or above it wait. sealed_at: the cut of a partition that nobody reads
    any more, None for all others. founded: a gate's `begins` that a commit must not pass yet. flushed: the newest epoch for
    which the application was asked to flush, and did; what a commit has proven is another matter (`CommitState.epoch`).
    announced: the newest epoch whose open gate the application has heard of. unannounced: the gate of which it could not be
    told yet, since its callback raised: nothing behind it is returned. seen_closed: epochs of gates that were closed while
    the partition was owned. Where single keys wait, let_through: epochs whose held records have gone; held_keys: how many
    held records each key has.
    """

    closed: Gate | None = None
    limit: float = inf
    sealed_at: int | None = None
    founded: float = inf
    flushed: int = -1
    announced: int = -1
    unannounced: Gate | None = None
    seen_closed: set[int] = field(default_factory=set)
    let_through: set[int] = field(default_factory=set)
    held_keys: Counter[bytes | None] = field(default_factory=Counter)

    @property
    def standing(self) -> Standing:
        """What it waits for."""
        if self.sealed_at is not None:
            return Standing.SEALED
        if self.unannounced is not None:
            return Standing.UNTOLD
        return Standing.READING if self.closed is None else Standing.GATED

    def passes(self, gate: Gate) -> bool:
        """Whether the application has heard of all that comes before what lies behind this gate."""
        return self.unannounced is None or gate.epoch < self.unannounced.epoch

    def hold_key(self, key: bytes | None) -> None:
        """One more record of this key waits."""
        self.held_keys[key] += 1

    def free_key(self, key: bytes | None) -> None:
        """One record of this key waits no more."""
        self.held_keys[key] -= 1
        if not self.held_keys[key]:
            del self.held_keys[key]

    def rearm(self) -> None:
        """A position went back: the application is told again of gates that open."""
        self.announced = -1
        self.seen_closed.clear()

    def begin_again(self) -> None:
        """Nothing is held any more."""
        self.held_keys.clear()
        self.let_through = set()


class HeldRecords(Protocol):
    """Records of one partition that were fetched and wait, in their order."""

    def __len__(self) -> int:
        """How many."""

    @property
    def first(self) -> int:
        """The offset of the first; there has to be one."""


class Fetched(Protocol):
    """running: the client library reads the partition. paused_for_hold: it holds as much as it may."""

    running: bool
    paused_for_hold: bool


class GatedPartition(Protocol):
    """A partition that is owned, as its gates see it. Offsets are the next ones to read.

    started: its start is known. fetched: taken in up to there.
    """

    topic: str
    partition: int
    started: bool
    fetched: int

    @property
    def place(self) -> Place:
        """(topic, partition)."""

    @property
    def gates(self) -> GateState:
        """What its gates have decided."""

    @property
    def fetch(self) -> Fetched:
        """Whether it is read."""

    @property
    def held(self) -> HeldRecords:
        """What waits."""

    @property
    def returned(self) -> int:
        """Everything below it was returned to the application."""

    @property
    def backlog(self) -> int:
        """How many records may lie in the log behind what was fetched."""

    @property
    def counted(self) -> Commit | None:
        """What the group has committed, as far as this member's own gates may count it."""

    @property
    def owes_end(self) -> bool:
        """Whether the application is to hear now of the end of the partition that came behind held records."""
