"""One client that writes control records for all writers of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ..config import connection_of
from ..kafka_errors import meant
from ..library_calls import shielded
from ..metadata import get_id

Told = Callable[[Any, Any], None]


class _Client:
    """One client of the library. fatal: what it has failed with for good, which is why its records are not written."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.producer = Producer({**config, "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 10_000})
        self.fatal: KafkaError | None = None

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Told) -> bool:
        """Queue a record. False: nothing can be written through this client any more. Raises KafkaException, BufferError."""
        try:
            self.producer.produce(topic, value, key, partition, on_delivery=partial(self._tell, on_delivery))
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() != KafkaError._FATAL and not error.fatal():
                raise
            return False
        return True

    def poll(self, timeout: float) -> int | None:
        """Serve delivery reports. None: a fatal error was told."""
        try:
            return self.producer.poll(timeout)
        except (KafkaException, SystemError) as raised:
            error = meant(raised)
            if not error.fatal():
                raise
            self.fatal = error
            return None

    def end(self) -> None:
        """Give up what is on its way; whose it is is told why."""
        self.poll(0)  # a fatal error comes first
        self.producer.purge()
        self.poll(0)

    @shielded
    def _tell(self, on_delivery: Told, error: Any, message: Any) -> None:
        on_delivery(error if error is None or self.fatal is None else self.fatal, message)


class ControlWriter:
    """A producer that is opened with the first record. Thread-safe; used as confluent_kafka.Producer.

    Delivery reports run on whichever thread polls: they may only take note. A fatal error, such as that for a user who may
    write no topic, ends the client and what is on its way through it; the next record of anybody goes through a new one.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = connection_of(config)
        self._lock = threading.RLock()
        self._client: _Client | None = None

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Told) -> None:
        """Queue a record. Raises KafkaException, BufferError."""
        client = self._open(topic)
        if not client.produce(topic, value, key, partition, on_delivery):
            # One writer's fatal error would stop them all. What was on its way has failed, and its owners are told.
            self._give_up(client)
            again = self._open(topic)
            if not again.produce(topic, value, key, partition, on_delivery):
                self._give_up(again)
                raise KafkaException(again.fatal or client.fatal or KafkaError(KafkaError._FATAL))

    def poll(self, timeout: float) -> int:
        """Serve delivery reports, of all users."""
        client = self._client
        served = 0 if client is None else client.poll(timeout)
        if client is not None and served is None:
            self._give_up(client)
        return served or 0

    @property
    def pending(self) -> bool:
        """Whether something is on its way, or its owner has not been told yet."""
        client = self._client
        return client is not None and len(client.producer) > 0

    def close(self) -> None:
        """Give up what is on its way, and end. A later record opens a new client."""
        client = self._client
        if client is not None:
            self._give_up(client)

    def _give_up(self, client: _Client) -> None:
        with self._lock:
            if self._client is client:  # else another thread has seen to it, and has a new one
                self._client = None
        client.end()

    def _open(self, topic: str) -> _Client:
        with self._lock:
            client = self._client
            if client is not None:
                return client
            client = self._client = _Client(self._config)
        get_id(client.producer, topic)
        return client
