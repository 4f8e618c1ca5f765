"""Offsets that go through transactions: each carries the epoch, and the consumer learns what became of it.

`consumer_group_metadata()` returns the client library's opaque bytes with this consumer's books behind them. An
OrderedProducer finds them there; a stock producer sees bytes.
"""

from __future__ import annotations

from confluent_kafka import TopicPartition

from ...partitioner.errors import ConfigError
from ...partitioner.gates.starts import epoch_of, metadata_of, note_of
from ..config import ConsumerSettings
from .assignment import Assignment
from .gates.gating import Gatekeeper
from .partition_state import PartitionState


class TransactionalOffsets:
    """What a consumer's offsets in transactions are. Used by the thread that polls and sends."""

    def __init__(self, settings: ConsumerSettings, assignment: Assignment, gates: Gatekeeper) -> None:
        self._settings, self._assignment, self._gates = settings, assignment, gates
        self._sent: dict[PartitionState, TopicPartition] = {}
        self._by_ours = False
        self.used = False
        self.unknown: set[PartitionState] = set()

    def begin(self) -> None:
        """The application may send this consumer's offsets by a producer from now on."""
        self.used = True

    @property
    def pending(self) -> bool:
        """Whether keyorder has to be silent: a plain commit would win over one that is pending in a transaction.

        With a stock producer nobody here learns when a transaction ends, so it stays silent for good. After an unknown end
        until the broker has said what became of it.
        """
        return self.used and (not self._by_ours or bool(self._sent) or bool(self.undecided()))

    def undecided(self) -> list[PartitionState]:
        """Partitions whose offset went through a transaction that has ended unknown."""
        if not self.unknown:
            return []
        self.unknown = {owned for owned in self.unknown if self._assignment.owned.get(owned.place) is owned}
        return list(self.unknown)

    def stamp(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        """The same positions with the epoch in their metadata, moved past a tail that shows no records.

        Raises ConfigError for a consumer that also commits by itself.
        """
        if self._settings.auto_commit:
            raise ConfigError(
                "enable.auto.commit",
                "this consumer's offsets go through transactions, and it would commit them outside as well",
                "set it to false",
            )
        self._by_ours = True
        return [self._stamped(place) for place in positions]

    def _stamped(self, place: TopicPartition) -> TopicPartition:
        owned = self._assignment.owned.get((place.topic, place.partition))
        if owned is None or not owned.started or place.offset < 0:
            return place
        offset = owned.processed_up_to(place.offset)
        epoch = self._gates.proven_epoch(owned, offset)
        stamped = TopicPartition(owned.topic, owned.partition, offset, metadata_of(max(epoch, 0), place.metadata or ""))
        self._sent[owned] = stamped
        return stamped

    def ended(self, committed: bool | None) -> None:
        """The transaction was committed, aborted, or (None) nobody knows: then the broker is asked."""
        sent, self._sent = self._sent, {}
        for owned, place in sent.items():
            if self._assignment.owned.get(owned.place) is not owned:
                continue
            if committed:
                owned.processed = place.offset
                owned.commits.learned(place.offset, epoch_of(place.metadata), note_of(place.metadata))
                self._gates.moved(owned.topic)
            elif committed is None:
                self.unknown.add(owned)


class GroupMetadata(bytes):
    """The client library's group metadata, and the offsets' books of the consumer that it came from."""

    offsets: TransactionalOffsets

    def __new__(cls, raw: bytes, offsets: TransactionalOffsets) -> GroupMetadata:
        """The library's bytes with the books beside them."""
        made = super().__new__(cls, raw)
        made.offsets = offsets
        return made

    def __reduce_ex__(self, protocol: object) -> tuple[type[bytes], tuple[bytes]]:
        """A copy, such as one for another process, is the library's bytes: the books are this consumer's alone."""
        return bytes, (bytes(self),)
