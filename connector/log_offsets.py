"""Where logs begin and end, asked of their leaders through a client of its own.

Not through a fetching consumer: its request would wait behind the long poll on the same connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not re-exported
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from ..partitioner.errors import BrokerUnreachableError
from .config import connection_of
from .kafka_errors import translate
from .messages import Place

_OUTDATED = {
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


class LogOffsets:
    """Lists offsets, all places in one request per leader."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._servers = str(config.get("bootstrap.servers"))
        self._admin = AdminClient(connection_of(config))

    def earliest(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The log starts. Raises TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError."""
        return self._list(places, _EARLIEST, IsolationLevel.READ_UNCOMMITTED, timeout)

    def stable_ends(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The last stable offsets: the end for a read_committed reader. Raises as `earliest`."""
        return self._list(places, _LATEST, IsolationLevel.READ_COMMITTED, timeout)

    def high_watermarks(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The high watermarks, open transactions' records included: cuts are taken from these. Raises as `earliest`."""
        return self._list(places, _LATEST, IsolationLevel.READ_UNCOMMITTED, timeout)

    def _list(
        self, places: Iterable[Place], spec: OffsetSpec, isolation: IsolationLevel, timeout: float
    ) -> dict[Place, int]:
        wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
        if not wanted:
            return {}
        topic = next(iter(wanted)).topic
        attempts = Retrying(
            stop=stop_after_delay(timeout),
            wait=wait_fixed(0.02),
            retry=retry_if_exception(_outdated),
            before_sleep=lambda _: self._refresh(),
            reraise=True,
        )
        try:
            return attempts(self._once, wanted, isolation, timeout)
        except KafkaException as raised:
            raise translate(raised.args[0], "list the offsets of", f"topic {topic}", self._servers) from raised
        except TimeoutError as raised:
            raise BrokerUnreachableError(self._servers, f"list the offsets of {topic}") from raised

    def _once(
        self, wanted: dict[TopicPartition, OffsetSpec], isolation: IsolationLevel, timeout: float
    ) -> dict[Place, int]:
        futures = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout)
        return {(p.topic, p.partition): future.result(timeout + 1).offset for p, future in futures.items()}

    def _refresh(self) -> None:
        try:
            self._admin.list_topics(timeout=5.0)
        except KafkaException:
            pass  # the next attempt says what is wrong


def _outdated(error: BaseException) -> bool:
    """Whether this client's picture of the cluster is older than the partition or its leader."""
    return isinstance(error, KafkaException) and error.args[0].code() in _OUTDATED
