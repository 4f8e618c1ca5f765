"""Waivers: an operator lets one closed gate of one group open, on the record, and may take that back by a reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...partitioner.records.control_records import Waiver, timeline_key, waiver_key, waiver_of_key
from ...partitioner.timeline import Timeline
from ..control.control_reader import ControlMessage, ControlReader, await_message, readable
from ..control.control_topics import timeline_slot
from ..control.timeline_edit import ChangeOpenError
from ..control.timeline_writer import TimelineWriter

_TIMEOUT = 15.0


def active_waivers(config: Mapping[str, Any], timeline: Timeline, group: str) -> list[Waiver]:
    """The waivers of this group that stand, of this very topic and not of an older one of its name."""
    found: dict[bytes, Waiver | None] = {}
    for message in readable(config, [timeline_slot(timeline.topic)], _TIMEOUT):
        named = waiver_of_key(message.key)
        if named is not None and (named[0], named[3]) == (timeline.topic, group):
            found[message.key] = message.record if isinstance(message.record, Waiver) else None
    return [w for w in found.values() if w is not None and w.topic_id == timeline.topic_id]


def release(config: Mapping[str, Any], waiver: Waiver) -> None:
    """Write a waiver; when this returns every reader sees it. Raises ChangeOpenError and Kafka's own."""
    key = waiver_key(waiver)
    _write(
        config,
        waiver.topic,
        lambda writer: writer.write_waiver(waiver),
        lambda message: message.key == key and message.record == waiver,
    )


def take_back(config: Mapping[str, Any], waivers: list[Waiver]) -> None:
    """Delete these waivers; when this returns their gates count again. Raises as `release`."""
    for waiver in waivers:
        key = waiver_key(waiver)
        _write(
            config,
            waiver.topic,
            lambda writer, key=key: writer.delete_waiver(key),  # type: ignore[misc]  # bound now
            lambda message, key=key: message.key == key and message.value is None,  # type: ignore[misc]
        )


def _write(
    config: Mapping[str, Any],
    topic: str,
    write: Callable[[TimelineWriter], None],
    shows: Callable[[ControlMessage], bool],
) -> None:
    _refuse_open_change(config, topic)  # before its controller is fenced
    writer = TimelineWriter(config, topic)
    reader = ControlReader(config, fetch_wait_ms=50)
    try:
        writer.start()
        reader.add([timeline_slot(topic)])
        reader.read_to_end()
        write(writer)
        await_message(reader, shows, 30.0, str(config.get("bootstrap.servers")))
    finally:
        writer.close()
        reader.close()


def _refuse_open_change(config: Mapping[str, Any], topic: str) -> None:
    for seen in reversed(readable(config, [timeline_slot(topic)], _TIMEOUT)):
        if seen.key == timeline_key(topic) and isinstance(seen.record, Timeline):
            if seen.record.change is not None:
                raise ChangeOpenError(topic, seen.record.change)
            return
