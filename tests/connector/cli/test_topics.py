"""`keyorder topics` as a user runs it: a process, a real broker, exit codes, and objects for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import NewTopic
from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaFactory, KafkaUnderTest

# A change waits for twice this age, so that commits lie that far apart.
QUICK = "keyorder.view.age.ms=100"


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one object on stdout."""
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed

    @property
    def error(self) -> dict[str, Any]:
        """The error object; nothing else may be on stdout, and no trace on stderr."""
        assert "Traceback" not in self.err
        assert set(self.document) == {"error"}
        assert set(self.document["error"]) == {"type", "message", "retriable"}
        found: dict[str, Any] = self.document["error"]
        return found


def keyorder(*words: object, **environment: str) -> Run:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "keyorder", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
    )
    return Run(done.returncode, done.stdout, done.stderr)


def topics(kafka: KafkaUnderTest, command: str, *words: object, **environment: str) -> Run:
    """Run `keyorder topics <command>` against the broker, with an object as its answer."""
    reach = ("--bootstrap-server", kafka.bootstrap_servers, "--output", "json")
    return keyorder("topics", command, *reach, *words, **environment)


def physical(kafka: KafkaUnderTest, topic: str) -> int:
    """How many partitions the broker knows; 0 for a topic that does not exist."""
    found = kafka.admin().list_topics(timeout=120).topics
    return len(found[topic].partitions) if topic in found else 0


@pytest.mark.kip("K253-17", "K253-24", "K280-03")
def test_a_topic_is_created_described_grown_and_listed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The whole way: each command prints one object of the documented shape, and a repeated growth says `already`."""
    made = topics(
        kafka, "create", "--topic", topic_name, "--partitions", 4,
        "--config", "retention.ms=86400000", "--config", "compaction.strategy=timestamp", "--config", QUICK,
    )  # fmt: skip
    assert made.code == 0, made
    assert made.document["layout"] == {"initial": 4, "count": 4, "hash": "murmur2"}
    assert made.document["settings"] == {"compaction.strategy": "timestamp"}

    plan = topics(kafka, "expand", "--topic", topic_name, "--partitions", 6, "--dry-run").document
    assert plan["dry_run"] is True
    assert (plan["current"], plan["target"]) == (
        {"initial": 4, "count": 4, "hash": "murmur2"},
        {"initial": 4, "count": 6, "hash": "murmur2"},
    )
    assert plan["partitions_to_create"] == 2
    assert plan["share_moved"] == {"fraction": "1/4", "percent": 25.0}
    assert plan["share_moved_by_stock"] == {"fraction": "2/3", "percent": 66.667}
    assert [(move["from"], move["to"], move["share"]["fraction"]) for move in plan["moves"]] == [
        (0, 4, "1/8"),
        (1, 5, "1/8"),
    ]
    assert physical(kafka, topic_name) == 4

    config = {"bootstrap.servers": kafka.bootstrap_servers, "keyorder.writer.id": f"writer of {topic_name}"}
    with OrderedProducer(config) as producer:
        for number in range(40):
            producer.produce(topic_name, b"v", f"key {number}")
        assert producer.flush(120) == 0
        grown = topics(kafka, "expand", "--topic", topic_name, "--partitions", 6)
        described = topics(kafka, "describe", "--topic", topic_name).document
    assert grown.code == 0, grown
    document = grown.document
    assert (document["before"], document["after"], document["changed"]) == (4, 6, True)
    assert set(document["ends"]) == {"0", "1"}
    assert document["begins"] == {"4": 0, "5": 0}
    assert [step["name"] for step in document["steps"]][-3:] == ["cutting", "committing", "done"]
    told = [line for line in grown.err.splitlines() if not line.startswith("WARNING")]
    assert len(told) == len(document["steps"])
    assert [warning["code"] for warning in document["warnings"]] == ["keys-move"]

    assert list(described) == [
        "topic", "topic_id", "layout", "partitions", "ordered", "epochs", "change", "writers", "settings",
        "modes", "retired", "groups", "strays", "strays_problem",
    ]  # fmt: skip
    assert described["layout"] == {"initial": 4, "count": 6, "hash": "murmur2"}
    assert (described["partitions"], described["ordered"], described["change"]) == (6, True, None)
    assert [set(epoch) for epoch in described["epochs"]] == [
        {"number", "count", "ends", "begins", "committed_at_ms", "held_ms"}
    ] * 2
    assert described["epochs"][1]["ends"] == document["ends"]
    assert [writer["writer"] for writer in described["writers"]] == [f"writer of {topic_name}"]
    assert described["writers"][0]["topics"] == [topic_name]

    again = topics(kafka, "expand", "--topic", topic_name, "--partitions", 6)
    assert again.code == 0, again
    assert (again.document["changed"], again.document["after"]) == (False, 6)
    assert topics(kafka, "describe", "--topic", topic_name).document["epochs"] == described["epochs"]

    listed = {each["topic"]: each for each in topics(kafka, "list").document["topics"]}
    assert listed[topic_name]["layout"] == {"initial": 4, "count": 6, "hash": "murmur2"}
    assert (listed[topic_name]["exists"], listed[topic_name]["changing"]) == (True, False)


@pytest.mark.kip("K253-29")
def test_the_same_command_resumes_a_killed_change(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A controller killed after PREPARE leaves an open change for all to see; the next run gets the topic there."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=dict([QUICK.split("=")]))
    expand = ("--topic", topic_name, "--partitions", 4)

    killed = topics(kafka, "expand", *expand, KEYORDER_CRASH_AT="prepare-written")
    assert killed.code == -signal.SIGKILL
    left = topics(kafka, "describe", "--topic", topic_name).document
    assert (left["layout"]["count"], left["change"]["count"], left["change"]["phase"]) == (2, 4, "PREPARE")

    resumed = topics(kafka, "expand", *expand)
    assert resumed.code == 0, resumed
    assert (resumed.document["changed"], resumed.document["after"]) == (True, 4)
    found = TopicAdmin(kafka.client_config()).describe(topic_name)
    assert (found.layout.count, found.change) == (4, None)


def test_people_get_tables(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Without --output json the same facts come as text: what was done, the steps with their times, the epochs."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=dict([QUICK.split("=")]))
    reach = ("--bootstrap-server", kafka.bootstrap_servers)

    plan = keyorder("topics", "expand", *reach, "--topic", topic_name, "--partitions", 3, "--dry-run")
    assert "Keys that move: 1/4 (25.0%)" in plan.out
    grown = keyorder("topics", "expand", *reach, "--topic", topic_name, "--partitions", 3)
    assert grown.code == 0, grown
    assert grown.out.startswith(f"Topic {topic_name} went from 2 to 3 partitions (epoch 1)\n")
    assert "committing the new layout" in grown.out
    assert "committing the new layout" in grown.err
    again = keyorder("topics", "expand", *reach, "--topic", topic_name, "--partitions", 3)
    assert again.out == f"Topic {topic_name} has 3 partitions already: nothing was changed\n"
    described = keyorder("topics", "describe", *reach, "--topic", topic_name)
    assert "Layout: 3 partitions, 2 at first" in described.out
    assert "0@0" in described.out


@pytest.mark.kip("K253-08", "K694-26")
def test_an_existing_topic_is_adopted_once(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Adoption keeps the present count; its dry run changes nothing, and a second one says so."""
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 3)])[topic_name].result(120)

    dry = topics(kafka, "adopt", "--topic", topic_name, "--dry-run")
    (warning,) = dry.document["warnings"]
    assert warning["code"] == "keys-move"
    assert "OrderedProducer" in warning["text"]
    assert {**dry.document, "warnings": []} == {
        "dry_run": True,
        "topic": topic_name,
        "managed": False,
        "layout": {"initial": 3, "count": 3, "hash": "murmur2"},
        "sample": {"records": 0, "keys": 0, "explained": {"murmur2": 0, "crc32": 0, "fnv1a": 0}},
        "warnings": [],
    }
    unmanaged = topics(kafka, "describe", "--topic", topic_name)
    assert (unmanaged.code, unmanaged.error["type"]) == (2, "UnmanagedTopicError")
    assert "keyorder topics adopt" in unmanaged.error["message"]

    first, second = (topics(kafka, "adopt", "--topic", topic_name) for _ in range(2))
    assert (first.code, second.code) == (0, 0)
    assert (first.document["adopted"], second.document["adopted"]) == (True, False)
    assert first.document["layout"] == {"initial": 3, "count": 3, "hash": "murmur2"} == second.document["layout"]
    assert first.document["epochs"] == second.document["epochs"]


def test_a_dry_run_of_a_creation_asks_the_broker(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The broker checks the settings, and there is no topic afterwards."""
    dry = topics(kafka, "create", "--topic", topic_name, "--partitions", 6, "--initial-partition-count", 3, "--dry-run")
    assert dry.code == 0, dry
    assert dry.document["layout"] == {"initial": 3, "count": 6, "hash": "murmur2"}
    refused = topics(kafka, "create", "--topic", topic_name, "--partitions", 2, "--config", "no.such=1", "--dry-run")
    assert (refused.code, refused.error["type"]) == (1, "KafkaOperationError")
    assert physical(kafka, topic_name) == 0


@pytest.mark.parametrize(
    ("words", "code", "kind", "text"),
    [
        (["create", "--partitions", "0"], 2, "BadParameter", "--partitions"),
        (["create", "--partitions", "2", "--initial-partition-count", "3"], 2, "LayoutError", "initial=3"),
        (["create", "--partitions", "2", "--config", "no.such=1"], 1, "KafkaOperationError", "no.such"),
        (["create", "--partitions", "2", "--config", "compaction.strategy=best"], 2, "ConfigError", "'best'"),
        (["create", "--partitions", "2", "--config", "retention.ms"], 2, "UsageError", "NAME=VALUE"),
        (["create"], 2, "MissingParameter", "--partitions"),
        (["describe"], 2, "TopicNotFoundError", "does not exist"),
        (["adopt", "--timeout", "1"], 2, "TopicNotFoundError", "does not exist"),
        (["expand", "--partitions", "6"], 2, "TopicNotFoundError", "does not exist"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_typed_error(
    kafka: KafkaUnderTest, topic_name: str, words: list[str], code: int, kind: str, text: str
) -> None:
    """Each mistake ends in one error object that names it, in its exit code, and in no topic."""
    failed = topics(kafka, words[0], "--topic", topic_name, *words[1:])

    assert (failed.code, failed.error["type"]) == (code, kind), failed
    assert text in failed.error["message"]
    assert physical(kafka, topic_name) == 0


def test_a_lower_count_and_an_existing_name_change_nothing(kafka: KafkaUnderTest, topic_name: str) -> None:
    """`expand` does not shrink, planned or not, and `create` does not take a topic over."""
    before = TopicAdmin(kafka.client_config()).create(topic_name, 4)

    for words in (["--dry-run"], []):
        failed = topics(kafka, "expand", "--topic", topic_name, "--partitions", 3, *words)
        assert (failed.code, failed.error["type"]) == (2, "CountError")
        assert "has 4 partitions, 3 were asked for" in failed.error["message"]
    failed = topics(kafka, "create", "--topic", topic_name, "--partitions", 5)
    assert (failed.code, failed.error["type"]) == (1, "KafkaOperationError")
    assert "already exists" in failed.error["message"]
    assert TopicAdmin(kafka.client_config()).describe(topic_name) == before


@pytest.mark.slow
def test_an_address_without_a_broker_is_given_up_in_time() -> None:
    """--timeout bounds the wait, the error may be retried, and the exit code is that of a failure."""
    failed = keyorder("topics", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1", "--output", "json")

    assert (failed.code, failed.error["type"], failed.error["retriable"]) == (1, "BrokerUnreachableError", True)
    assert "127.0.0.1:1" in failed.error["message"]


def test_the_file_of_a_java_tool_logs_in_and_its_password_stays_hidden(
    kafka_factory: KafkaFactory, tmp_path: Path
) -> None:
    """--command-config takes what kafka-topics.sh takes; a wrong password is refused without being shown."""
    kafka = kafka_factory(users={"root": "open sesame"})
    file = tmp_path / "client.properties"
    text = (
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism = PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="root" \\\n'
        '    password="{}";\n'
    )
    file.write_text(text.format("open sesame"))
    made = topics(kafka, "create", "--command-config", file, "--topic", "t", "--partitions", 2)
    assert made.code == 0, made

    file.write_text(text.format("wrong-and-secret"))
    failed = topics(kafka, "list", "--command-config", file, "--timeout", 2)
    assert (failed.code, failed.error["type"]) == (1, "NotAuthorizedError")
    misspelt = topics(
        kafka, "list", "--command-config", file, "--command-property", "sasl.username",
    )  # fmt: skip
    assert (misspelt.code, misspelt.error["type"]) == (2, "UsageError")
    for run in (failed, misspelt):
        assert "wrong-and-secret" not in run.out + run.err


@pytest.mark.kip("K253-31", "K694-15")
def test_a_topic_shrinks_and_the_dry_run_names_who_is_waited_for(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Down to its initial count and no further; a count above the present one is not a shrink."""
    made = topics(
        kafka,
        "create",
        "--topic",
        topic_name,
        "--partitions",
        4,
        "--initial-partition-count",
        2,
        "--config",
        QUICK,
        "--config",
        "delete.topic.partition.enable=true",
    )
    assert made.code == 0, made

    plan = topics(
        kafka, "shrink", "--topic", topic_name, "--partitions", 2, "--wait-for-groups", "billing,audit", "--dry-run"
    ).document
    assert plan["waits_for_groups"] == ["billing", "audit"]
    assert topics(kafka, "shrink", "--topic", topic_name, "--partitions", 1).code == 2
    assert topics(kafka, "shrink", "--topic", topic_name, "--partitions", 5).code == 2
    shrunk = topics(kafka, "shrink", "--topic", topic_name, "--partitions", 2, "--immediate")

    assert shrunk.code == 0, shrunk
    assert [step["done"] for step in shrunk.document["drained"]] == [True, True]
    described = TopicAdmin(kafka.client_config()).describe(topic_name)
    assert (described.layout.count, described.partitions) == (2, 4)


@pytest.mark.parametrize("command", ["expand", "shrink"])
@pytest.mark.parametrize("flag", [("--group", "g"), ("--sample", "1")])
def test_flags_of_a_plan_do_not_change_a_topic(
    kafka: KafkaUnderTest, topic_name: str, command: str, flag: tuple[str, str]
) -> None:
    """Who asks for a group's backlog or a sample means a plan: without --dry-run that is wrong usage, and nothing changes."""
    before = TopicAdmin(kafka.client_config()).create(topic_name, 2, initial_partition_count=1)
    count = 3 if command == "expand" else 1

    failed = topics(kafka, command, "--topic", topic_name, "--partitions", count, *flag)

    assert (failed.code, failed.error["type"]) == (2, "UsageError")
    assert flag[0] in failed.error["message"]
    assert "--dry-run" in failed.error["message"]
    assert TopicAdmin(kafka.client_config()).describe(topic_name) == before
