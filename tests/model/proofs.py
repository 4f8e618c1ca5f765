"""A group with flush callbacks and `keyorder.gate=key`: who waits for whose proof, and whether all of them get on.

What is in it. The topic grows symbol by symbol (`histories`). Each partition has an owner, who processes it record by
record: a record waits for the gate of its own key, records of keys that never moved pass closed gates. The application is
asked to flush; commits carry the offset and the epoch, held below closed gates; a member commits by itself when its offset
has changed, and when a proof is due. Each member asks for the positions of the others, and the answer comes later.
Partitions are handed over one by one, members crash, and the whole group may leave, be reset to the beginning and return.
Gates, proofs and positions are the product's own.

Properties. UNREAD: a record is delivered while an older one of its key lies at or above the committed position of another
partition, so that it comes later. UNFLUSHED: a commit proves a flush that was not done, or a record is delivered whose key
was never flushed where it came from. WEDGE: some state from which not
everything can be processed, by members that commit only what is new to them.

Not in it: records that overtake others of their partition (`early` has them), views that are old.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from keyorder.partitioner.gates.gate import Opened
from keyorder.partitioner.gates.proofs import proof_due, provable_epoch
from keyorder.partitioner.gates.starts import Commit, flushed_epoch, proven_epoch, proven_position
from model.histories import Frame, History
from model.readers import put
from model.search import Fault, Label

#: What may be switched off, and what it says.
GUARDS = {
    "acknowledged_decides": "a proof is due until the acknowledged commit carries it, whatever the member remembers",
    "epoch_not_offset": "what is proven is an epoch, since cuts of several epochs may be equal, and no offset",
    "proof": "a gate waits for the proof of the flush, not for the offset alone",
    "after_the_flush": "a commit proves a flush only when the application has done it",
    "answers_since_assignment": "what was asked before partitions were assigned is forgotten",
}

Known = tuple[Commit | None, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What happens besides reading. slow: answers are on their way for a while. together: one member begins with all."""

    histories: tuple[History, ...]
    handovers: int = 0
    crashes: int = 0
    resets: int = 0
    slow: bool = False
    together: bool = False


class State(NamedTuple):
    """One state; rows go by partition unless said otherwise.

    at: symbols written. taken: processed up to. asked: the newest epoch for which the owner has flushed. remembered: the
    newest epoch that the owner believes to have proven. commits: acknowledged. known, asking: by member, what it knows of
    the others' commits, and what the answer on its way to it says (empty: none is).
    """

    history: int
    at: int
    owners: tuple[int, ...]
    taken: tuple[int, ...]
    asked: tuple[int, ...]
    remembered: tuple[int, ...]
    commits: tuple[Commit, ...]
    known: tuple[Known, Known]
    asking: tuple[Known, Known]
    handovers: int
    crashes: int
    resets: int


@dataclass
class ProofModel:
    """The model within `bounds`, without the guards named in `off`."""

    bounds: Bounds
    off: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        assert self.off <= GUARDS.keys()

    def initial(self) -> Iterator[State]:
        """Nothing written; the group's commits are made, and nobody has asked for another's."""
        b = self.bounds
        for number, history in enumerate(b.histories):
            zero = (0,) * history.width
            owners = (0,) * history.width if b.together else tuple(p % 2 for p in range(history.width))
            nothing: Known = (None,) * history.width
            yield State(
                number, 0, owners, zero, zero, zero, (Commit(0, 0),) * history.width, (nothing, nothing), ((), ()),
                b.handovers, b.crashes, b.resets,
            )  # fmt: skip

    def complete(self, s: State) -> bool:
        """All is written, processed and committed."""
        history = self.bounds.histories[s.history]
        ends = history.frames[-1].marks
        return s.at == len(history.script) and all(
            end == at == commit.offset for end, at, commit in zip(ends, s.taken, s.commits, strict=True)
        )

    def steps(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        """Everything that can happen next."""
        history = self.bounds.histories[s.history]
        frame = history.frames[s.at]
        if s.at < len(history.script):
            yield (history, f"writes {history.script[s.at]!r} at {s.at}"), s._replace(at=s.at + 1)
        for m in (0, 1):
            if s.asking[m]:
                heard = s._replace(known=put(s.known, m, s.asking[m]), asking=put(s.asking, m, ()))
                yield (f"member {m} hears where the others are",), heard
            elif s.known[m] != (others := self._others(s, m)) and not self.bounds.slow:
                yield (f"member {m} learns where the others are",), s._replace(known=put(s.known, m, others))
            elif s.known[m] != others:
                yield (f"member {m} asks where the others are",), s._replace(asking=put(s.asking, m, others))
            opened = self._opened(s, m, history, frame)
            for p in (p for p, owner in enumerate(s.owners) if owner == m):
                yield from self._partition(s, p, opened, history, frame)
            if s.crashes and m in s.owners:
                gone = [p for p, owner in enumerate(s.owners) if owner == m]
                yield (f"member {m} crashes",), self._begin(s, gone, 1 - m)._replace(crashes=s.crashes - 1)
        if s.resets and frame.epochs > 1:
            yield ("the group is reset to the beginning",), self._reset(s)

    def _opened(self, s: State, m: int, history: History, frame: Frame) -> Opened:
        """The gates as one member sees them."""
        timeline = history.timelines[frame.epochs - 1]

        def commit(q: int) -> Commit | None:
            return self._own(s, q) if s.owners[q] == m else s.known[m][q]

        def position(q: int) -> int:
            known = commit(q)
            if "epoch_not_offset" in self.off:
                return proven_position(timeline, q, known)
            return 0 if known is None else known.offset

        by_offset = "proof" in self.off or "epoch_not_offset" in self.off
        proven = None if by_offset else lambda q: proven_epoch(commit(q))
        return history.gates[frame.epochs - 1].open_now(position, (), proven)

    @staticmethod
    def _others(s: State, m: int) -> Known:
        return tuple(None if owner == m else c for owner, c in zip(s.owners, s.commits, strict=True))

    @staticmethod
    def _own(s: State, q: int) -> Commit:
        commit = s.commits[q]
        return Commit(min(commit.offset, s.taken[q]), min(commit.epoch or 0, s.asked[q]))

    def _partition(
        self, s: State, p: int, opened: Opened, history: History, frame: Frame
    ) -> Iterator[tuple[Label, State | Fault]]:
        timeline, taken, commit = history.timelines[frame.epochs - 1], s.taken[p], s.commits[p]
        who = f"member {s.owners[p]}"
        passed = flushed_epoch(timeline, p, taken)
        if passed > s.asked[p]:
            yield (who, f"flushes {p} up to epoch {passed}"), s._replace(asked=put(s.asked, p, passed))
        asked = passed if "after_the_flush" in self.off else s.asked[p]
        provable = provable_epoch(timeline, p, taken, asked, opened.first_closed(p))
        owed = proof_due(timeline, p, commit, provable)
        due = provable > s.remembered[p] if "acknowledged_decides" in self.off else owed
        if taken != commit.offset or due:
            after: State | Fault = s._replace(
                commits=put(s.commits, p, Commit(taken, provable)),
                remembered=put(s.remembered, p, max(s.remembered[p], provable)),
            )
            if provable > s.asked[p]:
                after = Fault("UNFLUSHED")
            yield (who, f"commits {p}@{taken} with epoch {provable}"), after
        if s.handovers:
            yield (
                (who, f"loses {p} to the other member"),
                self._begin(s, [p], 1 - s.owners[p])._replace(handovers=s.handovers - 1),
            )
        if taken < frame.stable[p]:
            record = frame.logs[p][taken]
            after = s._replace(taken=put(s.taken, p, taken + 1))
            if record is None:
                yield (who, f"passes {p}@{taken}"), after
                return
            moves = history.routes[frame.epochs - 1].of(history.keys[record.key]).moves
            gate = history.gates[frame.epochs - 1].entry(moves, p, taken)
            if gate is None or opened.is_open(gate):
                if gate is not None and any(ends and s.asked[q] < gate.epoch for q, ends in gate.origins):
                    after = Fault("UNFLUSHED")
                for older in history.records[: record.number]:
                    q, offset = history.places[older.number]
                    if older.key == record.key and q != p and offset >= s.commits[q].offset:
                        after = Fault("UNREAD")
                yield (who, f"processes {record.key}#{record.number} from {p}@{taken}"), after

    def _begin(self, s: State, gone: list[int], to: int) -> State:
        """Partitions begin at their commits under another owner; an assignment makes it forget what it knew."""
        owners, taken = list(s.owners), list(s.taken)
        asked, remembered = list(s.asked), list(s.remembered)
        for p in gone:
            commit = s.commits[p]
            owners[p], taken[p] = to, commit.offset
            asked[p] = remembered[p] = commit.epoch or 0
        after = s._replace(owners=tuple(owners), taken=tuple(taken), asked=tuple(asked), remembered=tuple(remembered))
        return self._forget(after, to)

    def _reset(self, s: State) -> State:
        """All leave, the offsets go back to the beginning, all return with the same objects."""
        again = s._replace(commits=(Commit(0, 0),) * len(s.commits), resets=s.resets - 1)
        for m in (0, 1):
            again = self._begin(again, [p for p, owner in enumerate(s.owners) if owner == m], m)
        return again

    def _forget(self, s: State, m: int) -> State:
        if "answers_since_assignment" in self.off:
            return s
        nothing: Known = (None,) * len(s.owners)
        return s._replace(known=put(s.known, m, nothing), asking=put(s.asking, m, ()))
