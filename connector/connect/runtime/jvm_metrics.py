"""The metrics under the names of Kafka Connect's MBeans, as Prometheus' JMX exporter writes them: public dashboards show them.

`kafka.connect:type=sink-task-metrics,connector=c,task=0` `put-batch-avg-time-ms` becomes
`kafka_connect_sink_task_metrics_put_batch_avg_time_ms{connector="c",task="0"}`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ... import clock

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    from .metrics import Moves, TaskMetrics

_STATES = ("running", "paused", "failed", "unassigned", "restarting")
_ERRORS = (
    "total_record_errors", "total_record_failures", "total_records_skipped", "total_retries", "total_errors_logged",
    "deadletterqueue_produce_requests", "deadletterqueue_produce_failures", "last_error_timestamp",
)  # fmt: skip


class _Families:
    """Collects samples by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}

    def add(self, bean: str, attribute: str, value: float, **labels: str) -> None:
        """One value of one MBean."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        name = f"kafka_connect_{bean}_{attribute}"
        if name not in self._by_name:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            text = f"kafka.connect: {bean.replace('_', '-')}, {attribute.replace('_', '-')}"
            self._by_name[name] = kind(name.removesuffix("_total"), text, labels=tuple(labels))
        self._by_name[name].add_metric(tuple(labels.values()), value)

    def all(self) -> Iterator[Metric]:
        yield from self._by_name.values()


def families(
    tasks: Mapping[tuple[str, int], TaskMetrics],
    states: Sequence[tuple[str, int, str]],
    worker: Mapping[str, float],
    moves: Moves,
    kinds: Mapping[str, str],
) -> Iterator[Metric]:
    """All of them. states: (connector, task, state). kinds: connector to source or sink."""
    found = _Families()
    for (connector, number), metrics in tasks.items():
        _of_task(found, metrics, kinds.get(connector, ""), {"connector": connector, "task": str(number)})
    for connector, number, state in states:
        found.add("connector", "status", 1, connector=connector, task=str(number), status=state.lower())
    _of_worker(found, states, worker)
    _of_rebalances(found, worker, moves)
    return found.all()


def _of_task(found: _Families, metrics: TaskMetrics, kind: str, labels: dict[str, str]) -> None:
    counts, (rates, means, shares) = metrics.snapshot(), metrics.figures()

    def count(name: str) -> float:
        return counts.get(name, 0.0)

    def mean(bean: str, name: str, key: str, unit: str, factor: float) -> None:
        average, most = means.get(key, (math.nan, math.nan))
        found.add(bean, f"{name}_avg{unit}", average * factor, **labels)
        found.add(bean, f"{name}_max{unit}", most * factor, **labels)

    def rated(bean: str, name: str, total: str) -> None:
        found.add(bean, f"{name}_rate", rates.get(total, 0.0), **labels)
        found.add(bean, f"{name}_total", count(total), **labels)

    bean = "connector_task_metrics"
    mean(bean, "batch_size", "batch_size", "", 1)
    mean(bean, "offset_commit", "offset_commit", "_time_ms", 1000)
    done, failed = count("offset_commit_completed_total"), count("offset_commit_failed_total")
    commits = done + failed
    found.add(bean, "offset_commit_success_percentage", done / commits if commits else 0.0, **labels)
    found.add(bean, "offset_commit_failure_percentage", failed / commits if commits else 0.0, **labels)
    found.add(bean, "running_ratio", shares.get("RUNNING", 0.0), **labels)
    found.add(bean, "pause_ratio", shares.get("PAUSED", 0.0), **labels)
    for name in _ERRORS:
        found.add("task_error_metrics", name, count(name), **labels)
    if kind == "sink":
        bean = "sink_task_metrics"
        rated(bean, "sink_record_read", "sink_record_read_total")
        rated(bean, "sink_record_send", "sink_record_send_total")
        rated(bean, "offset_commit_completion", "offset_commit_completed_total")
        mean(bean, "put_batch", "put_batch", "_time_ms", 1000)
        found.add(bean, "partition_count", count("partition_count"), **labels)
        found.add(bean, "sink_record_active_count", count("active_count"), **labels)
        mean(bean, "sink_record_active_count", "active_count", "", 1)
    elif kind == "source":
        bean = "source_task_metrics"
        rated(bean, "source_record_poll", "source_record_poll_total")
        rated(bean, "source_record_write", "source_record_write_total")
        mean(bean, "poll_batch", "poll_batch", "_time_ms", 1000)
        found.add(bean, "source_record_active_count", count("active_count"), **labels)
        mean(bean, "source_record_active_count", "active_count", "", 1)


def _of_worker(found: _Families, states: Sequence[tuple[str, int, str]], worker: Mapping[str, float]) -> None:
    bean = "connect_worker_metrics"
    for name in ("connector_count", "task_count"):
        found.add(bean, name, worker[name])
    for name in ("attempts", "success", "failure"):
        found.add(bean, f"task_startup_{name}_total", worker[f"task_startup_{name}"])
    by_state = Counter((connector, state.lower()) for connector, _, state in states)
    for connector in sorted({connector for connector, _, _ in states}):
        numbers = {state: by_state[connector, state] for state in _STATES}
        for state, number in {**numbers, "total": sum(numbers.values())}.items():
            found.add(bean, f"connector_{state}_task_count", number, connector=connector)


def _of_rebalances(found: _Families, worker: Mapping[str, float], moves: Moves) -> None:
    bean, now = "connect_worker_rebalance_metrics", clock.now()
    average, most = moves.samples.mean_and_highest(now)
    found.add(bean, "completed_rebalances_total", moves.completed)
    found.add(bean, "epoch", worker["assignment_epoch"])
    found.add(bean, "rebalancing", float(moves.under_way))
    found.add(bean, "rebalance_avg_time_ms", average * 1000)
    found.add(bean, "rebalance_max_time_ms", most * 1000)
    found.add(bean, "time_since_last_rebalance_ms", (now - moves.last) * 1000)
