"""Small changes of a timeline: what they must not touch."""

from __future__ import annotations

import pytest
from keyorder.connector.control.control_reader import ControlMessage
from keyorder.connector.control.timeline_edit import newest_timeline
from keyorder.partitioner.errors import RecordVersionError
from keyorder.partitioner.records import codec, control_records
from support.dumb import timeline_of

TIMELINE = timeline_of(2, [])


def message(value: bytes, topic: str = "t") -> ControlMessage:
    """A control record as it is read."""
    return ControlMessage(("_keyorder", 0), 0, control_records.timeline_key(topic), value)


def test_a_timeline_of_a_newer_minor_version_is_not_written_again() -> None:
    """It can be read, but the fields that are unknown here would be lost with the first edit."""
    known = list(control_records.TIMELINE.schemas[-1]["fields"])  # type: ignore[call-overload,index]
    more = {"name": "later", "type": "int", "default": 0}
    newer = codec.record_kind(1, "timeline", *[known] * (control_records.TIMELINE.minor + 1), [*known, more])
    fields = codec.decode(control_records.TIMELINE, control_records.encode_timeline(TIMELINE)).fields

    with pytest.raises(RecordVersionError, match="upgrade keyorder"):
        newest_timeline([message(codec.encode(newer, {**fields, "later": 7}))], "t")


def test_the_last_timeline_of_the_topic_counts() -> None:
    """Others share the partition of the control topic."""
    later = TIMELINE.given_up()
    found = [message(control_records.encode_timeline(TIMELINE)), message(control_records.encode_timeline(later))]
    assert newest_timeline([*found, message(found[0].value or b"", "u")], "t") == later
    assert newest_timeline(found, "u") is None
