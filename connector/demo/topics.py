"""The two topics of a run: made, grown at the same moments, looked at, and removed from a cluster that is not ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AdminClient,
    NewPartitions,
    NewTopic,
)

from ...partitioner.errors import KeyorderError
from ..admin import TopicAdmin
from ..config import connection_of
from ..controller import Change
from ..kafka_errors import translated
from ..log_offsets import LogOffsets
from ..metadata import cluster_metadata, wait_for_partitions

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
        connection = _connection(bootstrap_servers)
        self._stock = AdminClient(connection)
        self._ordered = TopicAdmin(connection)
        self._offsets = LogOffsets(connection)

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

    def lag(self, topic: str, group: str, count: int) -> int | None:
        """Records that the group has not committed yet; None when the broker cannot say just now."""
        places = [TopicPartition(topic, p) for p in range(count)]
        try:
            ends = self._offsets.high_watermarks([(topic, p) for p in range(count)], timeout=2.0)
            (committed,) = self._stock.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, places)]
            ).values()
            done = {place.partition: int(place.offset) for place in committed.result(5).topic_partitions}
        except (KafkaException, KeyorderError, TimeoutError):
            return None
        return sum(end - max(0, done.get(partition, 0)) for (_, partition), end in ends.items())

    def remove(self, groups: Iterable[str]) -> None:
        """Take topics and groups away again. What cannot be removed is left: the run is over."""
        futures = [
            *self._stock.delete_topics([self.managed, self.twin]).values(),
            *self._stock.delete_consumer_groups(list(groups)).values(),
        ]
        for future in futures:
            try:
                future.result(10)
            except (KafkaException, TimeoutError):
                pass  # not there, or not ours to delete
