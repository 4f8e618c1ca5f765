"""`keyorder produce`, `consume` and `verify` on a real broker."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from keyorder import Layout, TopicAdmin
from keyorder.connector.cli.consume import CONSOLE_GROUP
from keyorder.connector.cli.main import _run, cli, exit_code
from keyorder.partitioner.errors import TopicNotFoundError
from support.cluster import KafkaUnderTest
from support.commands import Command
from support.workload import Workload


def run(kafka: KafkaUnderTest, *words: str, stdin: str | None = None) -> tuple[int, str]:
    """Exit code of the bare command (1 for any error) and what it printed."""
    done = CliRunner().invoke(cli, [*words, "--bootstrap-server", kafka.bootstrap_servers], input=stdin)
    return done.exit_code, done.stdout


def test_lines_go_in_and_come_out_in_order_across_a_growth(kafka: KafkaUnderTest, topic_name: str) -> None:
    admin = TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create(topic_name, 2)
    for step in ("a", "b"):
        lines = "".join(f"k{n}={step}\n" for n in range(12)) + f"gone=\\N{step}\n"
        code, out = run(
            kafka, "produce", "--topic", topic_name, "--key-separator", "=", "--output", "json", stdin=lines
        )
        assert (code, json.loads(out)["acknowledged"]) == (0, 13)
        admin.expand(topic_name, 3)

    code, out = run(
        kafka, "consume", "--topic", topic_name, "--from-beginning", "--max-messages", "26", "--output", "json"
    )

    assert code == 0
    values: dict[str, list[str]] = {}
    for line in out.splitlines():
        record = json.loads(line)
        values.setdefault(record["key"], []).append(record["value"])
    assert values == {**{f"k{n}": ["a", "b"] for n in range(12)}, "gone": ["\\Na", "\\Nb"]}


def test_a_topic_that_is_not_there_is_told_without_a_line_too(kafka: KafkaUnderTest, topic_name: str) -> None:
    """ "0 records acknowledged" would say that the name is right."""
    for lines in ("", "a:1\n"):
        result = CliRunner().invoke(
            cli,
            ["produce", "--topic", topic_name, "--bootstrap-server", kafka.bootstrap_servers],
            input=lines,
        )
        assert isinstance(result.exception, TopicNotFoundError)
        assert exit_code(result.exception) == 2
        assert result.stdout == ""


def test_nulls_bytes_and_places_are_printed(kafka: KafkaUnderTest, topic_name: str) -> None:
    admin = TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create(topic_name, 1)
    code, _ = run(
        kafka, "produce", "--topic", topic_name, "--key-separator", ":", "--null-marker", "-", stdin="a:1\nb:-\n"
    )
    assert code == 0
    words = [
        "consume",
        "--topic",
        topic_name,
        "--from-beginning",
        "--idle-timeout",
        "3",
        "--print-key",
        "--print-place",
    ]
    assert run(kafka, *words, "--key-separator", " ") == (0, "0:0 a 1\n0:1 b null\n")


def test_what_is_no_text_is_told_field_by_field(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """Of each key, value and header it is said whether it is base64, so that its bytes can be had back."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    version = struct.pack(">q", 2**40 - 1)  # a version as of KIP-280
    headers: list[tuple[str, bytes | None]] = [("v", version), ("v", b"text"), ("n", None), ("t", "ä".encode())]
    stock = Producer(kafka.client_config())
    stock.produce(topic_name, b"\xff", b"/w==", partition=0, headers=headers)
    stock.produce(topic_name, b"text", "Ö", partition=0)
    stock.produce(topic_name, None, b"\xfe", partition=0)
    assert stock.flush(60) == 0
    words = ("--topic", topic_name, "--from-beginning", "--max-messages", 3)
    first, second, third = map(json.loads, keyorder("consume", *words).out.splitlines())
    shown = b64encode(version).decode()
    assert (first["key"], first["value"], first["encoding"]) == (
        "/w==", b64encode(b"\xff").decode(), {"value": "base64", "headers": {"v": "base64"}},
    )  # fmt: skip
    assert first["headers"] == [["v", shown], ["v", b64encode(b"text").decode()], ["n", None], ["t", "ä"]]
    assert b64decode(shown) == version
    assert (second["key"], second["value"], "encoding" in second) == ("Ö", "text", False)
    assert (third["key"], third["value"], third["encoding"]) == ("/g==", None, {"key": "base64"})


def test_a_console_reader_leaves_no_group_behind(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Without --group the run has a group of its own, which would show as lag for ever."""
    TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers}).create(topic_name, 1)
    run(kafka, "produce", "--topic", topic_name, stdin="a\nb\n")
    code, out = run(kafka, "consume", "--topic", topic_name, "--from-beginning", "--max-messages", "1")
    assert (code, out) == (0, "a\n")
    admin = kafka.admin()  # dropped, it would never answer
    listed = admin.list_consumer_groups(request_timeout=120).result(120)
    assert [found.group_id for found in listed.valid if found.group_id.startswith(CONSOLE_GROUP)] == []


def test_errors_of_a_user_are_one_line_without_a_trace(
    kafka: KafkaUnderTest, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topic that is not there, a setting that the client library does not know."""
    TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers}).create(topic_name, 1)
    there = ["--bootstrap-server", kafka.bootstrap_servers]
    for words, code, text in (
        (["consume", "--topic", topic_name + "x"], 2, "does not exist"),
        (["consume", "--topic", topic_name, "--consumer-property", "fetch.mni.bytes=1"], None, "fetch.mni.bytes"),
        (["produce", "--topic", topic_name, "--producer-property", "linger=1"], None, "linger"),
    ):
        ended = _run([*words, *there])
        printed = capsys.readouterr().err
        assert ended == code if code is not None else ended in (1, 2)
        assert text in printed
        assert "Traceback" not in printed


def test_a_topic_is_made_once_and_deleted_by_name(kafka: KafkaUnderTest, topic_name: str) -> None:
    """--if-not-exists and --if-exists make scripts repeatable; a deletion asks for the topic's name."""
    words = ["topics", "create", "--topic", topic_name, "--partitions", "2", "--if-not-exists", "--output", "json"]
    assert json.loads(run(kafka, *words)[1])["layout"]["count"] == 2
    assert json.loads(run(kafka, *words)[1])["created"] is False
    gone = ["topics", "delete", "--topic", topic_name]
    assert run(kafka, *gone)[0] == 1  # not confirmed
    assert json.loads(run(kafka, *gone, "--dry-run", "--output", "json")[1])["deleted"] is False
    assert json.loads(run(kafka, *gone, "--confirm", topic_name, "--output", "json")[1])["deleted"] is True
    assert run(kafka, *gone, "--confirm", topic_name)[0] == 1
    assert json.loads(run(kafka, *gone, "--if-exists", "--output", "json")[1])["deleted"] is False
    assert json.loads(run(kafka, *words)[1])["layout"]["count"] == 2


def test_a_line_without_separator_is_refused_by_its_number(kafka: KafkaUnderTest, topic_name: str) -> None:
    TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers}).create(topic_name, 1)
    done = CliRunner().invoke(
        cli,
        ["produce", "--topic", topic_name, "--key-separator", "=", "--bootstrap-server", kafka.bootstrap_servers],
        input="a=1\nb\n",
    )
    assert "line 2 has no key separator" in str(done.exception)


def test_records_that_fail_are_told_in_the_same_object(keyorder: Command, topic_name: str, tmp_path: Path) -> None:
    """Standard output is one document, whatever becomes of the records."""
    settings = ("--config", "max.message.bytes=1000")
    assert keyorder("topics", "create", "--topic", topic_name, "--partitions", 1, *settings).code == 0
    lines = tmp_path / "lines"
    lines.write_text("x" * 2000)
    done = keyorder("produce", "--topic", topic_name, lines)
    assert (done.code, done.document["acknowledged"], done.document["failed"]) == (1, 0, 1)
    assert done.error["type"] == "KafkaOperationError"
    assert "MSG_SIZE_TOO_LARGE" in done.error["message"]
    for_people = keyorder("produce", "--topic", topic_name, lines, output="table")
    assert (for_people.code, for_people.out) == (1, "0 records acknowledged\n")
    assert "MSG_SIZE_TOO_LARGE" in for_people.err


def test_an_error_among_lines_is_a_line(keyorder: Command, topic_name: str) -> None:
    """Whoever reads an object a line reads the last one like the others."""
    assert keyorder("topics", "create", "--topic", topic_name, "--partitions", 1).code == 0
    done = keyorder("consume", "--topic", topic_name, "--consumer-property", "auto.offset.reset=error")
    assert done.code == 1
    assert "error" in json.loads(done.out.splitlines()[-1])


def test_verify_finds_what_a_stock_producer_wrote_beside(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """One object and exit code 1, as documented."""
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    admin = TopicAdmin(config)
    admin.create(topic_name, 2)
    lines = "".join(f"k{n}=x\n" for n in range(30))
    run(kafka, "produce", "--topic", topic_name, "--key-separator", "=", stdin=lines)
    admin.expand(topic_name, 3)
    run(kafka, "produce", "--topic", topic_name, "--key-separator", "=", stdin=lines)
    code, out = run(kafka, "verify", "--topic", topic_name, "--output", "json")
    assert (code, json.loads(out)["strays"]) == (0, 0)
    assert sum(p["moved"] for p in json.loads(out)["partitions"]) > 0

    stock = Producer(config)
    layout = Layout(2, 3)
    wrong = next(f"k{n}" for n in range(30) if layout.home(f"k{n}".encode()) == 2)
    stock.produce(topic_name, "late", wrong, partition=0)
    stock.flush()

    done = keyorder("verify", "--topic", topic_name)
    assert (done.code, done.document["valid"], done.document["strays"]) == (1, False, 1)
    assert done.document["examples"][0].endswith(f"key {wrong} lives in 2")
    for_people = keyorder("verify", "--topic", topic_name, output="table")
    assert for_people.code == 1
    assert "1 misplaced records" in for_people.out
    assert f"topic {topic_name} is not in order" in for_people.err


@pytest.mark.parametrize("tamper", [False, True])
def test_verify_judges_recorded_histories(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, tamper: bool, keyorder: Command
) -> None:
    with Workload(kafka, tmp_path, topic_name, partitions=1) as load:
        load.consumer("c1", "g")
        load.writer("w1", rate=2_000, count=400, keys=20).expect("finished")
        assert load.resize(2) == 0
        load.finish()
    if tamper:
        file = tmp_path / "c1.jsonl"
        lines = file.read_text().splitlines()
        delivered = [line for line in lines if '"ds"' in line]
        lost = json.loads(delivered[7])[2:4]  # partition and offset of one delivery, which is made unheard of
        kept = [line for line in lines if json.loads(line)[1] not in ("ds", "de") or json.loads(line)[2:4] != lost]
        file.write_text("\n".join(kept) + "\n")
    done = keyorder("verify", "--topic", topic_name, tmp_path)
    assert done.code == int(tamper)
    assert done.document["valid"] is not tamper
