"""What the readers of the model read: a topic written to by writers that obey the cuts, symbol by symbol.

A history is a row of partition counts and a string. `a`, `b`, `e`, `f` append a record of that key at its present home
(`a` moves at every change, `b` never, `e` only between 2 and 4, `f` only between 1 and 2); `+` commits the next count. `.`
appends a marker, an offset that shows no record, at the home of `a`; `t` appends a record of `a` in a transaction that
stays open, `c` commits it. `D` deletes what lies below the newest cut in the partition that `a` has left, as retention or
the emptying of a retired partition would; `k` takes the records of `a` alone away there, as a cleaner behind a move
tombstone would. Timelines, gates and routes are the product's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from keyorder.partitioner.epochs import Epoch
from keyorder.partitioner.gates.gate import Gates
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline, crossings
from support.dumb import key_of_hash

SLOTS = {"a": 3, "b": 0, "e": 2, "f": 1}


class Record(NamedTuple):
    """One record: its number in the history, its key, and the epoch in its hint header."""

    number: int
    key: str
    hint: int


Log = tuple[Record | None, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """The topic after some symbols. stable: last stable offsets. marks: high watermarks. starts: log starts.

    cleaned: records that a cleaner has taken, by number; `logs` still has them, for those who have them in memory.
    """

    epochs: int
    logs: tuple[Log, ...]
    stable: tuple[int, ...]
    marks: tuple[int, ...]
    starts: tuple[int, ...]
    cleaned: frozenset[int] = frozenset()


class History:
    """All frames of one history, and the gates and routes of each prefix of its timeline."""

    def __init__(self, counts: tuple[int, ...], script: str) -> None:
        self.counts, self.script = counts, script
        self.width = max(counts)
        self.keys = {letter: key_of_hash(slot, 4) for letter, slot in SLOTS.items()}
        self.records: list[Record] = []
        self.places: list[tuple[int, int]] = []
        self.timelines = [Timeline("t", "topic", "cluster", 1, (Epoch(0, counts[0]),))]
        self.frames: list[Frame] = []
        self._logs: list[list[Record | None]] = [[] for _ in range(self.width)]
        self._starts = [0] * self.width
        self._open: dict[int, int] = {}
        self._cleaned: set[int] = set()
        self._snap()
        for symbol in script:
            self._play(symbol)
            self._snap()
        self.gates = [Gates(timeline) for timeline in self.timelines]
        self.routes = [Routing(timeline) for timeline in self.timelines]
        last = self.frames[-1]
        self.deleted = [offset < last.starts[p] or n in last.cleaned for n, (p, offset) in enumerate(self.places)]

    def __str__(self) -> str:
        """As `1>2 a+a`."""
        return ">".join(map(str, self.counts)) + " " + self.script

    def _play(self, symbol: str) -> None:
        if symbol == "+":
            self._change()
            return
        home = (
            Routing(self.timelines[-1]).of(self.keys["a" if symbol in ".tc" else symbol]).home
            if symbol not in "Dk"
            else 0
        )
        if symbol in "Dk":
            left = self.timelines[-1]
            move = Routing(left).of(self.keys["a"]).moves[-1]
            cut = left.newest.ends[move.origin]
            if symbol == "D":
                self._starts[move.origin] = cut
            else:
                log = self._logs[move.origin][:cut]
                self._cleaned |= {record.number for record in log if record is not None and record.key == "a"}
        elif symbol == ".":
            self._logs[home].append(None)
        elif symbol == "c":
            self._open.clear()
        else:
            if symbol == "t":
                self._open[home] = len(self._logs[home])
            key = "a" if symbol == "t" else symbol
            record = Record(len(self.records), key, Routing(self.timelines[-1]).of(self.keys[key]).hint)
            self.records.append(record)
            self.places.append((home, len(self._logs[home])))
            self._logs[home].append(record)

    def _change(self) -> None:
        before = self.timelines[-1]
        count = self.counts[len(self.timelines)]
        moves = crossings(1, before.newest.count, count)
        ends = {q: len(self._logs[q]) for q, _ in moves}
        begins = {p: len(self._logs[p]) for _, p in moves}
        epoch = Epoch(len(self.timelines), count, ends, begins)
        self.timelines.append(Timeline("t", "topic", "cluster", 1, (*before.epochs, epoch)))

    def _snap(self) -> None:
        ends = tuple(len(log) for log in self._logs)
        stable = tuple(self._open.get(p, end) for p, end in enumerate(ends))
        logs = tuple(tuple(log) for log in self._logs)
        starts = tuple(self._starts)
        self.frames.append(Frame(len(self.timelines), logs, stable, ends, starts, frozenset(self._cleaned)))


def family(counts: tuple[int, ...], alphabet: str, most: int, each: int) -> Iterator[History]:
    """Every history with at most `each` symbols before, between and after the changes, `most` in all, and one `a`."""
    parts = ["".join(word) for length in range(each + 1) for word in product(alphabet, repeat=length)]
    for words in product(parts, repeat=len(counts)):
        script = "+".join(words)
        if "a" in script and len(script) - len(counts) + 1 <= most:
            yield History(counts, script)
