"""Writing timelines: one transaction per record, under the topic's transactional id, so that there is one controller.

`transactional.id = keyorder-controller-<topic>`: whoever calls `start()` last has fenced all others. A transaction holds
one ready-made record, and nothing is read or awaited inside it: an abandoned one hides what lies behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ..partitioner.errors import ControllerFencedError, KeyorderError
from ..partitioner.records import Waiver as WaiverRecord
from ..partitioner.records import encode_timeline, encode_waiver, timeline_key, waiver_key
from ..partitioner.timeline import Timeline
from .config import connection_of
from .control_topics import timeline_slot
from .crash import crash_point
from .kafka_errors import translate

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class UnknownResultError(KeyorderError):
    """A transaction's end is not known: begin again from `start()` and a fresh look at the timeline."""

    retriable = True


class TimelineWriter:
    """The pen of one topic's timeline. Not thread-safe."""

    def __init__(self, config: Mapping[str, Any], topic: str, timeout: float = 15.0) -> None:
        self.topic, self._timeout = topic, timeout
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._producer = Producer(
            {
                **connection_of(config),
                "transactional.id": f"keyorder-controller-{topic}",
                "transaction.timeout.ms": 5_000,
                "message.timeout.ms": 5_000,
                "linger.ms": 0,
                "enable.idempotence": True,
            }
        )

    def start(self) -> None:
        """Fence every other controller of this topic. Raises NotAuthorizedError, BrokerUnreachableError and kin."""
        try:
            self._producer.init_transactions(self._timeout)
        except KafkaException as raised:
            raise translate(
                raised.args[0], "use", f"transactional id keyorder-controller-{self.topic}", self._bootstrap
            ) from raised

    def write(self, timeline: Timeline, step: str = "timeline") -> None:
        """Commit this timeline. When it returns the record is decided, but not necessarily visible yet.

        Raises ControllerFencedError, NotAuthorizedError, UnknownResultError.
        """
        self._commit(timeline_key(timeline.topic), encode_timeline(timeline), step)

    def write_waiver(self, waiver: WaiverRecord) -> None:
        """Commit a waiver of one of this topic's gates. Raises as `write`."""
        self._commit(waiver_key(waiver), encode_waiver(waiver), "waiver")

    def delete_waiver(self, key: bytes) -> None:
        """Take a waiver back. Raises as `write`."""
        self._commit(key, None, "waiver")

    def _commit(self, key: bytes, value: bytes | None, step: str) -> None:
        slot_topic, slot_partition = timeline_slot(self.topic)
        try:
            self._producer.begin_transaction()
            failures: list[KafkaError] = []
            self._producer.produce(
                slot_topic, value, key, slot_partition, on_delivery=lambda e, _: failures.append(e) if e else None
            )
            if self._producer.flush(self._timeout):
                raise UnknownResultError(f"the control record of {self.topic!r} was not acknowledged in time")
            if failures:
                raise KafkaException(failures[0])
            crash_point(f"{step}-sent")
            self._producer.commit_transaction(self._timeout)
        except SystemError as raised:
            # A fatal error inside a delivery callback leaves the binding in this shape: the producer was fenced.
            raise ControllerFencedError(self.topic) from raised
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() in _FENCED or error.fatal():
                raise ControllerFencedError(self.topic) from raised
            typed = translate(error, "write", f"control topic {slot_topic}", self._bootstrap)
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise typed from raised
            raise UnknownResultError(f"the control record of {self.topic!r}: {typed}") from raised

    def close(self) -> None:
        """Let go of the pen; an open transaction is left to its timeout or to the next controller."""
        try:
            self._producer.close()
        except KafkaException:
            pass  # a fenced or refused producer complains once more; whoever used it has heard already
