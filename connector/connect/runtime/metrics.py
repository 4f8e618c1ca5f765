"""What a task counts, and all of it as Prometheus text. Names follow Kafka Connect's; no label is ever a record's key."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

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
    "stray_records_total": "Records read that were written against the layout.",
}


class TaskMetrics:
    """The counters of one task. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}

    def add(self, name: str, more: float = 1) -> None:
        """Count."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + more

    def set(self, name: str, value: float) -> None:
        """Set a counter that somebody else keeps."""
        with self._lock:
            self._counts[name] = value

    def snapshot(self) -> dict[str, float]:
        """All counters."""
        with self._lock:
            return dict(self._counts)


def prometheus(
    tasks: Mapping[tuple[str, int], TaskMetrics],
    states: Iterable[tuple[str, int, str]],
    worker: Mapping[str, float],
) -> str:
    """The text that GET /metrics answers. states: (connector, task, state); worker: facts of this worker."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    class Snapshot:
        def collect(self) -> Iterable[Metric]:
            by_name: dict[str, CounterMetricFamily] = {}
            for (connector, task), metrics in tasks.items():
                for name, count in metrics.snapshot().items():
                    stem = name.removeprefix("total_").removesuffix("_total")
                    family = by_name.setdefault(
                        name,
                        CounterMetricFamily(
                            f"keyorder_connect_{stem}", _HELP.get(name, name), labels=("connector", "task")
                        ),
                    )
                    family.add_metric((connector, str(task)), count)
            yield from by_name.values()
            state = GaugeMetricFamily(
                "keyorder_connect_task_status",
                "1 for the state that a task is in.",
                labels=("connector", "task", "state"),
            )
            for connector, number, word in states:
                state.add_metric((connector, str(number), word.lower()), 1)
            yield state
            for name, value in worker.items():
                yield GaugeMetricFamily(f"keyorder_connect_worker_{name}", f"Of this worker: {name}.", value)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot())
    return generate_latest(registry).decode()
