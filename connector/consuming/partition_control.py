"""Which partitions a consumer has, and where it goes on in them: the part of its face that moves positions."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from .delivery import Delivery
from .gates.gating import Gatekeeper
from .gates.positions import GroupPositions
from .membership import Membership
from .records.strays import Strays


class PartitionControl:
    """Positions, assignment by hand, seek, pause. Used by the polling thread alone."""

    _delivery: Delivery
    _gates: Gatekeeper
    _members: Membership
    _positions: GroupPositions
    _strays: Strays

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset behind the last record that was returned, per partition."""
        self._check_open()
        return [self._members.position(place) for place in partitions]

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Own exactly these partitions, without the group's assignor; inside on_assign: say where they start.

        poll() raises AssignmentError for a partition that waits for one that is not assigned.
        """
        self._check_open()
        self._strays.check()
        self._members.assign(partitions, replace=True)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Own these partitions too; inside on_assign: say where they start."""
        self._check_open()
        self._members.assign(partitions, replace=False)

    def unassign(self) -> None:
        """Own no partition any more. Inside on_revoke and on_lost keyorder does that by itself."""
        self._check_open()
        self._members.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Own these partitions no more. Inside on_revoke and on_lost keyorder does that by itself."""
        self._check_open()
        self._members.unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member owns, those behind closed gates included."""
        self._check_open()
        return [TopicPartition(t, p) for t, p in sorted(self._members.owned)]

    def seek(self, partition: TopicPartition) -> None:
        """Go on from another offset of an owned partition. A rewind closes the gates behind it again."""
        self._check_open()
        self._delivery.drop({(partition.topic, partition.partition)})
        self._members.seek(partition)
        self._gates.rearm(partition.topic)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no more records of these partitions until resume()."""
        self._check_open()
        self._members.fetching.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Undo pause()."""
        self._check_open()
        self._members.fetching.resume(partitions)

    def _check_open(self) -> None:
        raise NotImplementedError
