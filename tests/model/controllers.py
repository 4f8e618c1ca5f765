"""What the controllers of the writers' model do: look, prepare, collect, cut, commit, give up, expel, take over."""

from __future__ import annotations

from collections.abc import Iterator

from model.search import Fault, Label
from model.states import (
    COLLECTING,
    CUT,
    FENCED,
    JOINED,
    JOINING,
    LEADING,
    LIVE,
    NOBODY,
    READER,
    State,
    swap,
)


class Controllers:
    """The controllers' steps. A timeline is written as a whole: what was not read is overwritten, which is a FORK."""

    off: frozenset[str]
    keys: list[str]
    homes: list[int]
    last: int

    def takeover(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        """A second controller begins."""
        left = swap(s.left, 3, 0)
        if "read_after_init" in self.off:
            taken = self._caught_up(s, READER)
            yield ("controller 1 reads the timeline",), s._replace(controllers=(s.controllers[0], taken), left=left)
        else:
            yield ("controller 1 fences controller 0",), self._fence(s, swap(NOBODY, 0, FENCED))._replace(left=left)

    def _caught_up(self, s: State, phase: int) -> tuple[object, ...]:
        none = (False,) * len(s.writers)
        return (phase, len(s.timeline), (0,) * len(s.writers), none, None, ())

    def _fence(self, s: State, second: tuple[object, ...]) -> State:
        first = s.controllers[0] if "controller_fence" in self.off else NOBODY
        return s._replace(controllers=(first, second), leader=1)

    def _members(self, s: State, seen: tuple[int, ...]) -> list[tuple[int, int]]:
        """(writer, nonce) of every join that was read and neither left nor was expelled."""
        members = []
        for i, book in enumerate(s.books):
            read = book[: seen[i]]
            gone = {record[1] for record in read if record[0] == "X"}
            joins = [record[1] for record in read if record[0] == "J"]
            if "superseded_lease" in self.off:
                joins = joins[-1:]
            members += [(i, nonce) for nonce in joins if nonce not in gone]
        return members

    def _ready(self, s: State, seen: tuple[int, ...], member: tuple[int, int], number: int, era: int) -> bool:
        i, nonce = member
        read = s.books[i][: seen[i]]
        if ("X", nonce) in read:
            return True
        joins = [record[1] for record in read if record[0] == "J"]
        if "incarnation_on_ready" not in self.off and joins[-1] != nonce:
            return False
        said = [record for record in read if record[0] == "R" and record[1] == nonce]
        if "attempt_number_on_ready" in self.off:
            return any(record[3] == era for record in said)
        return any(record[2] == number for record in said)

    @staticmethod
    def joins(s: State, i: int) -> list[int]:
        """The nonces of a writer's joins, oldest first."""
        return [record[1] for record in s.books[i] if record[0] == "J"]

    def _able(self, s: State, member: tuple[int, int]) -> bool:
        """Whether this join can still answer: its process lives under it."""
        w = s.writers[member[0]]
        newest = self.joins(s, member[0])[-1] == w.nonce
        return newest and w.nonce == member[1] and w.standing in (JOINING, JOINED, LIVE) and w.nonce not in s.over

    def controller(self, s: State, c: int) -> Iterator[tuple[Label, State | Fault]]:
        phase, base, seen, looked, members, cut = s.controllers[c]
        name = f"controller {c}"

        def become(state: State, *fields: object) -> State:
            return state._replace(controllers=swap(state.controllers, c, fields))

        if phase == FENCED:
            yield (name, "reads the timeline to its end"), become(s, *self._caught_up(s, LEADING))
            return
        if phase == READER:
            yield (name, "fences controller 0"), self._fence(s, swap(s.controllers[c], 0, LEADING))
            return
        known = s.timeline[:base]
        era = sum(1 for entry in known if entry[0] == "C")
        is_open = bool(known) and known[-1][0] == "P"

        def write(entry: tuple[object, ...], *fields: object) -> State | Fault:
            if base != len(s.timeline):
                return Fault("FORK")
            return become(s._replace(timeline=(*s.timeline, entry)), fields[0], base + 1, *fields[1:])

        none = (False,) * len(looked)
        useful = phase == COLLECTING or (phase == LEADING and era < self.last and not is_open)
        if useful:
            for i, book in enumerate(s.books):
                if seen[i] < len(book) or not looked[i]:
                    saw, did = swap(seen, i, len(book)), swap(looked, i, True)
                    fixed = members
                    if phase == COLLECTING and fixed is None and all(did):
                        fixed = tuple(self._members(s, saw))
                    yield (name, "looks at the log of writer", i), become(s, phase, base, saw, did, fixed, cut)
        if phase == LEADING and is_open:
            yield (
                (name, "gives up attempt", known[-1][1]),
                write(("A", known[-1][1], era), LEADING, seen, none, None, ()),
            )
        elif phase == LEADING and useful and all(looked):
            silent = [m for m in self._members(s, seen) if not self._able(s, m)]
            for i, nonce in silent:
                if nonce in s.over and ("X", nonce) not in s.books[i] and "expel" not in self.off:
                    books = swap(s.books, i, (*s.books[i], ("X", nonce)))
                    yield (
                        (name, "expels nonce", nonce),
                        become(s._replace(books=books), phase, base, seen, none, None, ()),
                    )
            if not silent:
                number = 1 + sum(1 for entry in known if entry[0] == "P")
                early = "set_includes_prepare" in self.off
                fixed = tuple(self._members(s, seen)) if early else None
                entry = ("P", number, era)
                yield (name, "writes PREPARE", number), write(entry, COLLECTING, seen, none, fixed, ())
        elif phase in (COLLECTING, CUT):
            number = known[-1][1]
            waits = [m for m in members or () if not self._ready(s, seen, m, number, era)]
            ready = members is not None and (not waits or "ready_from_all" in self.off)
            if not cut and (ready or "cuts_after_ready" in self.off):
                marks = (s.marks[self.homes[era]], s.marks[self.homes[era + 1]])
                yield (
                    (name, f"reads ends {marks[0]}, begins {marks[1]}"),
                    become(s, phase, base, seen, looked, members, marks),
                )
            if cut and ready:
                entry = ("C", number, era + 1, *cut)
                yield (
                    (name, "writes COMMIT", number),
                    self._cut_fault(s, entry) or write(entry, LEADING, seen, none, None, ()),
                )
            hopeless = "deadline" not in self.off and any(not self._able(s, m) for m in waits)
            if s.left[2] or hopeless:
                after = write(("A", number, era), LEADING, seen, none, None, ())
                if not hopeless and not isinstance(after, Fault):
                    after = after._replace(left=swap(s.left, 2, s.left[2] - 1))
                yield (name, "writes ABORT", number), after

    def _cut_fault(self, s: State, entry: tuple[object, ...]) -> Fault | None:
        """Whether a record that is there already lies on the wrong side of a new cut."""
        _, _, era, ends, _ = entry
        for offset, (record, sent, _) in enumerate(s.logs[self.homes[era - 1]]):
            if self.keys[record] == "k" and sent == era - 1 and offset >= ends:
                return Fault("STRAY")
        return None
