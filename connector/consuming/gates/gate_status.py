"""What closed gates wait for, gate by gate and origin by origin: for the application, and once a second for the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....partitioner.gates.gate import Gate as Cut
from ....partitioner.gates.gate import Opened
from ....partitioner.gates.waits import OriginFacts, why
from ... import clock
from ...config import ConsumerSettings
from ...messages import Place
from ..assignment import Assignment
from ..partition_state import PartitionState
from .gating import Gatekeeper
from .origins import PATIENCE, OriginWatch, wait_after
from .positions import GroupPositions


@dataclass(frozen=True, slots=True)
class Gate:
    """A closed gate of a partition that this member owns.

    waits_for: the origin partition; needs_offset: what the group has to commit there; at_offset: what it has.
    records_held: fetched and waiting in memory. since: seconds of the machine's clock. eta: seconds until it opens at the
    rate so far, None until a rate is known. owner: "this member", or the member that owns the origin with its client id
    and host, "nobody", or "another member" until that is known.
    reason, detail: what it waits for, as `partitioner.gates.waits.Reason` names it, and what to look at.
    early_release: how far that is with this gate, "" where it is off or was not begun.
    """

    topic: str
    partition: int
    epoch: int
    waits_for: int
    needs_offset: int
    at_offset: int
    records_held: int
    since: float
    owner: str
    eta: float | None = None
    reason: str = ""
    detail: str = ""
    early_release: str = ""


class GateStatus:
    """Explains the gates of one consumer. Used by the polling thread alone."""

    def __init__(
        self,
        settings: ConsumerSettings,
        assignment: Assignment,
        gates: Gatekeeper,
        positions: GroupPositions,
        origins: OriginWatch,
    ) -> None:
        self._settings, self._assignment, self._gates = settings, assignment, gates
        self._positions, self._origins = positions, origins
        self._progress: dict[Place, _Progress] = {}
        self._explain_at = 0.0

    def explain(self) -> None:
        """Once a second: look at the origins of gates that stay closed, and log what does not pass by itself.

        Less often where that takes long: hundreds of closed gates cost no core.
        """
        now = clock.now()
        if now < self._explain_at:
            return
        watched: set[Place] = set()
        for place, since, _, _, blockers in self._waiting():
            for q, needed in blockers:
                facts = self._facts(place[0], q, needed, since)
                if now - since >= PATIENCE:
                    watched.add((place[0], q))
                    self._origins.report(place, (place[0], q), *why(facts), now - since)
        self._origins.watch(watched)
        if not self._gates.busy:
            self._progress.clear()
        self._explain_at = now + wait_after(clock.now() - now, PATIENCE)

    def closed(self) -> Iterator[Gate]:
        """Each closed gate, origin by origin."""
        for place, since, owned, gate, blockers in self._waiting():
            for q, needed in blockers:
                facts = self._facts(place[0], q, needed, since)
                reason, detail = why(facts)
                yield Gate(
                    topic=place[0],
                    partition=place[1],
                    epoch=gate.epoch,
                    waits_for=q,
                    needs_offset=needed,
                    at_offset=facts.proven,
                    records_held=len(owned.held),
                    since=since,
                    owner=self._owner(facts),
                    eta=self._progress[place[0], q].eta(needed),
                    reason=reason.value,
                    detail=detail,
                    early_release=self._gates.early_note(place[0], gate),
                )

    def _waiting(self) -> Iterator[tuple[Place, float, PartitionState, Cut, list[tuple[int, int]]]]:
        looks: dict[str, Opened] = {}
        for place, since in sorted(self._gates.shut.items()):
            owned = self._assignment.owned.get(place)
            if place[0] not in looks:
                looks[place[0]] = self._gates.opened(place[0], self._assignment.view(place[0]))
            opened = looks[place[0]]
            gate = opened.first_closed(place[1])
            if owned is not None and gate is not None:
                yield place, since, owned, gate, sorted(opened.blockers(gate))

    def _facts(self, topic: str, q: int, needed: int, since: float) -> OriginFacts:
        owned = self._assignment.owned.get((topic, q))
        commit = self._gates.commit(topic, q)
        committed = 0 if commit is None else commit.offset
        progress = self._progress.setdefault((topic, q), _Progress(committed, since))
        progress.saw(committed, clock.now())
        look = self._origins.get((topic, q))
        by_us = self._settings.auto_commit and self._settings.auto_store
        return OriginFacts(
            topic=topic,
            partition=q,
            needs=needed,
            committed=committed,
            proven=self._gates.proven(topic, q),
            highest_committed=max(committed, self._positions.highest(topic, q)) if owned is None else committed,
            owner="this member" if owned is not None else None if look is None else look.owner,
            log_start=None if look is None else look.log_start,
            stable_end=None if look is None else look.stable_end,
            high_watermark=None if look is None else look.high_watermark,
            returned=None if owned is None or by_us else owned.returned,
            paused=owned is not None and owned.fetch.paused_by_user,
            still_for=clock.now() - max(progress.changed_at, since),
        )

    @staticmethod
    def _owner(facts: OriginFacts) -> str:
        if facts.owner is None:
            return "another member"
        return facts.owner or "nobody"


class _Progress:
    """How a group's position of one origin has moved while a gate waited for it."""

    __slots__ = ("changed_at", "first", "first_at", "last")

    def __init__(self, committed: int, at: float) -> None:
        self.first = self.last = committed
        self.first_at = self.changed_at = at

    def saw(self, committed: int, at: float) -> None:
        """A look at the position."""
        if committed != self.last:
            if committed < self.last:
                self.first, self.first_at = committed, at  # it went back: a rate from before would mislead
            self.last, self.changed_at = committed, at

    def eta(self, needs: int) -> float | None:
        """Seconds until `needs` at the rate so far, or None while there is no rate."""
        gained, took = self.last - self.first, self.changed_at - self.first_at
        return (needs - self.last) * took / gained if gained > 0 and took > 0 else None
