"""What a look at the cluster says, as Prometheus families. Labels are names of topics and groups, never keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..operations.description import GroupDescription, TopicDescription
from .watching import Look

Value = tuple[tuple[str, ...], float]


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Iterable[Value]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"keyorder_{name}", text, labels=labels)
    for names, value in values:
        family.add_metric(names, value)
    return family


class ClusterCollector:
    """Families of the newest look. last: gives it. failures: how many looks failed. now: seconds of connector.clock."""

    def __init__(self, last: Callable[[], Look], failures: Callable[[], int], now: Callable[[], float]) -> None:
        self._last, self._failures, self._now = last, failures, now

    def collect(self) -> Iterable[Metric]:
        """All families; those of topics and groups are empty before the first look."""
        look, now = self._last(), self._now()
        yield GaugeMetricFamily(
            "keyorder_look_timestamp_seconds", "When the cluster was looked at last, as Unix time.", look.at_ms / 1000
        )
        yield CounterMetricFamily("keyorder_look_failures", "Looks at the cluster that failed.", self._failures())
        yield from self._of_topics(look, now)
        yield from self._of_groups(look, now)

    def _of_topics(self, look: Look, now: float) -> Iterable[Metric]:
        def each(value: Callable[[TopicDescription], float]) -> list[Value]:
            return [((t.topic,), value(t)) for t in look.topics]

        topic = ("topic",)
        readable = [*(((t.topic,), 1.0) for t in look.topics), *(((name,), 0.0) for name in sorted(look.unreadable))]
        yield _gauge("topic_readable", "1, or 0 for a topic whose timeline cannot be read.", topic, readable)
        yield _gauge("topic_epoch", "The epoch of the topic's layout.", topic, each(lambda t: t.epochs[-1].number))
        yield _gauge("topic_partitions", "Partitions that are written to.", topic, each(lambda t: t.layout.count))
        yield _gauge(
            "topic_partitions_physical", "Partitions that exist, retired ones too.", topic, each(lambda t: t.partitions)
        )
        yield _gauge("topic_ordered", "1 where ordered delivery is on.", topic, each(lambda t: t.ordered))
        yield _gauge("topic_writers", "Writers in the in-sync writer set.", topic, each(lambda t: len(t.writers)))
        yield _gauge(
            "topic_writer_silent_seconds",
            "How long the most silent writer has been silent.",
            topic,
            [((t.topic,), max(silent)) for t in look.topics if (silent := _silent(t, look.at_ms))],
        )
        yield _gauge(
            "topic_last_hold_seconds",
            "How long the last change asked writers to hold the records of moving keys.",
            topic,
            [((t.topic,), t.epochs[-1].held_ms / 1000) for t in look.topics if t.epochs[-1].held_ms],
        )
        modes = [
            ((t.topic, mode), float(count))
            for t in look.topics
            for mode, count in sorted(Counter(mode.name.lower() for mode in t.modes.values()).items())
        ]
        yield _gauge("topic_partitions_by_mode", "Partitions in each mode.", ("topic", "mode"), modes)
        yield _gauge(
            "topic_change_open_seconds",
            "How long an open attempt has been in its phase, as seen here.",
            ("topic", "phase"),
            [((name, phase), now - since) for (name, _, phase), since in sorted(look.open_since.items())],
        )

    def _of_groups(self, look: Look, now: float) -> Iterable[Metric]:
        def each(value: Callable[[TopicDescription, GroupDescription], float]) -> list[Value]:
            return [((g.group, t.topic), value(t, g)) for t in look.topics for g in t.groups]

        labels = ("group", "topic")

        def oldest(topic: TopicDescription, group: GroupDescription) -> float:
            names = ((group.group, topic.topic, gate.partition, gate.epoch) for gate in group.closed)
            return max((now - look.closed_since.get(name, now) for name in names), default=0.0)

        def missing(_: TopicDescription, group: GroupDescription) -> float:
            # Gates share origins: an offset that several wait for is missing once.
            needs: dict[int, int] = {}
            for gate in group.closed:
                for need in gate.blockers:
                    needs[need.partition] = max(need.missing, needs.get(need.partition, 0))
            return sum(needs.values())

        yield _gauge(
            "group_lag_records",
            "Offsets up to the ends that are not committed yet.",
            labels,
            each(lambda topic, group: look.lag(topic.topic, group)),
        )
        yield _gauge(
            "group_gates_closed", "Closed gates, as committed offsets tell.", labels, each(lambda _, g: len(g.closed))
        )
        yield _gauge(
            "group_gate_missing_offsets", "Offsets to commit before all gates are open.", labels, each(missing)
        )
        yield _gauge(
            "group_gate_oldest_closed_seconds", "How long the oldest closed gate was seen closed.", labels, each(oldest)
        )


def _silent(topic: TopicDescription, now_ms: int) -> list[float]:
    return [max(0.0, (now_ms - w.renewed_at_ms) / 1000) for w in topic.writers if w.renewed_at_ms is not None]
