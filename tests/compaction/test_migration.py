"""`keyorder compact` as a user runs it, and the KIP's order of migration and of the way back."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction.strategy import encode_version
from support.cleaning import HELD, dump
from support.cluster import KafkaUnderTest

QUICK = {**HELD, "keyorder.view.age.ms": "200"}


def keyorder(kafka: KafkaUnderTest, command: str, topic: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run `keyorder compact <command>` on the topic, with JSON as its answer."""
    reach = ("--bootstrap-server", kafka.bootstrap_servers, "--output", "json", "--topic", topic)
    line = [sys.executable, "-m", "keyorder", "compact", command, *reach, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def send(kafka: KafkaUnderTest, topic: str, key: bytes | str, value: bytes | str | None, version: int | None) -> None:
    """One record, acknowledged."""
    with OrderedProducer(kafka.client_config()) as producer:
        headers = None if version is None else [("v", encode_version(version))]
        producer.produce(topic, value, key, headers=headers)
        assert producer.flush(120) == 0


@pytest.mark.kip("K280-04", "K280-05", "K280-06", "K280-03")
def test_the_way_to_a_header_and_back(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Refused while recent records lack the header, allowed once all have it; the switch is on record; back at any time."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    header = ("--strategy", "header", "--header", "v")
    send(kafka, topic_name, "a", "one", None)
    refused = keyorder(kafka, "set-strategy", topic_name, *header)
    assert refused.returncode == 3, refused
    error = json.loads(refused.stdout)["error"]
    assert (error["type"], error["retriable"]) == ("HeaderMissingError", False)
    assert "1 of the last 1 records" in error["message"]
    assert admin.describe(topic_name).settings.get("compaction.strategy") is None

    for number in range(3):
        send(kafka, topic_name, "a", f"v{number}", number)
    planned = json.loads(keyorder(kafka, "set-strategy", topic_name, *header, "--sample", 3, "--dry-run").stdout)
    assert (planned["dry_run"], planned["changed"], planned["sampled"], planned["lacking"]) == (True, True, 3, 0)
    assert admin.describe(topic_name).settings.get("compaction.strategy") is None
    made = json.loads(keyorder(kafka, "set-strategy", topic_name, *header, "--sample", 3).stdout)
    assert made["after"] == {"strategy": "header", "header": "v"}
    assert made["switched"] == {"0": 4}
    assert any("cannot come back" in note for note in made["notes"])
    settings = admin.describe(topic_name).settings
    assert (settings["compaction.strategy"], settings["compaction.strategy.header"]) == ("header", "v")
    assert json.loads(settings["compaction.strategy.switched"]) == {"0": 4}
    same = json.loads(keyorder(kafka, "set-strategy", topic_name, *header).stdout)
    assert (same["changed"], same["switched"]) == (False, {"0": 4})

    send(kafka, topic_name, "a", "without", None)
    back = json.loads(keyorder(kafka, "set-strategy", topic_name, "--strategy", "offset").stdout)
    assert (back["changed"], back["lacking"]) == (True, 2)
    assert any("before the strategy was changed" in note for note in back["notes"])
    assert "compaction.strategy.header" not in admin.describe(topic_name).settings
    forced = keyorder(kafka, "set-strategy", topic_name, *header, "--force")
    assert (forced.returncode, json.loads(forced.stdout)["lacking"]) == (0, 2)


@pytest.mark.kip("K280-06")
def test_the_way_back_says_when_producers_may_stop(kafka: KafkaUnderTest, topic_name: str) -> None:
    """While all recent records have the header, the strategy goes first and the header afterwards."""
    config = {**QUICK, "compaction.strategy": "header", "compaction.strategy.header": "v"}
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=config)
    send(kafka, topic_name, "a", "one", 1)

    back = json.loads(keyorder(kafka, "set-strategy", topic_name, "--strategy", "timestamp").stdout)

    assert any("producers may stop writing the header 'v' now" in note for note in back["notes"])
    assert "message.timestamp.type" in [finding["setting"] for finding in back["findings"]]


def test_plan_run_and_view(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """The commands' objects; a dry run writes nothing; a view is one object per key, base64 where it is no text."""
    config = {**QUICK, "compaction.strategy": "header", "compaction.strategy.header": "v"}
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=config)
    for key, value, version in (
        ("a", "high", 2),
        ("a", "low", 1),
        (b"\xff", b"\xfe", 1),
        ("b", "x", 1),
        ("b", None, 2),
    ):
        send(kafka, topic_name, key, value, version)  # type: ignore[arg-type]

    state = ("--state", tmp_path / "state")
    plan = json.loads(keyorder(kafka, "plan", topic_name).stdout)
    dry = json.loads(keyorder(kafka, "run", topic_name, "--dry-run").stdout)
    assert (plan["keys"], plan["tombstones"], plan["appends"], plan["records"]) == (2, 1, 1, 5)
    assert (dry["dry_run"], dry["appends"]) == (True, 1)
    assert len(dump(kafka, topic_name)) == 5
    run = json.loads(keyorder(kafka, "run", topic_name, *state, "--throttle", 1000).stdout)
    again = json.loads(keyorder(kafka, "run", topic_name, *state).stdout)
    assert (run["appends"], run["append_bytes"], run["transactions"], again["appends"]) == (1, 14, 1, 0)
    assert (run["records"], again["records"]) == (6, 0)

    lines = [json.loads(line) for line in keyorder(kafka, "view", topic_name).stdout.splitlines()]
    shown = {line["key"]: line for line in lines}
    assert set(shown) == {"a", base64.b64encode(b"\xff").decode()}
    assert (shown["a"]["value"], shown["a"]["version"], "encoding" in shown["a"]) == ("high", 2, False)
    raw = shown[base64.b64encode(b"\xff").decode()]
    assert (raw["value"], raw["encoding"]) == (base64.b64encode(b"\xfe").decode(), {"key": "base64", "value": "base64"})
    only = keyorder(
        kafka, "view", topic_name, "--strategy", "offset", "--key", "a", "--key", "none"
    ).stdout.splitlines()
    assert [json.loads(line)["value"] for line in only] == ["high"]
    file = tmp_path / "snapshot.parquet"
    written = json.loads(keyorder(kafka, "view", topic_name, "--snapshot", file).stdout)
    assert (written["rows"], file.exists()) == (2, True)
    table = subprocess.run(
        [sys.executable, "-m", "keyorder", "compact", "plan", "--bootstrap-server", kafka.bootstrap_servers,
         "--topic", topic_name], capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "keys to write again" in table.stdout


@pytest.mark.parametrize(
    ("command", "words", "code", "kind"),
    [
        ("view", ["--strategy", "newest"], 2, "BadParameter"),
        ("view", ["--header", "v"], 2, "UsageError"),
        ("view", ["--strategy", "header"], 2, "ConfigError"),
        ("set-strategy", ["--strategy", "header", "--header", " "], 2, "ConfigError"),
        ("set-strategy", ["--strategy", "timestamp"], 2, "UnmanagedTopicError"),
        ("run", ["--strategy", "timestamp"], 2, "UnmanagedTopicError"),
        ("plan", ["--state", "/"], 2, "BadParameter"),
        ("view", ["--key", "k", "--snapshot", "never.parquet"], 2, "UsageError"),
        ("run", ["--throttle", "nan"], 2, "BadParameter"),
        ("run", ["--throttle", "inf"], 2, "BadParameter"),
    ],
)
def test_a_wrong_call_is_one_typed_error(
    kafka: KafkaUnderTest, topic_name: str, command: str, words: list[str], code: int, kind: str
) -> None:
    """With its exit code, and the topic as it was."""
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 1, config=HELD)])[topic_name].result(120)
    producer = Producer(kafka.client_config())
    producer.produce(topic_name, "v", "k")
    assert producer.flush(120) == 0

    failed = keyorder(kafka, command, topic_name, *words)

    assert (failed.returncode, json.loads(failed.stdout)["error"]["type"]) == (code, kind), failed
    assert len(dump(kafka, topic_name)) == 1
