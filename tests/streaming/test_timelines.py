"""The driver's view of timelines: a record of another topic in the same control partition is another query's trouble."""

from __future__ import annotations

import itertools

import pytest
from keyorder import TopicAdmin
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.partitioner.errors import CorruptRecordError
from keyorder.partitioner.records.control_records import timeline_key
from keyorder.streaming.source.timelines import TimelineReader
from support.cluster import KafkaUnderTest
from support.control import last_value, put
from support.groups import QUICK


def test_a_damaged_timeline_of_another_topic_takes_nothing_with_it(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What was read in the same turn is not lost, and whoever asks for the damaged one hears of it, until it is fixed."""
    admin, cluster = TopicAdmin(kafka.client_config()), kafka.admin()
    names = (f"{topic_name}-{number}" for number in itertools.count())
    other = next(name for name in names if timeline_slot(name) == timeline_slot(topic_name))
    admin.create(other, 1, config=QUICK)
    admin.create(topic_name, 1, config=QUICK)
    good = last_value(kafka, other)
    reader = TimelineReader(kafka.client_config(), None)
    assert [t.newest.count for t in reader.look([topic_name], cluster).values()] == [1]

    put(kafka, timeline_slot(other), timeline_key(other), b"\x00\x01 no record at all")
    try:
        admin.expand(topic_name, 2)
        assert [t.newest.count for t in reader.look([topic_name], cluster).values()] == [2]
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                reader.look([topic_name, other], cluster)
        assert [t.newest.count for t in reader.look([topic_name], cluster).values()] == [2]
    finally:
        put(kafka, timeline_slot(other), timeline_key(other), good)
    assert sorted(reader.look([topic_name, other], cluster)) == sorted([topic_name, other])
    reader.close()
