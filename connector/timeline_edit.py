"""Small changes of a timeline that move no key: under the topic's transactional id, read back before they count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..partitioner.errors import PeerError, UnmanagedTopicError
from ..partitioner.records import timeline_key
from ..partitioner.timeline import Timeline
from .control_reader import ControlReader, readable
from .control_topics import timeline_slot
from .timeline_writer import TimelineWriter


class ChangeOpenError(PeerError):
    """The topic's layout is being changed right now (KIP-694's third warning). Wait for it, or resume it."""

    retriable = True

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"the layout of {self.topic!r} is being changed already: wait for it, or run the same command again to resume it"


def edit(config: Mapping[str, Any], topic: str, change: Callable[[Timeline], Timeline]) -> Timeline:
    """Replace the timeline by what `change` makes of it; writes nothing when that is the same. Returns the newest one.

    Raises UnmanagedTopicError, ChangeOpenError, ControllerFencedError, UnknownResultError and Kafka's own.
    """
    for seen in readable(config, [timeline_slot(topic)], 15.0)[::-1]:
        if isinstance(seen.record, Timeline) and seen.key == timeline_key(topic):
            if seen.record.change is not None:
                raise ChangeOpenError(topic)  # before its controller is fenced
            break
    writer = TimelineWriter(config, topic)
    reader = ControlReader(config, fetch_wait_ms=50)
    try:
        writer.start()
        reader.add([timeline_slot(topic)])
        found = [m.record for m in reader.read_to_end() if m.key == timeline_key(topic)]
        timeline = found[-1] if found else None
        if not isinstance(timeline, Timeline):
            raise UnmanagedTopicError(topic)
        if timeline.change is not None:
            raise ChangeOpenError(topic)
        edited = change(timeline)
        if edited != timeline:
            writer.write(edited, "edit")
            reader.await_message(lambda message: message.record == edited, 30.0)
        return edited
    finally:
        writer.close()
        reader.close()
