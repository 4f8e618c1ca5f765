"""A value left in a retired partition, writers of its key, controllers that re-home it, a reader: the model behind copies.

What is in it. Partition `d` is retired and holds `v`, the last record of its key. Writers send further records of the key to
its home: values and deletes, some inside a transaction that is committed or aborted at any later moment. A controller
prepares, collects READY, looks at the home, and writes the copy, the tombstone and the release. A second one may take
over at any moment, gives up what is open, and re-homes again or grows the topic, which makes `d` the key's home again. The
older one does not know that and goes on. The cleaner takes `v` away once a tombstone stands behind it. A reader reads `d`
to its cut, then the home, then what the growth has put into `d`, at any pace.

Properties, when all is done. TABLE: who reads everything anew does not get what the last committed record of the writers
says (`v` when there is none). READER: the last word of the reader that was there all the time is another one. WEDGE: some
state from which it cannot be done.

Not in it: leases and what comes of them (`writers`), writers' own move tombstones, several keys in a slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from model.search import Fault, Label

#: What may be switched off, and what it says.
GUARDS = {
    "hold": "writers hold the slice's keys from PREPARE to the release",
    "ready_waits_in_flight": "READY only when nothing of these keys is in flight",
    "ready_from_all": "the controller goes on only when every writer is READY",
    "look_after_ready": "the home is read to its end after the last READY",
    "one_transaction": "copy, tombstone and release are one transaction under the controller's id",
    "tombstone_with_copy": "a value is tombstoned only together with its copy, or when it is superseded",
    "undecided_is_left": "a key with a record in an open transaction at home is left as it is",
    "aborted_is_none": "an aborted record at home supersedes nothing",
    "delete_supersedes": "a delete at home supersedes as any record does",
    "only_while_retired": "once a growth uses the partition again nothing in it is touched",
    "copies_are_delivered": "readers are given copies, also those that have passed the original's offset",
}

IDLE, LOOKED_EARLY, OPEN, LOOKED, COPIED, DONE, FENCED = range(7)
NONE, COPY, CLEAR, LEAVE = range(4)
VALUE, TOMB, COPIED_VALUE = -1, -2, -3


@dataclass(frozen=True, slots=True)
class Bounds:
    """scripts: what each writer sends: `w` a value, `x` a delete, `t` a value inside a transaction.

    second: what a second controller does, "re-home", "grow", or "grow, re-home"; empty when there is none.
    """

    scripts: tuple[str, ...] = ("w",)
    second: str = ""


class Writer(NamedTuple):
    """seen: how much of the timeline. said: the attempt it was READY for. sent: how many; wire: those not landed yet."""

    seen: int = 0
    said: int = 0
    sent: int = 0
    wire: tuple[tuple[int, int], ...] = ()


class Controller(NamedTuple):
    """attempt: its own, as a place in the timeline. fate: what its look at the home came to."""

    phase: int = IDLE
    attempt: int = 0
    fate: int = NONE


class State(NamedTuple):
    """timeline: P re-homing is prepared, Q a growth is, R released, G grown. logs: of the home and of `d`.

    undone: open transactions' records. aborted: those that came to nothing. begins: where `d` begins anew, and where the
    home ended. reader: how far in `d`, in the home, in `d` again; its last word. cleaned: `v` is gone.
    """

    timeline: str
    home: tuple[int, ...]
    d: tuple[int, ...]
    undone: frozenset[int]
    aborted: frozenset[int]
    writers: tuple[Writer, ...]
    controllers: tuple[Controller, ...]
    leader: int
    grown: tuple[int, int] | None
    reader: tuple[int, int, int]
    word: int | None
    cleaned: bool


class RehomingModel:
    """The model within `bounds`, without the guards named in `off`."""

    def __init__(self, bounds: Bounds, off: frozenset[str] = frozenset()) -> None:
        assert off <= GUARDS.keys()
        self.bounds, self.off = bounds, off
        self.kinds = "".join(bounds.scripts)
        self.firsts = [sum(map(len, bounds.scripts[:i])) for i in range(len(bounds.scripts))]

    def initial(self) -> Iterator[State]:
        """`v` in `d`, nothing at home, nobody has begun."""
        writers = tuple(Writer() for _ in self.bounds.scripts)
        none: frozenset[int] = frozenset()
        both = (Controller(), Controller())
        yield State("", (), (VALUE,), none, none, writers, both, 0, None, (0, 0, 0), None, False)

    def complete(self, s: State) -> bool | Fault:
        """Everything is sent and decided, no attempt is open, the leader is done, the reader has read all."""
        if s.undone or s.timeline[-1:] in ("P", "Q") or s.controllers[s.leader].phase != DONE:
            return False
        if any(c.phase not in (IDLE, DONE, FENCED) for c in s.controllers):
            return False
        if any(w.wire or w.sent < len(self.bounds.scripts[i]) for i, w in enumerate(s.writers)):
            return False
        ends = (1, len(s.home), len(s.d) if s.grown else s.reader[2])
        if s.reader != ends:
            return False
        written = [r for r in (*s.home, *self._again(s)) if r >= 0 and r not in s.aborted]
        expected = self._meaning(written[-1]) if written else VALUE
        if self._table(s) != expected:
            return Fault("TABLE")
        return True if s.word == expected else Fault("READER")

    def steps(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        """Everything that can happen next."""
        for i, w in enumerate(s.writers):
            yield from self._writer(s, i, w)
        for record in sorted(s.undone):
            undone = s.undone - {record}
            yield ("commits", record), s._replace(undone=undone)
            yield ("aborts", record), s._replace(undone=undone, aborted=s.aborted | {record})
        for c in (0, 1):
            yield from self._controller(s, c)
        yield from self._reader(s)
        if not s.cleaned and TOMB in s.d[1:]:
            yield ("the cleaner takes the original away",), s._replace(cleaned=True)

    # Writers.

    def _writer(self, s: State, i: int, w: Writer) -> Iterator[tuple[Label, State]]:
        def after(**changes: object) -> State:
            writer = w._replace(**changes)  # type: ignore[arg-type]
            return s._replace(writers=(*s.writers[:i], writer, *s.writers[i + 1 :]))

        name = f"writer {i}"
        if w.seen < len(s.timeline):
            yield (name, "reads", s.timeline[w.seen]), after(seen=w.seen + 1)
        known = s.timeline[: w.seen]
        preparing = known[-1:] in ("P", "Q")
        holds = preparing and ("hold" not in self.off or known[-1:] == "Q")
        if w.sent < len(self.bounds.scripts[i]) and not holds:
            record, place = self.firsts[i] + w.sent, int("G" in known)
            yield (name, "sends", record), after(sent=w.sent + 1, wire=(*w.wire, (record, place)))
        clear = not w.wire or ("ready_waits_in_flight" in self.off and known[-1:] == "P")
        if preparing and w.said != w.seen and clear:
            yield (name, "says READY"), after(said=w.seen)
        if w.wire:
            (record, place), *rest = w.wire
            landed = after(wire=tuple(rest))
            if self.kinds[record] == "t":
                landed = landed._replace(undone=s.undone | {record})
            log = (*(s.d if place else s.home), record)
            yield (record, "lands"), landed._replace(d=log) if place else landed._replace(home=log)

    # Controllers.

    def _controller(self, s: State, c: int) -> Iterator[tuple[Label, State]]:
        me, name = s.controllers[c], f"controller {c}"

        def after(state: State, **changes: object) -> State:
            controller = me._replace(**changes)  # type: ignore[arg-type]
            return state._replace(controllers=(*state.controllers[:c], controller, *state.controllers[c + 1 :]))

        grows = c == 1 and self.bounds.second.startswith("grow") and s.grown is None
        if c == 1 and me.phase == IDLE and s.leader == 0:
            if self.bounds.second:
                given_up = s.timeline + ("R" if s.timeline[-1:] in ("P", "Q") else "")
                yield (name, "takes over"), s._replace(leader=1, timeline=given_up)
            return
        if s.leader != c:
            if me.phase not in (IDLE, DONE, FENCED):
                yield from self._fenced(s, me, name, after)
            return
        if me.phase == IDLE and "look_after_ready" in self.off and not grows:
            yield (name, "looks too early"), after(s, phase=LOOKED_EARLY, fate=self._look(s))
        if me.phase == LOOKED_EARLY or (me.phase == IDLE and ("look_after_ready" not in self.off or grows)):
            prepared = s._replace(timeline=s.timeline + ("Q" if grows else "P"))
            yield (name, "prepares"), after(prepared, phase=OPEN, attempt=len(prepared.timeline))
        said = [w.said == me.attempt for w in s.writers]
        enough = all(said) or ("ready_from_all" in self.off and not grows and any(said))
        if me.phase == OPEN and enough:
            if grows:
                grown = s._replace(timeline=s.timeline + "G", grown=(len(s.d), len(s.home)))
                again = self.bounds.second == "grow, re-home"
                yield (name, "commits the growth"), after(grown, phase=IDLE if again else DONE)
            else:
                fate = me.fate if "look_after_ready" in self.off else self._look(s)
                yield (name, "looks at the home"), after(s, phase=LOOKED, fate=fate)
        if me.phase == LOOKED:
            if "one_transaction" in self.off:
                yield (name, "copies"), after(self._copied(s, me.fate), phase=COPIED)
            else:
                written = self._tombstoned(self._copied(s, me.fate), me.fate)
                yield (name, "copies, clears, releases"), after(self._released(written), phase=DONE)
        if me.phase == COPIED:
            yield (name, "clears, releases"), after(self._released(self._tombstoned(s, me.fate)), phase=DONE)

    def _fenced(self, s: State, me: Controller, name: str, after: object) -> Iterator[tuple[Label, State]]:
        """The older one goes on; whatever is in a transaction is refused."""
        assert callable(after)
        yield (name, "hears that it is fenced"), after(s, phase=FENCED)
        if "one_transaction" in self.off:
            if me.phase == LOOKED:
                yield (name, "copies late"), after(self._copied(s, me.fate), phase=COPIED)
            if me.phase == COPIED:
                yield (name, "clears late"), after(self._tombstoned(s, me.fate), phase=FENCED)

    def _look(self, s: State) -> int:
        """What the home says of `v`."""
        if "only_while_retired" not in self.off and s.grown is not None:
            return NONE
        if TOMB in s.d or (s.cleaned and s.grown is None):
            return NONE
        later = [r for r in s.home if r not in s.undone]
        if "aborted_is_none" not in self.off:
            later = [r for r in later if r not in s.aborted]
        if "delete_supersedes" in self.off:
            later = [r for r in later if r < 0 or self.kinds[r] != "x"]
        if later:
            return CLEAR
        if any(r in s.undone for r in s.home) and "undecided_is_left" not in self.off:
            return LEAVE
        return COPY

    def _copied(self, s: State, fate: int) -> State:
        return s._replace(home=(*s.home, COPIED_VALUE)) if fate == COPY else s

    def _tombstoned(self, s: State, fate: int) -> State:
        clears = fate in (COPY, CLEAR) or (fate == LEAVE and "tombstone_with_copy" in self.off)
        return s._replace(d=(*s.d, TOMB)) if clears else s

    @staticmethod
    def _released(s: State) -> State:
        return s._replace(timeline=s.timeline + "R")

    # The reader, and who reads anew.

    def _reader(self, s: State) -> Iterator[tuple[Label, State]]:
        old, at, new = s.reader
        if old < 1:
            word = s.word if s.cleaned else VALUE
            yield ("the reader passes d's cut",), s._replace(reader=(1, at, s.grown[0] if s.grown else new), word=word)
        elif at < len(s.home):
            record = s.home[at]
            if record in s.undone:
                return
            word = s.word if record in s.aborted else self._meaning(record)
            if record == COPIED_VALUE and "copies_are_delivered" in self.off:
                word = s.word
            yield ("the reader takes", record), s._replace(reader=(old, at + 1, new), word=word)
        elif s.grown is not None and new < len(s.d):
            new = max(new, s.grown[0])
            if new == len(s.d):
                yield ("the reader begins anew",), s._replace(reader=(old, at, new))
            elif s.d[new] not in s.undone:
                record = s.d[new]
                # A move tombstone is not delivered.
                word = s.word if record in s.aborted or record == TOMB else self._meaning(record)
                yield ("the reader takes", record), s._replace(reader=(old, at, new + 1), word=word)

    def _meaning(self, record: int) -> int | None:
        """The value that a record stands for; None for a delete."""
        if record in (COPIED_VALUE, VALUE):
            return VALUE
        return None if self.kinds[record] == "x" else record

    @staticmethod
    def _again(s: State) -> tuple[int, ...]:
        """What the growth's generation of `d` holds."""
        return s.d[s.grown[0] :] if s.grown is not None else ()

    def _table(self, s: State) -> int | None:
        """What stands for the key when the cleaner is through: a tombstone erases all that lies before it in its partition."""
        cut = s.grown[0] if s.grown is not None else len(s.d)
        left = [(i < cut, r) for i, r in enumerate(s.d) if r != TOMB and TOMB not in s.d[i:]]
        before, again = [r for old, r in left if old], [r for old, r in left if not old]
        kept = [r for r in (*before, *s.home, *again) if r not in s.aborted]
        return self._meaning(kept[-1]) if kept else None
