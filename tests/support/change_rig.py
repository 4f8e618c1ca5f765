"""A change's state machine on a bench: its writers' log, a clock, and short words for what the controller sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyorder.partitioner.changes.change import ChangeMachine
from keyorder.partitioner.changes.events import (
    Action,
    Event,
    PartitionsReady,
    Phase,
    Started,
    TimelineVisible,
    WritersLooked,
    WritersRead,
    WriteTimeline,
)
from keyorder.partitioner.changes.terms import ChangeTerms
from keyorder.partitioner.epochs import ChangePhase, Slice
from keyorder.partitioner.records.control_records import Lease, LeaseState, Ready
from keyorder.partitioner.stamps import Stamp
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.members import WriterSet

from .dumb import timeline_of

START = timeline_of(2, [])
GROWN = START.opened(3, ChangePhase.PLAN).prepared().committed({0: 10}, {2: 0})
#: 2 -> 3 -> 2, with partition 2 retired at 30.
RETIRED = GROWN.opened(2, ChangePhase.PLAN).prepared().committed({2: 30}, {0: 15})
TERMS = ChangeTerms(attempt_deadline=5, max_deadline=20, timeout=120)


class Rig:
    """A machine, its writers' log and a clock. Each step's actions are returned and kept."""

    def __init__(
        self,
        target: int = 3,
        timeline: Timeline = START,
        terms: ChangeTerms = TERMS,
        wait: bool = False,
        piece: Slice | None = None,
    ) -> None:
        self.now = 1000.0
        self.timeline = timeline
        self.stamp: Stamp | None = None  # of the lease records that land
        self.writers = WriterSet()
        self.offset = 0
        self.log: list[Action] = []
        self.sequences: dict[str, int] = {}
        may_from = None if wait else self.now
        self.machine = ChangeMachine(target, self.writers, terms, self.now, may_from, piece=piece)

    def step(self, event: Event) -> list[Action]:
        actions = self.machine.step(event, self.now)
        self.log += actions
        return actions

    def lease(self, nonce: str, state: LeaseState = LeaseState.LIVE, writer: str = "", **more: Any) -> None:
        """A lease record lands and is read."""
        self.sequences[nonce] = sequence = self.sequences.get(nonce, 0) + 1
        first = LeaseState.JOIN if sequence == 1 and state is LeaseState.LIVE else state
        fields: dict[str, Any] = {"lease_ms": 45_000, "topics": ("t",), **more}
        lease = Lease(writer or f"w-{nonce}", nonce, first, None, sequence=sequence, **fields)
        self.writers.apply(lease, self.offset, self.now, self.stamp)
        self.offset += 1

    def ready(self, nonce: str, epoch: int, acknowledged: Mapping[int, int] | None = None, writer: str = "") -> None:
        """A READY lands and is read."""
        self.writers.apply(Ready("t", writer or f"w-{nonce}", nonce, epoch, acknowledged or {}), self.offset, self.now)
        self.offset += 1

    def started(self, stamp: Stamp | None = None) -> list[Action]:
        return self.step(Started(self.timeline, stamp))

    def visible(self, stamp: Stamp | None = None) -> list[Action]:
        """What was written last was read back. stamp: when it was appended."""
        written = [action.timeline for action in self.log if isinstance(action, WriteTimeline)]
        self.timeline = written[-1]
        return self.step(TimelineVisible(self.timeline, stamp))

    def announced(self) -> list[Action]:
        """PLAN is out and read back, the partitions exist."""
        return [*self.visible(), *self.step(PartitionsReady())]

    def looked(self, ago: float = 0.0) -> list[Action]:
        return self.step(WritersLooked(self.now - ago))

    def read(self, later: float = 0.0) -> list[Action]:
        self.now += later
        return self.step(WritersRead())

    def collecting(self, *nonces: str) -> Rig:
        """Up to COLLECTING with these writers, all of them awake, none READY, the set known."""
        for nonce in nonces:
            self.lease(nonce)
        self.started()
        for nonce in nonces:
            self.lease(nonce)
        self.announced()
        self.visible()
        assert self.machine.phase is Phase.COLLECTING
        self.looked()
        return self

    @property
    def epoch(self) -> int:
        assert self.machine.timeline is not None
        assert self.machine.timeline.change is not None
        return self.machine.timeline.change.epoch
