"""What a person sees on a terminal: nothing is folded, whatever its width."""

from __future__ import annotations

import pytest
from keyorder.connector.cli.changes.status import screenful
from keyorder.connector.cli.output import fitted, table_or_blocks
from keyorder.connector.operations.description import TopicDescription
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
    shown = table_or_blocks(COLUMNS, ROWS, 30)
    assert " topic       orders-of-the-north\n partitions  12\n state       ordered\n\n topic " in shown


def test_a_list_in_a_block_is_broken_between_its_names() -> None:
    """A terminal would break it where its line ends, in the middle of a name."""
    names = [f"inventory-vm-{n}-{n * 7919:08x}" for n in range(551, 557)]
    lines = table_or_blocks(("topic", "writers"), [("orders", ", ".join(names))], 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == f"topic orders writers {', '.join(names)}"
    assert [name for line in lines for name in names if name in line] == names


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
