"""The `keyorder` command inside the test's own process: no second interpreter has to start."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from keyorder.connector.cli.main import _run
from support.cluster import KafkaUnderTest


class Document(dict[str, Any]):
    """What a command printed; a part that is not there shows all of it: mostly the command's own error."""

    def __missing__(self, key: str) -> Any:
        raise AssertionError(f"no {key!r} in {dict(self)}")


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return Document(json.loads(self.out))

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a failed command."""
        found: dict[str, Any] = self.document["error"]
        return found


class Command:
    """`keyorder <words>` in this process, against the test's broker."""

    def __init__(self, kafka: KafkaUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
        self._kafka, self._capsys = kafka, capsys

    def __call__(self, *words: object, output: str = "json") -> Run:
        self._capsys.readouterr()
        given = [str(word) for word in words]
        code = _run([*given, "--bootstrap-server", self._kafka.bootstrap_servers, "--output", output])
        out, err = self._capsys.readouterr()
        return Run(code, out, err)
