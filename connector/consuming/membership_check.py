"""The driver of `partitioner.gates.membership`: asks the group, and says when nobody has polled for long."""

from __future__ import annotations

from ...partitioner.gates.membership import (
    Answered,
    AskGroup,
    Doubted,
    Event,
    Here,
    Membership,
    MembershipMachine,
    Polled,
    Polling,
    Waiting,
)
from .. import clock
from ..guarded_logger import GuardedLogger
from .assignment import Assignment
from .committing import Committer
from .partition_state import PartitionState

_LOG = GuardedLogger("keyorder.consumer")
# The same for every call: two of them are told in each.
_HERE, _POLLED, _POLLING, _WAITING = Here(), Polled(), Polling(), Waiting()


class MembershipCheck:
    """Tells the machine who was there, and carries out what it asks for. Used by one thread at a time."""

    def __init__(self, assignment: Assignment, commits: Committer, silence: float) -> None:
        self._commits = commits
        self._machine: MembershipMachine[PartitionState] = MembershipMachine(assignment.owned, silence, clock.now())

    @property
    def in_doubt(self) -> bool:
        """Whether something is read that may be another member's by now."""
        return self._machine.in_doubt

    def look(self, now: float) -> None:
        """The polling thread is here, at `now`."""
        self._step(_HERE, now)

    def served(self, now: float) -> None:
        """The client library is polled, at `now`, or its poll has returned."""
        self._step(_POLLED, now)

    def ask(self, now: float) -> None:
        """Ask the group before the library is polled, where there is doubt."""
        self._step(_POLLING, now)

    def settle(self, now: float) -> bool:
        """Ask the group, ten times a second at most. True when it has confirmed. Raises as a commit."""
        self._step(_WAITING, now)
        return self._machine.state is Membership.CONFIRMED

    def _step(self, event: Event, now: float) -> None:
        for action in self._machine.step(event, now):
            match action:
                case AskGroup(partitions):
                    self._step(Answered(self._commits.confirms(partitions)), clock.now())
                case Doubted(seconds):
                    _LOG.info(
                        "nobody polled for %.1f s: records wait until the group has confirmed the membership", seconds
                    )
