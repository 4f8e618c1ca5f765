"""How records on the way are counted, and what may be sent without a lock.

A writer is READY when nothing of the moving keys can reach the broker any more. Records are therefore counted before they
are handed over, by steps that need no lock, and whoever counts shuts the fast path first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

from confluent_kafka import murmur2

_UNTOLD: tuple[object, Callable[..., None]] = (object(), print)


class Acknowledged(Protocol):
    """A record as the broker has acknowledged it."""

    def offset(self) -> int | None:
        """Where it lies."""


class InFlight:
    """The records sent to one partition between two looks: how many are unresolved.

    unresolved: those that are counted under the owner's lock. started, ended: called without it, once before a record is
    handed to the client library and once when its fate is known; they are single steps of the interpreter, which `+=` is not.
    starts, ends: a step of them is a call of these. settles_at: a record that timed out may still be on its way to the broker;
    it counts as resolved one request timeout later. Seconds of the writer's clock. last: a record acknowledged lately. told:
    kept here by whoever counts: the last callback made for it. lost_count_until: an exception (a signal's) left the call that
    hands a record over, or the one that tells its fate, at an unknown step, so the count may be too high; from then on it
    proves nothing any more.
    """

    __slots__ = (
        "_looks",
        "ended",
        "ends",
        "last",
        "lost_count_until",
        "partition",
        "settles_at",
        "started",
        "starts",
        "told",
        "unresolved",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.unresolved = 0
        self.starts: Iterator[int] = count()
        self.started: Callable[[], int] = self.starts.__next__
        self.ends: Iterator[int] = count()
        self.ended: Callable[[], int] = self.ends.__next__
        self._looks = 0
        self.settles_at = float("-inf")
        self.lost_count_until = float("inf")
        self.last: Acknowledged | None = None
        self.told: tuple[object, Callable[..., None]] = _UNTOLD

    def on_the_way(self) -> int:
        """How many are unresolved. Under the owner's lock.

        The ends are read first: a start that comes between the two reads then shows as a record on its way. In the other
        order its end could stand for an earlier record's, which is not there yet.
        """
        ended = self.ended() - self._looks
        started = self.started() - self._looks
        self._looks += 1  # a look is a step of both counters
        return self.unresolved + started - ended

    def resolved(self, now: float) -> bool:
        """Whether nothing that is counted here can reach the broker any more."""
        return now >= self.settles_at and (self.on_the_way() == 0 or now >= self.lost_count_until)

    def forget_callback(self) -> None:
        """Let go of the last callback: its application may have let go of the producer."""
        self.told = _UNTOLD


class Permit:
    """Where the records of one slot go while nothing is in their way. header: their hint, None without one."""

    __slots__ = ("header", "in_flight")

    def __init__(self, in_flight: InFlight, header: bytes | None) -> None:
        self.in_flight, self.header = in_flight, header


class FastPath:
    """What may be sent without the lock. Closed for good by whatever makes a record of the topic wait.

    of: the permit of each slot, `slot(key, period)`; None: ask under the lock. A sender first calls `in_flight.started` of its
    permit, then looks at `open`, and only then hands the record over; if it is shut it calls `ended` and asks under the lock.
    So whoever has shut the fast path and then finds nobody in flight knows that none will follow: a sender that had not started
    when it was counted finds the fast path shut.
    """

    __slots__ = ("of", "open", "period", "slot")

    def __init__(self, period: int, slot: Callable[[bytes, int], int] = murmur2) -> None:
        self.open, self.period, self.slot = True, period, slot
        self.of: list[Permit | None] = [None] * period
