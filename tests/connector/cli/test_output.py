"""What a person sees on a terminal: nothing is folded, whatever its width."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import keyorder
import pytest
from keyorder.connector.cli.changes.status import screenful
from keyorder.connector.cli.controller import _tell
from keyorder.connector.cli.output import echo_wrapped, fitted, table_or_blocks
from keyorder.connector.operations.description import TopicDescription
from keyorder.connector.topology.supervisor import Event
from keyorder.partitioner.epochs import ChangePhase, Epoch, OpenChange
from keyorder.partitioner.errors import CorruptRecordError
from keyorder.partitioner.layout import Layout

COLUMNS = ("topic", "partitions", "state")
ROWS = [("orders-of-the-north", 12, "ordered"), ("orders-of-the-south", 6, None)]


def test_a_table_that_fits_is_a_table() -> None:
    """One line a row, below the names of the columns."""
    lines = [line.split() for line in table_or_blocks(COLUMNS, ROWS, 80).splitlines() if line.strip(" \u2500")]
    assert lines == [list(COLUMNS), ["orders-of-the-north", "12", "ordered"], ["orders-of-the-south", "6", "-"]]


def test_a_table_that_does_not_fit_becomes_blocks() -> None:
    """Every name and number stays in one piece, to be copied."""
    shown = table_or_blocks(COLUMNS, ROWS, 32)
    assert " topic       orders-of-the-north\n partitions  12\n state       ordered\n\n topic " in shown


def test_a_list_in_a_block_is_broken_between_its_names() -> None:
    """A terminal would break it where its line ends, in the middle of a name."""
    names = [f"inventory-vm-{n}-{n * 7919:08x}" for n in range(551, 557)]
    lines = table_or_blocks(("topic", "writers"), [("orders", ", ".join(names))], 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == f"topic orders writers {', '.join(names)}"
    assert [name for line in lines for name in names if name in line] == names


def test_a_name_too_long_to_stand_beside_its_column_stands_whole_below_it() -> None:
    """A screen would cut it short, and it is there to be copied."""
    assert table_or_blocks(["topic", "groups (closed gates)"], [["orders", "billing-of-the-north (2)"]], 30) == (
        " topic                  orders\n groups (closed gates)\n    billing-of-the-north (2)"
    )
    assert table_or_blocks(["groups (closed gates)"], [["billing-of-the-northern-town (2)"]], 30) == (
        " groups (closed gates)\n  billing-of-the-northern-town\n  (2)"
    )


def test_offsets_in_a_block_are_broken_between_them() -> None:
    """64 cuts are 64 words; a number is never cut in two, and no bracket parted from its words."""
    cuts = " ".join(f"{p}@{p * 1000}" for p in range(64))
    lines = table_or_blocks(("epoch", "keys left"), [(1, cuts)], 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == f"epoch 1 keys left {cuts}"


def test_what_all_rows_share_stands_above_them_where_that_makes_them_fit() -> None:
    """Thirty gates of one group and one topic are thirty lines, not thirty blocks."""
    rows = [("a-group-with-a-long-name", "orders-of-the-north", p, p * 10) for p in range(30)]
    lines = table_or_blocks(("group", "topic", "partition", "needs"), rows, 50, shared=True).splitlines()
    assert [line.split() for line in lines[:2]] == [["group", rows[0][0]], ["topic", rows[0][1]]]
    table = [line.split() for line in lines[2:] if line.strip(" \u2500")]
    assert table == [["partition", "needs"], *([str(p), str(n)] for _, _, p, n in rows)]
    assert "group" in table_or_blocks(("group", "topic", "partition", "needs"), rows[:1], 50, shared=True)


def test_a_line_for_people_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; in a pipe it stays one line."""
    said = (
        "Topic orders.of-the-customer-service.in-the-western-region: 60 -> 20 partitions (initial 16), 0 to be created"
    )
    for terminal in (True, False):
        stream = io.StringIO()
        stream.isatty = lambda terminal=terminal: terminal  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("COLUMNS", "80")
        echo_wrapped(said, "  ")
        lines = stream.getvalue().splitlines()
        assert len(lines) == (2 if terminal else 1)
        assert " ".join(line.strip() for line in lines) == said


def test_each_line_on_stderr_is_broken_between_words() -> None:
    """No command writes a sentence past the edge of a terminal; steps of a change and "Interrupted." are short."""
    folder = Path(keyorder.__path__[0]) / "connector" / "cli"
    plain = {path.name for path in folder.rglob("*.py") if re.search(r"click\.echo\(.*err=True", path.read_text())}
    assert plain == {"main.py", "topics_drain.py", "topics_output.py"}


def test_a_pipe_gets_a_table_however_wide() -> None:
    """A program that reads columns finds one row a line."""
    assert len(table_or_blocks(COLUMNS, [("x" * 500, 1, "y")], None).split("x" * 500)) == 2


def test_a_screen_says_how_much_does_not_fit() -> None:
    """What fits is shown as it is."""
    assert fitted("a\nb", 2) == "a\nb"
    shown = fitted("a\nb\nc\nd", 3).splitlines()
    assert shown[:2] == ["a", "b"]
    assert "2 more lines" in shown[2]


def test_a_small_screen_shows_first_what_waits() -> None:
    """80 columns and 24 rows, with more topics than rows; no name is folded."""
    epochs = (Epoch(0, 4),)
    quiet = [TopicDescription(f"quiet-{n}", "id", Layout(4, 4), 4, True, epochs, None) for n in range(40)]
    change = OpenChange(1, 6, ChangePhase.PREPARE, 1)
    busy = TopicDescription("a-topic-with-a-rather-long-name", "id", Layout(4, 4), 4, True, epochs, change)
    lines = screenful([*quiet, busy], {"broken": CorruptRecordError("x")}, 80, 23).splitlines()
    assert len(lines) == 23
    assert "a-topic-with-a-rather-long-name" in lines[0]
    assert "to 6, PREPARE" in "\n".join(lines[:7])
    assert "more lines" in lines[-1]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"customer 0", "customer 0"),
        ("Müller".encode(), "Müller"),
        (b"", "b''"),
        (b"\x00\x01", r"b'\x00\x01'"),
        (b"a\nb", r"b'a\nb'"),
        (b"\x1b[2J", r"b'\x1b[2J'"),
        (b"\xff", r"b'\xff'"),
    ],
)
def test_a_key_is_shown_as_people_wrote_it(data: bytes, shown: str) -> None:
    """What is no text, or would move a terminal's cursor, stays in Python's notation."""
    assert table_or_blocks(("key",), [(data,)], None).splitlines()[-1].strip() == shown


def test_an_event_of_the_controller_is_a_line_of_words(capsys: pytest.CaptureFixture[str]) -> None:
    """No brackets and quotes of a program's values; what a job did in a partition is said in a sentence."""
    steps = [
        {"topic": "orders", "partition": 4, "done": True, "what": "empty already below 0", "state": "purged"},
        {"topic": "orders", "partition": 5, "done": False, "what": "12.0 s until it is due", "state": "waiting"},
    ]
    _tell(Event("job", facts={"job": "drain", "steps": steps}), "table")
    _tell(Event("stopped", facts={"left_open": ["orders", "payments"]}), "table")
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "job  job: drain  steps: orders[4] empty already below 0, orders[5] waits for 12.0 s until it is due",
        "stopped  left open: orders, payments",
    ]
