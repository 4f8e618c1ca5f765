"""A producer's transactions, and what its consumers learn of the offsets that went through them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from ..consuming.group_metadata import GroupMetadata, TransactionalOffsets


class Transactions:
    """The transactions of one client; each call as the Producer's method of that name."""

    def __init__(self, raw: Producer) -> None:
        self._raw = raw
        self._offsets: set[TransactionalOffsets] = set()

    def commit(self, timeout: float) -> None:
        """Commit; consumers hear that their offsets stand."""
        self._raw.commit_transaction(timeout)
        self.ended(True)

    def abort(self, timeout: float) -> None:
        """Abort the client's part. `ended(False)` has to follow when all else is done."""
        self._raw.abort_transaction(timeout)

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
