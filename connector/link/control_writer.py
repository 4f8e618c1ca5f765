"""One client that writes control records for all writers of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from ..config import connection_of
from ..metadata import get_id

Told = Callable[[Any, Any], None]


class ControlWriter:
    """A producer that is opened with the first record. Thread-safe; used as confluent_kafka.Producer.

    Delivery reports run on whichever thread polls: they may only take note.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = connection_of(config)
        self._lock = threading.RLock()
        self._client: Producer | None = None

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Told) -> None:
        """Queue a record. Raises KafkaException, BufferError."""
        client = self._open(topic)
        try:
            client.produce(topic, value, key, partition, on_delivery=on_delivery)
        except KafkaException as raised:
            if not raised.args[0].fatal():
                raise
            # One writer's fatal error would stop them all. What was on its way has failed, and its owners are told.
            self._give_up(client)
            self._open(topic).produce(topic, value, key, partition, on_delivery=on_delivery)

    def poll(self, timeout: float) -> int:
        """Serve delivery reports, of all users."""
        client = self._client
        return 0 if client is None else client.poll(timeout)

    @property
    def pending(self) -> bool:
        """Whether something is on its way, or its owner has not been told yet."""
        client = self._client
        return client is not None and len(client) > 0

    def close(self) -> None:
        """Give up what is on its way, and end. A later record opens a new client."""
        client = self._client
        if client is not None:
            self._give_up(client)

    def _give_up(self, client: Producer) -> None:
        with self._lock:
            if self._client is client:  # else another thread has seen to it, and has a new one
                self._client = None
        client.purge()
        client.poll(0)

    def _open(self, topic: str) -> Producer:
        with self._lock:
            client = self._client
            if client is not None:
                return client
            client = self._client = Producer(
                {**self._config, "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 10_000}
            )
        get_id(client, topic)
        return client
