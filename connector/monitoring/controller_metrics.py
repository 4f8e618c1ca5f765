"""What a controller has done, counted from its events, and whether it lives."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .. import clock
from ..topology.supervisor import Event

_RESULTS = ("changed", "unchanged", "failed", "fenced", "refused")
_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 120.0)
#: A turn waits for brokers that are away; one that takes longer than this is stuck.
STUCK_S = 120.0


class ControllerMetrics:
    """Counts a controller's events. Thread-safe.

    interval: seconds that it waits between two turns. Alive: a turn began less than that and `STUCK_S` seconds ago.
    Ready: the last turn reached Kafka.
    """

    def __init__(self, registry: CollectorRegistry, interval: float = 0.0) -> None:
        self._interval = interval
        self._turn_began = clock.now()
        self._reached = False
        self._changing: set[str] = set()
        self._were_refused: set[str] = set()
        self._changes = Counter(
            "keyorder_changes",
            f"Changes that this controller has ended, by result: {', '.join(_RESULTS)}.",
            ("topic", "result"),
            registry=registry,
        )
        self._take_overs = Counter(
            "keyorder_change_take_overs",
            "Changes of others that stood still and were taken over.",
            ("topic",),
            registry=registry,
        )
        self._seconds = Histogram(
            "keyorder_change_duration_seconds",
            "How long the changes of this controller took.",
            ("topic",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._attempts = Counter(
            "keyorder_change_attempts", "Attempts that its changes took.", ("topic",), registry=registry
        )
        self._refused = Gauge(
            "keyorder_scaling_refused",
            "1 while the policy wants another count and stock producers write the topic, so that it is left as it is.",
            ("topic",),
            registry=registry,
        )
        self._jobs = Counter(
            "keyorder_controller_jobs",
            "Periodic jobs that did something or failed.",
            ("job", "result"),
            registry=registry,
        )
        self._at = Gauge("keyorder_controller_turn_timestamp_seconds", "When its last turn began.", registry=registry)
        Gauge("keyorder_controller_interval_seconds", "How long it waits between two turns.", registry=registry).set(
            interval
        )
        self._kafka = Gauge(
            "keyorder_controller_kafka_reachable", "1 when its last turn reached Kafka.", registry=registry
        )

    def looks_after(self, topics: Iterable[str]) -> None:
        """Show counters of these topics from 0 on: a rate does not see what a series begins with."""
        for topic in topics:
            for result in _RESULTS:
                self._changes.labels(topic, result)
            self._take_overs.labels(topic)
            self._attempts.labels(topic)
            self._refused.labels(topic)

    def turn(self, changing: Iterable[str] = ()) -> None:
        """A turn begins. changing: the topics whose changes are under way in this process."""
        self._changing = set(changing)
        self._turn_began = clock.now()
        self._at.set(clock.wall_ms() / 1000)

    def turned(self, events: list[Event], refused: Collection[str] = ()) -> None:
        """A turn has ended with these events. refused: the topics that are not scaled, since stock producers write them."""
        self._reached = not any(event.event == "unreachable" for event in events)
        self._kafka.set(self._reached)
        for topic in self._were_refused - set(refused):
            self._refused.labels(topic).set(0)
        for topic in refused:
            self._refused.labels(topic).set(1)
        self._were_refused = set(refused)
        for event in events:
            self.note(event)

    def note(self, event: Event) -> None:
        """Count one event."""
        facts = event.facts
        if "job" in facts:
            self._jobs.labels(str(facts["job"]), "failed" if event.event == "failed" else "done").inc()
        elif event.topic is None:
            return
        elif event.event == "take-over":
            self._take_overs.labels(event.topic).inc()
        # Without a change that was under way it is a load that could not be measured. A turn tells of the change first.
        elif event.event == "failed" and event.topic not in self._changing:
            return
        elif event.event == "changed":
            self._changing.discard(event.topic)
            self._changes.labels(event.topic, "changed" if facts["changed"] else "unchanged").inc()
            self._attempts.labels(event.topic).inc(float(str(facts["attempts"])))
            self._seconds.labels(event.topic).observe(float(str(facts["seconds"])))
        elif event.event in ("failed", "fenced", "refused"):
            self._changing.discard(event.topic)
            self._changes.labels(event.topic, event.event).inc()

    def alive(self) -> tuple[bool, str]:
        """Whether the process works, and why not."""
        ago = clock.now() - self._turn_began
        return ago < STUCK_S + self._interval, f"the last turn began {ago:.0f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Whether it can do its work, and why not."""
        alive, text = self.alive()
        reached = self._reached
        return alive and reached, text if reached else "no broker answered in the last turn"
