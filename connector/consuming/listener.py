"""KeyRebalanceListener: what a consumer's application hears of (KIP-253, "Consumer API")."""

from __future__ import annotations

from confluent_kafka import TopicPartition


class KeyRebalanceListener:
    """Override what you need. All methods run on the thread that polls, between records.

    The order of a moved key's hand-over: its last record at the old home is processed, `on_partition_key_maybe_revoked`
    (flush), the group's position is committed, `on_partition_key_assigned` (load) in the member that has the new home,
    its first record there.
    """

    def on_assign(self, partitions: list[TopicPartition]) -> None:
        """These partitions are this member's from now on."""

    def on_revoke(self, partitions: list[TopicPartition]) -> None:
        """These partitions are about to be another member's; processed positions are committed when this returns."""

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        """These partitions are another member's already: nothing can be committed for them."""

    def on_partition_key_maybe_revoked(self, partitions: list[TopicPartition]) -> None:
        """Keys of these partitions may have moved: flush their state now, before another member loads it."""

    def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
        """Keys may have come to these partitions: load their state, before their first record is delivered."""


def hears_of_keys(listener: KeyRebalanceListener) -> bool:
    """Whether it wants to flush or load state of keys: it overrides one of the two methods for that."""
    names = ("on_partition_key_maybe_revoked", "on_partition_key_assigned")
    return any(getattr(type(listener), name) is not getattr(KeyRebalanceListener, name) for name in names)
