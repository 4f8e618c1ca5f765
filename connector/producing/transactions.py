"""A producer's transactions: what belongs to the present one, and what consumers learn of the offsets that went through it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ..consuming.group_metadata import GroupMetadata, TransactionalOffsets


class Transactions:
    """The transactions of one client. Everything but the calls of the client happens under the producer's lock.

    number: of the present transaction, or of the one to come; it changes when one begins and when an abort begins.
    failure: why the present one cannot be committed: a record of it was held, and then dropped.
    """

    def __init__(self, raw: Producer, transactional: bool) -> None:
        self._raw, self.transactional = raw, transactional
        self._offsets: set[TransactionalOffsets] = set()
        self._taking = not transactional
        self.number = 0
        self._over: int | None = None
        self.failure: KafkaError | None = None

    def begin(self) -> None:
        """As Producer.begin_transaction."""
        self._raw.begin_transaction()
        self.number += 1
        self.failure = None
        self._taking = True

    def check_open(self) -> None:
        """Raises KafkaException where the client library would refuse a record: there is no transaction, or it is ending."""
        if not self._taking:
            raise KafkaException(KafkaError(KafkaError._STATE, "Unable to produce message: no transaction is open"))

    def fail(self, error: KafkaError) -> None:
        """A record of the present transaction will not be sent."""
        if self.transactional and self.failure is None:
            self.failure = error

    def ending(self, number: int, left: int) -> None:
        """Take no more records. number: of the transaction to end. left: how many records are not delivered yet.

        Raises KafkaException, with nothing changed: _STATE when another thread has ended that transaction, one that asks for
        an abort, or a retriable one while some are left.
        """
        self._check_number(number)
        if self.failure is not None:
            why = f"a record of this transaction was not sent ({self.failure.str()}): abort it"
            raise KafkaException(KafkaError(self.failure.code(), why, txn_requires_abort=True))
        if left:
            why = f"{left} records or delivery reports of this transaction are outstanding: call commit_transaction() again"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, why, retriable=True))
        self._taking = not self.transactional

    def aborting(self) -> int:
        """Take no more records, and count what comes of those so far for nothing. Returns the first number that is over.

        That is an earlier one than the present where an abort is called again, since it did not end in time.
        """
        if self._over is None:
            self._over = self.number
        self._taking = not self.transactional
        self.number += 1
        return self._over

    def commit(self, number: int, timeout: float) -> None:
        """Commit the client's part; consumers hear that their offsets stand. Raises as `ending`."""
        self._check_number(number)  # the client knows no numbers: it would commit what the next one has so far
        self._raw.commit_transaction(timeout)
        self.ended(True)

    def _check_number(self, number: int) -> None:
        if number != self.number:
            raise KafkaException(KafkaError(KafkaError._STATE, "this transaction was aborted while its commit waited"))

    def abort(self, timeout: float) -> None:
        """Abort the client's part. `ended(False)` has to follow when all else is done."""
        self._raw.abort_transaction(timeout)
        self.failure = self._over = None

    def send_offsets(self, positions: list[Any], group_metadata: Any, timeout: float) -> None:
        """See OrderedProducer.send_offsets_to_transaction."""
        if isinstance(group_metadata, GroupMetadata):
            positions = group_metadata.offsets.stamp(positions)
            self._offsets.add(group_metadata.offsets)
        self._raw.send_offsets_to_transaction(positions, group_metadata, timeout)

    def ended(self, committed: bool | None) -> None:
        """Tell the consumers. None: nobody knows how the transaction ended."""
        while self._offsets:
            self._offsets.pop().ended(committed)
