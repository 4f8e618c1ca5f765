"""Brokers, each behind proxies: of its clients, of the other brokers, and of the other controllers of the quorum."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack

import psutil
from confluent_kafka import KafkaException
from faults.proxy import Network
from keyorder.connector import clock
from keyorder.connector.local.broker import Broker, java_command, server_properties_file
from keyorder.connector.local.cluster import LocalCluster
from keyorder.connector.local.jars import ensure_jars
from keyorder.connector.local.java import find_java
from keyorder.connector.local.processes import free_ports
from keyorder.connector.local.properties import HOST, ClusterPlan, Node
from keyorder.connector.local.versions import DEFAULT_KAFKA_VERSION, load_lock
from support.cluster import ClusterSpec, ProcessKafka

# With every message of the quorum going through a proxy, a busy machine would hold an election every few seconds.
_UNHURRIED = {"controller.quorum.fetch.timeout.ms": "5000", "controller.quorum.election.timeout.ms": "2000"}
# What a busy machine needs for anything: only a run that is stuck waits so long.
PATIENCE = 240.0


def client_of_broker(broker: int) -> str:
    """The client.ids by which one broker asks the others, as a regular expression."""
    return rf"{broker}|broker-{broker}-.*|raft-client-{broker}|AddPartitionsManager-client-{broker}"


class FaultyCluster(ProcessKafka):
    """Brokers whose every message passes `network`. Use as a context manager."""

    def __init__(
        self, version: str = DEFAULT_KAFKA_VERSION, properties: Mapping[str, str] | None = None, brokers: int = 3
    ) -> None:
        self._stack = ExitStack()
        self.network = self._stack.enter_context(Network())
        self._proxies: dict[tuple[int, int], int] = {}
        self._between: dict[int, int] = {}
        try:
            super().__init__(ClusterSpec(brokers, {}, _UNHURRIED | dict(properties or {})), version)
        except BaseException:
            self._stack.close()
            raise

    def _new_cluster(self, spec: ClusterSpec, version: str) -> LocalCluster:
        return LocalCluster(
            brokers=spec.brokers, version=version, properties=spec.properties, node_properties=self._listeners
        )

    def _proxy(self, broker: int, port: int) -> int:
        if (broker, port) not in self._proxies:
            self._proxies[broker, port] = self.network.listen(broker, port)
        return self._proxies[broker, port]

    def _listeners(self, plan: ClusterPlan, node: Node) -> dict[str, str]:
        """A listener of its own for the brokers; what is advertised are the proxies' ports."""
        between = self._between.setdefault(node.port, free_ports(1)[0])
        voters = {n.id: n.controller_port if n == node else self._proxy(n.id, n.controller_port) for n in plan.nodes}
        return {
            "controller.quorum.voters": ",".join(f"{id}@{HOST}:{port}" for id, port in voters.items()),
            "inter.broker.listener.name": "BROKERS",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": (
                f"CLIENT://{HOST}:{node.port},BROKERS://{HOST}:{between},CONTROLLER://{HOST}:{node.controller_port}"
            ),
            "advertised.listeners": (
                f"CLIENT://{HOST}:{self._proxy(node.id, node.port)},BROKERS://{HOST}:{self._proxy(node.id, between)}"
            ),
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{self._proxy(b.id, b.port)}" for b in self.cluster.brokers)

    def client_config(self, user: str | None = None) -> dict[str, str]:
        return super().client_config(user) | {"bootstrap.servers": self.bootstrap_servers}

    def wipe_logs(self, i: int) -> None:
        """Delete the logs of a dead broker's partitions; the quorum's own log stays."""
        broker = self.cluster.brokers[i - 1]
        assert not broker.running
        for path in broker.log_dir.iterdir():
            if path.is_dir() and not path.name.startswith("__cluster_metadata"):
                shutil.rmtree(path)

    def fill_disk(self, i: int) -> None:
        """No file of a broker takes another byte, as on a full or read-only disk, until its process is another one.

        Kafka gives a disk up at its first error, and ends where it has no other.
        """
        psutil.Process(self.cluster.brokers[i - 1].pid).rlimit(psutil.RLIMIT_FSIZE, (0, psutil.RLIM_INFINITY))

    def upgrade(self, i: int, version: str) -> None:
        """End broker `i` in order and start it with its data as another version of Kafka."""
        old = self.cluster.brokers[i - 1]
        old.stop(grace=60)
        java, jars = find_java().executable, ensure_jars(load_lock(version))
        command = java_command(java, jars, "384m", "kafka.Kafka", str(server_properties_file(old.data_dir)))
        self.cluster.brokers[i - 1] = Broker(old.plan, old.node, old.data_dir, command, lambda: None)
        self.start_broker(i)

    def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition."""
        return int(self.admin().list_topics(topic, timeout=120).topics[topic].partitions[partition].leader)

    def await_full_isr(self) -> None:
        """Return when every replica is in sync again. The limit counts from the last one that came back."""
        admin, best, deadline = self.admin(), 1 << 30, clock.now() + PATIENCE
        while True:
            try:
                behind = [
                    (name, p.id, p.isrs)
                    for name, topic in admin.list_topics(timeout=120).topics.items()
                    for p in topic.partitions.values()
                    if len(p.isrs) < len(p.replicas)
                ]
            except KafkaException:
                behind = [("no broker answers", 0, [])] * (1 << 10)
            if not behind:
                return
            if len(behind) < best:
                best, deadline = len(behind), clock.now() + PATIENCE
            assert clock.now() < deadline, behind
            time.sleep(0.2)

    def stop(self) -> None:
        super().stop()
        self._stack.close()

    def __enter__(self) -> FaultyCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
