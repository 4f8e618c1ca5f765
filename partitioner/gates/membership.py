"""Whether a reader is still a member of its group, as a step machine: `step(event, now) -> actions`.

The group gives a member up when it has said nothing for a session. A process that stood still does not know that: the
client library's next heartbeat will say so, but records that were fetched before lie ready. What it gives out then may come
after what the new owner of its partitions did. So after a silence everything waits until the group has confirmed the
membership, by taking a commit that it refuses to anybody else (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, a stale epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

# Below the shortest session that brokers allow by default: group.min.session.timeout.ms is 6 000.
_SILENCE = 5.0
_ASK_AGAIN = 0.1


def longest_silence(session: float, heartbeat: float) -> float:
    """Seconds that a member may be silent and still be sure of its session: `session` after its last heartbeat it is over.

    Up to `heartbeat` of them had gone by when the silence began. Half of the rest is left for the way to the group. Where a
    heartbeat is hardly shorter than the session nothing is sure; a tenth of the session keeps questions apart even then.
    """
    return max((session - heartbeat) / 2, session / 10, 0.1)


class Readable(Protocol):
    """A partition that is owned. started: records of it may be given out."""

    started: bool


P = TypeVar("P", bound=Readable)


class Membership(Enum):
    """Where a member stands with its group."""

    CONFIRMED = "confirmed"
    DOUBTED = "doubted"


@dataclass(frozen=True, slots=True)
class Here:
    """The polling thread is here."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The client library is polled, or its poll has returned."""


@dataclass(frozen=True, slots=True)
class Polling:
    """The client library is about to be polled, by a member that may ask the group before."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records wait for the group's word."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The group was asked. taken: it has taken the commit."""

    taken: bool


@dataclass(frozen=True, slots=True)
class AskGroup(Generic[P]):
    """Let the group take a commit for these partitions that says nothing new; then Answered."""

    partitions: list[P]


@dataclass(frozen=True, slots=True)
class Doubted:
    """Tell people: nobody polled for `seconds`, and records wait."""

    seconds: float


Event = Here | Polled | Polling | Waiting | Answered
Action = AskGroup[P] | Doubted


class MembershipMachine(Generic[P]):
    """Casts doubt on the membership when nobody was there for long. Not thread-safe.

    Nobody: the polling thread was away, or it did not poll the client library, which then leaves the group as well. What is
    assigned before the group has confirmed the membership is in doubt too: it may come of a rebalance that the library had
    taken part in meanwhile, and that is over.

    Being away may also mean that the application took its time: then the confirmation costs one request.

    owned: the partitions of this member; it is kept by the driver and only read here.
    silence: seconds, `longest_silence` of its session; five are long in any case.
    """

    def __init__(self, owned: Mapping[tuple[str, int], P], silence: float, now: float) -> None:
        self._owned, self._silence = owned, silence
        self.state = Membership.CONFIRMED
        self._here_at = self._polled_at = now
        self._ask_at = self._asked_at = 0.0
        self._counts = False
        self._handlers: dict[type[Any], Callable[[Any, float], list[Action[P]]]] = {
            Here: self._on_here,
            Polled: self._on_polled,
            Polling: self._on_polling,
            Waiting: self._on_waiting,
            Answered: self._on_answered,
        }

    def step(self, event: Event, now: float) -> list[Action[P]]:
        """Take in an event at `now`, seconds of a clock that counts through suspend. Returns what is to be done, in order."""
        return self._handlers[type(event)](event, now)

    @property
    def in_doubt(self) -> bool:
        """Whether something is read that may be another member's by now. What was not started yet gives nothing out."""
        return self.state is Membership.DOUBTED and bool(self._readable())

    def _readable(self) -> list[P]:
        return [partition for partition in self._owned.values() if partition.started]

    def _on_here(self, _: Here, now: float) -> list[Action[P]]:
        silent, self._here_at = now - self._here_at, now
        return self._after(silent, now)

    def _on_polled(self, _: Polled, now: float) -> list[Action[P]]:
        silent, self._polled_at = now - self._polled_at, now
        return self._after(silent, now)

    def _after(self, silent: float, now: float) -> list[Action[P]]:
        if silent < _SILENCE and silent < self._silence:
            return []
        known, self.state = self.state, Membership.DOUBTED
        self._ask_at = now
        return [Doubted(silent)] if self._owned and known is Membership.CONFIRMED else []

    def _on_polling(self, _: Polling, now: float) -> list[Action[P]]:
        """Ask before the library is polled: from a refusal it learns of the loss.

        Else a rebalance that has been waiting since then would be told as one in which positions can still be committed. What
        the library has to tell may be that the partitions are lost: a confirmation of before it has spoken does not count.
        """
        return self._ask(now, counts=False)

    def _on_waiting(self, _: Waiting, now: float) -> list[Action[P]]:
        return self._ask(now, counts=True)

    def _ask(self, now: float, counts: bool) -> list[Action[P]]:
        if not self.in_doubt or now < self._ask_at:
            return []
        self._counts, self._asked_at = counts, now
        return [AskGroup(self._readable())]

    def _on_answered(self, event: Answered, now: float) -> list[Action[P]]:
        if self._counts:
            self._counts = False
            # The group may have taken it as soon as it was asked. Was the process stopped since then, its session may be over.
            if event.taken and now - self._asked_at < self._silence:
                self.state = Membership.CONFIRMED
            else:
                self._ask_at = now + _ASK_AGAIN
        return []
