"""Which partitions a consumer has, and where it goes on in them: the part of its face that moves positions."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from .assignment import Assignment
from .callers import Serial, alone
from .delivery import Delivery
from .gates.gating import Gatekeeper
from .gates.positions import GroupPositions
from .membership import Membership
from .records.delivery_buffer import DeliveryBuffer
from .records.strays import Strays


class PartitionControl(Serial):
    """Positions, assignment by hand, seek, pause. One thread at a time."""

    _assignment: Assignment
    _delivery: Delivery
    _gates: Gatekeeper
    _members: Membership
    _out: DeliveryBuffer
    _positions: GroupPositions
    _strays: Strays

    @alone
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset behind the last record that was returned, per partition."""
        self._begin_with(partitions)
        return [self._members.position(place) for place in partitions]

    @alone
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Own exactly these partitions, without the group's assignor; inside on_assign: say where they start.

        poll() raises AssignmentError for a partition that waits for one that is not assigned.
        """
        self._begin_with(partitions)
        if not self._members.rebalancing:  # subscribe() has looked, and a rebalance waits for its callback
            self._strays.check()
        self._delivery.move(lambda: self._members.assign(partitions, replace=True))

    @alone
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Own these partitions too; inside on_assign: say where they start."""
        self._begin_with(partitions)
        self._members.check_change(partitions, assigned=False)
        if not self._members.rebalancing:  # subscribe() has looked, and a rebalance waits for its callback
            self._strays.check()
        self._delivery.move(lambda: self._members.assign(partitions, replace=False))

    @alone
    def unassign(self) -> None:
        """Own no partition any more. Inside on_revoke and on_lost keyorder does that by itself."""
        self._begin()
        self._delivery.move(self._members.unassign)

    @alone
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Own these partitions no more. Inside on_revoke and on_lost keyorder does that by itself."""
        self._begin_with(partitions)
        self._members.check_change(partitions, assigned=True)
        self._delivery.move(lambda: self._members.unassign(partitions))

    @alone
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member owns, those behind closed gates included; offsets as they were assigned."""
        self._begin()
        return self._members.assignment()

    @alone
    def seek(self, partition: TopicPartition) -> None:
        """Go on from another offset of an owned partition. A rewind closes the gates behind it again."""
        self._begin_with([partition])
        owned, offset = self._members.sought(partition)

        def go() -> None:
            self._out.drop({owned.place})
            self._members.seek(owned, offset)
            self._gates.rearm(owned.topic)

        self._delivery.move(go)

    @alone
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no more records of these partitions until resume()."""
        self._begin_with(partitions)
        self._delivery.move(lambda: self._assignment.fetching.pause(partitions))

    @alone
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Undo pause()."""
        self._begin_with(partitions)
        places = {(p.topic, p.partition) for p in partitions}

        def go() -> None:
            self._assignment.fetching.resume(partitions)
            self._out.resume(places)

        self._delivery.move(go)

    def _begin(self) -> None:
        raise NotImplementedError

    def _begin_with(self, partitions: object) -> None:
        """TypeError for anything but a list of places, before anything is done with it."""
        self._begin()
        if not isinstance(partitions, list) or not all(isinstance(place, TopicPartition) for place in partitions):
            raise TypeError("expected list of TopicPartition")
