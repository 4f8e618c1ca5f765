"""The brokers: control topics, data partitions, and connections that are in order each by itself and not among each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, NamedTuple

from keyorder.connector.verify.events import Value
from keyorder.partitioner.epochs import Epoch
from keyorder.partitioner.stamps import Stamp
from keyorder.partitioner.timeline import Timeline
from simulation.world import Process, World

TOPIC = "t"
DELIVERY_TIMEOUT = 20.0
LATE = 1.5  # a request that timed out may be appended this much later, one of a dead process too


class Row(NamedTuple):
    """One record of a data partition. hint: the epoch in its header, 0 without."""

    key: bytes
    value: Value
    hint: int


class BrokerClock:
    """The clock of the control topics' leader: it is set by hand, to the past and the future, and leaders change.

    The chance is of its own, so that a history without stamps is the same.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, Random(seed)
        self.ahead, self.leader_epoch = self.rng.uniform(-1, 1), 0

    def trouble(self) -> None:
        """Once a second."""
        if self.rng.random() < 0.02:
            self.ahead += self.rng.choice((-1000.0, -50.0, -5.0, 3.0, 20.0, 60.0, 1000.0))
        if self.rng.random() < 0.02:
            self.leader_epoch += 1

    def stamp(self) -> Stamp:
        """That of a record that is appended now."""
        return Stamp(0, self.leader_epoch, self.wall_ms())

    def wall_ms(self) -> int:
        """What it shows now."""
        return round((1e6 + self.world.now + self.ahead) * 1000)


class Log:
    """Rows that only grow. Followers hear of each, some time later and in order. clock: what stamps them, if anything."""

    def __init__(self, world: World, clock: BrokerClock | None = None) -> None:
        self.world, self.clock = world, clock
        self.stamps: list[Stamp | None] = []
        self.rows: list[Any] = []
        self.followers: list[Cursor] = []
        self.leader_back = 0.0

    def append(self, row: Any) -> int:
        """Returns the row's offset."""
        self.rows.append(row)
        self.stamps.append(None if self.clock is None else self.clock.stamp())
        for follower in self.followers:
            follower.fetch()
        return len(self.rows) - 1


class Cursor:
    """One process's place in a log: rows are handed to `take(row, offset)` in order, then the process is woken."""

    def __init__(self, process: Process, log: Log, take: Callable[[Any, int], None], at: int = 0) -> None:
        self.process, self.log, self.at = process, log, at
        self._take, self._arrival = take, 0.0
        self._looks: list[tuple[int, float, Callable[[float], None]]] = []
        self._open = True
        self.lag = 0.0
        log.followers.append(self)
        if len(log.rows) > at:
            self.fetch()

    def fetch(self) -> None:
        """What is in the log now arrives, after all that was on its way before."""
        world = self.log.world
        self._arrival = max(self._arrival, world.now + world.delay() + self.lag)
        world.at(self._arrival, self.process.run, self._arrive, len(self.log.rows))

    def look(self, then: Callable[[float], None]) -> None:
        """Ask the leader for the log's end; `then(began)` is called when all below it was taken in."""
        began = self.process.clock()
        self.log.world.after(self.log.world.delay(), self._asked, began, then)

    def close(self) -> None:
        """Nothing is handed over any more."""
        self._open = False
        if self in self.log.followers:
            self.log.followers.remove(self)

    def _asked(self, began: float, then: Callable[[float], None]) -> None:
        self.process.later(self.log.world.delay(), self._answered, len(self.log.rows), began, then)

    def _answered(self, end: int, began: float, then: Callable[[float], None]) -> None:
        self._looks.append((end, began, then))
        self._reached()

    def _arrive(self, upto: int) -> None:
        if not self._open:
            return
        while self.at < upto:
            self.at += 1
            self._take(self.log.rows[self.at - 1], self.at - 1)
        self._reached()
        self.process.wake()

    def _reached(self) -> None:
        reached = [look for look in self._looks if look[0] <= self.at]
        if reached:
            self._looks = [look for look in self._looks if look[0] > self.at]
            for _, began, then in reached:
                then(began)


class Pen(Log):
    """`_keyorder`: who begins to write fences all who wrote before."""

    def __init__(self, world: World, clock: BrokerClock) -> None:
        super().__init__(world, clock)
        self.holder: object = None
        self.written: Callable[[Timeline], None] = lambda _: None

    def write(self, holder: object, timeline: Timeline) -> bool:
        """One transaction. False: fenced."""
        if self.holder is holder:
            self.append(timeline)
            self.written(timeline)
        return self.holder is holder


class Cluster:
    """One topic and its control topics."""

    def __init__(self, world: World, initial: int, seed: int = 0, hash: str = "murmur2") -> None:
        self.world = world
        self.clock = BrokerClock(world, seed)
        self.timelines = Pen(world, self.clock)
        self.writers = Log(world, self.clock)
        self.partitions = [Log(world) for _ in range(initial)]
        self.timelines.append(Timeline(TOPIC, "id", "cluster", initial, (Epoch(1, initial),), hash=hash))

    @property
    def timeline(self) -> Timeline:
        """What stands in the control topic now."""
        newest: Timeline = self.timelines.rows[-1]
        return newest

    def ensure_partitions(self, count: int) -> None:
        """Physical partitions are only ever added."""
        while len(self.partitions) < count:
            self.partitions.append(Log(self.world))

    def stall(self, partition: int, seconds: float) -> None:
        """A partition without a leader appends nothing."""
        log = self.partitions[partition % len(self.partitions)]
        log.leader_back = max(log.leader_back, self.world.now + seconds)


class Sent:
    """A record on its way. done: told of its offset, or None when it timed out and may be there or not."""

    __slots__ = ("answered", "appends_at", "done", "offset", "row")

    def __init__(self, row: Any, appends_at: float, done: Callable[[int | None], None]) -> None:
        self.row, self.appends_at, self.done = row, appends_at, done
        self.offset: int | None = None
        self.answered = False


class Connection:
    """One producer's records to one log, in order; a time-out fails all that is unanswered, as a gapless client would."""

    def __init__(self, process: Process, log: Log) -> None:
        self._process, self._log = process, log
        self._appends = self._answers = 0.0
        self._on_the_way: deque[Sent] = deque()
        self._lives_until = inf

    def send(self, row: Any, done: Callable[[int | None], None]) -> None:
        """Give a record to the connection."""
        world = self._log.world
        self._appends = max(self._appends, world.now + world.delay(), self._log.leader_back)
        self._answers = max(self._answers, self._appends + world.delay())
        sent = Sent(row, self._appends, done)
        self._on_the_way.append(sent)
        world.at(sent.appends_at, self._append, sent)
        world.at(self._answers, self._process.run, self._answer, sent)
        if self._answers > world.now + DELIVERY_TIMEOUT:
            self._process.later(DELIVERY_TIMEOUT, self._time_out, sent)

    def cut_off(self, seconds: float) -> None:
        """What is sent from now on waits on the way."""
        self._appends = max(self._appends, self._log.world.now + seconds)

    def died(self) -> None:
        """The process is dead: what is not on the wire yet never comes."""
        self._lives_until = self._log.world.now + LATE * self._log.world.random()

    def _append(self, sent: Sent) -> None:
        if self._log.world.now <= self._lives_until and sent.row is not None:
            sent.offset = self._log.append(sent.row)

    def _answer(self, sent: Sent) -> None:
        if not sent.answered:
            sent.answered = True
            self._on_the_way.remove(sent)
            sent.done(sent.offset)

    def _time_out(self, first: Sent) -> None:
        if first.answered:
            return
        world = self._log.world
        failed, self._on_the_way = self._on_the_way, deque()
        dropped = False
        for sent in failed:
            sent.answered = True
            dropped = dropped or sent.appends_at > world.now + LATE or world.random() < 0.3
            if dropped and sent.offset is None:
                sent.row = None
        for sent in failed:
            sent.done(None)
