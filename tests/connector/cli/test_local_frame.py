"""The frame of the command line: exit codes, lazy commands and output helpers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from keyorder import __version__
from keyorder.connector.cli import main as frame
from keyorder.connector.cli.output import emit_table, wants_json
from keyorder.partitioner.errors import KeyorderError, OrderError, PeerError, UsageError


class Passing(PeerError):
    """A fault that may pass."""

    retriable = True


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("u"), 2),
        (OrderError("o"), 3),
        (Passing("p"), 1),
        (KeyorderError("k"), 1),
        (click.UsageError("c"), 2),
        (RuntimeError("bug"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The class of an error decides the exit code; as JSON it is one object with type, text and retriable."""

    @click.command()
    @click.option("--output")
    def fail(output: str | None) -> None:
        raise error

    monkeypatch.setattr(frame.LazyGroup, "get_command", lambda self, ctx, name: fail)
    with pytest.raises(SystemExit) as ended:
        frame.main(["fail", "--output", "json"])
    assert ended.value.code == code
    out = capsys.readouterr().out
    if not isinstance(error, KeyboardInterrupt):
        assert json.loads(out)["error"] == {
            "type": type(error).__name__,
            "message": str(error),
            "retriable": isinstance(error, Passing),
        }


def test_a_command_that_succeeds_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """--version and --help are successes."""
    for words in (["--version"], ["--help"], ["local", "--help"]):
        with pytest.raises(SystemExit) as ended:
            frame.main(words)
        assert ended.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_every_command_of_the_table_can_be_loaded() -> None:
    """No entry of the table points nowhere, and each has a line of help."""
    context = click.Context(frame.cli)
    for name in frame.cli.list_commands(context):
        command = frame.cli.get_command(context, name)
        assert command is not None, name
        assert command.get_short_help_str(), name
        assert import_module(f"keyorder.{frame.COMMANDS[name].partition(':')[0]}")


def test_local_status_loads_no_more_than_the_errors_need(tmp_path: Path) -> None:
    """A look at processes does not wait for what asks clusters or draws tables to load."""
    program = (
        "import sys; from keyorder.connector.cli.main import _run; code = _run(['local', 'status']);"
        "print(code, [name for name in ('fastavro', 'requests', 'rich') if name in sys.modules])"
    )
    own = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}  # brokers that its user has started there would be listed
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=own)
    assert done.stdout.splitlines()[-1].startswith("0 ")
    assert done.stdout.splitlines()[-1] == "0 []"


def test_nothing_loads_before_ctrl_c_is_caught() -> None:
    """What the console script imports brings no module but itself, so that no interrupt finds a half-loaded one."""
    program = (
        "import sys, __future__; early = set(sys.modules); from keyorder.__main__ import run;"
        "print(sorted(set(sys.modules) - early))"
    )
    done = subprocess.run([sys.executable, "-Ic", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['keyorder', 'keyorder.__main__']"


@pytest.mark.parametrize(
    ("words", "json_wanted"),
    [
        (["x", "--output", "json"], True),
        (["x", "--output=json"], True),
        (["x", "--output", "json", "--output", "table"], False),
        (["x", "--", "--output", "json"], False),
        (["x", "--output"], False),
        (["json"], False),
    ],
)
def test_the_wish_for_json_is_read_from_any_line(words: list[str], json_wanted: bool) -> None:
    """Also where the line cannot be parsed; the last word counts, as for click."""
    assert wants_json(words) is json_wanted


def test_a_table_in_a_pipe_is_not_folded() -> None:
    """A long cell stays on its line when stdout is no terminal, and an absent one is a dash."""

    @click.command()
    def show() -> None:
        emit_table(["name", "value"], [["x" * 150, None]])

    out = CliRunner().invoke(show).output
    assert "x" * 150 in out
    assert out.splitlines()[3].split() == ["x" * 150, "-"]
