"""Small changes of a timeline that move no key: under the topic's transactional id, read back before they count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...partitioner.epochs import OpenChange
from ...partitioner.errors import PeerError, UnmanagedTopicError
from ...partitioner.records.control_records import require_known_timeline, timeline_key
from ...partitioner.timeline import Timeline
from .control_reader import ControlMessage, ControlReader, await_message, readable
from .control_topics import timeline_slot
from .timeline_writer import TimelineWriter


class ChangeOpenError(PeerError):
    """The topic's layout is being changed right now (KIP-694's third warning). Wait for it, or resume it."""

    retriable = True

    def __init__(self, topic: str, change: OpenChange) -> None:
        super().__init__(topic, change)
        self.topic, self.change = topic, change

    def __str__(self) -> str:
        return (
            f"the layout of {self.topic!r} is being changed already, to {self.change.count} partitions (epoch "
            f"{self.change.epoch}, attempt {self.change.attempt}, {self.change.phase.value}): wait for it, ask again for "
            f"{self.change.count} partitions to resume it, or give it up with `keyorder change abort --topic {self.topic}`"
        )


def newest_timeline(messages: Iterable[ControlMessage], topic: str) -> Timeline | None:
    """The topic's last timeline among these messages, to be written again; None if there is none.

    Raises RecordVersionError for one of a newer minor version: rewriting it would drop the fields that are unknown here.
    """
    found = [m for m in messages if m.key == timeline_key(topic) and isinstance(m.record, Timeline)]
    if not found:
        return None
    last = found[-1]
    require_known_timeline(last.value or b"")
    assert isinstance(last.record, Timeline)
    return last.record


def give_up(config: Mapping[str, Any], topic: str, epoch: int) -> bool:
    """Drop the open attempt that would commit `epoch`. False when it is not open (any more), or another one is.

    From a fresh look under the topic's transactional id: whoever broke off may not know whether its COMMIT was decided.
    Raises as `edit`.
    """

    def ours(timeline: Timeline | None) -> bool:
        return timeline is not None and timeline.change is not None and timeline.change.epoch == epoch

    # First without the transactional id: to take it from another controller that has gone on would stop that one.
    if not ours(newest_timeline(readable(config, [timeline_slot(topic)], 15.0), topic)):
        return False
    dropped = False

    def drop(timeline: Timeline) -> Timeline:
        nonlocal dropped
        dropped = ours(timeline)
        return timeline.given_up() if dropped else timeline

    edit(config, topic, drop, even_open=True)
    return dropped


def edit(
    config: Mapping[str, Any], topic: str, change: Callable[[Timeline], Timeline], even_open: bool = False
) -> Timeline:
    """Replace the timeline by what `change` makes of it; writes nothing when that is the same. Returns the newest one.

    even_open: also while the layout is being changed; whoever changes it is fenced, and is told so.
    Raises UnmanagedTopicError, ChangeOpenError, RecordVersionError, ControllerFencedError, UnknownResultError and Kafka's
    own.
    """
    seen = newest_timeline(readable(config, [timeline_slot(topic)], 15.0), topic)
    if seen is not None and seen.change is not None and not even_open:
        raise ChangeOpenError(topic, seen.change)  # before its controller is fenced
    writer = TimelineWriter(config, topic)
    reader = ControlReader(config, fetch_wait_ms=50)
    try:
        writer.start()
        reader.add([timeline_slot(topic)])
        timeline = newest_timeline(reader.read_to_end(), topic)
        if timeline is None:
            raise UnmanagedTopicError(topic)
        if timeline.change is not None and not even_open:
            raise ChangeOpenError(topic, timeline.change)
        edited = change(timeline)
        if edited != timeline:
            writer.write(edited, "edit")
            await_message(reader, lambda message: message.record == edited, 30.0, str(config.get("bootstrap.servers")))
        return edited
    finally:
        writer.close()
        reader.close()
