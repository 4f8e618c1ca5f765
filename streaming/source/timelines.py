"""The driver's view of timelines: read to the leaders' end whenever a batch is planned, on the caller's thread."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from ...connector import clock
from ...connector.config import connection_of
from ...connector.control.control_reader import ControlMessage, ControlReader
from ...connector.control.control_topics import timeline_slot
from ...connector.metadata import has_topic
from ...partitioner.errors import StaleViewError
from ...partitioner.records.control_records import CONTROL_TOPIC, Waiver, topic_of_key, waiver_of_key
from ...partitioner.timeline import Timeline


class TimelineReader:
    """Timelines of the topics that a query reads, and the gates that were waived for `group`. Used by one thread."""

    def __init__(self, config: Mapping[str, Any], group: str | None) -> None:
        self._config, self._group = dict(config), group
        self._servers = str(config.get("bootstrap.servers"))
        self._reader: ControlReader | None = None
        self._timelines: dict[str, Timeline] = {}
        self._waivers: dict[str, dict[tuple[int, int], ControlMessage]] = {}
        self._fresh: dict[str, ControlMessage] = {}

    def look(self, topics: Collection[str], admin: AdminClient, timeout: float = 30.0) -> dict[str, Timeline]:
        """The timelines of the managed ones among `topics`, as new as this call.

        Raises StaleViewError, NotAuthorizedError, TimelineRegressionError, CorruptRecordError, RecordVersionError of one of
        `topics`: nothing is planned on old knowledge.
        """
        if not topics or (self._reader is None and not self._open(admin)):
            return {}
        assert self._reader is not None
        slots = {timeline_slot(topic) for topic in topics}
        self._reader.add(slots)
        deadline = clock.now() + timeout
        look = self._reader.look(slots, timeout=timeout)
        while not self._reader.reached(look):
            if clock.now() >= deadline:
                raise StaleViewError(", ".join(sorted(topics)), timeout)
            for message in self._reader.poll(0.05):
                self._take(message)
        for topic in sorted(self._fresh.keys() & set(topics)):
            timeline = self._fresh[topic].record
            known = self._timelines.get(topic)
            # Of a topic that was made again, the old one's timeline is nobody's predecessor.
            if isinstance(timeline, Timeline):
                if known is not None and known.topic_id == timeline.topic_id:
                    known.check_successor(timeline)
                self._timelines[topic] = timeline
            del self._fresh[topic]  # only now: what could not be taken in is asked for again by the next look
        return {topic: self._timelines[topic] for topic in topics if topic in self._timelines}

    def waived(self, topics: Iterable[str]) -> dict[str, set[tuple[int, int]]]:
        """(partition, epoch) of the gates that an operator let go for the group, by topic."""
        found: dict[str, set[tuple[int, int]]] = {}
        for topic in topics:
            timeline = self._timelines.get(topic)
            if timeline is not None:
                records = {gate: message.record for gate, message in self._waivers.get(topic, {}).items()}
                found[topic] = {
                    gate
                    for gate, waiver in records.items()
                    if isinstance(waiver, Waiver) and waiver.topic_id == timeline.topic_id
                }
        return found

    def close(self) -> None:
        """Release the client."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self, admin: AdminClient) -> bool:
        """Without control topics nothing is managed yet."""
        if not has_topic(admin, CONTROL_TOPIC, self._servers):
            return False
        self._reader = ControlReader(connection_of(self._config), fetch_wait_ms=50)
        self._reader.interested = lambda key: key.startswith((b"timeline:", b"waiver:"))
        return True

    def _take(self, message: ControlMessage) -> None:
        """Keep it undecoded: of every topic, as a slot is read once, and the query may come to another topic in it later.

        One that cannot be read concerns those alone who ask for its topic.
        """
        topic = topic_of_key(message.key)
        if topic is not None:
            self._fresh[topic] = message
            return
        named = waiver_of_key(message.key)
        if named is None or self._group is None or named[3] != self._group:
            return
        topic, epoch, partition, _ = named
        self._waivers.setdefault(topic, {})[partition, epoch] = message
