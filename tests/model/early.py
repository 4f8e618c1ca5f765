"""Early release: single keys go through a closed gate while another member reads the unread tail of the origin.

What is in it. The topic grows symbol by symbol (`histories`); each partition has an owner, who fetches ahead, delivers,
finishes and commits record by record, what lies ahead of a commit included, and may crash; the log is cut off or cleaned
behind what an owner has in memory; positions are sought back; the owner of the gated partitions reads tails, one partition
after another, and may be replaced in the middle. Gates, trails and the verdict of a tail are the product's own.

Properties. REORDER, OVERLAP, LOSS, STALE, WEDGE as in `readers`. UNREAD, stronger than the first two, and what is left of
them where positions go back: a record is delivered while an older one of its key lies at or above the committed position of
another partition, and can still be delivered there.

Not in it: views that are old (`readers` has them: what is judged by an old one is not judged differently here), the limit
of keys (a tail that is given up shows nothing).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from keyorder.partitioner.gates.early import Span, Tail, Trail, trails
from keyorder.partitioner.gates.gate import Gate
from keyorder.partitioner.hashing import key_hash
from model.histories import Frame, History, Record
from model.readers import put
from model.search import Fault, Label

#: What may be switched off, and what it says.
GUARDS = {
    "absent_only": "a key with an unread record waits",
    "to_the_cut": "a tail counts when it was read to the cut, not before",
    "stable_end": "an open transaction in the tail is waited for",
    "whole_trail": "all earlier homes of a key are read, not the last one alone",
    "from_committed": "a tail begins at the committed position, not at the delivered one",
    "log_start_is_no_position": "where the log begins above the position, the position has to come there first",
    "start_at_or_below_position": "a tail that begins above the position shows nothing",
    "not_compacted": "what a cleaner works on is not scanned",
}
KEYS = "abef"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What happens besides reading. prefetch: fetching is a step of its own. unread, overlap: whether these are looked for."""

    histories: tuple[History, ...]
    crashes: int = 0
    rewinds: int = 0
    prefetch: bool = False
    unread: bool = False
    overlap: bool = True


class Reading(NamedTuple):
    """A scan under way. asked: positions at its beginning, -1 where nothing is read. tails: of what was read so far."""

    asked: tuple[int, ...]
    tails: tuple[Tail | None, ...]


class State(NamedTuple):
    """One state; rows go by partition, sets of records are bits.

    at: symbols written. memory: records fetched. given: delivered since the
    owner began. done: processed, as the owner knows. commits, ahead: what a new owner begins with. ever: delivered at all.
    last: the newest delivery, by key.
    """

    history: int
    at: int
    fetched: tuple[int, ...]
    memory: int
    busy: tuple[int, ...]
    given: int
    done: int
    commits: tuple[int, ...]
    ahead: int
    ever: int
    last: tuple[int, ...]
    tails: tuple[Tail | None, ...]
    reading: Reading | None
    crashes: int
    rewinds: int


@dataclass
class EarlyModel:
    """The model within `bounds`, without the guards named in `off`."""

    bounds: Bounds
    off: frozenset[str] = frozenset()
    trails: dict[tuple[int, int], dict[tuple[int, int], Trail]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.off <= GUARDS.keys()

    def initial(self) -> Iterator[State]:
        """Nothing written, nothing read."""
        for number, history in enumerate(self.bounds.histories):
            zero, none = (0,) * history.width, (-1,) * history.width
            unread: tuple[Tail | None, ...] = (None,) * history.width
            yield State(
                number, 0, zero, 0, none, 0, 0, zero, 0, 0, (-1,) * len(KEYS), unread, None,
                self.bounds.crashes, self.bounds.rewinds,
            )  # fmt: skip

    def complete(self, s: State) -> bool | Fault:
        """All is written, delivered and finished; a Fault when something is missing or the last word is an old one."""
        history = self.bounds.histories[s.history]
        frame = history.frames[-1]
        if s.at < len(history.script) or any(number >= 0 for number in s.busy):
            return False
        if any(self._next(s, p, frame, everything=True) for p in range(history.width)):
            return False
        if any(not s.ever >> r.number & 1 and not history.deleted[r.number] for r in history.records):
            return Fault("LOSS")
        if not self.bounds.rewinds:
            for letter, last in zip(KEYS, s.last, strict=True):
                seen = [r.number for r in history.records if r.key == letter and s.ever >> r.number & 1]
                if last != max(seen, default=-1):
                    return Fault("STALE")
        return True

    def steps(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        """Everything that can happen next."""
        history = self.bounds.histories[s.history]
        frame = history.frames[s.at]
        if s.at < len(history.script):
            yield (history, f"writes {history.script[s.at]!r} at {s.at}"), s._replace(at=s.at + 1)
        for p in range(history.width):
            yield from self._partition(s, p, history, frame)
        yield from self._scan(s, history, frame)
        if s.crashes and (s.reading is not None or any(tail is not None for tail in s.tails)):
            yield (
                ("the member that scans is replaced",),
                s._replace(tails=(None,) * history.width, reading=None, crashes=s.crashes - 1),
            )

    def _partition(self, s: State, p: int, history: History, frame: Frame) -> Iterator[tuple[Label, State | Fault]]:
        who = f"the owner of {p}"
        busy = s.busy[p]
        if busy >= 0:
            yield (who, f"has processed #{busy}"), s._replace(busy=put(s.busy, p, -1), done=s.done | 1 << busy)
        commit, ahead = self._commit(s, p, history, frame)
        if (commit, ahead) != (s.commits[p], s.ahead):
            yield (who, f"commits {p}@{commit}"), s._replace(commits=put(s.commits, p, commit), ahead=ahead)
        if self.bounds.prefetch and s.fetched[p] < frame.stable[p]:
            after = self._fetch(s, p, frame)
            yield (who, f"fetches up to {p}@{frame.stable[p]}"), after
        if s.crashes:
            yield (who, "crashes"), self._begin(s, p, history, s.commits[p])._replace(crashes=s.crashes - 1)
        if s.rewinds:
            for back in range(s.commits[p]):
                rewound = self._begin(s, p, history, back)
                after = rewound._replace(commits=put(s.commits, p, back), rewinds=s.rewinds - 1)
                yield (who, f"seeks back to {p}@{back}"), after
        if busy < 0:
            for record in self._next(s, p, frame):
                gate = self._entry(history, frame, record, p)
                if gate is None or self._may_go(s, gate, record, history, frame):
                    yield from self._deliver(s, p, record, history, frame)
                    return

    def _begin(self, s: State, p: int, history: History, commit: int) -> State:
        """An owner without memory, from the committed offset and what was processed ahead of it."""
        here = [n for n, (q, _) in enumerate(history.places) if q == p]
        known = sum(1 << n for n in here if s.ahead >> n & 1 and history.places[n][1] >= commit)
        mask = sum(1 << n for n in here)
        if s.rewinds and commit < s.commits[p]:
            known = 0
        return s._replace(
            fetched=put(s.fetched, p, commit), memory=s.memory & ~mask, busy=put(s.busy, p, -1),
            given=s.given & ~mask | known, done=s.done & ~mask | known, ahead=s.ahead & ~mask | known,
        )  # fmt: skip

    def _fetch(self, s: State, p: int, frame: Frame) -> State:
        """To the stable end. What lies below the log start, or was cleaned, comes no more."""
        memory = s.memory
        for offset in range(max(s.fetched[p], frame.starts[p]), frame.stable[p]):
            record = frame.logs[p][offset]
            if record is not None and record.number not in frame.cleaned:
                memory |= 1 << record.number
        return s._replace(memory=memory, fetched=put(s.fetched, p, frame.stable[p]))

    def _next(self, s: State, p: int, frame: Frame, everything: bool = False) -> list[Record]:
        """What the owner may deliver next, but for the gates: undelivered, and of each key the oldest."""
        found: dict[str, Record] = {}
        for offset in range(s.commits[p], frame.stable[p]):
            record = frame.logs[p][offset]
            if record is None or s.given >> record.number & 1 or record.key in found:
                continue
            in_log = offset >= frame.starts[p] and record.number not in frame.cleaned
            if self.bounds.prefetch:
                here = s.memory >> record.number & 1 or (everything and in_log and offset >= s.fetched[p])
            else:
                here = in_log
            if here:
                found[record.key] = record
        return list(found.values())

    def _commit(self, s: State, p: int, history: History, frame: Frame) -> tuple[int, int]:
        """What the owner may commit: all before it is processed or shows no record; and what is processed beyond it."""
        end = s.fetched[p] if self.bounds.prefetch else frame.stable[p]
        offset = s.commits[p]
        waiting = {record.number for record in self._next(s, p, frame)}
        while offset < end:
            record = frame.logs[p][offset]
            if record is not None and not s.done >> record.number & 1:
                gone = record.number not in waiting and not s.given >> record.number & 1
                lost = offset < frame.starts[p] or record.number in frame.cleaned
                held = self.bounds.prefetch and s.memory >> record.number & 1
                if not (gone and lost) or held:
                    break
            offset += 1
        here = (n for n, (q, o) in enumerate(history.places) if q == p and o >= offset)
        elsewhere = sum(1 << n for n, (q, _) in enumerate(history.places) if q != p and s.ahead >> n & 1)
        return offset, elsewhere | sum(1 << n for n in here if s.done >> n & 1)

    def _entry(self, history: History, frame: Frame, record: Record, p: int) -> Gate | None:
        moves = history.routes[frame.epochs - 1].of(history.keys[record.key]).moves
        return history.gates[frame.epochs - 1].entry(moves, p, history.places[record.number][1])

    def _trails(self, s: State, frame: Frame) -> dict[tuple[int, int], Trail]:
        """Of every gate known now."""
        found = self.trails.get((s.history, frame.epochs))
        if found is None:
            history = self.bounds.histories[s.history]
            gates = list(history.gates[frame.epochs - 1].all())
            found = trails(history.routes[frame.epochs - 1], gates)
            if "whole_trail" in self.off:
                last = {(gate.partition, gate.epoch): {q for q, _ in gate.origins} for gate in gates}
                found = {name: {q: span for q, span in t.items() if q in last[name]} for name, t in found.items()}
            self.trails[s.history, frame.epochs] = found
        return found

    def _may_go(self, s: State, gate: Gate, record: Record, history: History, frame: Frame) -> bool:
        if history.gates[frame.epochs - 1].open_now(s.commits.__getitem__).is_open(gate):
            return True
        hashed = key_hash(history.keys[record.key])
        for q, span in self._trails(s, frame)[gate.partition, gate.epoch].items():
            if hashed in span.slots and s.commits[q] < span.until and not self._shows(s, q, span, hashed):
                return False
        return True

    def _shows(self, s: State, q: int, span: Span, hashed: int) -> bool:
        tail = s.tails[q]
        if tail is None:
            return "to_the_cut" in self.off and s.reading is not None
        if "absent_only" in self.off:
            return True
        if "start_at_or_below_position" in self.off:
            tail = replace(tail, start=0)
        return tail.shows(hashed, span.until, s.commits[q])

    def _scan(self, s: State, history: History, frame: Frame) -> Iterator[tuple[Label, State | Fault]]:
        """Begin where tails are missing; read one of them; take in all when the last one is read."""
        if "k" in history.script and "not_compacted" not in self.off:
            return
        spans: dict[int, Span] = {}
        for trail in self._trails(s, frame).values():
            for q, span in trail.items():
                known = spans.get(q)
                spans[q] = span if known is None else Span(max(known.until, span.until), known.slots | span.slots)
        if s.reading is None:
            asked = [-1] * history.width
            for q, span in spans.items():
                tail = s.tails[q]
                if s.commits[q] < span.until and (tail is None or not tail.answers(span, s.commits[q])):
                    asked[q] = s.commits[q]
                    if "from_committed" in self.off:
                        asked[q] = self._delivered(s, q, frame)
            if any(at >= 0 for at in asked):
                reading = Reading(tuple(asked), (None,) * history.width)
                yield (f"a scan begins at {asked}",), s._replace(reading=reading)
            return
        asked, tails = s.reading
        for q, at in enumerate(asked):
            if at >= 0 and tails[q] is None and q in spans:
                span = spans[q]
                if frame.stable[q] >= span.until or "stable_end" in self.off:
                    read = put(tails, q, self._tail(at, span, q, history, frame))  # type: ignore[arg-type]
                    yield (f"reads {q} from {at} to {span.until}",), s._replace(reading=Reading(asked, read))
        if all(at < 0 or tails[q] is not None for q, at in enumerate(asked)):
            merged = tuple(new if new is not None else old for new, old in zip(tails, s.tails, strict=True))
            yield ("the scan is over",), s._replace(tails=merged, reading=None)

    def _tail(self, at: int, span: Span, q: int, history: History, frame: Frame) -> Tail:
        start = min(max(at, frame.starts[q]), span.until)
        last: dict[int, int] = {}
        for offset in range(start, min(span.until, frame.stable[q])):
            record = frame.logs[q][offset]
            hashed = -1 if record is None else key_hash(history.keys[record.key])
            if record is not None and record.number not in frame.cleaned and hashed in span.slots:
                last[hashed] = offset
        known = at if "log_start_is_no_position" in self.off else start
        return Tail(at, known, span.until, span.slots, _Last(last))

    @staticmethod
    def _delivered(s: State, q: int, frame: Frame) -> int:
        """What an owner would call its position if it counted what it has only handed over."""
        offset = s.commits[q]
        while offset < frame.stable[q]:
            record = frame.logs[q][offset]
            if record is not None and not s.given >> record.number & 1:
                break
            offset += 1
        return offset

    def _deliver(
        self, s: State, p: int, record: Record, history: History, frame: Frame
    ) -> Iterator[tuple[Label, State | Fault]]:
        label = (f"the owner of {p} delivers {record.key}#{record.number}",)
        yield (
            label,
            self._fault(s, p, record, history, frame)
            or s._replace(
                busy=put(s.busy, p, record.number),
                given=s.given | 1 << record.number,
                ever=s.ever | 1 << record.number,
                last=put(s.last, KEYS.index(record.key), record.number),
            ),
        )

    def _fault(self, s: State, p: int, record: Record, history: History, frame: Frame) -> Fault | None:
        if not s.ever >> record.number & 1 and not self.bounds.rewinds:
            for newer in history.records[record.number + 1 :]:
                if newer.key == record.key and s.ever >> newer.number & 1:
                    return Fault("REORDER")
        if self.bounds.overlap and not self.bounds.rewinds:
            for other in s.busy:
                if other >= 0 and history.records[other].key == record.key:
                    return Fault("OVERLAP")
        for older in history.records[: record.number] if self.bounds.unread else ():
            q, offset = history.places[older.number]
            if older.key != record.key or q == p or offset < s.commits[q]:
                continue
            lost = offset < frame.starts[q] or older.number in frame.cleaned
            if not lost or s.memory >> older.number & 1:
                return Fault("UNREAD")
        return None


class _Last(dict[int, int]):
    """A dict that is part of a state."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))
