"""How a writer answers a PREPARE: READY, once nothing of the moving keys can reach their old homes any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from ...partitioner.epochs import ChangePhase
from ...partitioner.records.control_records import Ready, encode_ready, ready_key
from ...partitioner.writers.lease import LeaseKeeper, Standing
from ...partitioner.writers.sending import TopicSending

_LOOK_SECONDS = 1.0


class ReadyResponder:
    """The answers of one writer. Used by its session's thread.

    data: the client that sends the user's records. lock: the producer's. send: writes a record of the writer's own; it is
    given what to call when that could not be delivered.
    """

    def __init__(
        self,
        writer_id: str,
        lease: LeaseKeeper,
        data: Producer,
        lock: threading.Lock,
        send: Callable[[bytes, bytes, Callable[[], object]], None],
    ) -> None:
        self._writer_id, self._lease, self._data = writer_id, lease, data
        self._lock, self._send = lock, send
        self._known_partitions: dict[str, int] = {}

    def answer(
        self,
        topics: Mapping[str, TopicSending[Any]],
        serve: Callable[[], object],
        harvest: Callable[[], None],
        now: float,
    ) -> None:
        """Say READY for every attempt whose moving keys are held and resolved, and whose partitions we know.

        serve: serves delivery reports. harvest: under the lock, takes in what is counted elsewhere of records on the way.
        """
        for topic, sending in list(topics.items()):
            change = sending.timeline.change
            if change is None:
                continue
            if self._known_partitions.get(topic, 0) < change.count:
                self._refresh_partitions(topic)
            if change.phase is not ChangePhase.PREPARE or sending.answered:
                continue
            serve()
            with self._lock:
                harvest()
                epoch = sending.ready_epoch(now)
                acknowledged = sending.acknowledged_origins()
            known = self._known_partitions.get(topic, 0) >= change.count
            if epoch is not None and known and self._lease.standing is Standing.LIVE:
                ready = Ready(topic, self._writer_id, self._lease.nonce, epoch, acknowledged)
                key = ready_key(topic, self._writer_id, self._lease.nonce)
                self._send(key, encode_ready(ready), partial(self._lost, sending, epoch))
                with self._lock:
                    sending.said_ready(epoch)

    def _lost(self, sending: TopicSending[Any], epoch: int) -> None:
        """The leader was away for too long. Nobody else says it: the change would wait for this writer in vain."""
        with self._lock:
            sending.lost_ready(epoch)

    def _refresh_partitions(self, topic: str) -> None:
        """Let the data client learn of new partitions now, so that a release does not wait for its next refresh."""
        try:
            found = self._data.list_topics(topic, timeout=_LOOK_SECONDS).topics.get(topic)
        except KafkaException:
            return
        if found is not None and found.error is None:
            self._known_partitions[topic] = len(found.partitions)
