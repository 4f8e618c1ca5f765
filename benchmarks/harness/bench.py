"""What a measure is given: the broker of the run, alternation of the two things, and the length that was asked for."""

from __future__ import annotations

import gc
import itertools
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from keyorder.connector.local.cluster import LocalCluster

from .cost import Cost, Meter
from .measure import Figure
from .spread import Spread

Say = Callable[[str], None]
PAIRS, QUICK_PAIRS = 5, 2


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one thing: the figures that it reported itself, and what it cost."""

    values: Mapping[str, float]
    cost: Cost


@dataclass(slots=True)
class Pairs:
    """The counted runs of two things that took turns; `ours[i]` and `theirs[i]` ran one after the other."""

    ours: list[Run] = field(default_factory=list)
    theirs: list[Run] = field(default_factory=list)

    def figure(self, name: str, unit: str, value: Callable[[Run], float]) -> Figure:
        """A line of the table: `value` of each run, and the ratio of ours to theirs within each pair."""
        ours, theirs = [value(run) for run in self.ours], [value(run) for run in self.theirs]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b]
        return Figure(name, unit, Spread.of(ours), Spread.of(theirs), Spread.of(ratios) if ratios else None)

    def reported(self, name: str, unit: str) -> Figure:
        """A figure that the runs reported under this name."""
        return self.figure(name, unit, lambda run: run.values[name])

    def wall(self) -> Figure:
        """Seconds from start to end."""
        return self.figure("wall time", "s", lambda run: run.cost.wall)

    def cpu(self) -> Figure:
        """The clients' CPU seconds."""
        return self.figure("client CPU", "s", lambda run: run.cost.cpu)


class Bench:
    """One run of the harness. The broker starts with the first measure that asks for it, and serves all of them.

    quick: a short form, to see that a measure works; its figures mean little. servers: a cluster to use instead.
    repeats: how many pairs count, None for the form's own number. brokers: how many are started.
    """

    def __init__(
        self,
        stack: ExitStack,
        say: Say,
        quick: bool = False,
        servers: str | None = None,
        repeats: int | None = None,
        brokers: int = 1,
    ) -> None:
        self.quick, self.say = quick, say
        self._repeats, self._brokers = repeats, brokers
        self._stack, self._servers = stack, servers
        self._cluster: LocalCluster | None = None
        self._numbers = itertools.count(1)
        self._run = uuid.uuid4().hex[:6]

    @property
    def repeats(self) -> int:
        """How many pairs count."""
        if self._repeats is not None:
            return self._repeats
        return QUICK_PAIRS if self.quick else PAIRS

    @property
    def config(self) -> dict[str, Any]:
        """A new confluent-kafka configuration for the broker."""
        quiet = {"log_level": 4}  # a notice for every partition that is made would bury the table
        if self._servers is not None:
            return {"bootstrap.servers": self._servers, **quiet}
        return {**self.cluster.client_config(), **quiet}

    @property
    def cluster(self) -> LocalCluster:
        """The broker as a process of this machine; started on first use. Not to be had with `servers`."""
        if self._cluster is None:
            assert self._servers is None, "the brokers of an existing cluster are not ours to hold"
            self.say(f"starting {self._brokers} Kafka brokers" if self._brokers > 1 else "starting a Kafka broker")
            # The default heap of a test broker is too small for a measure's batches.
            self._cluster = self._stack.enter_context(LocalCluster(brokers=self._brokers, heap="1g"))
        return self._cluster

    @contextmanager
    def beside(self, brokers: int) -> Iterator[Bench]:
        """The same beside so many brokers of its own, which are stopped in the end; at most three repeats count."""
        with ExitStack() as stack:
            yield Bench(stack, self.say, self.quick, None, min(self.repeats, 3), brokers)

    @property
    def kafka_version(self) -> str | None:
        """The broker's version; None when it is not ours, or no measure asked for one."""
        return None if self._cluster is None else self._cluster.version

    @property
    def broker_pids(self) -> list[int]:
        """The process ids of the brokers that this run started."""
        return [b.pid for b in self._cluster.brokers if b.pid is not None] if self._cluster is not None else []

    def meter(self, apart: Collection[int] = ()) -> Meter:
        """Counts wall time and CPU seconds from now on. apart: process ids that are not part of the thing measured."""
        return Meter(self.broker_pids, apart)

    def topic(self, name: str) -> str:
        """A topic name that nothing else has."""
        return f"bench-{name}-{self._run}-{next(self._numbers)}"

    def pairs(
        self,
        ours: Callable[[], Mapping[str, float] | None],
        theirs: Callable[[], Mapping[str, float] | None],
        repeats: int | None = None,
        warm_up: bool = True,
    ) -> Pairs:
        """Run the two things in turns, each time in the other order, and throw the first pair away.

        Each call is one whole run, metered from its start to its end; what it returns are figures of its own.
        """
        found = Pairs()
        count = self.repeats if repeats is None else repeats
        for number in range(-1 if warm_up else 0, count):
            self.say(f"pair {number + 1} of {count}" if number >= 0 else "warm-up")
            turn = [(ours, found.ours), (theirs, found.theirs)]
            for thing, runs in turn if number % 2 == 0 else reversed(turn):
                _settle()
                meter = self.meter()
                values = thing() or {}
                run = Run(values, meter.stop())
                if number >= 0:
                    runs.append(run)
        return found


def _settle() -> None:
    """What the process has loaded is not looked at again by the garbage collector in every other run: that takes 0.1 s."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
