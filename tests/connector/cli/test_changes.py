"""`keyorder topics plan|expand|shrink`, `keyorder change` and `keyorder status`: what an operator sees and must confirm."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.topology.draining import DrainStep
from support.cluster import KafkaUnderTest
from support.commands import Command

QUICK = {"keyorder.view.age.ms": "300"}


def words(kafka: KafkaUnderTest, *more: object) -> list[str]:
    """The command as a process of its own."""
    return [sys.executable, "-m", "keyorder", *map(str, more), "--bootstrap-server", kafka.bootstrap_servers]


def lagging(kafka: KafkaUnderTest, topic: str) -> tuple[TopicAdmin, str]:
    """Two partitions; the second holds 10 records, of which a group has read 4."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic, 2, initial_partition_count=1, config=QUICK)
    with OrderedProducer({**config, "keyorder.allow.explicit.partition": True}) as producer:
        for _ in range(10):
            producer.produce(topic, b"v", partition=1)
        assert producer.flush(120) == 0
    group = f"slow-{topic}"
    with OrderedConsumer({**config, "group.id": group, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        assert len(consumer.consume(4, 30)) == 4
    return admin, group


@pytest.mark.kip("K694-17", "K694-18", "C-23")
def test_a_plan_tells_what_moves_who_lags_and_what_to_know(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Times that nobody measured are unknown; the same object comes from a dry run of the change."""
    admin, group = lagging(kafka, topic_name)
    to_one = ("--topic", topic_name, "--partitions", 1)

    plan = keyorder("topics", "plan", *to_one).document

    assert (plan["dry_run"], plan["current"]["count"], plan["target"]["count"]) == (True, 2, 1)
    assert [(m["from"], m["to"], m["share"]["fraction"]) for m in plan["moves"]] == [(1, 0, "1/2")]
    assert plan["hold"] == {
        "seconds": None, "at_most_s": 5.0, "measured_at_epochs": [], "moving_records_per_s": None,
    }  # fmt: skip
    (lag,) = plan["groups"]
    assert (lag["group"], lag["lag"], lag["gate_s"], lag["waited_for"]) == (group, 6, None, False)
    assert lag["origins"] == [{"partition": 1, "at": 4, "end": 10, "lag": 6, "consumed_per_s": None}]
    assert "--sample" in lag["gate_unknown_because"]
    assert plan["not_waited_for"] == {group: 6}
    codes = [warning["code"] for warning in plan["warnings"]]
    assert codes == ["keys-move", "stock-writers", "no-ordered-writer", "switch-off", "groups-lag"]
    named = keyorder("topics", "shrink", *to_one, "--dry-run", "--wait-for-groups", group).document
    assert (named["not_waited_for"], named["waits_for_groups"], named["delay_ms"]) == ({}, [group], 300_000)
    assert [warning["code"] for warning in named["warnings"]] == [
        "keys-move", "stock-writers", "no-ordered-writer", "switch-off",
    ]  # fmt: skip
    admin.alter(topic_name, {"delete.topic.partition.enable": "true"})
    at_once = keyorder("topics", "shrink", *to_one, "--dry-run", "--immediate").document
    assert (at_once["delay_ms"], at_once["not_waited_for"]) == (0, {group: 6})
    assert "switch-off" not in [warning["code"] for warning in at_once["warnings"]]
    people = keyorder("topics", "plan", *to_one, output="table")
    assert "unknown before the first change" in people.out
    assert f"{group} (6 records)" in people.err
    assert admin.timeline(topic_name).newest.count == 2


@pytest.mark.kip("K694-19")
def test_a_second_controller_is_warned_and_a_left_change_given_up(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Another count is refused, the same count resumes with a warning; an abort is done once and says so twice."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    of_topic = ("--topic", topic_name)

    def killed(count: int) -> None:
        left = subprocess.run(
            words(kafka, "topics", "expand", *of_topic, "--partitions", count),
            env={**os.environ, "KEYORDER_CRASH_AT": "prepare-written"},
            capture_output=True,
            check=False,
        )
        assert left.returncode == -signal.SIGKILL, left

    killed(4)
    (shown,) = keyorder("change", "status", *of_topic).document["changes"]
    assert (shown["change"]["phase"], shown["change"]["count"], shown["change"]["attempt"]) == ("PREPARE", 4, 1)
    assert shown["deadline_at_ms"] == shown["since_ms"] + 5_000
    assert (shown["writers"], shown["late"], shown["stalled"]) == ([], [], False)
    everywhere = keyorder("change", "status").document["changes"]
    assert topic_name in [each["topic"] for each in everywhere]
    assert "PREPARE since" in keyorder("change", "status", *of_topic, output="table").out
    refused = keyorder("topics", "expand", *of_topic, "--partitions", 5)
    assert (refused.code, refused.error["type"], refused.error["retriable"]) == (1, "ChangeOpenError", True)
    assert "keyorder change abort" in refused.error["message"]
    resumed = keyorder("topics", "expand", *of_topic, "--partitions", 4)
    assert (resumed.code, resumed.document["after"]) == (0, 4)
    assert resumed.document["warnings"][0]["code"] == "change-open"

    killed(5)
    assert keyorder("change", "abort", *of_topic, "--dry-run").document["aborted"] is False
    assert admin.timeline(topic_name).change is not None
    done, again = (keyorder("change", "abort", *of_topic) for _ in range(2))
    assert (done.code, done.document["aborted"], done.document["change"]["count"]) == (0, True, 5)
    assert (again.code, again.document["aborted"], again.document["change"]) == (0, False, None)
    assert "nothing to abort" in keyorder("change", "abort", *of_topic, output="table").out
    assert (admin.timeline(topic_name).change, admin.timeline(topic_name).newest.count) == (None, 4)


@pytest.mark.kip("K694-16", "C-14")
def test_force_needs_the_topics_name(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """It says first what is lost; unconfirmed nothing is done. The name may be given, or typed on a terminal."""
    admin, group = lagging(kafka, topic_name)
    admin.alter(topic_name, {"delete.topic.partition.enable": "true"})
    shrink = ("topics", "shrink", "--topic", topic_name, "--partitions", 1, "--wait-for-groups", group)
    waiting = keyorder(*shrink, "--delete-partitions-delay", 0)
    assert (waiting.code, waiting.document["after"]) == (0, 1)
    assert [(step["done"], step["state"]) for step in waiting.document["drained"]] == [(False, "waiting")]

    dry = keyorder(*shrink, "--force", "--dry-run").document["forced"]
    assert dry["records"] == {"1": 10}
    assert dry["losses"] == [{"group": group, "partition": 1, "records": 6, "at": 4, "upto": 10}]
    for given in ((), ("--confirm", "another")):
        refused = keyorder(*shrink, "--force", *given)
        assert (refused.code, refused.error["type"]) == (3, "NotConfirmedError")
        assert f"group {group}: 6 records of partition 1" in refused.err
    assert keyorder(*shrink, "--confirm", topic_name).code == 2
    assert [step.done for step in admin.drain(topic_name)] == [False]

    with terminal(words(kafka, *shrink, "--force", "--delete-partitions-delay", 0)) as (typed, process):
        assert b"another" not in said_until(typed, b"to go on")
        os.write(typed, b"another\n")
        assert process.wait(120) == 3
    assert [step.done for step in admin.drain(topic_name)] == [False]
    with terminal(words(kafka, *shrink, "--force", "--delete-partitions-delay", 0)) as (typed, process):
        said = said_until(typed, b"to go on")
        assert f"group {group}: 6 records of partition 1 (it is at 4 of 10)".encode() in b" ".join(said.split())
        os.write(typed, topic_name.encode() + b"\n")
        said_until(typed, b"emptied below 10")
        assert process.wait(120) == 0
    assert admin.drain(topic_name) == list[DrainStep]()


@contextmanager
def terminal(command: list[str]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The command with a terminal of its own: where to type and read, and its process."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield ours, process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def said_until(terminal: int, words: bytes) -> bytes:
    """What the command has said once these words are there."""
    said = b""
    while words not in said:
        said += os.read(terminal, 4096)
    return said


def test_status_shows_topics_once_or_again_and_again(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """The lagging group stands before a closed gate; while it is watched a growth shows in a later line."""
    admin, group = lagging(kafka, topic_name)
    admin.shrink(topic_name, 1)
    of_topic = ("--topic", topic_name)

    (once,) = keyorder("status", *of_topic).document["topics"]
    assert (once["topic"], once["layout"]["count"], once["modes"]) == (topic_name, 1, {"0": 0, "1": 1})
    (found,) = once["groups"]
    assert [(g["partition"], g["waits_for"]) for g in found["closed"]] == [
        (0, [{"partition": 1, "needs": 10, "at": 4, "missing": 6}])
    ]
    assert [(d["partition"], d["state"]) for d in once["retired"]] == [(1, "waiting")]
    assert f"{group} (1, 6)" in keyorder("status", *of_topic, output="table").out
    assert keyorder("status", "--topic", f"no-{topic_name}").error["type"] == "TopicNotFoundError"

    watching = words(kafka, "status", *of_topic, "--watch", "--interval", "0.1", "--output", "json")
    with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        counts = [json.loads(process.stdout.readline())["topics"][0]["layout"]["count"]]
        admin.expand(topic_name, 2)
        while counts[-1] != 2:
            counts.append(json.loads(process.stdout.readline())["topics"][0]["layout"]["count"])
        process.terminate()
        process.communicate()
        assert process.returncode == 0
    assert counts[0] == 1
