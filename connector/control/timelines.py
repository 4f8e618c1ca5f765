"""Timelines as they stand in the control topic, and those that cannot be read."""

from __future__ import annotations

from ...partitioner.errors import CorruptRecordError, OrderError, RecordVersionError
from ...partitioner.records.control_records import topic_of_key
from ...partitioner.timeline import Timeline
from .control_reader import ControlMessage


class Timelines:
    """Folded from control records, by topic. One topic's that cannot be read is not all topics' trouble.

    unreadable: why these cannot be read, until a record follows that can.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, Timeline] = {}
        self.unreadable: dict[str, OrderError] = {}

    def take(self, message: ControlMessage) -> str | None:
        """Take in a topic's timeline. Returns the topic; None for any other record."""
        topic = topic_of_key(message.key)
        if topic is None:
            return None
        try:
            record = message.record
        except (CorruptRecordError, RecordVersionError) as error:
            self.by_topic.pop(topic, None)
            self.unreadable[topic] = error
            return topic
        self.unreadable.pop(topic, None)
        if isinstance(record, Timeline):
            self.by_topic[topic] = record
        else:
            self.by_topic.pop(topic, None)  # a null value: as whoever reads anew would find it
        return topic
