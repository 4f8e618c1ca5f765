"""A real Kafka for tests: from processes of this machine, or from containers, behind one face."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient
from keyorder.connector.local.cluster import LocalCluster

PATIENT = {"broker.session.timeout.ms": "120000"}
# Records that a test dates years back are deleted at the broker's next look else, which comes every five minutes.
KEEPING = {"log.retention.ms": "-1"}


@dataclass(frozen=True)
class ClusterSpec:
    """What a test asks for; equal specs may share one cluster."""

    brokers: int = 1
    users: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """The properties of each broker.

        The only broker stays in the cluster when the machine stands still for a moment. It would be fenced else, and a
        client that asks then is told of no broker at all, which librdkafka believes until its next look, in five minutes.
        A broker that is killed and started again waits for its session to end: tests that do so name a shorter one.
        """
        return KEEPING | (PATIENT if self.brokers == 1 else {}) | dict(self.properties)


class KafkaUnderTest(ABC):
    """A running cluster. Brokers are counted from 1."""

    brokers: int
    supplier: str

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """host:port of every broker, joined by commas."""

    @abstractmethod
    def client_config(self, user: str | None = None) -> dict[str, str]:
        """A new confluent-kafka configuration; with users, by default the first, who has all rights."""

    @abstractmethod
    def kill_broker(self, i: int, sig: int = signal.SIGKILL) -> None:
        """Send a signal to broker `i`. After SIGKILL (the default) it has gone when this returns."""

    @abstractmethod
    def start_broker(self, i: int) -> None:
        """Start broker `i` again with its data; return when it is in the cluster."""

    @abstractmethod
    def broker_log(self, i: int) -> str:
        """The end of broker `i`'s log, for the text of a failed test."""

    @abstractmethod
    def stop(self) -> None:
        """End all brokers and delete their data."""

    def admin(self, user: str | None = None) -> AdminClient:
        """A new confluent-kafka AdminClient."""
        return AdminClient({**self.client_config(user), "log_level": 0})


class ProcessKafka(KafkaUnderTest):
    """Brokers as processes of this machine: keyorder's own LocalCluster, in `cluster`."""

    supplier = "process"

    def __init__(self, spec: ClusterSpec, version: str) -> None:
        self.brokers = spec.brokers
        self.cluster = self._new_cluster(spec, version)
        self.cluster.start()

    def _new_cluster(self, spec: ClusterSpec, version: str) -> LocalCluster:
        return LocalCluster(brokers=spec.brokers, version=version, users=spec.users, properties=spec.settings())

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def client_config(self, user: str | None = None) -> dict[str, str]:
        return self.cluster.client_config(user)

    def kill_broker(self, i: int, sig: int = signal.SIGKILL) -> None:
        self.cluster.brokers[i - 1].kill(sig)

    def start_broker(self, i: int) -> None:
        broker = self.cluster.brokers[i - 1]
        broker.start()
        broker.wait_ready()

    def broker_log(self, i: int) -> str:
        return self.cluster.brokers[i - 1].log_end(100)

    def stop(self) -> None:
        self.cluster.wipe()


class KafkaFactory:
    """Starts special clusters for one test and ends them after it: `kafka_factory(users=..., properties=...)`."""

    def __init__(self, start: Callable[[ClusterSpec], KafkaUnderTest]) -> None:
        self._start, self._stack = start, ExitStack()

    def __call__(
        self,
        *,
        brokers: int = 1,
        users: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> KafkaUnderTest:
        started = self._start(ClusterSpec(brokers, users or {}, properties or {}))
        self._stack.callback(started.stop)
        return started

    def close(self) -> None:
        """End every cluster that was started."""
        self._stack.close()
