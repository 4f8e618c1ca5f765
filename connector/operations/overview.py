"""All managed topics at once, looked at again and again without reading the control topics anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...partitioner.errors import OrderError, TopicNotFoundError, UnmanagedTopicError
from .. import clock
from ..control.rights import require_new
from ..group_gates import GroupOffsets
from ..metadata import cluster_metadata
from ..refusals import ClusterAdmin
from .change_status import ChangeStatus, change_status
from .control_state import ControlState
from .description import TopicDescription, described

# Of how many groups a client stays open between two looks.
_KEPT = 8


class Overview:
    """Describes managed topics. Not thread-safe; `close` it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._servers = str(config.get("bootstrap.servers"))
        self._admin = ClusterAdmin(config)
        self._state = ControlState(config, self._admin)
        self._offsets = GroupOffsets(config, self._admin, keep=_KEPT)

    @property
    def unreadable(self) -> Mapping[str, OrderError]:
        """Why the timelines of these topics could not be read at the last look."""
        return self._state.unreadable

    def look(self, topics: Collection[str] = ()) -> list[TopicDescription]:
        """These topics, or every managed one that exists, as they are now, by name.

        Raises TopicNotFoundError, UnmanagedTopicError, CorruptRecordError, RecordVersionError for one that was named,
        IdentityMismatchError never: a topic that was made again shows its old timeline until it is adopted anew. Raises
        Kafka's errors. Topics that were not named and cannot be read are in `unreadable`.
        """
        self._state.refresh()
        physical = cluster_metadata(self._admin, self._servers).topics
        for topic in topics:
            if topic not in physical:
                require_new(self._admin, self._servers, topic)
                raise TopicNotFoundError(topic)
            if topic in self.unreadable:
                raise self.unreadable[topic]
            if topic not in self._state.timelines:
                raise UnmanagedTopicError(topic)
        shown = sorted(topic for topic in topics or self._state.timelines if topic in physical)
        committed = self._offsets.on_topics(self._offsets.groups(), set(shown)) if shown else {}
        return [
            described(
                self._state.timelines[topic],
                len(physical[topic].partitions),
                self._state,
                {group: found[topic] for group, found in committed.items() if topic in found},
            )
            for topic in shown
        ]

    def change_status(self, topic: str) -> ChangeStatus:
        """The change of a topic of the last look, and whom it waits for; without the drains."""
        return change_status(self._state.timelines[topic], self._state, (), clock.wall_ms())

    def close(self) -> None:
        """Release the clients."""
        self._state.close()
        self._offsets.close()
