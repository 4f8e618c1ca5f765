"""Timelines as the control topic holds them now, asked for once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...partitioner.records.control_records import CONTROL_TOPIC, timeline_key
from ...partitioner.timeline import Timeline
from ..control.control_reader import ControlMessage, readable
from ..control.control_topics import PARTITIONS, Slot, timeline_slot
from ..control.timelines import Timelines
from ..metadata import patiently


def timeline_now(config: Mapping[str, Any], topic: str) -> Timeline | None:
    """The topic's timeline, None when it has none. The control topics have to exist."""
    newest: Timeline | None = None
    for message in _read(config, [timeline_slot(topic)]):
        if message.key == timeline_key(topic) and isinstance(message.record, Timeline):
            newest = message.record
    return newest


def timelines_now(config: Mapping[str, Any]) -> Timelines:
    """Every managed topic's timeline. The control topics have to exist."""
    found = Timelines()
    for message in _read(config, [(CONTROL_TOPIC, p) for p in range(PARTITIONS)]):
        found.take(message)
    return found


def _read(config: Mapping[str, Any], slots: list[Slot]) -> list[ControlMessage]:
    return patiently(lambda: readable(config, slots, 10.0), 20.0)
