"""A writer's side of a change, for one topic: which records flow, which wait, and when it is READY.

A writer that has read PREPARE(e) holds the records of moving keys, lets all others flow, waits until what it had sent
of the moving keys is resolved, and says READY(e). COMMIT or ABORT releases what it holds, each key in its own order.
An attempt that re-homes values holds the keys of its slice in the same way, and ends by a release to the same homes.

Why moving keys are held at all: if one writer's record is acknowledged by the old home and it then tells another
writer, that one's record has to come after it. So real-time order across writers is kept, not only each writer's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from ..routing import Route, Routing
from ..timeline import Timeline
from .fast_path import FastPath, InFlight, Permit

R = TypeVar("R")

# Seconds within which the next attempt of a change follows one that was given up, or a running controller begins anew.
_BETWEEN_ATTEMPTS = 60.0


@dataclass(slots=True)
class Held(Generic[R]):
    """A record that waits since `since`, with what its sender needs to send it later.

    partition: where the application placed it itself; None for a record that its key places. size: bytes.
    """

    key: bytes | None
    record: R
    since: float = 0.0
    partition: int | None = None
    size: int = 0


# Called with what will be dropped. What it returns is called when that is done, and makes it known in one step of the
# interpreter, without Python code of its own: no signal's exception may come in its middle.
Telling = Callable[[list[Held[R]]], Callable[[], object]]


def _untold(_: object) -> Callable[[], object]:
    return bool


class TopicSending(Generic[R]):
    """One topic's routes, records on the way and held records. Not thread-safe: its owner holds a lock."""

    def __init__(self, timeline: Timeline) -> None:
        self.routing = Routing(timeline)
        self.held: deque[Held[R]] = deque()
        self.acknowledged: dict[int, int] = {}
        self._held_keys: dict[bytes | None, int] = {}
        self._current: dict[int, InFlight] = {}
        self._draining: list[InFlight] = []
        self._doubted: list[InFlight] = []
        self.held_bytes = 0
        self._ready_for: int | None = None
        self._given_up_at = float("-inf")
        self._all_wait: Routing | None = None  # under which all that is held waits: no need to look again
        self.fast_path: FastPath | None = None

    @property
    def timeline(self) -> Timeline:
        """The newest timeline that this writer has read."""
        return self.routing.timeline

    @property
    def preparing(self) -> bool:
        """Whether a PREPARE is open: moving keys wait."""
        return self.routing.preparing

    @property
    def answered(self) -> bool:
        """Whether READY was said for the open attempt, or there is none."""
        change = self.timeline.change
        return not self.preparing or change is None or self._ready_for == change.epoch

    def purgeable(self, now: float) -> bool:
        """Whether records on the way may be given up before their fate is known. They may still arrive, so a change waits
        for them as long as that can be: not while one is open, nor between two attempts of it.
        """
        return self.timeline.change is None and now - self._given_up_at >= _BETWEEN_ATTEMPTS

    def apply(self, timeline: Timeline, now: float = float("-inf")) -> bool:
        """Take in a newer timeline. True when something changed for sending.

        Raises TimelineRegressionError, IdentityMismatchError (see Timeline.check_successor).
        """
        self.timeline.check_successor(timeline)
        if timeline == self.timeline:
            return False
        self.shut_fast_path()
        if self.timeline.change is not None:
            given_up = timeline.change is None and timeline.newest.number == self.timeline.newest.number
            self._given_up_at = now if given_up else float("-inf")
        self.routing = Routing(timeline, self.routing)
        change = timeline.change
        if self.preparing and change is not None and self._ready_for != change.epoch:
            # Records sent from here on belong to keys that stay, so only those sent before have to be waited for.
            for q in self.routing.settling():
                in_flight = self._current.pop(q, None)
                if in_flight is not None:
                    self._draining.append(in_flight)
            self._draining += [
                in_flight for in_flight in self._doubted if in_flight.partition in self.routing.settling()
            ]
            self._doubted = [in_flight for in_flight in self._doubted if in_flight not in self._draining]
        return True

    def doubt(self, now: float, until: float) -> None:
        """The count of what is on the way may be too high: count anew, and trust the present counts until then at most.

        until: when the client library has given up on whatever was handed to it by now. Seconds.
        """
        self.shut_fast_path()
        self.note_acknowledged()
        self._doubted = [in_flight for in_flight in self._doubted if not in_flight.resolved(now)]
        for in_flight in (*self._current.values(), *self._draining):
            in_flight.lost_count_until = min(until, in_flight.lost_count_until)
        self._doubted += self._current.values()
        self._current = {}

    def forget_callbacks(self) -> None:
        """Let go of the application's callbacks where nothing is on the way."""
        for in_flight in self._in_flights():
            if not in_flight.on_the_way():
                in_flight.forget_callback()

    def must_wait(self, key: bytes | None, route: Route | None) -> bool:
        """Whether a record has to be held: its key is moving, or an earlier one of the key is held."""
        if self._held_keys and key in self._held_keys:
            return True
        return key is not None and route is not None and self.routing.waits(key, route)

    def retiring(self, partition: int) -> bool:
        """Whether the open attempt would retire this partition: what the application places there counts as moving."""
        change = self.timeline.change
        return self.routing.preparing and change is not None and partition >= change.count

    def hold(self, key: bytes | None, record: R, now: float = 0.0, partition: int | None = None, size: int = 0) -> None:
        """Put a record behind all that are held."""
        self.shut_fast_path()
        if not (key in self._held_keys or (key is not None and partition is None and self._is_waiting(key))):
            self._all_wait = None
        # Counted first: if a signal's exception comes in between, a key waits that need not, and none overtakes.
        self._held_keys[key] = self._held_keys.get(key, 0) + 1
        self.held_bytes += size
        self.held.append(Held(key, record, now, partition, size))

    def in_flight(self, partition: int) -> InFlight:
        """Where a record that is sent to `partition` now is counted."""
        in_flight = self._current.get(partition)
        if in_flight is None:
            in_flight = self._current[partition] = InFlight(partition)
        return in_flight

    def open_fast_path(self, key: bytes, route: Route) -> None:
        """Let records of this key's slot go without the lock, if nothing of the topic is held or being prepared."""
        if self.held or self.preparing:
            return
        if self.fast_path is None:
            self.fast_path = FastPath(self.routing.period, self.routing.slot)
        self.fast_path.of[self.routing.slot(key, self.routing.period)] = Permit(
            self.in_flight(route.home), route.header
        )

    def shut_fast_path(self) -> None:
        """From here on every record is judged under the lock, until a permit is opened again."""
        if self.fast_path is not None:
            self.fast_path.open = False
            self.fast_path = None

    def side_in_flight(self, partition: int) -> InFlight:
        """Where a record that follows from an earlier one is counted; a READY that is not said yet waits for it."""
        if self.answered:
            return self.in_flight(partition)
        in_flight = InFlight(partition)
        self._draining.append(in_flight)
        return in_flight

    def unresolved(self) -> int:
        """How many records are on their way."""
        return sum(in_flight.on_the_way() for in_flight in self._in_flights())

    def settled(self, now: float) -> bool:
        """Whether nothing at all is on its way any more."""
        return all(in_flight.resolved(now) for in_flight in self._in_flights())

    def ready_epoch(self, now: float) -> int | None:
        """The attempt that this writer has just become ready for; None when there is none, or it said so already."""
        change = self.timeline.change
        if change is None or not self.preparing or self._ready_for == change.epoch:
            return None
        resolved = [in_flight for in_flight in self._draining if in_flight.resolved(now)]
        for in_flight in resolved:
            self._note(in_flight)  # after it was counted: all that it will ever have acknowledged is there
            self._draining.remove(in_flight)
        return None if self._draining else change.epoch

    def acknowledged_origins(self) -> dict[int, int]:
        """{origin: offset} what the broker acknowledged to this writer, for the origins of the open attempt.

        Not always the very last: where several threads serve delivery reports, the one that came last may be an older.
        """
        change = self.timeline.change
        if change is None:
            return {}
        origins = self.routing.settling()
        return {q: offset for q, offset in self.note_acknowledged().items() if q in origins}

    def note_acknowledged(self) -> dict[int, int]:
        """{partition: offset} one above what the broker is known to have acknowledged to this writer."""
        for in_flight in self._in_flights():
            self._note(in_flight)
        return self.acknowledged

    def said_ready(self, epoch: int) -> None:
        """READY for `epoch` was written."""
        self._ready_for = epoch

    def lost_ready(self, epoch: int) -> None:
        """READY for `epoch` did not arrive: it is to be said again."""
        if self._ready_for == epoch:
            self.forget_ready()

    def forget_ready(self) -> None:
        """An open attempt is to be answered again, whatever was said."""
        self._ready_for = None

    def release(self, send: Callable[[Held[R], Route | None], bool]) -> int:
        """Offer held records, oldest first, to `send`; it returns False when it can take no more now.

        A key's records keep their order: behind one that has to wait, all later ones of its key wait too.
        Returns how many were sent. Costs nothing while a PREPARE is open that makes all of them wait.
        """
        if self._all_wait is self.routing:
            return 0
        kept: deque[Held[R]] = deque()
        waiting: set[bytes | None] = set()
        sent = 0
        try:
            while self.held:
                held = self.held[0]
                by_key = held.key is not None and held.partition is None
                route = self.routing.of(held.key) if by_key and held.key is not None else None
                moving = held.key is not None and route is not None and self.routing.waits(held.key, route)
                retiring = held.partition is not None and self.retiring(held.partition)
                if moving or retiring or held.key in waiting:
                    waiting.add(held.key)
                    kept.append(self.held.popleft())
                    continue
                if not send(held, route):
                    break
                sent += 1
                self._forget(self.held.popleft())
            else:
                self._all_wait = self.routing
        finally:
            # also when `send` raises: what it did not send is still held
            kept.extend(self.held)
            self.held = kept
            if not kept:
                # A key may have been counted whose record a signal's exception kept from being held.
                self._held_keys.clear()
                self.held_bytes = 0
        return sent

    def drop_held(self, telling: Telling[R] = _untold) -> list[Held[R]]:
        """Take out everything that is held, oldest first (abort, purge)."""
        return self._drop(list(self.held), deque(), telling)

    def drop_expired(self, before: float, telling: Telling[R] = _untold) -> list[Held[R]]:
        """Take out what is held since `before` or longer, and what is held of the same keys behind it; oldest first."""
        if not self.held or self.held[0].since > before:
            return []
        keys = {held.key for held in self.held if held.since <= before and held.key is not None}
        dropped: list[Held[R]] = []
        kept: deque[Held[R]] = deque()
        for held in self.held:
            (dropped if held.since <= before or held.key in keys else kept).append(held)
        return self._drop(dropped, kept, telling)

    @property
    def held_keys(self) -> Collection[bytes | None]:
        """The keys of which records are held."""
        return self._held_keys.keys()

    def is_current(self, in_flight: InFlight) -> bool:
        """Whether records that are sent now are counted there."""
        return self._current.get(in_flight.partition) is in_flight

    def drop_key(self, key: bytes | None, telling: Telling[R] = _untold) -> list[Held[R]]:
        """Take out the held records of one key, whose earlier record failed."""
        dropped = [held for held in self.held if held.key == key]
        return self._drop(dropped, deque(held for held in self.held if held.key != key), telling) if dropped else []

    def _drop(self, dropped: list[Held[R]], kept: deque[Held[R]], telling: Telling[R]) -> list[Held[R]]:
        if not dropped:
            return dropped
        keys: dict[bytes | None, int] = {}
        for held in kept:
            keys[held.key] = keys.get(held.key, 0) + 1
        size = sum(held.size for held in kept)
        tell = telling(dropped)
        # No signal's exception comes between these two, as no Python code is called: what is dropped is told, or still held.
        self.held, self._held_keys, self.held_bytes = kept, keys, size
        tell()
        return dropped

    def _is_waiting(self, key: bytes) -> bool:
        return self.routing.preparing and self.routing.waits(key, self.routing.of(key))

    def _in_flights(self) -> Iterator[InFlight]:
        return chain(self._current.values(), self._draining, self._doubted)

    def _note(self, in_flight: InFlight) -> None:
        """Take in the last record that this count has acknowledged. An implicit acknowledgement has no offset."""
        offset = None if in_flight.last is None else in_flight.last.offset()
        if offset is not None and offset >= self.acknowledged.get(in_flight.partition, 0):
            self.acknowledged[in_flight.partition] = offset + 1

    def _forget(self, held: Held[R]) -> None:
        self.held_bytes -= held.size
        left = self._held_keys.get(held.key, 1) - 1
        if left and self.held:
            self._held_keys[held.key] = left
        else:
            self._held_keys.pop(held.key, None)
