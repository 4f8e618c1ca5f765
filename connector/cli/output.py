"""What a command prints: tables for people or one JSON object for programs, by `--output table|json`."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

import click

from ...partitioner.errors import KeyorderError

FORMATS = ("table", "json")

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(command: Command) -> Command:
    """Adds `--output table|json` to a command, which takes it as its argument `output`."""
    return click.option(
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="A table for people or one JSON object for programs.",
    )(command)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON.

    Read from the words and not from the parsed options: a line that cannot be parsed is reported too.
    """
    chosen = "table"
    for position, word in enumerate(arguments):
        if word == "--":
            break
        if word.startswith("--output="):
            chosen = word.partition("=")[2]
        elif word == "--output" and position + 1 < len(arguments):
            chosen = arguments[position + 1]
    return chosen == "json"


def is_text(data: bytes | None) -> bool:
    """Whether JSON can have it as it is: UTF-8, or nothing."""
    try:
        (data or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def in_json(data: bytes | None, as_text: bool) -> str | None:
    """As text, or as base64."""
    return None if data is None else (data if as_text else b64encode(data)).decode()


def fields_in_json(fields: Mapping[str, bytes | None]) -> tuple[dict[str, str | None], dict[str, Any]]:
    """A record's parts for its object, and its `encoding`: which of them are base64, since they are not UTF-8."""
    encoding = {name: "base64" for name, data in fields.items() if not is_text(data)}
    return {name: in_json(data, name not in encoding) for name, data in fields.items()}, encoding


def shown_bytes(data: bytes) -> str:
    """A key or a value for people: its text where it is UTF-8 that a terminal can show, Python's notation where it is not."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return text if text and text.isprintable() else repr(data)


def emit_json(document: Mapping[str, Any]) -> None:
    """One JSON object on stdout. Names keep the order in which they are documented."""
    click.echo(json.dumps(document, indent=2, default=str))


def emit_error(kind: str, message: str, retriable: bool) -> None:
    """A failed command's object on stdout, on one line: it may be the last one of a command that prints an object a line."""
    click.echo(json.dumps(error_document(kind, message, retriable)))


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """A table on stdout, as wide as it needs to be when stdout is no terminal.

    No cell is ever folded: names and offsets are there to be copied. On a terminal that is too narrow for the table, what all
    rows share stands above it; if that is not enough, each row becomes a block of lines, a column a line.
    """
    # Loaded on use: half of what `keyorder --version` would take.
    from rich.console import Console

    console = Console()
    console.print(
        table_or_blocks(columns, rows, console.width if console.is_terminal else None, title, True),
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip


def table_or_blocks(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    width: int | None,
    title: str | None = None,
    shared: bool = False,
) -> str:
    """The rows as a table, or as blocks of `column  cell` lines where the table is wider than `width` characters.

    shared: columns that have the same cell in all of several rows may stand above, if the others fit as a table then.
    """
    cells = [[_text(cell) for cell in row] for row in rows]
    table = _table(columns, cells, title, width if cells else None)
    if table is not None or width is None:
        return table or ""
    if shared and len(cells) > 1:
        above = [i for i in range(len(columns)) if len({row[i] for row in cells}) == 1]
        left = [i for i in range(len(columns)) if i not in above]
        table = _table([columns[i] for i in left], [[row[i] for i in left] for row in cells], None, width)
        if table is not None:
            head = _block([columns[i] for i in above], [cells[0][i] for i in above], width)
            return "\n".join([*([title] if title else []), head, table])
    blocks = [_block(columns, row, width) for row in cells]
    return "\n\n".join([*([title] if title else []), *blocks])


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str | None, width: int | None) -> str | None:
    """None where it is wider than `width`."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in cells:
        table.add_row(*row)
    unlimited = Console(width=100_000, color_system=None)
    if width is not None and unlimited.measure(table).maximum > width:
        return None
    with unlimited.capture() as captured:
        unlimited.print(table, markup=False, highlight=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _block(columns: Sequence[str], row: Sequence[str], width: int) -> str:
    names = max(map(len, columns), default=0)
    return "\n".join(_broken(f" {name:{names}}  ", cell, width) for name, cell in zip(columns, row, strict=True))


def _broken(name: str, cell: str, width: int) -> str:
    """A line of a block. A cell that is too wide goes on below itself, one with a word that has no room beside the name stands
    below that: a terminal would break within a word."""
    if len(name) + len(cell) <= width:
        return name + cell
    longest = max(map(len, cell.split()))
    beside = len(name) + longest <= width
    indent = " " * (len(name) if beside else max(0, min(4, width - longest)))
    text = textwrap.fill(
        cell,
        width,
        initial_indent=name if beside else indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return text if beside else f"{name.rstrip()}\n{text}"


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    return shown_bytes(cell) if isinstance(cell, bytes) else str(cell)


def fitted(text: str, lines: int) -> str:
    """So many lines of a text; the last one says how many are missing, where it has more."""
    all_of_it = text.splitlines()
    if len(all_of_it) <= lines:
        return text
    shown = all_of_it[: max(0, lines - 1)]
    return "\n".join(
        [*shown, f"… {len(all_of_it) - len(shown)} more lines: name topics by --topic, or leave --watch out"]
    )


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal. Python has None for one that was closed when it began."""
    return stream is not None and not stream.closed and stream.isatty()


def echo_wrapped(text: str, indent: str = "", err: bool = False) -> None:
    """Text for people: broken between words where it goes to a terminal, one line anywhere else."""
    stream = sys.stderr if err else sys.stdout
    if is_terminal(stream):
        columns = shutil.get_terminal_size().columns
        text = "\n".join(
            textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
            for line in text.splitlines()
        )
    click.echo(text, err=err)


def emit(output: str, document: Mapping[str, Any], columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The document as JSON or the rows as a table, as `output` says."""
    if output == "json":
        emit_json(document)
    else:
        emit_table(columns, rows)


def unreadable_document(unreadable: Mapping[str, KeyorderError]) -> dict[str, Any]:
    """{topic: {"type", "message", "retriable"}} of topics whose timeline could not be read."""
    return {
        topic: error_document(type(error).__name__, str(error), error.retriable)["error"]
        for topic, error in sorted(unreadable.items())
    }


def warn_of_unreadable(unreadable: Mapping[str, KeyorderError]) -> None:
    """A line on stderr for each topic whose timeline could not be read: a table has no room for the remedy."""
    for topic, error in sorted(unreadable.items()):
        echo_wrapped(f"WARNING: topic {topic} cannot be read. {error}", "  ", err=True)


def error_document(kind: str, message: str, retriable: bool) -> dict[str, Any]:
    """The object that stands for a failed command: {"error": {"type", "message", "retriable"}}."""
    return {"error": {"type": kind, "message": message, "retriable": retriable}}
