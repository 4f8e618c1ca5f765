"""One topic's timeline is damaged: commands that show many topics name it and show the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from keyorder import TopicAdmin
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.connector.topology.supervised import SupervisedCluster
from keyorder.connector.topology.supervisor import Supervisor
from keyorder.partitioner.errors import CorruptRecordError, OrderError, RecordVersionError
from keyorder.partitioner.records.control_records import timeline_key
from support.cluster import KafkaUnderTest
from support.commands import Command


def _write(kafka: KafkaUnderTest, topic: str, value: bytes | None) -> None:
    producer = Producer({**kafka.client_config(), "acks": "all"})
    slot = timeline_slot(topic)
    producer.produce(slot[0], value, timeline_key(topic), slot[1])
    assert producer.flush(120) == 0


@pytest.fixture
def bad(kafka: KafkaUnderTest, topic_name: str) -> Iterator[str]:
    """The name of a topic with a damaged timeline, beside the sound topic `topic_name`."""
    admin, name = TopicAdmin(kafka.client_config()), f"{topic_name}-bad"
    admin.create(topic_name, 2)
    admin.create(name, 2)
    _write(kafka, name, b"\x00\x01 no record at all")
    yield name
    _write(kafka, name, None)


def test_lists_show_the_others_and_say_what_is_wrong(
    kafka: KafkaUnderTest, topic_name: str, bad: str, keyorder: Command
) -> None:
    """As an object for programs; for people a row, and a warning with the place and the remedy."""
    for words in (("topics", "list"), ("status",), ("change", "status")):
        run = keyorder(*words)
        assert run.code == 0, words
        assert run.document["unreadable"][bad]["type"] == "CorruptRecordError"
        told = keyorder(*words, output="table").err
        assert f"topic {bad} cannot be read. _keyorder[" in told
        assert "Write the last good value" in told
    listed = {topic["topic"] for topic in keyorder("topics", "list").document["topics"]}
    assert topic_name in listed
    assert bad not in listed
    rows = keyorder("topics", "list", output="table").out.splitlines()
    assert [row.split()[-1] for row in rows if row.split()[:1] == [bad]] == ["unreadable"]


def test_asked_for_it_a_command_fails_with_the_error(bad: str, keyorder: Command) -> None:
    """And does not call it unmanaged."""
    for words in (
        ("status", "--topic", bad),
        ("change", "status", "--topic", bad),
        ("topics", "describe", "--topic", bad),
    ):
        assert keyorder(*words).error["type"] == "CorruptRecordError", words


def test_the_doctor_finds_it(topic_name: str, bad: str, keyorder: Command) -> None:
    """Also where it was not asked for by name."""
    run = keyorder("doctor")

    assert run.code == 1
    found = {f["about"]: f for f in run.document["findings"] if f["check"] == "timeline"}
    assert found[bad]["status"] == "fail"
    assert "_keyorder[" in found[bad]["text"]


def test_the_api_raises_unless_asked_to_collect(kafka: KafkaUnderTest, topic_name: str, bad: str) -> None:
    """A program that overlooks it would take the topic for an unmanaged one."""
    admin = TopicAdmin(kafka.client_config())

    either = (CorruptRecordError, RecordVersionError)  # other tests damage topics of this broker, too
    with pytest.raises(either, match=r"_keyorder\["):
        admin.topics()
    unreadable: dict[str, OrderError] = {}
    assert topic_name in admin.topics(unreadable)
    assert set(unreadable) >= {bad}


def test_a_controller_looks_after_the_others(kafka: KafkaUnderTest, topic_name: str, bad: str) -> None:
    """It tells of the damaged one once, and forgets it when it is gone."""
    cluster = SupervisedCluster(kafka.client_config())
    try:
        supervisor = Supervisor(cluster, topics=[topic_name, bad])
        assert [(event.event, event.topic) for event in supervisor.turn(0.0)] == [("unreadable", bad)]
        assert topic_name in cluster.timelines()
        assert supervisor.turn(1.0) == []
        _write(kafka, bad, None)
        assert supervisor.turn(2.0) == []
        assert bad not in cluster.unreadable
    finally:
        cluster.close()
