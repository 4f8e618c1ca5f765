"""Where logs begin and end, asked of their leaders through clients of their own.

Not through a fetching consumer: its request would wait behind the long poll on the same connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from ..partitioner.errors import BrokerUnreachableError
from .config import connection_of
from .kafka_errors import translate
from .messages import Place, offset_of, place_of
from .metadata import acquaint

# ListOffsets' own words for "the end" and "the start", where it otherwise takes a time.
_LATEST, _EARLIEST = -1, -2
# What no second try mends. All else means that a leader is away or has moved, and that this client knows an old one.
_FINAL = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._INVALID_ARG,
}


class LogOffsets:
    """Lists offsets, all places in one request per leader. Each isolation level needs a client of its own."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = connection_of(config)
        self._servers = str(config.get("bootstrap.servers"))
        self._clients: dict[str, Consumer] = {}

    def earliest(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The log starts. Raises NotAuthorizedError, BrokerUnreachableError (no leader answered in time)."""
        return self._list(places, _EARLIEST, "read_uncommitted", timeout)

    def stable_ends(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The last stable offsets: the end for a read_committed reader. Raises as `earliest`."""
        return self._list(places, _LATEST, "read_committed", timeout)

    def high_watermarks(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The high watermarks, open transactions' records included: cuts are taken from these. Raises as `earliest`."""
        return self._list(places, _LATEST, "read_uncommitted", timeout)

    def passed(self, place: Place, position: int, timeout: float = 0.1) -> int | None:
        """The stable end, if no record shows between `position` and it: markers and aborted records are all there is.

        None when a record is there, or nobody answered within `timeout` seconds.
        """
        client = self._client("read_committed")
        client.assign([TopicPartition(*place, position)])
        try:
            first = client.poll(timeout)
        finally:
            client.unassign()
        error = None if first is None else first.error()
        if first is None or error is None or error.code() != KafkaError._PARTITION_EOF or place_of(first) != place:
            return None
        return offset_of(first)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from now on."""
        if "sasl.username" in self._config:
            self._config |= {"sasl.username": username, "sasl.password": password}
        for client in list(self._clients.values()):
            client.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Release the clients; they are made again when needed."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _list(self, places: Iterable[Place], what: int, isolation: str, timeout: float) -> dict[Place, int]:
        wanted = [TopicPartition(topic, partition, what) for topic, partition in places]
        if not wanted:
            return {}
        attempts = Retrying(
            stop=stop_after_delay(timeout),
            wait=wait_exponential(multiplier=0.02, max=1.0),
            retry=retry_if_exception(_passes),
            # An old client goes on asking with the leader epoch that it knows: begin with a fresh one.
            before_sleep=lambda _: self.close(),
            reraise=True,
        )
        try:
            return attempts(self._once, wanted, isolation, min(timeout, 5.0))
        except KafkaException as raised:
            name = f"topic {wanted[0].topic}"
            if _passes(raised):
                raise BrokerUnreachableError(self._servers, f"list the offsets of {name}: {raised}") from raised
            raise translate(raised.args[0], "list the offsets of", name, self._servers) from raised

    def _once(self, wanted: list[TopicPartition], isolation: str, timeout: float) -> dict[Place, int]:
        found: dict[Place, int] = {}
        if isolation not in self._clients:
            acquaint(self._client(isolation), wanted[0].topic, min(timeout, 2.0))
        for place in self._client(isolation).offsets_for_times(wanted, timeout=timeout):
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset < 0:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            found[place.topic, place.partition] = place.offset
        return found

    def _client(self, isolation: str) -> Consumer:
        client = self._clients.get(isolation)
        if client is None:
            config = {
                **self._config,
                "group.id": "keyorder-log-offsets",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                # For `passed`: one answer, at once, and none from another place than the one that was asked for.
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 1,
                "auto.offset.reset": "error",
            }
            client = self._clients[isolation] = Consumer(config)
        return client


def _passes(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() not in _FINAL
