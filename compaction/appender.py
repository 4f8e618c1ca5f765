"""Writing winners again: small transactions of an OrderedProducer, so that layout changes and one owner are respected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from ..connector import clock
from ..connector.config import connection_of
from ..connector.crash import crash_point
from ..connector.kafka_errors import translate
from ..connector.messages import Headers
from ..connector.producing.producer import OrderedProducer
from ..partitioner.errors import BrokerUnreachableError, IneligibleWriterError
from .errors import CompactorFencedError
from .versions import COPY_HEADER, Version, copy_header

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
_TIMEOUT = 30.0


class Appender:
    """One compactor's transactional writer. `transactional.id = keyorder-compactor-<topic>`: who opens it last is in charge.

    A transaction holds one ready-made batch, so nothing of it is seen if the process dies before the commit. Records go
    to their keys' present homes by the producer's own rules, and are held while their keys move.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, topic_id: str) -> None:
        self._topic, self._topic_id = topic, topic_id
        self._bootstrap = str(config.get("bootstrap.servers"))
        name = f"keyorder-compactor-{topic}"
        self._producer = OrderedProducer(
            {
                **connection_of(config),
                "transactional.id": name,
                "transaction.timeout.ms": 20_000,
                "message.timeout.ms": 15_000,
                "keyorder.writer.id": name,
                "keyorder.adopt": False,
                "linger.ms": 5,
                "message.max.bytes": 1_000_000_000,  # what a topic takes is for its broker to say
            }
        )
        try:
            self._producer.init_transactions(_TIMEOUT)
        except KafkaException as raised:
            raise translate(raised.args[0], "use", f"transactional id {name}", self._bootstrap) from raised

    def append(self, batch: Sequence[tuple[bytes, Version]]) -> dict[bytes, tuple[int, int]]:
        """Write these winners once more, all or none. Returns {key: (partition, offset)}.

        Raises CompactorFencedError, UnmanagedTopicError, NotAuthorizedError, KafkaOperationError, BrokerUnreachableError.
        """
        deadline = clock.now() + 4 * _TIMEOUT
        while True:
            try:
                return self._once(batch)
            except IneligibleWriterError as raised:
                raise CompactorFencedError(self._topic) from raised
            except KafkaException as raised:
                error = raised.args[0]
                if error.code() in _FENCED:
                    raise CompactorFencedError(self._topic) from raised
                passes = error.txn_requires_abort() and error.code() != KafkaError.MSG_SIZE_TOO_LARGE
                if not (passes or error.retriable()) or clock.now() >= deadline:
                    raise translate(error, "write to", f"topic {self._topic}", self._bootstrap) from raised
                self._producer.abort_transaction(_TIMEOUT)

    def close(self) -> None:
        """Leave the writers."""
        self._producer.close(_TIMEOUT)

    def _headers(self, winner: Version) -> Headers:
        """The winner's own, and where it comes from. A copy of a copy is one of the original."""
        own = [header for header in winner.headers or () if header[0] != COPY_HEADER]
        return [*own, copy_header(self._topic_id, winner)]

    def _once(self, batch: Sequence[tuple[bytes, Version]]) -> dict[bytes, tuple[int, int]]:
        places: dict[bytes, tuple[int, int]] = {}
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                places[message.key()] = (message.partition(), message.offset())  # type: ignore[index, assignment]

        self._producer.begin_transaction()
        for key, winner in batch:
            while True:
                try:
                    self._producer.produce(
                        self._topic, winner.value, key, on_delivery=told, timestamp=max(0, winner.timestamp),
                        headers=self._headers(winner),
                    )  # fmt: skip
                    break
                except BufferError:
                    self._producer.poll(0.1)
        left = self._producer.flush(_TIMEOUT)
        if failed:
            raise KafkaException(failed[0])
        if left:
            raise BrokerUnreachableError(self._bootstrap, f"{left} records were not taken within {_TIMEOUT:.0f} s")
        crash_point("compactor-appended")
        while True:
            try:
                self._producer.commit_transaction(_TIMEOUT)
                return places
            except KafkaException as raised:
                if not raised.args[0].retriable():
                    raise
