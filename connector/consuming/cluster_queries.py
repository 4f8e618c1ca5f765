"""What a consumer is asked that has nothing to do with order: the client library answers."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from .commit_notes import shown


class ClusterQueries:
    """The part of a consumer's face that is passed on."""

    _raw: Consumer
    _admin: AdminClient

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As confluent_kafka.Consumer.committed, with the metadata that the application gave."""
        return shown(self._raw.committed(partitions, timeout))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """As confluent_kafka.Consumer.get_watermark_offsets."""
        return self._raw.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As confluent_kafka.Consumer.offsets_for_times."""
        return self._raw.offsets_for_times(partitions, timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """As confluent_kafka.Consumer.list_topics."""
        self._check_open()
        admin = self._admin  # the consumer's own may not return while its group rebalances
        return admin.list_topics(topic, timeout) if topic is not None else admin.list_topics(timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """As confluent_kafka.Consumer.cluster_id."""
        return self._raw.cluster_id(timeout)

    def memberid(self) -> str:
        """As confluent_kafka.Consumer.memberid."""
        return self._raw.memberid()

    def _check_open(self) -> None:
        raise NotImplementedError
