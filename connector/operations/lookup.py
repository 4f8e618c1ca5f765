"""Timelines as the control topic holds them now, asked for once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...partitioner.records.control_records import timeline_key
from ...partitioner.timeline import Timeline
from ..control.control_reader import ControlMessage, readable
from ..control.control_topics import Slot, all_writer_slots, timeline_slot
from ..metadata import patiently


def timeline_now(config: Mapping[str, Any], topic: str) -> Timeline | None:
    """The topic's timeline, None when it has none. The control topics have to exist."""
    newest: Timeline | None = None
    for message in _read(config, [timeline_slot(topic)]):
        if message.key == timeline_key(topic) and isinstance(message.record, Timeline):
            newest = message.record
    return newest


def timelines_now(config: Mapping[str, Any]) -> dict[str, Timeline]:
    """Every managed topic's timeline by its name. The control topics have to exist."""
    slots = [(timeline_slot("")[0], p) for p in range(len(all_writer_slots()))]
    records = (message.record for message in _read(config, slots))
    return {r.topic: r for r in records if isinstance(r, Timeline)}


def _read(config: Mapping[str, Any], slots: list[Slot]) -> list[ControlMessage]:
    return patiently(lambda: readable(config, slots, 10.0), 20.0)
