"""What a person sees on a terminal: nothing is folded, whatever its width."""

from __future__ import annotations

from keyorder.connector.cli.output import table_or_blocks

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


def test_a_pipe_gets_a_table_however_wide() -> None:
    """A program that reads columns finds one row a line."""
    assert len(table_or_blocks(COLUMNS, [("x" * 500, 1, "y")], None).split("x" * 500)) == 2
