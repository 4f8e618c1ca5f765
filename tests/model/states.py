"""The parts of the writers' model: its guards, its bounds and one state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: What may be switched off, and what it says.
GUARDS = {
    "hold": "a writer that has read PREPARE holds the records of moving keys",
    "ready_waits_in_flight": "READY only when nothing of the moving keys is in flight",
    "ready_from_all": "COMMIT only when every member of the set is READY",
    "cuts_after_ready": "the cuts are read after the last READY",
    "fifo_release": "a key's held records go first, in their order",
    "self_fencing": "a writer stops when its lease is over",
    "requests_resolved_before_expel": "at a lease's end all requests have landed or never will",
    "replicated_before_expel": "at a lease's end what was appended is below the high watermark",
    "controller_fence": "a controller that was taken over from writes nothing",
    "read_after_init": "a new controller reads the timeline after it has fenced the older one",
    "attempt_number_on_ready": "READY counts for the attempt that it names, and no other",
    "incarnation_on_ready": "READY of a superseded incarnation does not count",
    "superseded_lease": "a superseded incarnation stays in the set until its own lease is over",
    "clean_rejoin": "a writer joins again only with nothing in flight",
    "read_past_join": "a writer sends nothing before it has read its JOIN back and then the timeline's end",
    "hold_after_join": "a writer that finds PREPARE open when it has joined holds from its first record",
    "deadline": "an attempt for which somebody can no longer become READY is given up",
    "expel": "a writer whose lease is over is expelled before the next attempt",
    "set_includes_prepare": "the set comes from a look that began after the controller's own PREPARE",
}

OUT, JOINING, JOINED, LIVE, LAPSED = range(5)
IDLE, FENCED, READER, LEADING, COLLECTING, CUT = range(6)
NOBODY = (IDLE, 0, (), (), None, ())


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much happens. scripts: the keys that each writer sends, in order. counts: the partition counts, from 1 on.

    joined: whether each writer is live at the start.
    """

    scripts: tuple[str, ...] = ("k", "k")
    counts: tuple[int, ...] = (1, 2)
    joined: tuple[bool, ...] = (True, True)
    crashes: int = 0
    lapses: int = 0
    aborts: int = 0
    takeovers: int = 0


class Writer(NamedTuple):
    """One writer: where it stands, its nonce, how far it has read the timeline, what it holds and what it said.

    nonce: hundreds for the writer, tens for its process, units for that one's joins.
    """

    standing: int
    nonce: int
    read: int
    era: int
    preparing: int
    said: int
    held: tuple[int, ...]
    sent: int


class State(NamedTuple):
    """One state. Records are numbers; an era is the number of committed changes.

    timeline: (kind, number, era, ends, begins). logs: (record, era, nonce) by partition. marks: high watermarks.
    wire: (nonce, partition, record, era) as sent. control: records under way to `books`. books: each writer's log of
    ("J", nonce), ("R", nonce, number, era), ("X", nonce). over: nonces whose lease is over. acked: a bit per record of
    `k`. after: per record what was acknowledged when it was sent. left: crashes, lapses, aborts, take-overs to come.
    controllers: (phase, timeline read, books read, books looked at, members, cut).
    """

    timeline: tuple[tuple[object, ...], ...]
    logs: tuple[tuple[tuple[int, int, int], ...], ...]
    marks: tuple[int, ...]
    wire: tuple[tuple[int, int, int, int], ...]
    control: tuple[tuple[object, ...], ...]
    books: tuple[tuple[tuple[object, ...], ...], ...]
    writers: tuple[Writer, ...]
    controllers: tuple[tuple[object, ...], ...]
    leader: int
    over: tuple[int, ...]
    acked: int
    after: tuple[int, ...]
    left: tuple[int, int, int, int]


def swap(row: tuple, at: int, item: object) -> tuple:
    """`row` with another item at one place."""
    return (*row[:at], item, *row[at + 1 :])
