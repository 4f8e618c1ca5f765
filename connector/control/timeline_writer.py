"""Writing timelines: one transaction per record, under the topic's transactional id, so that there is one controller.

`transactional.id = keyorder-controller-<topic>`: whoever calls `start()` last has fenced all others. A transaction holds
one ready-made record, and nothing is read or awaited inside it: an abandoned one hides what lies behind it. With the
release of re-homed values their copies and tombstones go in the same one: a controller that was fenced writes none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ...partitioner.errors import BrokerUnreachableError, ControllerFencedError, KeyorderError
from ...partitioner.records.control_records import (
    CONTROL_TOPIC,
    encode_timeline,
    encode_waiver,
    timeline_key,
    waiver_key,
)
from ...partitioner.records.control_records import Waiver as WaiverRecord
from ...partitioner.timeline import Timeline
from .. import clock
from ..config import connection_of
from ..crash import crash_point
from ..kafka_errors import meant, translate
from ..library_calls import shielded
from ..metadata import take_id
from ..refusals import refusal
from .control_topics import timeline_slot

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}

# Milliseconds after which the coordinator ends a transaction by itself: until then it hides what lies behind it.
_EXPIRY_MS = 5_000

# What no second try fixes.
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
}


@dataclass(frozen=True, slots=True)
class DataRecord:
    """A record of a data topic. timestamp: milliseconds of its creation, 0 for now."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    timestamp: int = 0


class UnknownResultError(KeyorderError):
    """A transaction's end is not known: begin again from `start()` and a fresh look at the timeline."""

    retriable = True


class TimelineWriter:
    """The transactional writer of one topic's timeline. Not thread-safe."""

    def __init__(self, config: Mapping[str, Any], topic: str, timeout: float = 15.0) -> None:
        self.topic, self._timeout = topic, timeout
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._config = config
        self._ended = False  # fenced, not started, or after another fatal error: its client can do nothing more
        self._producer = Producer(
            {
                **connection_of(config),
                "transactional.id": f"keyorder-controller-{topic}",
                "transaction.timeout.ms": _EXPIRY_MS,
                "message.timeout.ms": 5_000,
                "linger.ms": 0,
                "enable.idempotence": True,
                # What a topic takes is for its broker to say: copies may be as large as any record.
                "message.max.bytes": 1_000_000_000,
            }
        )

    def start(self) -> None:
        """Fence every other controller of this topic. Raises NotAuthorizedError, BrokerUnreachableError and kin."""
        try:
            take_id(self._producer, CONTROL_TOPIC, self._timeout)
        except KafkaException as raised:
            self._ended = True
            held = f"transactional id keyorder-controller-{self.topic}"
            error = translate(raised.args[0], "use", held, self._bootstrap)
            if isinstance(error, BrokerUnreachableError):
                # A certificate may have run out since the cluster was asked.
                silent = f"the coordinator of {held} has not given it for {self._timeout:g} s: {raised.args[0].name()}"
                error = refusal(self._config) or BrokerUnreachableError(self._bootstrap, silent)
            raise error from raised

    def write(self, timeline: Timeline, step: str = "timeline", data: Iterable[DataRecord] = ()) -> None:
        """Commit this timeline, and `data` with it. When it returns all is decided, but not necessarily visible yet.

        A transaction is decided before its markers are written: read the timeline back before anything goes by it.

        Raises ControllerFencedError, NotAuthorizedError, UnknownResultError, KafkaOperationError (a record was refused).
        """
        self._commit(timeline_key(timeline.topic), encode_timeline(timeline), step, data)

    def write_waiver(self, waiver: WaiverRecord) -> None:
        """Commit a waiver of one of this topic's gates. Raises as `write`."""
        self._commit(waiver_key(waiver), encode_waiver(waiver), "waiver")

    def delete_waiver(self, key: bytes) -> None:
        """Take a waiver back. Raises as `write`."""
        self._commit(key, None, "waiver")

    def _commit(self, key: bytes, value: bytes | None, step: str, data: Iterable[DataRecord] = ()) -> None:
        slot_topic, slot_partition = timeline_slot(self.topic)
        failures: list[tuple[KafkaError, str]] = []

        @shielded
        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append((error, message.topic() or slot_topic))

        begun = clock.now()
        try:
            self._producer.begin_transaction()
            for r in data:
                self._producer.produce(
                    r.topic, r.value, r.key, r.partition, done, timestamp=r.timestamp, headers=r.headers
                )
            self._producer.produce(slot_topic, value, key, slot_partition, on_delivery=done)
            if self._producer.flush(self._timeout):
                raise UnknownResultError(f"the control record of {self.topic!r} was not acknowledged in time")
            if failures:
                raise KafkaException(failures[0][0])
            crash_point(f"{step}-sent")
            self._producer.commit_transaction(self._timeout)
        except (KafkaException, SystemError) as raised:
            error = meant(raised)
            if error.code() in _FENCED or error.fatal():
                self._ended = True
                if clock.now() - begun < _EXPIRY_MS / 1000:
                    raise ControllerFencedError(self.topic) from raised
                # The coordinator ends a transaction that lasts too long in the same way as another controller does.
                raise UnknownResultError(f"the transaction of {self.topic!r} took too long") from raised
            name = failures[0][1] if failures else slot_topic
            what = f"control topic {name}" if name == slot_topic else f"topic {name}"
            typed = translate(error, "write", what, self._bootstrap)
            if error.code() in _REFUSED:
                raise typed from raised
            raise UnknownResultError(f"the control record of {self.topic!r}: {typed}") from raised

    def close(self) -> None:
        """Close the transactional writer. It gives up an open transaction, unless another controller has done so."""
        if self._ended:
            # Its close() would try to abort once more, and complain in a warning, or again in an error.
            del self._producer
            return
        try:
            self._producer.close()
        except KafkaException:
            pass  # a refused producer complains once more; whoever used it has heard already
