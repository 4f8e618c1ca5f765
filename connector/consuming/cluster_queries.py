"""What a consumer is asked that has nothing to do with order: the client library answers."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ..link import ClusterLink
from ..metadata import cluster_id_of
from .callers import Serial, alone
from .commit_notes import shown
from .starting import Starter


class ClusterQueries(Serial):
    """The part of a consumer's face that is passed on."""

    # A handler's close() is put off to the end of a call: it would free the client beneath it.
    _closed: bool
    _raw: Consumer
    _starter: Starter
    _link: ClusterLink

    @alone
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As confluent_kafka.Consumer.committed, with the metadata that the application gave."""
        return shown(self._raw.committed(partitions, timeout))

    @alone
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """As confluent_kafka.Consumer.get_watermark_offsets."""
        return self._raw.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    @alone
    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As confluent_kafka.Consumer.offsets_for_times."""
        return self._raw.offsets_for_times(partitions, timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """As confluent_kafka.Consumer.list_topics."""
        self._check_handle()
        return self._listed(topic, timeout)

    @alone
    def _listed(self, topic: str | None, timeout: float) -> Any:
        self._check_handle()  # again: another thread may have closed it meanwhile
        if topic is not None:
            return self._starter.listed(topic, timeout)
        return self._link.admin.client.list_topics(
            timeout=timeout
        )  # the consumer's own may not return while its group rebalances

    def cluster_id(self, timeout: float = -1) -> str:
        """As confluent_kafka.Consumer.cluster_id."""
        self._check_handle()
        return self._found_cluster_id(timeout)

    @alone
    def _found_cluster_id(self, timeout: float) -> str:
        self._check_handle()
        return cluster_id_of(self._raw, self._link.admin.client.list_topics, timeout)

    @alone
    def memberid(self) -> str:
        """As confluent_kafka.Consumer.memberid."""
        return self._raw.memberid()

    def _check_handle(self) -> None:
        """Of what the library's two clients have in common: its words for one that is closed."""
        if self._closed:
            raise RuntimeError("Handle has been closed")
