"""One writer's lease against a controller that wants it gone: the model with a clock.

What is in it. A clock of whole ticks; a writer that has joined, renews, reads its own log and the timeline at its own
pace, answers PLAN's roll call only by renewing, says READY and hands one record of a moving key to its client library at
any moment that its lease allows; renewals and READY that arrive late; a controller that begins at any moment, reads the
writer's log at its own pace, expels when the lease is over, gives up, prepares and commits. Both clocks run alike.

Property. STRAY: the record was sent under the old layout and lands after the cut. Every run may stop at the last tick, so
a wedge is not looked for.

Bounds. Lease 3 ticks, delivery timeout 1, no margin; ticks, renewals and attempts as in `Bounds`. Not in it: joining
again, a second process, and the clocks' drift (the margin).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from model.search import Fault, Label

#: What may be switched off, and what it says.
GUARDS = {
    "lease_from_send": "a lease counts from before its record was sent, not from when it was read back",
    "renewal_read_back": "a renewal counts when it was read back, not when it was sent",
    "renewal_read_in_time": "a renewal counts only if it is read back while the lease that it extends still runs",
    "send_window": "a record is handed over only while a delivery timeout fits into the lease",
    "delivery_timeout": "what was handed over lands within the delivery timeout, or never",
    "lapse_is_checked": "a writer hands over nothing when its lease is over",
    "expel_on_fresh_look": "EXPEL only after a look that began after the lease's end",
    "lease_from_reading": "a controller counts the whole lease, from when it read the renewal",
}

LEASE, DELIVERY = 3, 1
ABSENT, ROLL_CALL, PREPARED, LOOKED, COMMITTED = range(5)
UNSENT, DONE = -1, -2


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long and how much. ticks: the clock's last value."""

    ticks: int = 7
    renewals: int = 1
    attempts: int = 1


class State(NamedTuple):
    """One state.

    book: the writer's log, of ("J", sent), ("N", sent), ("R", attempt), ("X",). line: the timeline's log, of P, A, C.
    coming: what is under way to `book`. deadline: of the record on the wire, or UNSENT or DONE.
    Writer: over (lapsed), ends (of its lease), read (of the book), seen (of the line), preparing, said, renewals to come.
    Controller: phase, known (of the book), renewed (when it read the newest renewal), gone, heard (since the roll call),
    look (began, end) or (), attempts to come.
    """

    now: int
    book: tuple[tuple[object, ...], ...]
    line: str
    coming: tuple[tuple[object, ...], ...]
    deadline: int
    over: bool
    ends: int
    read: int
    seen: int
    preparing: int
    said: int
    renewals: int
    phase: int
    known: int
    renewed: int
    gone: bool
    heard: bool
    look: tuple[int, ...]
    attempts: int


class LeaseModel:
    """The model within `bounds`, without the guards named in `off`."""

    def __init__(self, bounds: Bounds, off: frozenset[str] = frozenset()) -> None:
        assert off <= GUARDS.keys()
        self.bounds, self.off = bounds, off

    def initial(self) -> Iterator[State]:
        """The writer is live since tick 0; no controller yet."""
        b = self.bounds
        writer = (False, LEASE, 1, 0, 0, 0, b.renewals)
        yield State(0, (("J", 0),), "", (), UNSENT, *writer, ABSENT, 0, 0, False, False, (), b.attempts)

    def complete(self, s: State) -> bool:
        """A run may stop anywhere."""
        return True

    def steps(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        """Everything that can happen next."""
        if s.now < self.bounds.ticks and ("delivery_timeout" in self.off or s.deadline < 0 or s.deadline > s.now):
            now = s.now + 1
            yield (f"the clock says {now}",), s._replace(now=now, over=s.over or now >= s.ends)
        if s.deadline >= 0:
            late = "C" in s.line
            yield ("the record lands",), Fault("STRAY") if late else s._replace(deadline=DONE)
            yield ("the record is lost",), s._replace(deadline=DONE)
        for i, record in enumerate(s.coming[:1]):
            yield (f"{record[0]} arrives",), s._replace(coming=s.coming[i + 1 :], book=(*s.book, record))
        yield from self._writer(s)
        yield from self._controller(s)

    def _writer(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        name = "the writer"
        live = not s.over or "lapse_is_checked" in self.off
        if s.renewals and not s.over:
            renewal = s._replace(coming=(*s.coming, ("N", s.now)), renewals=s.renewals - 1)
            if "renewal_read_back" in self.off:
                renewal = renewal._replace(ends=s.now + LEASE)
            yield (name, "sends a renewal"), renewal
        if s.read < len(s.book):
            yield (name, "reads", s.book[s.read][0]), self._read(s, s.book[s.read])
        if s.seen < len(s.line):
            kind = s.line[s.seen]
            number = s.line[: s.seen + 1].count("P") if kind == "P" else 0
            yield (name, "reads", kind), s._replace(seen=s.seen + 1, preparing=number)
        if s.preparing > s.said and s.deadline < 0 and live:
            yield (
                (name, "says READY"),
                s._replace(said=s.preparing, coming=(*s.coming, ("R", s.preparing))),
            )
        window = 0 if "send_window" in self.off else DELIVERY
        in_time = s.now + window < s.ends or "lapse_is_checked" in self.off
        if s.deadline == UNSENT and live and in_time and not s.preparing and "C" not in s.line[: s.seen]:
            yield (name, "hands its record over"), s._replace(deadline=s.now + DELIVERY)

    def _read(self, s: State, record: tuple[object, ...]) -> State:
        """The writer takes in a record of its own log."""
        after = s._replace(read=s.read + 1)
        if record[0] == "X":
            return after._replace(over=True, ends=s.now if s.ends > s.now else s.ends, renewals=0)
        expelled = any(other[0] == "X" for other in s.book[: s.read])
        if record[0] != "N" or expelled or (s.over and "renewal_read_in_time" not in self.off):
            return after
        ends = s.now + LEASE if "lease_from_send" in self.off else record[1] + LEASE
        return after._replace(ends=max(s.ends, ends), over=s.now >= max(s.ends, ends))

    def _controller(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        name = "the controller"
        if s.phase == ABSENT:
            begun = self._fold(s, len(s.book))._replace(phase=ROLL_CALL, heard=False)
            yield (name, "begins and calls the roll"), begun
            return
        if s.phase == COMMITTED:
            return
        if s.known < len(s.book):
            yield (name, "reads", s.book[s.known][0]), self._fold(s, s.known + 1)
        if s.phase == ROLL_CALL:
            yield from self._roll_call(s, name)
        elif s.phase == PREPARED:
            if not s.look:
                yield (name, "asks for the end"), s._replace(look=(s.now, len(s.book)))
            elif s.known >= s.look[1]:
                yield (name, "has looked"), s._replace(phase=LOOKED, look=())
        elif s.gone or ("R", s.line.count("P")) in s.book[: s.known]:
            # The cut is read here. What was on its way under the old layout is a stray when it lands.
            yield (name, "reads the cut and commits"), s._replace(phase=COMMITTED, line=s.line + "C")
        if s.phase in (PREPARED, LOOKED) and s.attempts > 1:
            again = s._replace(phase=ROLL_CALL, line=s.line + "A", heard=False, look=(), attempts=s.attempts - 1)
            yield (name, "gives up and calls the roll"), again

    def _roll_call(self, s: State, name: str) -> Iterator[tuple[Label, State | Fault]]:
        silent = not s.gone and not s.heard
        if not silent:
            yield (name, "prepares"), s._replace(phase=PREPARED, line=s.line + "P", look=())
            return
        expelled = s._replace(book=(*s.book, ("X",)), look=(), gone=True)
        if "expel_on_fresh_look" in self.off:
            if s.renewed + self._length <= s.now:
                yield (name, "expels"), expelled
        elif not s.look:
            if s.renewed + self._length <= s.now:
                yield (name, "asks for the end"), s._replace(look=(s.now, len(s.book)))
        elif s.known >= s.look[1]:
            over = s.renewed + self._length <= s.look[0]
            yield (name, "expels" if over else "found a renewal"), expelled if over else s._replace(look=())

    @property
    def _length(self) -> int:
        return LEASE - 1 if "lease_from_reading" in self.off else LEASE

    def _fold(self, s: State, upto: int) -> State:
        """The controller has read the book so far; a lease counts from now. What comes after EXPEL changes nothing."""
        news = any(record[0] in "JN" for record in s.book[s.known : upto])
        if not news or s.gone:
            return s._replace(known=upto)
        return s._replace(known=upto, renewed=s.now, heard=True)
