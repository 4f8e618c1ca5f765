"""Routing by table: what a writer or reader has to know of a key, found with one hash.

A key's home under every epoch of a timeline depends on `hash % period` alone, `period` being the largest of the
epochs' periods. So all is worked out once per slot and timeline, on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from confluent_kafka import murmur2

from .hashing import key_hash
from .layout import Layout
from .timeline import ChangePhase, Timeline, crossings

HINT_HEADER = "keyorder-epoch"


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
    """The routes of one timeline. Immutable to its user; make a new one for a new timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._layouts = [(epoch.number, timeline.layout_of(epoch)) for epoch in timeline.epochs]
        change = timeline.change
        self.preparing = change is not None and change.phase is ChangePhase.PREPARE
        self._next = (
            Layout(timeline.initial, change.count) if change is not None and self.preparing else timeline.layout
        )
        self._slice = change.slice if change is not None and self.preparing else None
        self._epochs = {epoch.number: epoch for epoch in timeline.epochs}
        self.period = max(self._next.period, *(layout.period for _, layout in self._layouts))
        self._routes: list[Route | None] = [None] * self.period

    def of(self, key: bytes) -> Route:
        """The route of a key, by its bytes."""
        slot: int = murmur2(key, self.period)
        return self._routes[slot] or self._work_out(slot)

    def waits(self, key: bytes, route: Route) -> bool:
        """Whether the open attempt makes records of this key wait: it is moving, or its value is being re-homed."""
        if not self.preparing:
            return False
        piece = self._slice
        if piece is None:
            return route.moving
        return route.lived_in(piece.partition) and piece.first <= key_hash(key) <= piece.last

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
        home = self._layouts[0][1].home_of_hash(slot)
        moves: list[Move] = []
        for number, layout in self._layouts[1:]:
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
        moves = [move for move in self.of(key).moves if move.epoch <= hint]
        return bool(moves) and moves[-1].epoch == hint and moves[-1].home != partition

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

    def is_stray(self, key: bytes, partition: int, offset: int) -> bool:
        """Whether a record of `key` at this place was written against the timeline (late or foreign writer).

        It belongs where it is if `partition` was the key's home, the record lies at or above the cut at which the key
        came (if it did), and below the cut at which it left (if it did).
        """
        stays = self.stays(self.of(key))
        return not any(home == partition and since <= offset < until for home, since, until in stays)


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
