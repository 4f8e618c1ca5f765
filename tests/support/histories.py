"""Good histories made by a small direct simulation, for tests of the history checker.

A `Case` is all that a judge gets: events in order of time, the log, the topology, and options. The
simulation knows the protocol only as far as a good history needs it: records of moving keys land before
the cut, and a consumer passes a moved key's first record only when the group's committed offset in each
earlier home has reached that stay's end. It routes by the product's layout, so that the checker's own
routing is tested against it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from keyorder.connector.verify.events import Kind, Value, encode_value
from keyorder.connector.verify.history import History
from keyorder.connector.verify.topology import Epoch, Topology
from keyorder.connector.verify.verdict import Verdict, judge, judge_stock
from keyorder.partitioner.layout import Layout

RUN = "r"
CHAINS = [
    (4, [4, 6, 9, 16]),
    (3, [3, 6, 3]),
    (3, [6, 3, 5]),
    (1, [1, 2, 4]),
    (2, [4, 2, 3, 8, 2]),
    (4, [4]),
    (2, [2, 3]),
]


@dataclass(slots=True)
class Ev:
    """One event; its time is its place in the list."""

    kind: Kind
    actor: str
    group: str = ""
    partition: int = -1
    offset: int = -1
    value: Value | None = None


@dataclass(slots=True)
class Rec:
    """One record of the log; `value` bytes are made when the case is judged, unless `raw` says them."""

    partition: int
    offset: int
    value: Value
    epoch: int | None
    keyed: bool = True
    raw: bytes | None = None


@dataclass(slots=True)
class Case:
    """A history, its log and its topology."""

    seed: int
    topology: Topology
    events: list[Ev] = field(default_factory=list)
    log: list[Rec] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Case:
        """A deep enough copy to be spoiled."""
        return Case(
            self.seed,
            self.topology,
            [replace(event) for event in self.events],
            [replace(record) for record in self.log],
            dict(self.options),
        )

    def history(self) -> History:
        """The events as a loaded history."""
        history = History()
        for t, e in enumerate(self.events):
            history.add(t, e.kind, e.actor, e.group, e.partition, e.offset, e.value)
        history.runs.add(RUN)
        return history.finish()

    def rows(self) -> list[tuple[int, int, bytes | None, bytes | None, int | None]]:
        """The log as the checker reads it."""
        return [
            (
                r.partition,
                r.offset,
                r.value.key.encode() if r.keyed else None,
                r.raw if r.raw is not None else encode_value(*r.value),
                r.epoch,
            )
            for r in self.log
        ]

    def judge(self, **options: Any) -> Verdict:
        """The verdict with the case's own options, and these."""
        return judge(self.history(), self.rows(), self.topology, **{**self.options, **options})

    def judge_stock(self, **options: Any) -> Verdict:
        """The verdict without a topology."""
        return judge_stock(self.history(), self.rows(), **{**self.options, **options})


@dataclass(slots=True)
class _Group:
    name: str
    members: list[str]
    alive: set[str]
    owner: dict[int, str] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)  # next offset to start
    flying: dict[int, list[Rec]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)


class Simulation:
    """One run; `run()` gives the case."""

    def __init__(self, seed: int, steps: int = 90) -> None:
        self.rng = random.Random(seed)
        self.steps = steps
        self.initial, self.counts = self.rng.choice(CHAINS)
        self.keys = [f"k{self.rng.randrange(10_000)}" for _ in range(self.rng.randint(3, 8))]
        self.writers = [f"w{n}" for n in range(self.rng.randint(1, 3))]
        self.all_headers = self.rng.random() < 0.5
        self.nulls = self.rng.random() < 0.3
        self.width = max(self.counts)
        self.ends = [0] * self.width
        self.rows: list[list[Rec]] = [[] for _ in range(self.width)]
        self.epochs = [Epoch(0, self.counts[0])]
        self.seqs: dict[tuple[str, str], int] = {}
        self.flying: dict[str, list[Value]] = {writer: [] for writer in self.writers}
        self.unacked: list[tuple[Value, int, int]] = []
        self.events: list[Ev] = []
        self.groups = []
        for name in ["g", "h"][: self.rng.choice([1, 1, 2])]:
            members = [f"{name}{n}" for n in range(3)]
            self.groups.append(_Group(name, members, set(members[: self.rng.randint(1, 3)])))
        self._topology: Topology | None = None

    # The topic.

    @property
    def topology(self) -> Topology:
        if self._topology is None:
            self._topology = Topology(self.initial, self.epochs)
        return self._topology

    def home(self, key: str) -> int:
        return Layout(initial=self.initial, count=self.epochs[-1].count).home(key.encode())

    def emit(self, kind: Kind, actor: str, **fields: Any) -> None:
        self.events.append(Ev(kind, actor, **fields))

    def invoke(self, writer: str) -> None:
        key = self.keys[0] if self.rng.random() < 0.4 else self.rng.choice(self.keys)
        if self.nulls and self.rng.random() < 0.1:
            key = ""  # sent with a null key
        seq = self.seqs[writer, key] = self.seqs.get((writer, key), 0) + 1
        value = Value(RUN, writer, key, seq)
        self.flying[writer].append(value)
        self.emit(Kind.SEND_INVOKE, writer, value=value)

    def append(self, value: Value) -> tuple[int, int]:
        keyed = value.key != ""
        partition = self.home(value.key) if keyed else self.rng.randrange(self.epochs[-1].count)
        epoch = None
        if keyed:
            entry = self.topology.chain(value.key.encode())[-1].epoch
            epoch = self.epochs[-1].epoch if self.all_headers else (entry or None)
        record = Rec(partition, self.ends[partition], value, epoch, keyed)
        self.rows[partition].append(record)
        self.ends[partition] += 1
        return partition, record.offset

    def land(self, writer: str) -> None:
        """The oldest record in flight is resolved; an error takes the later ones of its key along."""
        if not self.flying[writer]:
            return
        value = self.flying[writer].pop(0)
        fate = self.rng.random()
        if fate < 0.85:
            self.unacked.append((value, *self.append(value)))
        elif fate < 0.9:
            self.append(value)
            self.emit(Kind.SEND_UNKNOWN, writer, value=value)
        else:
            kind = Kind.SEND_FAIL if fate < 0.95 else Kind.SEND_UNKNOWN
            for late in [value, *(v for v in self.flying[writer] if v.key == value.key)]:
                self.emit(kind, writer, value=late)
            self.flying[writer] = [v for v in self.flying[writer] if v.key != value.key]

    def acknowledge(self) -> None:
        if self.unacked:
            value, partition, offset = self.unacked.pop(self.rng.randrange(len(self.unacked)))
            told = offset if self.rng.random() < 0.9 else -1
            self.emit(Kind.SEND_OK, value.writer, partition=partition, offset=told, value=value)

    def writer_crashes(self, writer: str) -> None:
        """What is in flight lands up to some point, and nobody hears of it."""
        for value in self.flying[writer][: self.rng.randint(0, len(self.flying[writer]))]:
            self.append(value)
        self.flying[writer] = []
        self.unacked = [row for row in self.unacked if row[0].writer != writer]
        self.emit(Kind.CRASH, writer)
        self.emit(Kind.OPEN, writer)

    def change(self) -> None:
        if len(self.counts) == 1:
            return
        self.counts = self.counts[1:]
        for writer in self.writers:
            while self.flying[writer]:
                self.land(writer)
        cuts = dict(enumerate(self.ends))
        number = self.epochs[-1].epoch + self.rng.choice([1, 1, 2])
        self.epochs.append(Epoch(number, self.counts[0], cuts, cuts))
        self._topology = None

    # The groups.

    def next_row(self, partition: int, offset: int) -> Rec | None:
        row = self.rows[partition]
        low, high = 0, len(row)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if row[middle].offset < offset else (low, middle)
        return row[low] if low < len(row) else None

    def gate_open(self, group: _Group, record: Rec) -> bool:
        if not record.keyed:
            return True
        chain = self.topology.chain(record.value.key.encode())
        for segment in chain:
            inside = segment.home == record.partition and segment.lower <= record.offset
            if inside and (segment.upper is None or record.offset < segment.upper):
                return True
            if group.committed.get(segment.home, 0) < (segment.upper or 0):
                return False
        raise AssertionError("a good record lies in its chain")

    def start(self, group: _Group, partition: int) -> bool:
        record = self.next_row(partition, group.position[partition])
        if record is None or not self.gate_open(group, record):
            return False
        group.position[partition] = record.offset + 1
        group.flying[partition].append(record)
        self.deliver(Kind.DELIVER_START, group, group.owner[partition], record)
        return True

    def deliver(self, kind: Kind, group: _Group, actor: str, record: Rec) -> None:
        place = {"partition": record.partition, "offset": record.offset}
        self.emit(kind, actor, group=group.name, value=record.value, **place)

    def finish(self, group: _Group, partition: int) -> None:
        if group.flying[partition]:
            record = group.flying[partition].pop(0)
            self.deliver(Kind.DELIVER_END, group, group.owner[partition], record)

    def commit(self, group: _Group, partition: int, *, sure: bool = False) -> None:
        flying = group.flying[partition]
        following = self.next_row(partition, group.position[partition])
        offset = flying[0].offset if flying else following.offset if following else self.ends[partition]
        fate = 0.0 if sure else self.rng.random()
        kind = Kind.COMMIT_OK if fate < 0.8 else Kind.COMMIT_FAIL if fate < 0.9 else Kind.COMMIT_UNKNOWN
        if kind is Kind.COMMIT_OK or (kind is Kind.COMMIT_UNKNOWN and self.rng.random() < 0.5):
            group.committed[partition] = offset
        self.emit(kind, group.owner[partition], group=group.name, partition=partition, offset=offset)

    def assign(self, group: _Group) -> None:
        for partition in range(self.width):
            if partition not in group.owner:
                actor = self.rng.choice(sorted(group.alive))
                group.owner[partition] = actor
                group.position[partition] = group.committed.get(partition, 0)
                group.flying[partition] = []
                self.emit(Kind.ASSIGN, actor, group=group.name, partition=partition)

    def give_up(self, group: _Group, partition: int) -> None:
        while group.flying[partition]:
            self.finish(group, partition)
        self.commit(group, partition, sure=True)
        self.emit(Kind.REVOKE, group.owner.pop(partition), group=group.name, partition=partition)

    def rebalance(self, group: _Group) -> None:
        group.alive = set(self.rng.sample(group.members, self.rng.randint(1, 3)))
        for partition in list(group.owner):
            if group.owner[partition] not in group.alive or self.rng.random() < 0.4:
                self.give_up(group, partition)
        self.assign(group)

    def owner_fails(self, group: _Group, how: Kind | None) -> None:
        """A crash (kind), a lost (kind), or an expiry that the owner learns of last (None)."""
        actor = self.rng.choice(sorted(group.alive))
        taken = [partition for partition in group.owner if group.owner[partition] == actor]
        inside = [record for partition in taken for record in group.flying[partition]]
        for partition in taken:
            if self.rng.random() < 0.3 and how is Kind.CRASH:
                # The broker took the commit; the process died before it could record that.
                events = len(self.events)
                self.commit(group, partition, sure=True)
                del self.events[events:]
            if how is Kind.LOST:
                self.emit(how, actor, group=group.name, partition=partition)
            del group.owner[partition]
        if how is Kind.CRASH:
            self.emit(how, actor)
        group.alive = {member for member in group.members if member != actor}
        self.assign(group)
        if how is not Kind.CRASH:
            for record in inside:
                self.deliver(Kind.DELIVER_END, group, actor, record)
        if how is None:
            for partition in taken:
                self.emit(Kind.LOST, actor, group=group.name, partition=partition)

    def seek(self, group: _Group) -> None:
        """Only where no key moves: a rewound origin would deliver old records after new ones."""
        if len(self.epochs) + len(self.counts) > 2:
            return
        partition = self.rng.randrange(self.width)
        while group.flying[partition]:
            self.finish(group, partition)
        group.position[partition] = offset = self.rng.randint(0, group.position[partition])
        actor = group.owner[partition]
        self.emit(Kind.SEEK, actor, group=group.name, partition=partition, offset=offset)
        group.committed[partition] = offset
        self.emit(Kind.COMMIT_OK, actor, group=group.name, partition=partition, offset=offset)

    # The run.

    def step(self) -> None:
        rng = self.rng
        fate = rng.random()
        writer, group = rng.choice(self.writers), rng.choice(self.groups)
        if fate < 0.25:
            self.invoke(writer)
        elif fate < 0.45:
            self.land(writer)
        elif fate < 0.6:
            self.acknowledge()
        elif fate < 0.88:
            partition = rng.randrange(self.epochs[-1].count if rng.random() < 0.7 else self.width)
            for _ in range(rng.randint(0, 3)):
                self.start(group, partition)
            for _ in range(rng.randint(0, 4)):
                self.finish(group, partition)
            if rng.random() < 0.5:
                self.commit(group, partition)
        elif fate < 0.91:
            self.change()
        elif fate < 0.93:
            self.ends[rng.randrange(self.epochs[-1].count)] += 1  # a marker takes an offset
        elif fate < 0.96:
            self.rebalance(group)
        elif fate < 0.98:
            self.owner_fails(group, rng.choice([Kind.CRASH, Kind.CRASH, Kind.LOST, None]))
        elif fate < 0.99:
            self.writer_crashes(writer)
        else:
            self.seek(group)

    def drain(self) -> None:
        for writer in self.writers:
            while self.flying[writer]:
                self.land(writer)
        while self.unacked:
            self.acknowledge()
        for group in self.groups:
            moving = True
            while moving:
                moving = False
                for partition in self.rng.sample(range(self.width), self.width):
                    while self.start(group, partition):
                        moving = True
                        self.finish(group, partition)
                    while group.flying[partition]:
                        self.finish(group, partition)
                    before = group.committed.get(partition)
                    self.commit(group, partition, sure=True)
                    moving = moving or before != group.committed[partition]  # it may open a gate

    def run(self) -> Case:
        for writer in self.writers:
            self.emit(Kind.OPEN, writer)
        for group in self.groups:
            self.assign(group)
        for _ in range(self.steps):
            self.step()
        while len(self.counts) > 1 and self.rng.random() < 0.8:
            self.change()
            for _ in range(self.steps // 4):
                self.step()
        self.drain()
        return Case(0, self.topology, self.events, [r for row in self.rows for r in row])


def good(seed: int, steps: int = 90) -> Case:
    """A good history; the same seed gives the same one. Some are trimmed, some compacted."""
    simulation = Simulation(seed, steps)
    case = simulation.run()
    case.seed = seed
    rng = random.Random(f"after {seed}")
    fate = rng.random()
    final = case.topology.epochs[-1].count
    if fate < 0.3 and final < simulation.width:
        # The retired partitions were drained and emptied.
        case.options["log_starts"] = {p: simulation.ends[p] for p in range(final, simulation.width)}
        case.log = [record for record in case.log if record.partition < final]
    elif fate > 0.9:
        case.options["compacted"] = True
        newest = {(r.partition, r.value.key): r.offset for r in case.log}
        case.log = [
            r for r in case.log if not r.keyed or newest[r.partition, r.value.key] == r.offset or rng.random() < 0.5
        ]
    return case
