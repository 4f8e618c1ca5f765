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
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
# A batch that was refused leaves a gap in the sequence: what comes behind it goes with the transaction, and the next one may
# fail at the gap once more, before the client library takes a new epoch. It may say that all is lost before it says why.
_LOST = {KafkaError._STATE, KafkaError._PURGE_QUEUE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER}
_TIMEOUT = 30.0
_BATCH_SIZE = 1_000_000  # the client library's own


class _TooLargeError(Exception):
    """The broker has refused batches for their size. keys: of the records in them."""

    def __init__(self, keys: set[bytes]) -> None:
        super().__init__(keys)
        self.keys = keys


class Appender:
    """One compactor's transactional writer. `transactional.id = keyorder-compactor-<topic>`: who opens it last is in charge.

    A transaction holds one ready-made batch, so nothing of it is seen if the process dies before the commit. Records go
    to their keys' present homes by the producer's own rules, and are held while their keys move.

    most: the topic's `max.message.bytes`. transactions: how many were committed.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, topic_id: str, most: int) -> None:
        self._config, self._topic, self._topic_id, self._most = config, topic, topic_id, most
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._compresses = False
        self.transactions = 0
        self._producer = self._opened("none")

    def _opened(self, compression: str) -> OrderedProducer:
        name = f"keyorder-compactor-{self._topic}"
        producer = OrderedProducer(
            {
                **connection_of(self._config),
                "transactional.id": name,
                "transaction.timeout.ms": 20_000,
                "message.timeout.ms": 15_000,
                "keyorder.writer.id": name,
                "keyorder.adopt": False,
                "linger.ms": 5,
                "compression.type": compression,
                "batch.size": max(1, min(self._most, _BATCH_SIZE)),
                "message.max.bytes": 1_000_000_000,  # what a topic takes is for its broker to say
            }
        )
        try:
            producer.init_transactions(_TIMEOUT)
        except KafkaException as raised:
            raise translate(raised.args[0], "use", f"transactional id {name}", self._bootstrap) from raised
        return producer

    def append(self, batch: Sequence[tuple[bytes, Version]]) -> dict[bytes, tuple[int, int]]:
        """Write these winners once more. Returns {key: (partition, offset)} without those that are too large for the topic.

        Raises CompactorFencedError, UnmanagedTopicError, NotAuthorizedError, KafkaOperationError, BrokerUnreachableError.
        """
        places: dict[bytes, tuple[int, int]] = {}
        parts = [list(batch)]
        while parts:
            part = parts.pop()
            try:
                places |= self._all_or_none(part)
                self.transactions += 1
            except _TooLargeError as raised:
                if not self._compresses:
                    # The topic took them once: from a producer that compresses, and the limit is for what it sends. The
                    # codec that makes them smallest, but not before it is needed: not all readers have it.
                    self._producer.close(_TIMEOUT)
                    self._producer = self._opened("zstd")
                    self._compresses = True
                    parts.append(part)
                elif len(part) > 1:
                    parts += [[each] for each in part if each[0] in raised.keys]
                    parts += [rest] if (rest := [each for each in part if each[0] not in raised.keys]) else []
        return places

    def _all_or_none(self, batch: Sequence[tuple[bytes, Version]]) -> dict[bytes, tuple[int, int]]:
        """One transaction. Raises _TooLargeError, and as `append`."""
        deadline = clock.now() + 4 * _TIMEOUT
        while True:
            failed: list[tuple[bytes, KafkaError]] = []
            try:
                return self._once(batch, failed)
            except IneligibleWriterError as raised:
                raise CompactorFencedError(self._topic) from raised
            except KafkaException as raised:
                error = raised.args[0]
                if error.code() in _FENCED:
                    raise CompactorFencedError(self._topic) from raised
                passes = error.txn_requires_abort() or error.retriable() or error.code() in _LOST | _TOO_LARGE
                if not passes or clock.now() >= deadline:
                    raise translate(error, "write to", f"topic {self._topic}", self._bootstrap) from raised
                self._producer.abort_transaction(_TIMEOUT)
                if keys := {key for key, why in failed if why.code() in _TOO_LARGE}:
                    raise _TooLargeError(keys) from raised

    def close(self) -> None:
        """Leave the writers."""
        self._producer.close(_TIMEOUT)

    def _headers(self, winner: Version) -> Headers:
        """The winner's own, and where it comes from. A copy of a copy is one of the original."""
        own = [header for header in winner.headers or () if header[0] != COPY_HEADER]
        return [*own, copy_header(self._topic_id, winner)]

    def _once(
        self, batch: Sequence[tuple[bytes, Version]], failed: list[tuple[bytes, KafkaError]]
    ) -> dict[bytes, tuple[int, int]]:
        places: dict[bytes, tuple[int, int]] = {}

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append((message.key(), error))  # type: ignore[arg-type]
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
        deadline = clock.now() + _TIMEOUT
        # What waits behind a batch that was refused is not sent any more.
        while (left := self._producer.flush(0.1)) and not failed and clock.now() < deadline:
            pass
        if failed:
            raise KafkaException(failed[0][1])
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
