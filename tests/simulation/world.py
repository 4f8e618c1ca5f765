"""A deterministic world: one queue of events, one source of chance, clocks that disagree, processes that die and freeze."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from keyorder.connector.verify.events import Kind, Value
from keyorder.connector.verify.history import History

Call = Callable[..., Any]


class World:
    """Time in seconds. The same seed gives the same events in the same order."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.random = self.rng.random
        self.now = 0.0
        self.history = History()
        self.faults: dict[str, int] = {}
        self._queue: list[tuple[float, int, Call, tuple[Any, ...]]] = []
        self._number = 0
        self._events = 0

    def after(self, delay: float, call: Call, *args: Any) -> None:
        """Call something later."""
        self.at(self.now + delay, call, *args)

    def at(self, time: float, call: Call, *args: Any) -> None:
        """Call something at that time; what was put there first comes first."""
        self._number += 1
        heappush(self._queue, (time, self._number, call, args))

    def run(self, over: Callable[[], bool], until: float) -> None:
        """Let events happen until `over` says so, or the time has come."""
        while self._queue and self.now < until and not over():
            self.now, _, call, args = heappop(self._queue)
            call(*args)

    def delay(self) -> float:
        """What a message takes: some milliseconds as a rule, seconds at times."""
        x = self.random()
        return 0.001 + 0.02 * x if x < 0.97 else (x - 0.97) * 60

    def chance(self, fault: str, probability: float) -> bool:
        """Whether a fault strikes now; counted when it does."""
        if self.random() >= probability:
            return False
        self.faults[fault] = self.faults.get(fault, 0) + 1
        return True

    def record(
        self, kind: Kind, actor: str, group: str = "", partition: int = -1, offset: int = -1, value: Value | None = None
    ) -> None:
        """One event of the history; its time is its place in it."""
        self._events += 1
        self.history.add(self._events, kind, actor, group, partition, offset, value)


class Process:
    """Something with a clock of its own. What comes while it is frozen happens when it goes on; nothing after its death."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.alive = world, name, True
        self.frozen_until = 0.0
        # Monotonic clocks begin anywhere and run a little too fast or too slow.
        self._since = world.random() * 1e6
        self._rate = 1 + 0.004 * (world.random() - 0.5)

    def clock(self) -> float:
        """Its own monotonic clock, in seconds."""
        return self._since + self.world.now * self._rate

    def later(self, delay: float, call: Call, *args: Any) -> None:
        """Call something of its own later."""
        self.world.after(delay, self.run, call, *args)

    def run(self, call: Call, *args: Any) -> None:
        """Do something now, or when it is no longer frozen."""
        if not self.alive:
            return
        if self.frozen_until > self.world.now:
            self.world.at(self.frozen_until, self.run, call, *args)
            return
        call(*args)

    def freeze(self, seconds: float) -> None:
        """A stopped process or machine: it does nothing, and its clock goes on."""
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)

    def wake(self) -> None:
        """Something has arrived."""
