"""All that a monitored controller has: its counts, its looks at the cluster, and the server that shows both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .. import clock
from .cluster_metrics import ClusterCollector
from .controller_metrics import ControllerMetrics
from .serving import MonitoringServer, process_registry
from .watching import ClusterWatch, Look


class Monitor:
    """Shows a controller on http://host:port. counts: to be told of its events. Thread-safe; `close` it.

    interval: how many seconds the controller waits between two turns.
    Raises ConfigError when the address cannot be had.
    """

    def __init__(
        self, config: Mapping[str, Any], topics: Collection[str], host: str, port: int, interval: float
    ) -> None:
        registry = process_registry()
        self.counts = ControllerMetrics(registry, interval)
        checks = {"/healthz": self.counts.alive, "/readyz": self.counts.ready}
        self._server = MonitoringServer(registry, checks, host, port, "--metrics-port")
        self.port = self._server.port
        self._watch = ClusterWatch(config, topics)
        registry.register(ClusterCollector(self._last, lambda: self._watch.failures, clock.now))

    def _last(self) -> Look:
        look = self._watch.last
        self.counts.looks_after([*(each.topic for each in look.topics), *look.unreadable])
        return look

    def close(self) -> None:
        """Stop serving and looking."""
        self._server.close()
        self._watch.close()
