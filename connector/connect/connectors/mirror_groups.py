"""Positions of the source's groups, translated to the mirrored topics.

Between two polls of the mirror a *mark* is taken: how far each source partition has been handed out, and where the target's logs
end. Whatever is handed out later lies behind those ends, whichever partitions its keys have there. So a group that has
committed all that was handed out at a mark may begin at the mark's ends: it misses nothing, and gets some records again.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ....partitioner.errors import TopicNotFoundError
from ....partitioner.gates.gate import Gates, consistent_starts
from ....partitioner.gates.starts import flushed_epoch, metadata_of
from ....partitioner.timeline import Timeline
from ...admin import TopicAdmin
from ...admin_link import AdminLink
from ...group_gates import GroupOffsets
from ...kafka_errors import translate
from ...log_offsets import LogOffsets
from ...metadata import identify
from ...refusals import ClusterAdmin

_LOG = logging.getLogger("keyorder.connect.task")
_TIMEOUT = 10.0
# Of how many groups a client stays open between two rounds, on each side.
_KEPT = 8
_MOST = 64
_ACTIVE = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.REBALANCE_IN_PROGRESS}


class Marks:
    """The marks of one source topic, oldest first, at most 64 a partition: older ones get sparse."""

    def __init__(self) -> None:
        self._marks: dict[int, list[tuple[int, Mapping[int, int]]]] = {}

    def take(self, handed_out: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """handed_out: by source partition, the offset below which all has been handed out and nothing at or above.
        ends: of the target's partitions, listed after that.
        """
        for partition, offset in handed_out.items():
            marks = self._marks.setdefault(partition, [])
            if marks and marks[-1][0] == offset:
                marks.pop()  # nothing was handed out since: the later ends hold as well
            marks.append((offset, ends))
            if len(marks) > _MOST:
                # The oldest stays: with it a group can be translated that has read nothing yet.
                del marks[1 : _MOST // 2 : 2]

    def forget(self, partition: int) -> None:
        """Another one may hand it out from now on."""
        self._marks.pop(partition, None)

    def translated(self, committed: Mapping[int, int], partitions: int) -> dict[int, int] | None:
        """{target partition: offset} where a group goes on that has committed these offsets of the source.

        partitions: how many the source has. None while a partition is not known far enough back.
        """
        bounds: list[Mapping[int, int]] = []
        for partition in range(partitions):
            marks = self._marks.get(partition, [])
            found = bisect_right([offset for offset, _ in marks], committed.get(partition, 0))
            if not found:
                return None
            bounds.append(marks[found - 1][1])
        # A target partition that a mark does not know was made after it: all in it came later.
        return {q: min(ends.get(q, 0) for ends in bounds) for q in {q for ends in bounds for q in ends}}


class GroupSync:
    """Puts groups of the source into the target under a name of their own, as long as they have no member there.

    source, target: settings of clients. groups: a regular expression. Raises as the client library's calls, translated.
    """

    def __init__(self, source: Mapping[str, Any], target: Mapping[str, Any], groups: str, name: str, own: str) -> None:
        self._groups, self._name, self._own = re.compile(groups), name, own
        self._source_servers = str(source.get("bootstrap.servers"))
        self._target_servers = str(target.get("bootstrap.servers"))
        self._source = ClusterAdmin(source)
        self._target, self._coordinators = ClusterAdmin(target), AdminLink(target)
        self._target_groups = GroupOffsets(target, self._target, _TIMEOUT, _KEPT)
        self._source_groups = GroupOffsets(source, self._source, _TIMEOUT, _KEPT)
        self._topics = TopicAdmin(dict(target))
        self._logs = LogOffsets(target)
        self._marks: dict[str, Marks] = {}

    def take_marks(self, handed_out: Mapping[tuple[str, int], int], targets: Mapping[str, str]) -> None:
        """Take a mark of each source topic. handed_out: by (source topic, partition). targets: of each source topic."""
        for topic in {topic for topic, _ in handed_out}:
            try:
                count = identify(self._target, targets[topic], self._target_servers).partitions
                places = [(targets[topic], q) for q in range(count)]
                ends = {q: end for (_, q), end in self._logs.high_watermarks(places, _TIMEOUT).items()}
            except TopicNotFoundError:
                ends = {}  # it is made with the first record
            of_topic = {p: offset for (t, p), offset in handed_out.items() if t == topic}
            self._marks.setdefault(topic, Marks()).take(of_topic, ends)

    def forget(self, topic: str, partition: int) -> None:
        """A partition goes to another member of the mirror's group."""
        if topic in self._marks:
            self._marks[topic].forget(partition)

    def sync(self, targets: Mapping[str, str]) -> None:
        """Move every group forward that can be. targets: of each source topic."""
        names = [g for g in self._source_groups.groups() if g != self._own and self._groups.fullmatch(g)]
        read = self._source_groups.on_topics(names, set(self._marks))
        for topic, marks in self._marks.items():
            partitions = identify(self._source, topic, self._source_servers).partitions
            for group in names:
                committed = {p: c.offset for p, c in read[group].get(topic, {}).items()}
                wanted = marks.translated(committed, partitions) if committed else None
                if wanted:
                    self._move(self._name.replace("${group}", group), targets[topic], wanted)

    def _move(self, group: str, topic: str, wanted: Mapping[int, int]) -> None:
        before = {p: c.offset for p, c in self._target_groups.committed([group], topic)[group].items()}
        timeline = self._topics.managed(topic)
        forward = {q: max(offset, before.get(q, 0)) for q, offset in wanted.items()}
        offsets = consistent(timeline, forward)
        due = {q: offset for q, offset in offsets.items() if q not in before or offset > before[q]}
        if not due:
            return
        places = [
            TopicPartition(topic, q, offset)
            if timeline is None
            else TopicPartition(topic, q, offset, metadata_of(flushed_epoch(timeline, q, offset)))
            for q, offset in due.items()
        ]
        try:
            self._coordinators.set_offsets(group, places, _TIMEOUT)
        except KafkaException as raised:
            if raised.args[0].code() in _ACTIVE:
                _LOG.debug("group %s has members in the target: its offsets are its own", group)
                return
            raise translate(raised.args[0], "set the offsets of", f"group {group}", self._target_servers) from raised

    def close(self) -> None:
        """Release the clients."""
        self._logs.close()
        self._source_groups.close()
        self._target_groups.close()


def consistent(timeline: Timeline | None, offsets: Mapping[int, int]) -> dict[int, int]:
    """The offsets, lowered where keys that moved would be read at their new home before their older records."""
    if timeline is None or not timeline.ordered:
        return dict(offsets)
    everywhere = {**dict.fromkeys(range(timeline.highest_count), 0), **offsets}
    lowered = consistent_starts(Gates(timeline), everywhere)
    return {q: lowered[q] for q in offsets}
