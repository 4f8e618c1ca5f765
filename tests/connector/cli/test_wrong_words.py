"""Command lines that cannot be right: told as the user's (exit code 2), in a sentence, before anything is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from keyorder.connector.cli.main import _run, cli
from support.commands import Command

NOWHERE = ("--bootstrap-server", "127.0.0.1:1")
WITH_A_TOPIC = (
    ("topics", "create", "--partitions", "2"),
    ("topics", "describe"),
    ("topics", "adopt"),
    ("topics", "plan", "--partitions", "2"),
    ("topics", "expand", "--partitions", "2"),
    ("topics", "delete"),
    ("change", "abort"),
    ("change", "status"),
    ("gates", "list", "--group", "g"),
    ("groups", "describe", "--group", "g"),
    ("produce",),
    ("consume",),
    ("verify",),
    ("doctor",),
    ("status",),
)


def with_seconds(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    """The words of each option below a command that takes a time."""
    for name in command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ():
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from with_seconds(found, *path, name)
    for param in command.params:
        if isinstance(param.type, click.types.FloatParamType) and path[0] != "compact":  # bytes a second
            yield (*path, param.opts[0])


@pytest.mark.parametrize("words", list(with_seconds(cli)), ids=" ".join)
@pytest.mark.parametrize("text", ["nan", "inf", "1e10"])
def test_a_time_that_nobody_can_wait(words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Python's waits and the client library refuse it, each in its own way, when it is too late for a sentence."""
    assert _run([*words, text, *NOWHERE]) == 2
    shown = capsys.readouterr()
    assert words[-1] in shown.err
    assert "Missing option" not in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("words", WITH_A_TOPIC, ids=" ".join)
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_a_name_that_no_topic_has(words: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No broker is asked, and no trace shown: the client library raises ValueError for an empty name."""
    assert _run([*words, "--topic", name, *NOWHERE]) == 2
    shown = capsys.readouterr()
    assert "--topic" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("command", ["plan", "expand"])
def test_a_count_with_too_many_digits(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It would take minutes to say which keys move, and no cluster has so many partitions."""
    assert _run(["topics", command, "--topic", "t", "--partitions", "99999999", *NOWHERE]) == 2
    assert "100000" in capsys.readouterr().err


def test_a_separator_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """It stands everywhere in a line: no key ends there."""
    assert _run(["produce", "--topic", "t", "--key-separator", "", *NOWHERE]) == 2
    shown = capsys.readouterr()
    assert "--key-separator" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    "words", [("produce", "--producer-property"), ("consume", "--max-messages", "1", "--consumer-property")]
)
@pytest.mark.parametrize("setting", ["no.such=1", "socket.timeout.ms=abc"])
def test_a_setting_that_the_library_does_not_take(
    keyorder: Command, topic_name: str, tmp_path: Path, words: tuple[str, ...], setting: str
) -> None:
    """It is the user's, as a word of the command line is."""
    assert keyorder("topics", "create", "--topic", topic_name, "--partitions", 1).code == 0
    lines = tmp_path / "lines"
    lines.write_text("a\n")
    refused = keyorder(*words, setting, "--topic", topic_name, *([lines] if "produce" in words else []))
    assert refused.code == 2
    assert "configuration property" in refused.error["message"]


def test_the_longest_time_that_is_taken(keyorder: Command, topic_name: str) -> None:
    """What one request may take is an hour for the client library, whatever a command may."""
    for words in (
        ("topics", "create", "--topic", topic_name, "--partitions", 1),
        ("topics", "adopt", "--topic", topic_name),
        ("doctor", "--topic", topic_name),
        ("topics", "delete", "--topic", topic_name, "--confirm", topic_name),
    ):
        done = keyorder(*words, "--timeout", 2_000_000)
        assert "error" not in done.document, done


@pytest.mark.parametrize("server", ["", " ", ",", " , ,"])
def test_no_address_at_all(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The client library would look for a host of no name, which may come back for all that a program can tell."""
    assert _run(["topics", "list", "--bootstrap-server", server]) == 2
    assert "--bootstrap-server is empty: give host:port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "count"),
    [
        ("--partitions", "9999999999"),
        ("--initial-partition-count", "9999999999"),
        ("--replication-factor", "9999999999"),
        ("--replication-factor", "10001"),
    ],
)
def test_a_count_that_no_topic_is_made_with(option: str, count: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The client library takes 32 bits, and 10 000 replicas, and raises OverflowError or ValueError for more."""
    words = ["topics", "create", "--topic", "t", "--partitions", "2", option, count]
    assert _run([*words, *NOWHERE]) == 2
    shown = capsys.readouterr().err
    assert option in shown
    assert "Traceback" not in shown


def test_an_offset_beyond_all(keyorder: Command, topic_name: str) -> None:
    """Offsets are put between the log's ends, however many digits they have."""
    assert keyorder("topics", "create", "--topic", topic_name, "--partitions", 1).code == 0
    for words in (("--to-offset", 10**30), ("--to-epoch", 10**30), ("--to-datetime", "9999-12-31T23:59:59+00:00")):
        done = keyorder("groups", "reset", "--group", topic_name, "--topic", topic_name, *words)
        assert "Traceback" not in done.err
        assert done.code == (2 if words[0] == "--to-epoch" else 0)
        if not done.code:
            assert done.document["offsets"] == {"0": 0}


def test_a_recording_that_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the user's file that is named, before the topic is read."""
    opened = b'[1, "open", "c1", "g", "r"]\n'
    for name, text in {
        "torn": b'[1, "open", "c1"\n[2, "as", [0]]\n',
        "words": b'[1, "no such event", 2]\n',
        "digits": opened + b'[1' + b"0" * 40 + b', "as", [0]]\n',
        "nobody": b'[1, "open", null, "g", "r"]\n',
        "deep": opened + b"[" * 100_000 + b"]" * 100_000 + b"\n",
    }.items():  # fmt: skip
        file = tmp_path / f"{name}.jsonl"
        file.write_bytes(text)
        assert _run(["verify", "--topic", "t", str(file), *NOWHERE]) == 2, name
        shown = capsys.readouterr().err
        assert str(file) in shown
        assert "Traceback" not in shown


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "--topic", "t", "--group"),
        ("consume", "--topic", "t", "--consumer-property"),
        ("groups", "describe", "--group"),
        ("produce", "--topic", "t", "--key-separator"),
        ("topics", "list", "--command-property"),
    ],
    ids=" ".join,
)
def test_a_word_that_is_not_text(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """A byte of another encoding, as Python hands it over. The client library would end the process (SIGABRT)."""
    assert _run([*words, "a=\udcff", *NOWHERE]) == 2
    assert f"{words[-1]} is not UTF-8" in capsys.readouterr().err


def test_a_server_that_is_not_text(capsys: pytest.CaptureFixture[str]) -> None:
    """As any other word."""
    assert _run(["topics", "list", "--bootstrap-server", "\udcff:1"]) == 2
    assert "--bootstrap-server is not UTF-8" in capsys.readouterr().err


def test_the_home_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """A shell leaves such a word as it is."""
    assert _run(["local", "status", "--data-dir", "~no-such-user-here/x"]) == 2
    assert "--data-dir" in capsys.readouterr().err
