"""All that the two control topics say now, for whoever shows it: timelines, live writers, waivers, and when each was written.

Times of records are those of the clocks that wrote them. They are for people: nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from ...partitioner.errors import OrderError
from ...partitioner.records.control_records import CONTROL_TOPIC, Lease, Ready, Waiver
from ...partitioner.timeline import Timeline
from ...partitioner.writers.members import Member, WriterSet
from .. import clock
from ..control.control_reader import ControlMessage, ControlReader
from ..control.control_topics import PARTITIONS, all_writer_slots, existing
from ..control.timelines import Timelines
from ..refusals import ClusterAdmin


class ControlState:
    """The control topics, folded; `refresh` reads on from where the last one ended. Not thread-safe; `close` it."""

    def __init__(self, config: Mapping[str, Any], admin: AdminClient | None = None) -> None:
        self._config = dict(config)
        self._servers = str(config.get("bootstrap.servers"))
        self._admin = admin or ClusterAdmin(config)
        self._reader: ControlReader | None = None
        self._members = WriterSet()
        self._renewed_at: dict[str, int | None] = {}
        self._waivers: dict[bytes, Waiver] = {}
        self._found = Timelines()
        self.written_at: dict[str, int | None] = {}

    @property
    def timelines(self) -> Mapping[str, Timeline]:
        """The managed topics' timelines."""
        return self._found.by_topic

    @property
    def unreadable(self) -> Mapping[str, OrderError]:
        """Why the timelines of these topics cannot be read."""
        return self._found.unreadable

    def refresh(self, timeout: float = 20.0) -> None:
        """Read to the ends as they are now. Without control topics nothing is managed.

        Timelines that cannot be read are in `unreadable`, with the error. Raises BrokerUnreachableError,
        NotAuthorizedError, OrderError for other records that cannot be read.
        """
        if self._reader is None:
            if not existing(self._admin, self._servers):
                return
            self._reader = ControlReader(self._config, fetch_wait_ms=100)
            self._reader.add([*((CONTROL_TOPIC, p) for p in range(PARTITIONS)), *all_writer_slots()])
        for message in self._reader.read_to_end(timeout=timeout):
            self._take(message)

    def writers(self, topic: str) -> list[Member]:
        """The members that may write the topic, by writer id. Raises nothing; empty for an unknown topic."""
        return sorted(self._members.live(topic), key=lambda m: (m.lease.writer, m.incarnation))

    def is_ready(self, member: Member, topic: str, epoch: int) -> bool:
        """Whether it has said READY for this attempt."""
        return self._members.is_ready(member.lease.nonce, topic, epoch)

    def renewed_at_ms(self, member: Member) -> int | None:
        """When the writer's last record was written, by the clock that wrote it."""
        return self._renewed_at.get(member.lease.nonce)

    def waived(self, timeline: Timeline, group: str) -> set[tuple[int, int]]:
        """(partition, epoch) of each gate that an operator has let go for the group, on this very topic."""
        wanted = (timeline.topic, timeline.topic_id, group)
        return {(w.partition, w.epoch) for w in self._waivers.values() if (w.topic, w.topic_id, w.group) == wanted}

    def close(self) -> None:
        """Release the clients."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _take(self, message: ControlMessage) -> None:
        topic = self._found.take(message)
        if topic is not None:
            if topic in self.timelines:
                self.written_at[topic] = message.at_ms
            return
        record = message.record
        if isinstance(record, Waiver):
            self._waivers[message.key] = record
        elif message.value is None:
            self._waivers.pop(message.key, None)
        elif isinstance(record, Lease | Ready):
            self._members.apply(record, message.offset, clock.now())
            if isinstance(record, Lease):
                self._renewed_at[record.nonce] = message.at_ms
