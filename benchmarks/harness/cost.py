"""What a run costs: wall time, and CPU seconds of this process and all that it started, brokers counted apart."""

from __future__ import annotations

import os
import resource
from collections.abc import Collection
from dataclasses import dataclass

import psutil
from keyorder.connector import clock


@dataclass(frozen=True, slots=True)
class Cost:
    """wall: seconds. cpu: user and system seconds of the clients. broker_cpu: those of the brokers that the run started."""

    wall: float
    cpu: float
    broker_cpu: float


class Meter:
    """Counts from `start` to `stop`. `brokers`, `apart`: process ids counted for themselves, and not at all."""

    def __init__(self, brokers: Collection[int] = (), apart: Collection[int] = ()) -> None:
        self._brokers, self._apart = set(brokers), set(apart)
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        self._before = self._now()

    def stop(self) -> Cost:
        """What was spent since `start`."""
        wall, cpu, broker = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return Cost(wall, cpu, broker)

    def _now(self) -> tuple[float, float, float]:
        # A child that ends moves from the living to the reaped, with all that it ever used: the sum only grows.
        cpu = sum(os.times()[:2]) + _seconds(resource.getrusage(resource.RUSAGE_CHILDREN))
        broker = 0.0
        for child in psutil.Process().children(recursive=True):
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            if child.pid in self._brokers:
                broker += times.user + times.system
            elif child.pid not in self._apart:
                # what an ended grandchild used stands with its parent alone
                cpu += times.user + times.system + times.children_user + times.children_system
        return clock.now(), cpu, broker


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime
