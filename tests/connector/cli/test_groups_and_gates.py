"""`keyorder groups` and `keyorder gates` against a real broker: what is shown, what is refused, what members honour."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timezone

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from keyorder import OrderedConsumer
from support.cluster import KafkaUnderTest
from support.commands import Command
from support.groups import await_gone, await_that, group_config, grown, read, send, upgrade_timeline


def stuck(kafka: KafkaUnderTest, topic: str) -> OrderedConsumer:
    """A member whose application never commits: it got the old record, and waits before the new one."""
    consumer = OrderedConsumer(group_config(kafka, topic, enable_auto_commit=False))
    consumer.subscribe([topic])
    assert [m.value() for m in read(consumer, 1)] == [b"old"]
    await_that(consumer, lambda: len(consumer.gates()) == 1)
    return consumer


@pytest.mark.kip("C-11", "K253-54")
def test_a_stuck_gate_is_listed_released_and_passed_anew_after_a_reset(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Nothing happens unasked; the record says who and why; a reset takes the waiver back, so the replay is in order."""
    grown(kafka, topic_name)
    consumer = stuck(kafka, topic_name)
    of_group = ("--group", topic_name)

    (gate,) = keyorder("gates", "list", *of_group).document["gates"]
    assert (gate["partition"], gate["epoch"], gate["waits_for"], gate["needs_offset"]) == (1, 1, 0, 1)
    described = keyorder("groups", "describe", *of_group).document
    assert (described["state"], described["members"]) == ("Stable", 1)
    p0, p1 = described["partitions"]
    assert (p0["gate"], p0["log_end_offset"], p0["lag"], p0["epoch_flushed"]) == (None, 1, 1, 0)
    assert p1["gate"]["waits_for"] == [{"partition": 0, "needs": 1, "at": 0}]
    assert p1["owner"]["member_id"] == consumer.memberid()
    assert "closed from 0, waits for 0 to 1" in keyorder("groups", "describe", *of_group, output="table").out
    assert "reason" in keyorder("gates", "list", *of_group, output="table").out

    words = ("gates", "release", *of_group, "--topic", topic_name, "--partition", 1, "--why", "reader is gone")
    assert keyorder(*words, "--dry-run").document["unprocessed"] == {"0": 1}
    unasked = keyorder(*words)
    assert (unasked.code, "--yes" in unasked.error["message"]) == (2, True)  # nobody can say yes
    assert consumer.poll(0.3) is None
    assert keyorder(*words, "--yes", "--who", "olga").code == 0
    assert [m.value() for m in read(consumer, 1)] == [b"new"]
    (waiver,) = keyorder("gates", "list", *of_group).document["waivers"]
    assert (waiver["who"], waiver["why"], waiver["partition"], waiver["epoch"]) == ("olga", "reader is gone", 1, 1)
    assert waiver["at_ms"] > 0

    words = ("groups", "reset", *of_group, "--topic", topic_name, "--to-earliest")
    refused = keyorder(*words)
    assert (refused.code, refused.document["error"]["type"]) == (3, "GroupNotEmptyError")
    consumer.close()
    planned = keyorder(*words).document
    assert (planned["executed"], planned["offsets"]) == (False, {"0": 0, "1": 0})
    assert len(planned["waivers_taken_back"]) == 1
    assert keyorder(*words, "--execute").document["executed"]
    assert keyorder("gates", "list", *of_group).document["waivers"] == []
    again = stuck(kafka, topic_name)
    assert again.poll(0.5) is None
    again.close()


@pytest.mark.kip("C-09")
def test_offsets_are_reset_at_consistent_cuts(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """By epoch, by time, to the end; each commit carries the epoch that it proves, and the group goes on from there."""
    key = grown(kafka, topic_name)
    time.sleep(0.05)  # a time between the two records, whose timestamps have milliseconds
    between = datetime.now(timezone.utc).isoformat()
    time.sleep(0.05)
    send(kafka, topic_name, (key, "last"))
    words = ("groups", "reset", "--group", topic_name, "--topic", topic_name, "--execute")

    by_epoch = keyorder(*words, "--to-epoch", 1).document
    assert (by_epoch["offsets"], by_epoch["clipped"]) == ({"0": 1, "1": 0}, {})
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        assert [m.value() for m in read(consumer, 2)] == [b"new", b"last"]
    # keyorder's part of a commit's metadata is shown to other clients alone.
    stock = Consumer({**kafka.client_config(), "group.id": topic_name})
    (commit,) = stock.committed([TopicPartition(topic_name, 0)], 120)
    stock.close()
    assert commit.metadata == "ko1:1"
    assert keyorder(*words, "--to-datetime", between).document["offsets"] == {"0": 1, "1": 1}
    assert keyorder(*words, "--to-latest").document["offsets"] == {"0": 1, "1": 2}
    assert keyorder(*words, "--to-earliest").document["offsets"] == {"0": 0, "1": 0}
    assert keyorder(*words, "--to-epoch", 7).document["error"]["message"].endswith("it has 0, 1")
    assert keyorder(*words, "--to-epoch", 1, "--to-latest").code == 2
    assert keyorder(*words, "--to-datetime", "soon").code == 2
    assert keyorder(*words, "--to-offset", 1).document["offsets"] == {"0": 1, "1": 1}
    assert keyorder(*words, "--shift-by", -1).document["offsets"] == {"0": 0, "1": 0}
    assert keyorder(*words, "--to-offset", 99).document["offsets"] == {"0": 1, "1": 2}
    # Offset 1 of partition 1 would lie behind its gate, which the origin's offset 0 closes.
    back = keyorder(*words, "--shift-by", -1).document
    assert (back["offsets"], back["clipped"]) == ({"0": 0, "1": 0}, {"1": 1})
    assert keyorder(*words, "--shift-by", -99).document["offsets"] == {"0": 0, "1": 0}


def test_a_misspelt_group_is_an_error_and_not_an_all_clear(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Without a name every group is listed; a name that the cluster does not know is refused by every command."""
    grown(kafka, topic_name)
    consumer = stuck(kafka, topic_name)
    (found,) = [g for g in keyorder("groups", "list").document["groups"] if g["group"] == topic_name]
    assert (found["state"], found["members"], found["topics"], found["closed_gates"]) == ("Stable", 1, [topic_name], 1)
    assert topic_name in keyorder("groups", "list", output="table").out
    every = keyorder("gates", "list").document["gates"]
    assert [g["partition"] for g in every if g["group"] == topic_name] == [1]
    for words in (("gates", "list"), ("groups", "describe")):
        refused = keyorder(*words, "--group", topic_name + "x")
        assert (refused.code, refused.error["type"]) == (2, "GroupNotFoundError")
    words = ("--topic", topic_name, "--partition", 1, "--why", "x", "--yes")
    refused = keyorder("gates", "release", "--group", topic_name + "x", *words)
    assert (refused.code, refused.error["type"]) == (2, "GroupNotFoundError")
    assert keyorder("gates", "list", "--topic", topic_name).document["waivers"] == []
    shown = keyorder(
        "groups", "reset", "--group", topic_name + "x", "--topic", topic_name, "--to-latest", output="table"
    )
    assert f"Group {topic_name}x has no members and no offsets yet" in shown.out
    (gate,) = [f for f in keyorder("doctor", "--topic", topic_name).document["findings"] if f["check"] == "gates"]
    assert (gate["status"], "partition 1 is closed" in gate["text"]) == ("warn", True)
    consumer.close()


def test_a_topic_that_was_made_anew_hides_no_other(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """Its timeline is of the one that was deleted: it is named, and only where it was asked for does the command fail."""
    broken = f"{topic_name}-broken"
    grown(kafka, topic_name)
    grown(kafka, broken)
    consumer = stuck(kafka, topic_name)
    stock = kafka.admin()
    stock.delete_topics([broken])[broken].result(60)
    try:
        while True:
            with suppress(KafkaException):  # as long as the old one is there
                stock.create_topics([NewTopic(broken, 2)])[broken].result(60)
                break
        other = Consumer({**kafka.client_config(), "group.id": f"{topic_name}-stock"})
        other.commit(offsets=[TopicPartition(broken, 0, 0)], asynchronous=False)
        other.close()
        of_group = "--group", f"{topic_name}-stock"
        for words in (("gates", "list"), ("gates", "list", *of_group), ("groups", "describe", *of_group)):
            listed = keyorder(*words).document
            assert listed["unreadable"][broken]["type"] == "IdentityMismatchError", words
            assert keyorder(*words, "--topic", broken).error["type"] == "IdentityMismatchError", words
        every = keyorder("gates", "list").document["gates"]
        assert [g["topic"] for g in every if g["group"] == topic_name] == [topic_name]
    finally:
        stock.delete_topics([broken])[broken].result(60)
    consumer.close()


def test_a_topic_whose_timeline_cannot_be_read_hides_no_other(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """It is named beside what could be read, and only where it was asked for does the command fail."""
    broken = f"{topic_name}-broken"
    grown(kafka, topic_name)
    grown(kafka, broken)
    reader = OrderedConsumer(group_config(kafka, topic_name))
    reader.subscribe([broken])
    read(reader, 2)
    reader.close()
    consumer = stuck(kafka, topic_name)
    upgrade_timeline(kafka, broken)

    listed = keyorder("groups", "list").document
    assert [g["topics"] for g in listed["groups"] if g["group"] == topic_name] == [[topic_name]]
    assert listed["unreadable"][broken]["type"] == "RecordVersionError"
    every = keyorder("gates", "list").document
    assert [g["topic"] for g in every["gates"] if g["group"] == topic_name] == [topic_name]
    assert broken in every["unreadable"]
    for words in (("gates", "list"), ("groups", "describe")):
        of_group = (*words, "--group", topic_name)
        assert list(keyorder(*of_group).document["unreadable"]) == [broken]  # other groups' topics are not its trouble
        assert f"topic {broken} cannot be read" in " ".join(keyorder(*of_group, output="table").err.split())
        assert keyorder(*of_group, "--topic", topic_name).document["unreadable"] == {}
        assert keyorder(*of_group, "--topic", broken).error["type"] == "RecordVersionError"
    assert keyorder("gates", "list", "--topic", broken).error["type"] == "RecordVersionError"
    consumer.close()


def test_a_waiver_ends_with_its_topic(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """A topic that is made again counts its epochs from the beginning: an old waiver must not open the new gate."""
    grown(kafka, topic_name)
    words = ("gates", "release", "--group", topic_name, "--topic", topic_name, "--partition", 1, "--yes", "--why", "x")
    assert keyorder(*words).code == 2  # the group is not there yet
    assert keyorder(*words, "--allow-unknown-group").code == 0
    cluster = kafka.admin()
    cluster.delete_topics([topic_name])[topic_name].result(120)
    await_gone(cluster, topic_name)
    grown(kafka, topic_name)

    consumer = stuck(kafka, topic_name)
    assert consumer.poll(0.5) is None
    assert keyorder("gates", "list", "--group", topic_name).document["waivers"] == []
    consumer.close()
