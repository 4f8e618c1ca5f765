"""The two topics of a run: made, grown at the same moments, looked at, and removed from a cluster that is not ours."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AdminClient,
    NewPartitions,
    NewTopic,
)

from ..admin import TopicAdmin
from ..admin_link import AdminLink
from ..config import connection_of
from ..kafka_errors import translated
from ..metadata import cluster_metadata, wait_for_partitions
from ..topology.results import Change

_PATIENCE = 30.0


def reach(bootstrap_servers: str) -> None:
    """Raises BrokerUnreachableError when no broker answers, NotAuthorizedError."""
    cluster_metadata(AdminClient(_connection(bootstrap_servers)), bootstrap_servers, 10.0)


def _connection(bootstrap_servers: str) -> dict[str, Any]:
    return connection_of({"bootstrap.servers": bootstrap_servers, "client.id": "keyorder-demo"})


class DemoTopics:
    """A managed topic and its stock twin."""

    def __init__(self, bootstrap_servers: str, managed: str, twin: str) -> None:
        self.managed, self.twin = managed, twin
        self._bootstrap = bootstrap_servers
        self._connection = _connection(bootstrap_servers)
        self._stock = AdminClient(self._connection)
        self._ordered = TopicAdmin(self._connection)
        self._readers: dict[str, Consumer] = {}

    def create(self, count: int) -> None:
        """Both topics, with equal settings."""
        self._ordered.create(self.managed, count)
        with translated("create", f"topic {self.twin}", self._bootstrap):
            self._stock.create_topics([NewTopic(self.twin, count, replication_factor=-1)])[self.twin].result(_PATIENCE)
        wait_for_partitions(self._stock, self.twin, count, self._bootstrap, _PATIENCE)

    def grow(self, count: int) -> Change:
        """Grow both at once; returns what keyorder did."""
        twin = self._stock.create_partitions([NewPartitions(self.twin, count)])[self.twin]
        change = self._ordered.expand(self.managed, count)
        with translated("alter", f"topic {self.twin}", self._bootstrap):
            twin.result(_PATIENCE)
        return change

    def committed(self, topic: str, group: str, count: int) -> int | None:
        """How many records the group has done and committed; None when the broker cannot say just now.

        The topics are new and nothing but records is in them: a partition's offset is a number of records.
        """
        reader = self._readers.get(group)
        if reader is None:
            reader = self._readers[group] = Consumer({**self._connection, "group.id": group})
        try:
            places = reader.committed([TopicPartition(topic, p) for p in range(count)], timeout=2.0)
        except KafkaException:
            return None
        return sum(max(0, place.offset) for place in places)

    def close(self) -> None:
        """Release the clients that looked at the groups' offsets. They never joined a group."""
        for reader in self._readers.values():
            reader.close()

    def remove(self, groups: Iterable[str]) -> None:
        """Take topics and groups away again. What cannot be removed is left: the run is over."""
        cluster = AdminLink(self._connection)
        removed = self._stock.delete_topics([self.managed, self.twin]).values()
        for step in [
            *(partial(future.result, 10) for future in removed),
            *(partial(cluster.delete_group, group, 10) for group in groups),
        ]:
            try:
                step()
            except (KafkaException, FutureTimeout):
                pass  # not there, or not ours to delete
