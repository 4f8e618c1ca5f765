"""Routing by table: what a writer or reader has to know of a key, found with one hash.

A key's home under every epoch of a timeline depends on `hash % period` alone, `period` being the largest of the
epochs' periods. So all is worked out once per slot and timeline, on first use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from math import inf

from .epochs import ChangePhase
from .hashing import hash_named
from .timeline import Timeline, crossings

HINT_HEADER = "keyorder-epoch"
_Table = dict[int, tuple[list[int], list[float]]]


@dataclass(frozen=True, slots=True)
class Move:
    """At `epoch` the slot's keys went from partition `origin` to partition `home`."""

    epoch: int
    origin: int
    home: int


@dataclass(frozen=True, slots=True)
class Route:
    """What one slot's keys do.

    home: where they are written now. hint: the epoch in which they came there, 0 if they never moved.
    header: the value of the hint header, None without a hint. moves: all their moves, oldest first.
    next_home: their home after the open change; equal to `home` unless they are moving.
    """

    home: int
    hint: int
    header: bytes | None
    moves: tuple[Move, ...]
    next_home: int

    @property
    def moving(self) -> bool:
        """Whether the open change, if there is one, gives these keys another home."""
        return self.home != self.next_home

    def lived_in(self, partition: int) -> bool:
        """Whether these keys have left that partition once."""
        return any(move.origin == partition for move in self.moves)


class Routing:
    """The routes of one timeline. Immutable to its user; make a new one for a new timeline.

    known: the routing that this one follows. What it worked out of epochs that both have is not worked out again, so
    that a change of a long timeline costs a writer no more than one of a short one.

    slot(key, period) is the slot of a key, `hash` the topic's hash.
    """

    def __init__(self, timeline: Timeline, known: Routing | None = None) -> None:
        self.timeline = timeline
        self.hash = hash_named(timeline.hash)
        self.slot = self.hash.slot
        self._layouts = [(epoch.number, timeline.layout_of(epoch)) for epoch in timeline.epochs]
        self._known: list[Route | None] = []
        self._known_epochs = 0
        if known is not None and (known.timeline.initial, known.timeline.hash) == (timeline.initial, timeline.hash):
            epochs = known.timeline.epochs
            if timeline.epochs[: len(epochs)] == epochs:
                self._known, self._known_epochs = known._routes, len(epochs)
        change = timeline.change
        self.preparing = change is not None and change.phase is ChangePhase.PREPARE
        self._next = timeline.layout.resized(change.count) if change is not None and self.preparing else timeline.layout
        self._slice = change.slice if change is not None and self.preparing else None
        self._epochs = {epoch.number: epoch for epoch in timeline.epochs}
        self.period = max(self._next.period, *(layout.period for _, layout in self._layouts))
        self._routes: list[Route | None] = [None] * self.period
        self._tables: list[_Table | None] = [None] * self.period

    def of(self, key: bytes) -> Route:
        """The route of a key, by its bytes."""
        slot = self.slot(key, self.period)
        return self._routes[slot] or self._work_out(slot)

    def waits(self, key: bytes, route: Route) -> bool:
        """Whether the open attempt makes records of this key wait: it is moving, or its value is being re-homed."""
        if not self.preparing:
            return False
        piece = self._slice
        if piece is None:
            return route.moving
        return route.lived_in(piece.partition) and piece.first <= self.hash.of(key) <= piece.last

    def may_wait(self, route: Route) -> bool:
        """Whether `waits` can be true of a key of this route: the only ones that have to be asked one by one."""
        if not self.preparing:
            return False
        return route.moving if self._slice is None else route.lived_in(self._slice.partition)

    def settling(self) -> frozenset[int]:
        """The partitions in which nothing of the keys that the open change concerns may be on its way: READY waits for it.

        Those that keys leave; for values that are re-homed the keys' present homes.
        """
        timeline, change = self.timeline, self.timeline.change
        if change is None:
            return frozenset()
        if change.slice is None:
            return frozenset(q for q, _ in crossings(timeline.initial, timeline.newest.count, change.count))
        return frozenset(route.home for route in self.all() if route.lived_in(change.slice.partition))

    def all(self) -> Iterator[Route]:
        """Every route: each key has one of them."""
        return (self._routes[slot] or self._work_out(slot) for slot in range(self.period))

    def stays(self, route: Route) -> list[tuple[int, int, float]]:
        """(partition, since, until) of each stay of a route's keys, oldest first; the offsets are cuts, the last inf."""
        home = route.moves[0].origin if route.moves else route.home
        found: list[tuple[int, int, float]] = []
        since = 0
        for move in route.moves:
            epoch = self._epochs[move.epoch]
            found.append((home, since, epoch.ends[home]))
            home, since = move.home, epoch.begins[move.home]
        return [*found, (home, since, inf)]

    def _work_out(self, slot: int) -> Route:
        # Homes under the known epochs depend on the known slot alone, whichever of the two periods is longer.
        known = self._known[slot % len(self._known)] if self._known else None
        home = self._layouts[0][1].home_of_hash(slot) if known is None else known.home
        moves: list[Move] = [] if known is None else list(known.moves)
        for number, layout in islice(self._layouts, 1 if known is None else self._known_epochs, None):
            after = layout.home_of_hash(slot)
            if after != home:
                moves.append(Move(number, home, after))
                home = after
        hint = moves[-1].epoch if moves else 0
        header = str(hint).encode() if hint else None
        route = Route(home, hint, header, tuple(moves), self._next.home_of_hash(slot))
        self._routes[slot] = route
        return route

    def is_move_tombstone(self, key: bytes, partition: int, hint: int | None) -> bool:
        """Whether a null-value record with this hint clears an earlier home: under epoch `hint` the key lived elsewhere."""
        if hint is None:
            return False
        moves = self.of(key).moves
        at = bisect_right(moves, hint, key=lambda move: move.epoch)
        return at > 0 and moves[at - 1].epoch == hint and moves[at - 1].home != partition

    def stay(self, key: bytes, partition: int, offset: int) -> int | None:
        """The epoch in which `key` last came to `partition`, at or below `offset`; None where it had no home by then.

        Two records of a key at one stay lie in one partition, so (stay, offset) orders all records of a key.
        """
        route = self.of(key)
        for move in reversed(route.moves):
            if move.home == partition and self._epochs[move.epoch].begins[partition] <= offset:
                return move.epoch
        first = route.moves[0].origin if route.moves else route.home
        return self.timeline.epochs[0].number if partition == first else None

    def entered(self, key: bytes, partition: int, offset: int) -> int:
        """The epoch in which `key` came to `partition`, as of the record at `offset`; 0 if it was there from the start.

        (entered, offset) grows along the records of one key whatever their partitions, which offsets alone do not.
        """
        for move in reversed(self.of(key).moves):
            if move.home == partition and self._epochs[move.epoch].begins[partition] <= offset:
                return move.epoch
        return 0

    def is_stray(self, key: bytes, partition: int, offset: int) -> bool:
        """Whether a record of `key` at this place was written against the timeline (late or foreign writer).

        It belongs where it is if `partition` was the key's home, the record lies at or above the cut at which the key
        came (if it did), and below the cut at which it left (if it did).
        """
        slot = self.slot(key, self.period)
        found = (self._tables[slot] or self._tabulate(slot)).get(partition)
        if found is None:
            return True
        sinces, untils = found
        at = bisect_right(sinces, offset)
        return at == 0 or offset >= untils[at - 1]

    def _tabulate(self, slot: int) -> _Table:
        """A key's stays by partition, for bisection: a key may have come and gone as often as the timeline is long."""
        by_partition: dict[int, list[tuple[int, float]]] = {}
        for home, since, until in self.stays(self._routes[slot] or self._work_out(slot)):
            by_partition.setdefault(home, []).append((since, until))
        table: _Table = {}
        for partition, stays in by_partition.items():
            stays.sort()
            # The highest until so far: cuts that fall (the log was cut off) may make stays overlap.
            table[partition] = [since for since, _ in stays], list(accumulate((until for _, until in stays), max))
        self._tables[slot] = table
        return table


def parse_hint(value: bytes | str | None) -> int | None:
    """The epoch of a hint header, or None for anything that is not one: a hint is data from anybody."""
    if value is None:
        return None
    try:
        text = value.decode("ascii") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
    # isdigit() alone also takes superscripts and foreign digits, which int() refuses or reads
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None
