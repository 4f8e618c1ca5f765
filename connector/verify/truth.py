"""What the log says: which records there are, and in which order each key's records stand.

- **Log**: every partition read end to end at read_committed after quiescence: rows of (partition,
  offset, key, value, epoch header or None). A row with a null value (a move tombstone) is no record.
- **L_k**: the records of key k by (segment of k's chain of homes, offset). A record that lies in no
  segment is a stray: the log checks name it (R1, R3), and it has no place in L_k. pos(x) is x's index
  in L_k; a value that stands twice has the first of its places (R6 or R6' names it).
- Records with a null key have no order, but they count in everything else. Their value's key is "" by
  convention: where the log was trimmed, nothing else tells that they had none.
- **Copies**: where a retired partition's values were re-homed, `copies` names the places of the copies and
  those of their originals. A copy is no record of its own: the value keeps the place of its original,
  also when that is gone, and a delivery from either place is one of it.
- **Trimmed**: below `log_starts[p]` the log was deleted (a retired partition, emptied). What was
  acknowledged or delivered from there stands as if it had been read.
- **Compacted**: with `compacted`, an acknowledged or delivered record that is gone counts as present
  while a newer one of its key is in the log. It keeps its place in L_k; nobody has to deliver it.

An **Order** is L_k for all keys, or the writers' own order (one stream per writer and key, by seq), in
the same shape, so that the delivery checks do not know which one they are applied to.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .events import Kind, decode_value
from .history import History
from .topology import Segment, Topology, locate

Row = tuple[int, int, "bytes | None", "bytes | None", "int | None"]
Copies = Mapping[tuple[int, int], tuple[int, int]]
_DELIVERS = (Kind.DELIVER_START, Kind.DELIVER_END)


@dataclass(slots=True)
class Send:
    """One send: event indices, and where it was acknowledged (offset -1: not told)."""

    invoked: int
    settled: int = -1
    outcome: Kind | None = None
    partition: int = -1
    offset: int = -1
    told: int = -1  # when the writer learned that the send may not be there: an error, or its own end
    again: bool = False  # on its way while the client library began a new producer epoch: it may be written twice


class Found(NamedTuple):
    """One record of ours in the log."""

    vid: int
    partition: int
    offset: int
    key: bytes | None
    epoch: int | None


@dataclass(slots=True)
class Order:
    """Streams of records and each record's place in its stream."""

    stream_of: dict[int, Hashable] = field(default_factory=dict)
    pos: dict[int, int] = field(default_factory=dict)
    members: dict[Hashable, list[int]] = field(default_factory=dict)
    segment: dict[int, int] = field(default_factory=dict)  # empty in the writers' order

    def extend(self, stream: Hashable, vids: Iterable[int]) -> None:
        """Appends records to a stream; one that is there already keeps its place."""
        row = self.members.setdefault(stream, [])
        for vid in vids:
            if vid not in self.pos:
                self.pos[vid] = len(row)
                self.stream_of[vid] = stream
                row.append(vid)


@dataclass(slots=True)
class Truth:
    """The log, the sends, and the order of every key."""

    history: History
    topology: Topology | None
    found: list[Found]
    foreign: list[tuple[int, int]]  # places in the log that hold no value of this run
    at: dict[int, dict[int, int]]  # partition -> offset -> vid, trimmed places included
    place: dict[int, tuple[int, int]]  # vid -> its first place
    sends: dict[int, Send]
    trimmed: set[int]
    ghosts: set[int]  # compacted away
    order: Order
    by_writer: Order
    log_starts: Mapping[int, int]
    compacted: bool
    copies: list[tuple[int, int, int]] = field(default_factory=list)  # (vid, partition, offset)
    rewritten: set[tuple[int, int]] = field(default_factory=set)  # second places that a new producer epoch explains

    def name(self, vid: int) -> str:
        """How details speak of a record."""
        value = self.history.values[vid]
        return f"{value.writer}#{value.seq}"

    def key(self, vid: int) -> str:
        """The key of a record."""
        return self.history.values[vid].key

    def chain(self, vid: int) -> tuple[Segment, ...] | None:
        """The stays of the record's key; None without a topology."""
        return None if self.topology is None else self.topology.chain(self.key(vid).encode())


def read_sends(history: History) -> dict[int, Send]:
    """All sends by vid. The first invocation and the first result count."""
    sends: dict[int, Send] = {}
    open_of: dict[str, set[int]] = {}
    for event in history.events():
        kind, vid = event.kind, event.vid
        if kind is Kind.SEND_INVOKE:
            if vid not in sends:
                sends[vid] = Send(event.at)
                open_of.setdefault(event.actor, set()).add(vid)
        elif kind in (Kind.SEND_OK, Kind.SEND_FAIL, Kind.SEND_UNKNOWN):
            send = sends.setdefault(vid, Send(event.at))
            if send.outcome is None:
                send.settled, send.outcome = event.at, kind
                send.partition, send.offset = event.partition, event.offset
                if kind is not Kind.SEND_OK:
                    send.told = event.at
                open_of.get(event.actor, set()).discard(vid)
        elif kind is Kind.NEW_EPOCH:
            for open_vid in open_of.get(event.actor, ()):
                sends[open_vid].again = True
        elif kind in (Kind.CRASH, Kind.RESTART, Kind.OPEN):
            # A writer that comes back knows that it does not know: its open sends were told.
            for open_vid in open_of.pop(event.actor, ()):
                sends[open_vid].told = event.at
    return sends


def build(
    history: History,
    log: Iterable[Row],
    topology: Topology | None,
    *,
    log_starts: Mapping[int, int] | None = None,
    compacted: bool = False,
    copies: Copies | None = None,
) -> Truth:
    """Reads the log and puts every key's records in order; without a topology only the writers' order."""
    truth = Truth(
        history, topology, [], [], {}, {}, read_sends(history), set(), set(), Order(), Order(),
        dict(log_starts or {}), compacted,
    )  # fmt: skip
    nameless: set[int] = set()
    for partition, offset, key, data, epoch in log:
        if data is None:
            continue
        vid = history.number(decode_value(data))
        truth.at.setdefault(partition, {})[offset] = vid
        if copies and (partition, offset) in copies and vid >= 0:
            truth.copies.append((vid, partition, offset))
            continue
        if vid < 0:
            truth.foreign.append((partition, offset))
            continue
        truth.found.append(Found(vid, partition, offset, key, epoch))
        if key is None:
            nameless.add(vid)
    places = [(vid, partition, offset) for vid, partition, offset, _, _ in truth.found]
    for vid, partition, offset in truth.copies:
        origin, at = (copies or {})[partition, offset]
        if truth.at.setdefault(origin, {}).setdefault(at, vid) == vid:
            places.append((vid, origin, at))
    present = {vid for vid, _, _ in places}
    gone = _gone(truth, present)
    for vid, partition, offset in gone:
        if offset < truth.log_starts.get(partition, 0):
            truth.trimmed.add(vid)
            truth.at.setdefault(partition, {})[offset] = vid
            places.append((vid, partition, offset))
    if compacted:
        ghosts = [row for row in gone if row[0] not in truth.trimmed]
        places += _outlived(truth, places, ghosts)
    _arrange(truth, places, nameless)
    for vid, partition, offset, _, _ in truth.found:
        if (partition, offset) != truth.place[vid] and vid in truth.sends and truth.sends[vid].again:
            truth.rewritten.add((partition, offset))
    return truth


def _gone(truth: Truth, present: set[int]) -> list[tuple[int, int, int]]:
    """Places that were acknowledged or delivered and are not in the log: the first of each value."""
    gone: dict[int, tuple[int, int, int]] = {}
    for event in truth.history.events():
        vid = event.vid
        if vid < 0 or vid in present or vid in gone or event.offset < 0:
            continue
        if event.kind is Kind.SEND_OK or event.kind in _DELIVERS:
            gone[vid] = (vid, event.partition, event.offset)
    return list(gone.values())


def _outlived(
    truth: Truth, places: list[tuple[int, int, int]], gone: list[tuple[int, int, int]]
) -> list[tuple[int, int, int]]:
    """Of the records that are gone, those with a newer record of their key in the log."""
    newest: dict[str, tuple[int, int]] = {}
    for vid, partition, offset in places:
        rank = _rank(truth, vid, partition, offset)
        if rank is not None:
            newest[truth.key(vid)] = max(rank, newest.get(truth.key(vid), rank))
    outlived = []
    for vid, partition, offset in gone:
        rank = _rank(truth, vid, partition, offset)
        if rank is not None and rank < newest.get(truth.key(vid), rank):
            truth.ghosts.add(vid)
            outlived.append((vid, partition, offset))
    return outlived


def _rank(truth: Truth, vid: int, partition: int, offset: int) -> tuple[int, int] | None:
    if not truth.key(vid):
        return None
    chain = truth.chain(vid)
    segment = 0 if chain is None else locate(chain, partition, offset)
    return None if segment is None else (segment, offset)


def _arrange(truth: Truth, places: list[tuple[int, int, int]], nameless: set[int]) -> None:
    keyed: dict[str, list[tuple[int, int, int, int]]] = {}
    streams: dict[tuple[str, str], set[int]] = {}
    for vid, partition, offset in places:
        truth.place.setdefault(vid, (partition, offset))
        value = truth.history.values[vid]
        if vid in nameless or not value.key:
            continue
        streams.setdefault((value.writer, value.key), set()).add(vid)
        if truth.topology is not None:
            rank = _rank(truth, vid, partition, offset)
            if rank is not None:
                keyed.setdefault(value.key, []).append((*rank, vid, partition))
    for key, row in keyed.items():
        row.sort()
        for segment, offset, vid, partition in reversed(row):  # the first place of a value is set last
            truth.place[vid] = (partition, offset)
            truth.order.segment[vid] = segment
        truth.order.extend(key, (vid for _, _, vid, _ in row))
    for stream, vids in streams.items():
        truth.by_writer.extend(stream, sorted(vids, key=lambda vid: truth.history.values[vid].seq))
