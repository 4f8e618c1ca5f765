"""What surrounds a command is broken: folders that cannot be used, a full disk, closed standard streams. No trace is shown."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import keyorder
import pytest
from keyorder.connector.cli.changes.confirming import confirm
from keyorder.connector.cli.main import _run
from keyorder.connector.cli.output import is_terminal
from keyorder.connector.cli.topics_drain import _progress_shown
from keyorder.connector.cli.topics_output import steps_shown
from keyorder.connector.local.errors import DataFolderError
from keyorder.connector.local.state import starting
from keyorder.partitioner.errors import NotConfirmedError
from support.commands import Command

COMMAND = [sys.executable, "-m", "keyorder"]
NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture
def no_folder(tmp_path: Path) -> Path:
    """A path below a file: nobody can make a folder there, not even root."""
    file = tmp_path / "file"
    file.write_text("")
    return file / "below"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("local", "up"), "--data-dir"),
        (("local", "status"), "--data-dir"),
        (("local", "down"), "--data-dir"),
        (("local", "down", "--wipe"), "--data-dir"),
        (("connect", "new-plugin", "my-lines"), "--directory"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_a_folder_that_cannot_be_used_is_named(
    words: tuple[str, ...], option: str, no_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with the option that names another; the exit code is that of wrong usage."""
    assert _run([*words, option, str(no_folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(no_folder) in line
    assert option in line
    assert "Not a directory" in line


def test_a_data_folder_that_cannot_be_made_is_named(no_folder: Path) -> None:
    """Where the first thing that is done with it is to make it."""
    with pytest.raises(DataFolderError, match=re.escape(str(no_folder))), starting(no_folder):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_data_folder_of_somebody_else_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A state that may not be read is no state that is not there."""
    (tmp_path / "cluster.json").write_text("{}")
    (tmp_path / "cluster.json").chmod(0)
    assert _run(["local", "status", "--data-dir", str(tmp_path)]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_what_the_system_refuses_is_a_line_with_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in a command it happens; an error of Python's own that is no answer of the system keeps its trace."""
    for raised, trace in (
        (OSError(28, "No space left on device", str(tmp_path / "x")), False),
        (TimeoutError(), True),  # as a future raises it: nothing of the system
    ):

        def fail(*_: object, raised: OSError = raised, **__: object) -> None:
            raise raised

        monkeypatch.setattr("keyorder.connector.cli.local.load_state", fail)
        assert _run(["local", "status", "--data-dir", str(tmp_path)]) == 1
        shown = capsys.readouterr().err
        assert ("Traceback" in shown) == trace
        if not trace:
            assert shown == f"Error: {tmp_path / 'x'}: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_below_standard_output_is_told(tmp_path: Path, output: str, buffered: bool) -> None:
    """On stderr, since nothing can be said on stdout any more; the exit code is not Python's own for such an end."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "local", "status", "--data-dir", str(tmp_path), "--output", output],
            env=environment if buffered else {**environment, "PYTHONUNBUFFERED": "1"},
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=200, check=False,
        )  # fmt: skip
    (line,) = done.stderr.splitlines()  # without a buffer nothing is left that would tell of stdout
    assert line.startswith("Error: standard output cannot be written: " if buffered else "Error: ")
    assert line.endswith("No space left on device")
    assert done.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("sideways",), ("local", "up", "--kafka-version", "0.1")], ids=" ".join)
@pytest.mark.parametrize("streams", [">/dev/full", "2>/dev/full", ">/dev/full 2>&1"])
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_full_disk_changes_no_exit_code(words: tuple[str, ...], streams: str, output: str, tmp_path: Path) -> None:
    """What is said of the error goes to the stream that takes it, if there is one."""
    where = ("--data-dir", str(tmp_path)) if words[0] == "local" else ()
    done = closed(streams, *words, *where, "--output", output)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if streams == ">/dev/full":
        assert "Error: " in done.stderr


def closed(stream: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that a shell has started with a standard stream closed, such as `2>&-`, and with buffers as usual."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {stream}', "sh", *COMMAND, *words],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", "--topic", "t", "--partitions", "4", "--initial-partition-count", "6", *NOWHERE),
        ("topics", "create", "--topic", "t", *NOWHERE),
        ("local", "up", "--kafka-version", "0.1"),
        ("sideways",),
    ],
    ids=" ".join,
)
def test_a_closed_stderr_changes_no_exit_code(words: tuple[str, ...], tmp_path: Path) -> None:
    """What would be said there is said to nobody."""
    where = ("--data-dir", str(tmp_path)) if words[0] == "local" else ()
    done = closed("2>&-", *words, *where)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_closed_stdin_has_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """The file that is read by default is not there: it is said what to give."""
    done = closed("<&-", "produce", "--topic", "t", *NOWHERE)
    assert done.returncode == 2
    assert "standard input is closed: name a FILE" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_hides_what_is_told(tmp_path: Path) -> None:
    """The command has done what it was to do."""
    assert closed(">&-", "local", "status", "--data-dir", str(tmp_path)).returncode == 0


def test_a_bug_with_a_closed_stderr_leaves_no_trace_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --output json one object stands there and nothing else."""

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("keyorder.connector.cli.local.load_state", fail)
    monkeypatch.setattr(sys, "stderr", None)
    assert _run(["local", "status", "--data-dir", str(tmp_path), "--output", "json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert '"a bug"' in line


def test_a_reader_that_has_left_is_no_error_with_a_closed_stderr_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `head` leaves: the exit code is 1 and nothing is raised."""

    def fail(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("keyorder.connector.cli.local.load_state", fail)
    monkeypatch.setattr(sys, "stderr", None)
    assert _run(["local", "status", "--data-dir", str(tmp_path)]) == 1


def test_nobody_confirms_at_a_closed_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where stdin is no terminal."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(NotConfirmedError):
        confirm("orders", None, ["all records are lost."])
    confirm("orders", "orders", ["all records are lost."])


def test_commands_that_ask_refuse_where_stdin_is_closed(
    keyorder: Command, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion that nobody has confirmed is refused as unsafe."""
    assert keyorder("topics", "create", "--topic", topic_name, "--partitions", 1).code == 0
    monkeypatch.setattr(sys, "stdin", None)
    refused = keyorder("topics", "delete", "--topic", topic_name)
    assert (refused.code, refused.error["type"]) == (3, "NotConfirmedError")


@pytest.mark.parametrize(
    "shown", [lambda: steps_shown("t", 2), lambda: _progress_shown("t")], ids=["steps", "re-homing"]
)
def test_progress_is_told_to_nobody_where_stderr_is_closed(
    shown: Callable[[], object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change that it belongs to is made."""
    monkeypatch.setattr(sys, "stderr", None)
    entered = False
    with shown():  # type: ignore[attr-defined]
        entered = True
    assert entered
    assert capsys.readouterr().out == ""


def test_a_stream_that_is_not_there_is_no_terminal() -> None:
    """Python has None for a standard stream that was closed when it began."""
    gone = io.StringIO()
    gone.close()
    assert [is_terminal(stream) for stream in (None, gone, io.StringIO())] == [False, False, False]


def test_no_command_asks_a_standard_stream_that_may_be_closed() -> None:
    """`is_terminal` does, which knows of None."""
    folder = Path(keyorder.__path__[0]) / "connector" / "cli"
    asking = {path.name for path in folder.rglob("*.py") if re.search(r"sys\.std\w+\.isatty\(\)", path.read_text())}
    assert not asking
