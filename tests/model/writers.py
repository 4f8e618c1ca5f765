"""Writers, the two control topics, controllers and one moving key: the model behind the cuts.

What is in it. Writers that join, look, send, hold, answer, release, crash, start again under a new nonce, lapse and join
again; requests that are on the wire, appended above the high watermark, or acknowledged, also after their process died;
control records that arrive late; two controllers of which the second may take over at any moment; PREPARE, ABORT,
EXPEL, COMMIT. The two control topics have no common order: each is a log of its own (the writers' one a log for each
writer), and everybody reads each at its own pace. Key `k` moves at every change, key `s` always stays in partition 0.

Properties. STRAY: a record of `k` written before a change at or above its `ends`. EARLY: one written after it below
`begins`. ORDER: one writer's records of a key, or a record that was acknowledged before another was sent, the wrong way
round for who reads the old home first. FORK: a controller writes a timeline that does not follow from the one that is
there. WEDGE: some state from which the change and the records can not be completed.

Time is not in it: a lease ends by itself, first for its writer and later for the controller (`leases` has the clock). A
request never lands later than the lease's end. A process that starts has nothing to do with the one before except what
that one left on the wire.
PLAN is the moment at which a controller looks at every writer before it prepares.

Bounds. Records, crashes, lapses, aborts by choice and take-overs are counted in `Bounds`; an attempt that cannot succeed
is given up as often as necessary. Within these bounds the search is exhaustive.
"""

from __future__ import annotations

from collections.abc import Iterator

from model.controllers import Controllers
from model.search import Fault, Label
from model.states import GUARDS, IDLE, JOINED, JOINING, LAPSED, LEADING, LIVE, NOBODY, OUT, Bounds, State, Writer, swap


class WriterModel(Controllers):
    """The model within `bounds`, without the guards named in `off`."""

    def __init__(self, bounds: Bounds, off: frozenset[str] = frozenset()) -> None:
        assert off <= GUARDS.keys()
        self.bounds, self.off = bounds, off
        self.keys = [key for script in bounds.scripts for key in script]
        self.firsts = [sum(map(len, bounds.scripts[:w])) for w in range(len(bounds.scripts))]
        self.homes = [1 if count > 1 else 0 for count in bounds.counts]
        self.last = len(bounds.counts) - 1

    def initial(self) -> Iterator[State]:
        """Nothing written; the writers that have joined are live under their first nonce."""
        writers, books = [], []
        for w, joined in enumerate(self.bounds.joined):
            writers.append(Writer(LIVE if joined else OUT, w * 100, 0, 0, 0, 0, (), 0))
            books.append((("J", w * 100),) if joined else ())
        seen = (0,) * len(writers)
        b = self.bounds
        first = (LEADING, 0, seen, (False,) * len(writers), None, ())
        left = (b.crashes, b.lapses, b.aborts, b.takeovers)
        masks = (0,) * len(self.keys)
        yield State((), ((), ()), (0, 0), (), (), tuple(books), tuple(writers), (first, NOBODY), 0, (), 0, masks, left)

    def complete(self, s: State) -> bool:
        """All changes made, all records sent, acknowledged or lost with their process, nothing on its way."""
        if s.wire or any(mark < len(log) for mark, log in zip(s.marks, s.logs, strict=True)):
            return False
        if sum(1 for entry in s.timeline if entry[0] == "C") < self.last:
            return False
        return all(not w.held and w.sent == len(self.bounds.scripts[i]) for i, w in enumerate(s.writers))

    def steps(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        """Everything that can happen next."""
        yield from self._network(s)
        for w in range(len(s.writers)):
            yield from self._writer(s, w)
        for c in range(2):
            if s.controllers[c][0] != IDLE:
                yield from self.controller(s, c)
        if s.left[3] and s.leader == 0 and s.controllers[1][0] == IDLE:
            yield from self.takeover(s)

    # The brokers.

    def _network(self, s: State) -> Iterator[tuple[Label, State | Fault]]:
        heads = set()
        for i, (nonce, p, record, era) in enumerate(s.wire):
            # One process has one client library, whose requests to a partition stay in their order.
            if (nonce // 10, p) in heads:
                continue
            heads.add((nonce // 10, p))
            log = (*s.logs[p], (record, era, nonce))
            after = s._replace(wire=s.wire[:i] + s.wire[i + 1 :], logs=swap(s.logs, p, log))
            name = f"record {record}{self.keys[record]} of nonce {nonce} is appended to {p} at {len(log) - 1}"
            yield (name,), self._landed(s, p, log[-1], len(log) - 1) or after
            if not any(w.nonce == nonce and w.standing == LIVE for w in s.writers):
                yield (f"record {record} of nonce {nonce} is lost",), s._replace(wire=s.wire[:i] + s.wire[i + 1 :])
        for p, log in enumerate(s.logs):
            if s.marks[p] < len(log):
                acked = s.acked
                for record, _, _ in log[s.marks[p] :]:
                    acked |= (1 << record) if self.keys[record] == "k" else 0
                yield (
                    (f"partition {p} is replicated to {len(log)} and acknowledged",),
                    s._replace(marks=swap(s.marks, p, len(log)), acked=acked),
                )
        heads = set()
        for i, (w, *record) in enumerate(s.control):
            if record[1] not in heads:
                heads.add(record[1])
                book = (*s.books[w], tuple(record))
                rest = s.control[:i] + s.control[i + 1 :]
                what = "JOIN" if record[0] == "J" else f"READY for attempt {record[2]}"
                yield (f"{what} of nonce {record[1]} arrives",), s._replace(control=rest, books=swap(s.books, w, book))

    def _landed(self, s: State, p: int, written: tuple[int, int, int], offset: int) -> Fault | None:
        """What is wrong with this record at this place, given what else is there."""
        record, era, nonce = written
        if self.keys[record] == "k":
            for entry in s.timeline:
                if entry[0] == "C" and entry[2] == era + 1 and offset >= entry[3]:
                    return Fault("STRAY")
                if entry[0] == "C" and entry[2] == era and offset < entry[4]:
                    return Fault("EARLY")
        for log in s.logs:
            for at, (other, their_era, their_nonce) in enumerate(log):
                if self.keys[other] != self.keys[record]:
                    continue
                mine, theirs = (era, offset), (their_era, at)
                together = nonce // 10 == their_nonce // 10
                before = s.after[record] >> other & 1 or (together and other < record)
                behind = s.after[other] >> record & 1 or (together and other > record)
                if (before and theirs > mine) or (behind and theirs < mine):
                    return Fault("ORDER")
        return None

    # Writers.

    def _in_flight(self, s: State, nonce: int) -> bool:
        if any(sent[0] == nonce and self.keys[sent[2]] == "k" for sent in s.wire):
            return True
        return any(entry[2] == nonce for log, mark in zip(s.logs, s.marks, strict=True) for entry in log[mark:])

    def _writer(self, s: State, i: int) -> Iterator[tuple[Label, State | Fault]]:
        w, name = s.writers[i], f"writer {i}"

        def become(writer: Writer, **more: object) -> State:
            return s._replace(writers=swap(s.writers, i, writer), **more)

        if w.standing == LIVE:
            yield from self._live(s, i)
        elif w.standing == JOINING:
            if "read_past_join" in self.off:
                yield (name, "looks at the timeline without its JOIN"), become(self._looked(s, w))
            elif ("J", w.nonce) in s.books[i]:
                yield (name, "reads its JOIN back"), become(w._replace(standing=JOINED))
        elif w.standing == JOINED:
            yield (name, "reads the timeline to its end"), become(self._looked(s, w))
        elif w.standing == OUT or "clean_rejoin" in self.off or not self._in_flight(s, w.nonce):
            nonce = w.nonce if w.standing == OUT else w.nonce + 1
            joining = w._replace(standing=JOINING, nonce=nonce, preparing=0, said=0)
            yield (name, f"joins as nonce {nonce}"), become(joining, control=(*s.control, (i, "J", nonce)))
        fresh = Writer(OUT, w.nonce // 10 * 10 + 10, 0, 0, 0, 0, (), w.sent)
        joins = self.joins(s, i)
        if w.standing == LIVE and w.nonce in joins[:-1]:
            yield (name, "reads a newer JOIN of its id, stops and is started again"), become(fresh)
        if s.left[0] and w.standing != OUT:
            yield (name, "crashes"), become(fresh, left=swap(s.left, 0, s.left[0] - 1))
        if w.standing == LIVE and s.left[1]:
            standing = LIVE if "self_fencing" in self.off else LAPSED
            over = (*s.over, w.nonce) if standing == LIVE else s.over
            left = swap(s.left, 1, s.left[1] - 1)
            yield (name, "is at the end of its lease"), become(w._replace(standing=standing), left=left, over=over)
        for record in s.books[i]:
            nonce = record[1]
            ended = nonce != w.nonce or w.standing in (OUT, LAPSED)
            if record[0] == "J" and ended and nonce not in s.over and self._resolved(s, nonce):
                yield (f"the lease of nonce {nonce} is over for all",), s._replace(over=(*s.over, nonce))

    def _resolved(self, s: State, nonce: int) -> bool:
        if "requests_resolved_before_expel" not in self.off and any(sent[0] == nonce for sent in s.wire):
            return False
        if "replicated_before_expel" in self.off:
            return True
        return all(entry[2] != nonce for log, mark in zip(s.logs, s.marks, strict=True) for entry in log[mark:])

    def _looked(self, s: State, w: Writer) -> Writer:
        """The writer is live with the timeline as it stands now."""
        era = sum(1 for entry in s.timeline if entry[0] == "C")
        is_open = s.timeline and s.timeline[-1][0] == "P" and "hold_after_join" not in self.off
        preparing = s.timeline[-1][1] if is_open else 0
        return w._replace(standing=LIVE, read=len(s.timeline), era=era, preparing=preparing, said=0)

    def _live(self, s: State, i: int) -> Iterator[tuple[Label, State | Fault]]:
        w, name = s.writers[i], f"writer {i}"
        holds = w.preparing and "hold" not in self.off

        def send(record: int, writer: Writer, after: tuple[int, ...]) -> State:
            home = self.homes[w.era] if self.keys[record] == "k" else 0
            wire = (*s.wire, (w.nonce, home, record, w.era))
            return s._replace(writers=swap(s.writers, i, writer), wire=wire, after=after)

        if w.sent < len(self.bounds.scripts[i]):
            record = self.firsts[i] + w.sent
            after = swap(s.after, record, s.acked) if self.keys[record] == "k" else s.after
            invoked = w._replace(sent=w.sent + 1)
            behind = w.held and "fifo_release" not in self.off
            if self.keys[record] == "k" and (holds or behind):
                held = invoked._replace(held=(*w.held, record))
                yield (name, "holds record", record), s._replace(writers=swap(s.writers, i, held), after=after)
            else:
                yield (name, f"sends record {record}{self.keys[record]} of era {w.era}"), send(record, invoked, after)
        if w.held and not w.preparing:
            yield (name, "releases record", w.held[0]), send(w.held[0], w._replace(held=w.held[1:]), s.after)
        if w.read < len(s.timeline):
            kind, number, era = s.timeline[w.read][:3]
            read = w._replace(read=w.read + 1, preparing=number if kind == "P" else 0)
            if kind == "C":
                read = read._replace(era=era)
            yield (name, "reads", kind, number), s._replace(writers=swap(s.writers, i, read))
        clear = "ready_waits_in_flight" in self.off or not self._in_flight(s, w.nonce)
        if w.preparing and w.said != w.preparing and clear:
            control = (*s.control, (i, "R", w.nonce, w.preparing, w.era))
            after = s._replace(writers=swap(s.writers, i, w._replace(said=w.preparing)), control=control)
            yield (name, "says READY for attempt", w.preparing), after
