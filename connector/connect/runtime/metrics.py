"""What a task counts, and all of it as Prometheus text. Names follow Kafka Connect's; no label is ever a record's key."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ... import clock

_HELP = {
    "sink_record_read_total": "Records read by a sink task.",
    "sink_record_send_total": "Records given to a sink task.",
    "source_record_poll_total": "Records returned by a source task.",
    "source_record_write_total": "Records acknowledged in Kafka.",
    "offset_commit_completed_total": "Successful commits of offsets.",
    "offset_commit_failed_total": "Commits of offsets that failed.",
    "total_record_errors": "Operations on records that failed.",
    "total_record_failures": "Records that could not be processed.",
    "total_records_skipped": "Records passed over because errors are tolerated.",
    "total_retries": "Operations that were tried again.",
    "deadletterqueue_produce_requests": "Records written to the dead letter queue.",
    "deadletterqueue_produce_failures": "Records that the dead letter queue did not take.",
    "parked_records_total": "Records that followed a parked key.",
    "released_records_total": "Parked records that were delivered after a release.",
    "stray_records_total": "Misplaced records read: records that lie where their keys do not belong.",
}


# Counters whose rate is asked for.
_RATED = frozenset(
    {
        "sink_record_read_total",
        "sink_record_send_total",
        "source_record_poll_total",
        "source_record_write_total",
        "offset_commit_completed_total",
    }
)
_SPAN = 30.0


class Samples:
    """Values of the last half to whole minute, in two windows, as Kafka's metrics keep them. Not thread-safe."""

    def __init__(self, now: float) -> None:
        self._now = self._before = (now, 0, 0.0, 0.0)  # beginning, count, sum, highest

    def record(self, value: float, now: float) -> None:
        """Take a value in."""
        self._turn(now)
        start, count, total, most = self._now
        self._now = (start, count + 1, total + value, max(most, value))

    def _turn(self, now: float) -> None:
        if now - self._now[0] >= _SPAN:
            self._before = self._now if now - self._now[0] < 2 * _SPAN else (now, 0, 0.0, 0.0)
            self._now = (now, 0, 0.0, 0.0)

    def mean_and_highest(self, now: float) -> tuple[float, float]:
        """NaN for both without a value."""
        self._turn(now)
        count, total = self._now[1] + self._before[1], self._now[2] + self._before[2]
        return (total / count, max(self._now[3], self._before[3])) if count else (math.nan, math.nan)

    def rate(self, now: float) -> float:
        """The sum per second."""
        self._turn(now)
        return (self._now[2] + self._before[2]) / max(now - min(self._before[0], self._now[0]), 1.0)


class TaskMetrics:
    """What one task counts and measures. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}
        self._samples: dict[str, Samples] = {}
        self._state, self._since, self._spent = "", clock.now(), dict[str, float]()

    def add(self, name: str, more: float = 1) -> None:
        """Count."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + more
            if name in _RATED:
                self._sample(name, more)

    def set(self, name: str, value: float) -> None:
        """Set a counter that somebody else keeps."""
        with self._lock:
            self._counts[name] = value

    def gauge(self, name: str, value: float) -> None:
        """Set a number that goes up and down; its mean and maximum are shown, too."""
        with self._lock:
            self._counts[name] = value
            self._sample(name, value)

    def measure(self, name: str, value: float) -> None:
        """Take in one of the values whose mean and maximum are shown; times in seconds."""
        with self._lock:
            self._sample(name, value)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure how long a block takes that does not raise."""
        since = clock.now()
        yield
        self.measure(name, clock.now() - since)

    def state(self, word: str) -> None:
        """The task's state from now on."""
        with self._lock:
            self._spend(word)

    def snapshot(self) -> dict[str, float]:
        """All counters."""
        with self._lock:
            return dict(self._counts)

    def figures(self) -> tuple[dict[str, float], dict[str, tuple[float, float]], dict[str, float]]:
        """(sum per second by counter; (mean, highest) by what is measured; share of its life by state)."""
        with self._lock:
            now = clock.now()
            self._spend(self._state)
            life = sum(self._spent.values()) or 1.0
            rates = {name: found.rate(now) for name, found in self._samples.items() if name in _RATED}
            means = {name: s.mean_and_highest(now) for name, s in self._samples.items() if name not in _RATED}
            return rates, means, {state: spent / life for state, spent in self._spent.items()}

    def _sample(self, name: str, value: float) -> None:
        now = clock.now()
        if name not in self._samples:
            self._samples[name] = Samples(now)
        self._samples[name].record(value, now)

    def _spend(self, word: str) -> None:
        now = clock.now()
        if self._state:
            self._spent[self._state] = self._spent.get(self._state, 0.0) + now - self._since
        self._state, self._since = word, now


class Moves:
    """How often what runs here was changed by an assignment, and how long that took. Used by the herder's thread; any reads."""

    def __init__(self) -> None:
        self.completed, self.last = 0, clock.now()
        self.samples = Samples(self.last)
        self._epoch, self._since = -1, math.nan

    @property
    def under_way(self) -> bool:
        """Whether tasks have still to begin or end."""
        return not math.isnan(self._since)

    def follow(self, epoch: int, settled: bool) -> None:
        """The assignment's epoch, and whether what it says runs here is what runs."""
        now = clock.now()
        if epoch != self._epoch:
            self._epoch = epoch
            self._since = now if not self.under_way else self._since
        if settled and self.under_way:
            self.completed, self.last = self.completed + 1, now
            self.samples.record(now - self._since, now)
            self._since = math.nan


def prometheus(
    tasks: Mapping[tuple[str, int], TaskMetrics],
    states: Iterable[tuple[str, int, str]],
    worker: Mapping[str, float],
    moves: Moves,
    kinds: Mapping[str, str],
) -> str:
    """The text that GET /metrics answers: ours, then the same and more under the names of Kafka Connect's MBeans.

    states: (connector, task, state). worker: facts of this worker. kinds: connector to source or sink.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    from .jvm_metrics import families

    listed = list(states)

    class Snapshot:
        def collect(self) -> Iterable[Metric]:
            yield from families(tasks, listed, worker, moves, kinds)
            by_name: dict[str, CounterMetricFamily] = {}
            for (connector, task), metrics in tasks.items():
                for name, count in metrics.snapshot().items():
                    if name not in _HELP:
                        continue
                    stem = name.removeprefix("total_").removesuffix("_total")
                    family = by_name.setdefault(
                        name,
                        CounterMetricFamily(f"keyorder_connect_{stem}", _HELP[name], labels=("connector", "task")),
                    )
                    family.add_metric((connector, str(task)), count)
            yield from by_name.values()
            state = GaugeMetricFamily(
                "keyorder_connect_task_status",
                "1 for the state that a task is in.",
                labels=("connector", "task", "state"),
            )
            for connector, number, word in listed:
                state.add_metric((connector, str(number), word.lower()), 1)
            yield state
            for name, value in worker.items():
                yield GaugeMetricFamily(f"keyorder_connect_worker_{name}", f"Of this worker: {name}.", value)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot())
    return generate_latest(registry).decode()
