"""Producers and consumers as Prometheus families, read when they are scraped."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ..durations import BOUNDS, Durations
from ..figures import Client, ConsumerFigures, ProducerFigures

F = TypeVar("F", ProducerFigures, ConsumerFigures)


class ClientCollector:
    """Families of the clients that were added. Keeps none of them alive; thread-safe.

    Register it with an application's own registry: `REGISTRY.register(ClientCollector(producer, consumer))`. Each client
    has a label `client`: a producer's writer id, a consumer's group with the number of the consumer in this collector.
    """

    def __init__(self, *clients: Client) -> None:
        self._lock = threading.Lock()
        self._clients: weakref.WeakKeyDictionary[Client, int] = weakref.WeakKeyDictionary()
        self._added = 0
        for client in clients:
            self.add(client)

    def add(self, client: Client) -> None:
        """Show this one too."""
        with self._lock:
            self._added += 1
            self._clients[client] = self._added

    def remove(self, client: Client) -> None:
        """Show it no longer; no error where it is not shown."""
        with self._lock:
            self._clients.pop(client, None)

    def collect(self) -> Iterable[Metric]:
        """All families, empty where there is no client of their kind."""
        with self._lock:
            numbered = list(self._clients.items())
        producers: list[tuple[str, ProducerFigures]] = []
        consumers: list[tuple[str, ConsumerFigures]] = []
        for client, number in numbered:
            figures = client.figures()
            if isinstance(figures, ProducerFigures):
                producers.append((figures.writer, figures))
            else:
                consumers.append((f"{figures.group}-{number}", figures))
        yield from _of_producers(producers)
        yield from _of_consumers(consumers)


def _of_producers(shown: list[tuple[str, ProducerFigures]]) -> Iterator[Metric]:
    yield _by_topic("producer_held_records", "Records that wait for a change.", shown, lambda f: f.held)
    yield _by_topic("producer_held_bytes", "Their size.", shown, lambda f: f.held_bytes)
    yield _by_topic("producer_changing", "1 while a change is being prepared.", shown, lambda f: f.changing)
    yield _by_topic("producer_epoch", "The epoch under which it writes.", shown, lambda f: f.epochs)
    lease = GaugeMetricFamily(
        "keyorder_producer_lease_left_seconds", "For how long records may still be handed over.", labels=["client"]
    )
    for client, figures in shown:
        lease.add_metric([client], figures.lease_left)
    yield lease
    text = "How long held records waited before they went out."
    yield _histogram("producer_hold_seconds", text, shown, lambda f: f.hold_times)


def _of_consumers(shown: list[tuple[str, ConsumerFigures]]) -> Iterator[Metric]:
    yield _by_topic("consumer_gates_closed", "Partitions that wait at a closed gate.", shown, lambda f: f.gates)
    text = "How long the oldest of them has waited."
    yield _by_topic("consumer_gate_oldest_closed_seconds", text, shown, lambda f: f.gate_ages)
    yield _by_topic("consumer_held_records", "Records in memory that wait at a gate.", shown, lambda f: f.held)
    yield _by_topic("consumer_epoch", "The epoch under which it reads.", shown, lambda f: f.epochs)
    text = "Since when it has not looked at the control topic."
    yield _by_topic("consumer_view_age_seconds", text, shown, lambda f: f.view_ages)
    misplaced = CounterMetricFamily(
        "keyorder_consumer_misplaced_records",
        "Records found where their keys did not live.",
        labels=["client", "topic"],
    )
    commits = CounterMetricFamily("keyorder_consumer_commits", "Offsets that were committed.", labels=["client"])
    for client, figures in shown:
        for topic, count in sorted(figures.misplaced.items()):
            misplaced.add_metric([client, topic], count)
        commits.add_metric([client], figures.commits)
    yield misplaced
    yield commits
    text = "How long gates were closed before they opened."
    yield _histogram("consumer_gate_seconds", text, shown, lambda f: f.gate_times)


def _by_topic(
    name: str, text: str, shown: Iterable[tuple[str, F]], values: Callable[[F], Mapping[str, float]]
) -> Metric:
    family = GaugeMetricFamily(f"keyorder_{name}", text, labels=["client", "topic"])
    for client, figures in shown:
        for topic, value in sorted(values(figures).items()):
            family.add_metric([client, topic], value)
    return family


def _histogram(name: str, text: str, shown: Iterable[tuple[str, F]], values: Callable[[F], Durations]) -> Metric:
    family = HistogramMetricFamily(f"keyorder_{name}", text, labels=["client"])
    for client, figures in shown:
        durations = values(figures)
        so_far, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), list(durations.counts), strict=True):
            so_far += count
            buckets.append((bound, float(so_far)))
        family.add_metric([client], buckets, durations.total)
    return family
