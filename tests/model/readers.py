"""A consumer group of two members over a topic whose counts change: the model behind the gates.

What is in it. The topic grows symbol by symbol (`histories`) while the members look at the timeline late or never, fetch
ahead, take a record, finish it, commit, jump what shows no record, crash (the other takes over from the commits), and
hand single partitions over. Partitions that are new are discovered late. A group may begin at the ends of the logs,
listed one after another. Who may deliver what is judged by the product's own gates and routes.

Properties. REORDER: a record is delivered for the first time after a newer one of its key. OVERLAP: a record is
delivered while another of its key is still being processed elsewhere. LOSS: all is read, and a record that was not
deleted was never delivered (of a group that begins at the ends: one behind a delivered one). STALE: all is read, and the
last delivery of some key was not its newest. STRAY: a record that the writers wrote by the rules is taken for a stray.
WEDGE: some state from which not everything can be read.

Not in it: key-level waiting, callbacks, waivers, members that go on after a revoke. The readers may be any number of
changes behind; the view's age is in it only as what it comes to (nobody is two behind), and where a bound says so.

Bounds. The histories, one crash and one hand-over as given in `Bounds`; every interleaving within them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from keyorder.partitioner.gates.gate import Gate, GateDependency, Gates, Opened, consistent_starts
from model.histories import Frame, History, Record
from model.search import Fault, Label

#: What may be switched off, and what it says.
GUARDS = {
    "gate": "a partition is read up to its first closed gate",
    "chain": "a gate waits for the older gates of its origin",
    "position_is_processed": "a position counts what was processed, not what was returned",
    "position_is_committed": "a position counts what was committed, not what was processed",
    "hint": "a record with a hint newer than the reader's timeline makes it look again",
    "hash": "a record that is not at its key's home makes the reader look again",
    "gap_jump": "positions jump what shows no record",
    "eof_not_high_watermark": "they jump to the end of what can be read, not to the high watermark",
    "new_partitions_from_log_start": "a partition that was made later is read from its log start",
    "consistent_starts": "starts are lowered until none lies behind a closed gate",
    "log_start_opens_no_gate": "a log start above a position opens nothing",
    "prefetch_drop": "the owner drops what it holds below a new log start before it jumps",
}


class Unchained(Opened):
    """The gate without its second line."""

    def _kept_closed(self, dependency: GateDependency, gate: Gate) -> int:
        return len(dependency.epochs)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What happens besides reading.

    apart, together: whether the partitions belong to the members in turn, or all to one. prefetch: fetching is a step of
    its own. late: later partitions are discovered. latest: the group begins at the ends. overlap: whether OVERLAP is
    looked for; without it the search goes on to what comes of one. fresh: nobody delivers two changes behind.
    """

    histories: tuple[History, ...]
    crashes: int = 0
    handovers: int = 0
    apart: bool = True
    together: bool = False
    prefetch: bool = False
    late: bool = False
    latest: bool = False
    overlap: bool = True
    fresh: bool = False


class State(NamedTuple):
    """One state; rows go by partition unless said otherwise.

    at: symbols written. views: epochs known, by member. fetched: offsets up to which records are in memory. taken: next
    offset to deliver, -1 before the start is known. busy: offset of the record in process, -1 without. commits: -1
    without. delivered: a bit per record. last: the newest delivery, by key.
    """

    history: int
    at: int
    views: tuple[int, int]
    owners: tuple[int, ...]
    fetched: tuple[int, ...]
    taken: tuple[int, ...]
    busy: tuple[int, ...]
    commits: tuple[int, ...]
    delivered: int
    last: tuple[int, ...]
    crashes: int
    handovers: int


def put(row: tuple[int, ...], at: int, item: int) -> tuple[int, ...]:
    """`row` with another item at one place."""
    return (*row[:at], item, *row[at + 1 :])


@dataclass
class ReaderModel:
    """The model within `bounds`, without the guards named in `off`."""

    bounds: Bounds
    off: frozenset[str] = frozenset()
    limits: dict[tuple[int, int, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.off <= GUARDS.keys()

    def initial(self) -> Iterator[State]:
        """Nothing written; the group's commits are made, unless that is what is looked at."""
        b = self.bounds
        for number, history in enumerate(b.histories):
            wide = history.width
            for owners in [tuple(p % 2 for p in range(wide))] * b.apart + [(0,) * wide] * b.together:
                begun = tuple(-1 if b.latest or (b.late and p >= history.counts[0]) else 0 for p in range(wide))
                none = (-1,) * wide
                last = (-1,) * 3
                fetched = (0,) * wide
                yield State(number, 0, (1, 1), owners, fetched, begun, none, begun, 0, last, b.crashes, b.handovers)

    def complete(self, s: State) -> bool | Fault:
        """All is written, delivered and finished; a Fault when something is missing or the last word is an old one."""
        history = self.bounds.histories[s.history]
        frame = history.frames[-1]
        if s.at < len(history.script) or any(offset >= 0 for offset in s.busy):
            return False
        for p, taken in enumerate(s.taken):
            log, start = frame.logs[p], frame.starts[p]
            if taken < 0 and (self.bounds.latest or log):
                return False
            if any(log[o] is not None for o in range(max(taken, start), len(log))):
                return False
            if any(log[o] is not None for o in range(max(taken, 0), min(s.fetched[p], start))):
                return False
        for record in history.records:
            if not s.delivered >> record.number & 1 and not history.deleted[record.number]:
                earlier = any(
                    s.delivered >> r.number & 1 for r in history.records[: record.number] if r.key == record.key
                )
                if earlier or not self.bounds.latest:
                    return Fault("LOSS")
        for i, key in enumerate("abe"):
            newest = max(
                (r.number for r in history.records if r.key == key and s.delivered >> r.number & 1), default=-1
            )
            if s.last[i] != newest:
                return Fault("STALE")
        return True

    def steps(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        """Everything that can happen next."""
        history = self.bounds.histories[s.history]
        frame = history.frames[s.at]
        if s.at < len(history.script):
            yield (history, f"writes {history.script[s.at]!r} at {s.at}"), s._replace(at=s.at + 1)
        for m in (0, 1):
            if s.views[m] < frame.epochs:
                yield (f"member {m} looks at the timeline",), s._replace(views=put(s.views, m, frame.epochs))
        if self.bounds.latest and -1 in s.commits:
            yield from self._begin(s, history, frame)
            return
        for p in range(history.width):
            if s.taken[p] < 0:
                if history.width == history.counts[0] or p < max(history.counts[: frame.epochs]):
                    yield from self._discover(s, p, frame)
                continue
            yield from self._partition(s, p, history, frame)
        if s.crashes:
            for m in (0, 1):
                if m in s.owners:
                    yield (f"member {m} crashes",), self._crash(s, m)

    def _begin(self, s: State, history: History, frame: Frame) -> Iterator[tuple[Label, State | Fault]]:
        """The ends are listed one after another, then `_keyorder` is read, then the group is made."""
        for p in range(history.width):
            if s.taken[p] < 0:
                yield (f"the end of {p} is {frame.marks[p]}",), s._replace(taken=put(s.taken, p, frame.marks[p]))
        if -1 not in s.taken:
            starts = s.taken
            if "consistent_starts" not in self.off:
                lowered = consistent_starts(history.gates[frame.epochs - 1], dict(enumerate(starts)))
                starts = tuple(lowered[p] for p in range(history.width))
            yield (f"the group begins at {starts}",), s._replace(taken=starts, commits=starts, fetched=starts)

    def _discover(self, s: State, p: int, frame: Frame) -> Iterator[tuple[Label, State | Fault]]:
        start = frame.marks[p] if "new_partitions_from_log_start" in self.off else frame.starts[p]
        taken, fetched = put(s.taken, p, start), put(s.fetched, p, start)
        yield (f"{p} is discovered, begins at {start}",), s._replace(taken=taken, fetched=fetched)

    def _crash(self, s: State, m: int) -> State:
        """Its partitions go to the other member, which begins at the commits."""
        taken, fetched, busy, owners = list(s.taken), list(s.fetched), list(s.busy), list(s.owners)
        for p, owner in enumerate(s.owners):
            if owner == m:
                taken[p], busy[p], owners[p] = s.commits[p], -1, 1 - m
                fetched[p] = max(s.commits[p], 0)
        return s._replace(
            taken=tuple(taken), fetched=tuple(fetched), busy=tuple(busy), owners=tuple(owners), crashes=s.crashes - 1
        )

    def _partition(self, s: State, p: int, history: History, frame: Frame) -> Iterator[tuple[Label, State | Fault]]:
        m, taken, busy = s.owners[p], s.taken[p], s.busy[p]
        who = f"member {m}"
        done = busy if busy >= 0 else taken
        if busy >= 0:
            yield (who, f"has processed {p}@{busy}"), s._replace(busy=put(s.busy, p, -1))
        if s.commits[p] < done:
            yield (who, f"commits {p}@{done}"), s._replace(commits=put(s.commits, p, done))
        if s.handovers and busy < 0:
            moved = s._replace(owners=put(s.owners, p, 1 - m), handovers=s.handovers - 1)
            moved = moved._replace(commits=put(s.commits, p, taken), fetched=put(s.fetched, p, taken))
            yield (who, f"commits and hands over {p}"), moved
        start, end = frame.starts[p], frame.stable[p]
        if start > taken and busy < 0:
            if "prefetch_drop" in self.off:
                if s.commits[p] < start:
                    yield (who, f"commits the log start {p}@{start}"), s._replace(commits=put(s.commits, p, start))
            else:
                fetched = put(s.fetched, p, max(start, s.fetched[p]))
                yield (
                    (who, f"jumps to the log start {p}@{start}"),
                    s._replace(taken=put(s.taken, p, start), fetched=fetched),
                )
        if self.bounds.prefetch:
            if start <= s.fetched[p] < end:
                yield (who, f"fetches {p} up to {end}"), s._replace(fetched=put(s.fetched, p, end))
            first, end = taken, s.fetched[p]
        else:
            first = max(taken, start)
        limit = end if "gate" in self.off else min(end, self._limit(s, p, history, frame))
        log = frame.logs[p]
        offset = next((o for o in range(first, limit) if log[o] is not None), None)
        if offset is not None:
            if busy < 0:
                yield from self._deliver(s, p, offset, history, frame)
        elif "gap_jump" not in self.off and busy < 0:
            target = limit
            if "eof_not_high_watermark" in self.off and limit == frame.stable[p]:
                target = frame.marks[p]
            if target > taken:
                yield (who, f"jumps to the end {p}@{target}"), s._replace(taken=put(s.taken, p, target))

    def _limit(self, s: State, p: int, history: History, frame: Frame) -> int:
        """How far the first closed gate lets the owner of `p` read."""
        view = s.views[s.owners[p]] - 1
        if not history.gates[view].of(p):
            return frame.marks[p]
        positions = s.commits
        if "position_is_processed" in self.off:
            positions = s.taken
        elif "position_is_committed" in self.off:
            positions = tuple(b if b >= 0 else t for b, t in zip(s.busy, s.taken, strict=True))
        if "log_start_opens_no_gate" in self.off:
            positions = tuple(map(max, positions, frame.starts))
        known = self.limits.get((s.history, view, positions))
        if known is None:
            gates = history.gates[view]
            look = (
                Unchained(gates, positions.__getitem__)
                if "chain" in self.off
                else gates.open_now(positions.__getitem__)
            )
            known = tuple(self._first_closed(gates, look, q) for q in range(history.width))
            self.limits[s.history, view, positions] = known
        return known[p]

    @staticmethod
    def _first_closed(gates: Gates, look: Opened, p: int) -> int:
        closed = look.first_closed(p) if gates.of(p) else None
        return 1 << 30 if closed is None else closed.begins

    def _deliver(
        self, s: State, p: int, offset: int, history: History, frame: Frame
    ) -> Iterator[tuple[Label, State | Fault]]:
        record = frame.logs[p][offset]
        assert record is not None
        m = s.owners[p]
        view = s.views[m] - 1
        if "hint" not in self.off and record.hint > view:
            return
        if self.bounds.fresh and frame.epochs - s.views[m] > 1:
            return
        if "hash" not in self.off and history.routes[view].is_stray(history.keys[record.key], p, offset):
            if s.views[m] == frame.epochs:
                yield (f"member {m} takes {p}@{offset} for a stray",), Fault("STRAY")
            return
        label = (f"member {m} delivers {record.key}#{record.number} from {p}@{offset}",)
        yield (
            label,
            self._fault(s, record, history, frame)
            or s._replace(
                taken=put(s.taken, p, offset + 1),
                busy=put(s.busy, p, offset),
                delivered=s.delivered | 1 << record.number,
                last=put(s.last, "abe".index(record.key), record.number),
            ),
        )

    def _fault(self, s: State, record: Record, history: History, frame: Frame) -> Fault | None:
        if not s.delivered >> record.number & 1:
            for newer in history.records[record.number + 1 :]:
                if newer.key == record.key and s.delivered >> newer.number & 1:
                    return Fault("REORDER")
        for q, offset in enumerate(s.busy if self.bounds.overlap else ()):
            other = frame.logs[q][offset] if offset >= 0 else None
            if other is not None and other.key == record.key:
                return Fault("OVERLAP")
        return None
