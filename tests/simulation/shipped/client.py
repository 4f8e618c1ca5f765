"""What all clients of the library have in common."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from simulation.shipped.broker import Cluster, Link, await_answer
from simulation.shipped.scheduler import here, task_here

BROKERS = 3


class _Now:
    cluster: Cluster


def connect_to(cluster: Cluster) -> None:
    """Clients that are made from now on find this cluster, whatever address they are given."""
    _Now.cluster = cluster


def flag(value: Any) -> bool:
    """A boolean setting."""
    return str(value).lower() in ("true", "t", "1")


class Client:
    """It belongs to the process that makes it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = dict(config)
        self.cluster = _Now.cluster
        self.process = task_here().process
        self.closed = False
        self._links: dict[int, Link] = {}
        here().pass_turn()

    def link(self, broker: int) -> Link:
        """The connection to a broker."""
        if broker not in self._links:
            self._links[broker] = Link(self.cluster, self.process)
        return self._links[broker]

    def check_open(self) -> None:
        """Raises as the binding does."""
        if self.closed:
            raise RuntimeError(f"{type(self).__name__} closed")

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Nobody logs in here."""

    def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> ClusterMetadata:
        """As the real one."""
        self.check_open()
        (found,) = await_answer(
            lambda answered: self.link(0).ask(lambda reply: reply(self._metadata(topic)), answered),
            timeout,
            "list_topics",
        )
        if topic is None:
            self.looked()
        metadata: ClusterMetadata = found
        return metadata

    def looked(self) -> None:
        """Metadata of all topics has come."""

    def cluster_id(self, timeout: float = -1) -> str:
        """As the real one."""
        return "simulated"

    def _metadata(self, topic: str | None) -> ClusterMetadata:
        made = ClusterMetadata()
        made.cluster_id = "simulated"
        made.controller_id = 0
        for number in range(BROKERS):
            broker = made.brokers[number] = BrokerMetadata()
            broker.id, broker.host, broker.port = number, f"broker{number}", 9092
        for name in sorted(self.cluster.topics) if topic is None else [topic]:
            shown = made.topics[name] = TopicMetadata()
            shown.topic = name
            found = self.cluster.topics.get(name)
            if found is None:
                shown.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
                continue
            for log in found.logs:
                partition = shown.partitions[log.partition] = PartitionMetadata()
                partition.id = log.partition
                partition.leader = log.leader if log.leader_back <= self.cluster.scheduler.now else -1
                partition.replicas = partition.isrs = list(range(BROKERS))
        return made


class Answer(TopicPartition):
    """A place with an error, which the real class takes from the C library alone."""

    error: Any = None


def node(number: int) -> Any:
    """A broker as descriptions name it."""
    return SimpleNamespace(id=number, host=f"broker{number}", port=9092, rack=None)
