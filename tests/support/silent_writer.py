"""A writer that lives and never gets ready: it renews its lease for ever and answers no PREPARE.

No real writer does that on demand; to a controller it is one whose records of moving keys stay unresolved.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer
from keyorder.connector.control.control_topics import writer_slot
from keyorder.partitioner.records.control_records import Lease, LeaseState, encode_lease, lease_key


class SilentWriter(threading.Thread):
    """Joins on entry, leaves on exit."""

    def __init__(self, config: Mapping[str, Any], topic: str, lease_ms: int = 45_000, writer: str = "") -> None:
        super().__init__(name="silent-writer", daemon=True)
        self.writer, self._nonce = writer or f"silent of {topic}", uuid.uuid4().hex
        self._topic, self._lease_ms, self._sequence = topic, lease_ms, 0
        self._producer = Producer({**config, "linger.ms": 0})
        self._incarnation: int | None = None
        self._leaving = threading.Event()

    def __enter__(self) -> SilentWriter:
        self._say(LeaseState.JOIN)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self.join()
        self._say(LeaseState.LEFT)

    def run(self) -> None:
        while not self._leaving.wait(0.1):
            self._say(LeaseState.LIVE)

    def _say(self, state: LeaseState) -> None:
        self._sequence += 1
        lease = Lease(
            self.writer, self._nonce, state, self._incarnation, self._lease_ms, self._sequence, (self._topic,)
        )
        topic, partition = writer_slot(self.writer)
        self._producer.produce(
            topic, encode_lease(lease), lease_key(self.writer, self._nonce), partition, on_delivery=self._landed
        )
        assert self._producer.flush(120) == 0

    def _landed(self, error: Any, message: Any) -> None:
        assert error is None, error
        if self._incarnation is None:
            self._incarnation = message.offset()
