"""--timeout: each command keeps to it, and the document says each default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import keyorder as package
import pytest
from confluent_kafka import Producer
from keyorder import TopicAdmin
from keyorder.connector.cli.main import cli
from keyorder.connector.topology.log_scan import LogScan
from support.cluster import KafkaUnderTest
from support.commands import Command


def defaults(command: click.Command, *path: str) -> Iterator[tuple[str, float]]:
    """(command, default of its --timeout) of all below this one."""
    for name in command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ():
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from defaults(found, *path, name)
    for param in command.params:
        if param.opts == ["--timeout"]:
            yield " ".join(path), float(param.default)  # type: ignore[arg-type]  # a number here


def test_the_document_says_each_default() -> None:
    """The row of the flag in docs/configuration.md, command by command; those that are not named have 30."""
    text = (Path(package.__path__[0]) / "docs" / "configuration.md").read_text()
    (row,) = re.findall(r"^\| `--timeout` \|(.*)$", text, re.MULTILINE)
    told: dict[str, float] = {}
    for seconds, names in re.findall(r"(\d+) for ([^:;]*?)(?=, \d+ for|\.|$)", row):
        told |= {name: float(seconds) for name in re.findall(r"`([^`]+)`", names)}
    found = {name: seconds for name, seconds in defaults(cli) if seconds != 30}
    assert found == told
    assert "30 for all others" in row


def test_verify_gives_up_in_the_middle_of_the_log(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan is most of what it does. Half a scan proves nothing: no verdict is shown, and the call may be tried again."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    stock = Producer(kafka.client_config())
    stock.produce(topic_name, b"v", b"k", partition=0)
    assert stock.flush(60) == 0

    class Late(LogScan):
        def read(self, ends: Mapping[int, int], each: Any, deadline: float | None = None) -> bool:
            """As if the time were over at once, where there is an end of it."""
            return super().read(ends, each, None if deadline is None else 0.0)

    monkeypatch.setattr("keyorder.connector.cli.verify.LogScan", Late)
    given_up = keyorder("verify", "--topic", topic_name, "--timeout", 60)
    assert given_up.code == 1
    assert given_up.error["retriable"] is True
    assert "--timeout" in given_up.error["message"]
