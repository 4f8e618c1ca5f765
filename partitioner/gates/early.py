"""Early release: what a closed gate need not hold, because nothing older of its key is left to read.

A gate waits until its group has processed the origin up to the cut. With a long backlog there most keys that moved have
no record in it, and could go on at once. To know which, somebody reads the *tail*: the origin from the group's committed
offset up to the cut, and so every other partition in which these keys lived before (the *trail* of the gate). Of each key
that occurs the offset of its last record is kept. A record may then go when, for every partition of its key's trail,

    position(q) >= until_q,  or  tail(q) was read from start <= position(q) up to until_q or beyond,
                                 and the key's last record in it, if there is one, lies below position(q).

`position` is the group's committed offset, as everywhere: what lies below it is done with and comes no more. So nothing
older of the key is unread, held, or being worked on anywhere. The second line is why this stays true when a position goes
back: it is then below `start`, of what lies between nothing is known, and all wait until the tail was read again.

`start` is the position with which the scan was begun, or the log start above it. The log start proves nothing by itself:
the owner of the origin may hold records in memory that the log has lost since. They are passed when the position is.
For the same reason a log from which the cleaner takes records one by one (`cleanup.policy=compact`) cannot be scanned: a
key that is not in it any more may still be in the memory of the origin's owner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf, lcm

from ..hashing import DEFAULT_HASH
from ..routing import Routing
from .gate import Gate

#: The group's committed offset of a partition; None while nobody has asked yet.
Position = Callable[[int], int | None]
GateName = tuple[int, int]

_RETRY = 1.0


@dataclass(frozen=True, slots=True)
class Slots:
    """Some keys: those whose hash, modulo `period`, is a member."""

    period: int
    members: frozenset[int]

    def __contains__(self, key_hash: int) -> bool:
        return key_hash % self.period in self.members

    def __or__(self, other: Slots) -> Slots:
        period = lcm(self.period, other.period)
        return Slots(period, self._widened(period) | other._widened(period))

    def covers(self, other: Slots) -> bool:
        """Whether all keys of `other` are among these."""
        period = lcm(self.period, other.period)
        return other._widened(period) <= self._widened(period)

    def _widened(self, period: int) -> frozenset[int]:
        if period == self.period:
            return self.members
        return frozenset(slot + more for slot in self.members for more in range(0, period, self.period))


@dataclass(frozen=True, slots=True)
class Span:
    """Where in one partition records of some keys may lie: below `until`."""

    until: int
    slots: Slots


Trail = Mapping[int, Span]


def trails(routing: Routing, gates: Collection[Gate]) -> dict[GateName, Trail]:
    """For each gate, by (partition, epoch), the partitions in which keys that came by it lived before: {q: Span}.

    All their earlier homes, not the last one alone: a key that moved twice may have left nothing in the one between. A
    partition may stand in its own gate's trail, when keys have left it and come back.
    """
    found: dict[GateName, dict[int, tuple[int, set[int]]]] = {(gate.partition, gate.epoch): {} for gate in gates}
    for slot, route in enumerate(routing.all()):
        if not any((move.home, move.epoch) in found for move in route.moves):
            continue
        lived: dict[int, int] = {}
        for move, (q, _, until) in zip(route.moves, routing.stays(route), strict=False):
            lived[q] = max(lived.get(q, 0), int(until))
            trail = found.get((move.home, move.epoch))
            if trail is not None:
                for q, until in lived.items():
                    highest, slots = trail.setdefault(q, (0, set()))
                    slots.add(slot)
                    trail[q] = max(highest, int(until)), slots
    return {
        name: {q: Span(until, Slots(routing.period, frozenset(slots))) for q, (until, slots) in trail.items()}
        for name, trail in found.items()
    }


@dataclass(frozen=True, slots=True)
class Scan:
    """Tails to read: {q: Span}, each from `positions[q]` on. room: the most keys to keep. hash: the topic's, by its name."""

    number: int
    spans: Trail
    positions: Mapping[int, int]
    room: int
    hash: str = DEFAULT_HASH


@dataclass(frozen=True, slots=True)
class Tail:
    """What a scan has found in [start, until) of one partition.

    asked: the position for which it was read. last: {hash: offset of the last record}; None: more keys than there is
    room for. A hash that two keys share makes both wait for the later of their records.
    """

    asked: int
    start: int
    until: int
    slots: Slots
    last: Mapping[int, int] | None
    offsets: tuple[int, ...] = field(default=(), compare=False)

    def shows(self, key_hash: int, until: int, position: int) -> bool:
        """Whether it shows that nothing of this key lies in [position, until)."""
        return (
            self.last is not None
            and self.start <= position
            and self.until >= until
            and key_hash in self.slots
            and self.last.get(key_hash, -1) < position
        )

    def answers(self, span: Span, position: int) -> bool:
        """Whether another scan from this position would show nothing more."""
        return self.asked <= position and self.until >= span.until and self.slots.covers(span.slots)

    def passed(self, position: int) -> int:
        """How many keys' last records lie below a position: `shows` changes with it. -1: the position is before it all."""
        return bisect_left(self.offsets, position) if self.start <= position else -1


@dataclass(frozen=True, slots=True)
class ScanEnded:
    """What became of a scan. tails: what it found; None with a `problem`, which `again` says to pass or not."""

    number: int
    tails: Mapping[int, Tail] | None = None
    problem: str = ""
    again: bool = False


class Collector:
    """Takes in what a scan reads, and keeps what the keys need."""

    def __init__(self, scan: Scan, log_starts: Mapping[int, int]) -> None:
        """log_starts: where the logs began when the reading did."""
        self._scan = scan
        self.starts = {q: min(max(scan.positions[q], log_starts[q]), span.until) for q, span in scan.spans.items()}
        self._last: dict[int, dict[int, int] | None] = {q: {} for q in scan.spans}
        self._kept = 0

    def add(self, q: int, key_hash: int, offset: int) -> None:
        """A record; those of one partition come in their order."""
        last, span = self._last[q], self._scan.spans[q]
        if last is None or offset >= span.until or key_hash not in span.slots:
            return
        if key_hash not in last:
            if self._kept >= self._scan.room:
                self._kept -= len(last)
                self._last[q] = None
                return
            self._kept += 1
        last[key_hash] = offset

    def tails(self) -> dict[int, Tail]:
        """What was found, once every span was read to its end."""
        found = {}
        for q, span in self._scan.spans.items():
            last = self._last[q]
            offsets = () if last is None else tuple(sorted(last.values()))
            found[q] = Tail(self._scan.positions[q], self.starts[q], span.until, span.slots, last, offsets)
        return found


class EarlyRelease:
    """The early release of one topic's keys: which tails have to be read, and which keys may go. Has no clock of its own.

    limit: the most keys kept in memory. hash: the topic's, by its name. Tails are read again when a position has gone back
    below where they began, when a further gate closes, or when more partitions of this member wait.
    """

    def __init__(self, limit: int, hash: str = DEFAULT_HASH) -> None:
        self._limit, self._hash = limit, hash
        self._tails: dict[int, Tail] = {}
        self._gates: frozenset[GateName] = frozenset()
        self._retry_at = -inf
        self._numbers = 0
        self.scan: Scan | None = None
        self.problem = ""

    def want(self, wanted: Mapping[GateName, Trail], position: Position, now: float) -> None:
        """Which closed gates hold records now. Afterwards `scan` is the one that should be running, None for none."""
        names = frozenset(wanted)
        if names - self._gates:
            self._retry_at = -inf  # what was given up is tried again for a further gate
        self._gates = names
        spans: dict[int, Span] = {}
        for trail in wanted.values():
            for q, span in trail.items():
                known = spans.get(q)
                spans[q] = span if known is None else Span(max(known.until, span.until), known.slots | span.slots)
        self._tails = {q: tail for q, tail in self._tails.items() if q in spans}
        if not names:
            self.scan = None
            self.problem = ""
        if self.scan is not None or now < self._retry_at:
            return
        missing: dict[int, Span] = {}
        positions: dict[int, int] = {}
        for q, span in spans.items():
            at = position(q)
            if at is None:
                return
            tail = self._tails.get(q)
            if at < span.until and not (tail is not None and tail.answers(span, at)):
                missing[q], positions[q] = span, at
        if missing:
            self._numbers += 1
            kept = sum(len(t.last) for q, t in self._tails.items() if t.last is not None and q not in missing)
            self.scan = Scan(self._numbers, missing, positions, max(0, self._limit - kept), self._hash)

    def ended(self, scanned: ScanEnded, now: float) -> None:
        """A scan has come to its end; one that is not wanted any more says nothing."""
        if scanned.tails is not None:
            self.done(scanned.number, scanned.tails)
        else:
            self.failed(scanned.number, scanned.problem, now, scanned.again)

    def done(self, number: int, tails: Mapping[int, Tail]) -> None:
        """A scan has read all its spans to their ends."""
        if self.scan is not None and self.scan.number == number:
            self._tails.update(tails)
            self.scan, self.problem = None, ""

    def failed(self, number: int, problem: str, now: float, again: bool) -> None:
        """A scan could not. again: it may be begun anew in a while; otherwise not before a further gate closes."""
        if self.scan is not None and self.scan.number == number:
            self.scan, self.problem = None, problem
            self._retry_at = now + _RETRY if again else inf

    def may_go(self, key_hash: int, trail: Trail, position: Position) -> bool:
        """Whether a record behind the gate of this trail may be delivered, if nothing of its key waits before it."""
        for q, span in trail.items():
            if key_hash not in span.slots:
                continue
            at = position(q)
            if at is None:
                return False
            if at < span.until:
                tail = self._tails.get(q)
                if tail is None or not tail.shows(key_hash, span.until, at):
                    return False
        return True

    def progress(self, trail: Trail, position: Position) -> tuple[object, ...]:
        """Compares equal as long as `may_go` has the same answers for all keys of this trail."""
        found: list[object] = []
        for q, span in trail.items():
            at, tail = position(q), self._tails.get(q)
            if at is None or at >= span.until:
                found.append(at is not None)
            else:
                found.append(None if tail is None else (tail.asked, tail.until, len(tail.offsets), tail.passed(at)))
        return tuple(found)

    def note(self, trail: Trail, position: Position, read: int = 0) -> str:
        """How far this is with one gate, for people; '' before anything was begun. read: offsets the scan has passed."""
        if self.problem:
            return f"given up: {self.problem}" if self._retry_at == inf else f"tries again: {self.problem}"
        if self.scan is not None and self.scan.spans.keys() & trail.keys():
            due = sum(max(0, s.until - self.scan.positions[q]) for q, s in self.scan.spans.items())
            return f"looks for the keys of the unread tail: {read:,} of {due:,} offsets"
        behind = {q: at for q, span in trail.items() if (at := position(q)) is not None and at < span.until}
        tails = {q: self._tails[q] for q in behind if q in self._tails}
        if not behind or len(tails) < len(behind):
            return ""
        for q, tail in sorted(tails.items()):
            if tail.last is None:
                return f"given up: more than {self._limit:,} keys in the unread tail of partition {q}"
            if behind[q] < tail.start:
                return f"waits until the group, at {behind[q]} of partition {q}, has passed {tail.start}, where its log began"
        keys = sum(len(tail.offsets) - tail.passed(behind[q]) for q, tail in tails.items())
        return f"all keys but {keys:,} flow: those have unread records"
