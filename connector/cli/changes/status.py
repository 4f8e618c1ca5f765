"""`keyorder status`: managed topics at a glance, once or live."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import click

from ....partitioner.errors import OrderError
from ... import clock
from ...operations.description import TopicDescription
from ...operations.overview import Overview
from ..connecting import Connection, connection_options
from ..output import emit_json, output_option, unreadable_document, warn_of_unreadable
from ..signals import stopped_by_signals
from ..topics_output import description_document

_COLUMNS = ("topic", "partitions", "epoch", "change", "writers", "retired", "groups behind closed gates")


@click.command()
@click.option("--topic", "topics", multiple=True, help="A topic to show; repeatable. [default: all managed ones]")
@click.option("--watch", is_flag=True, help="Show it anew until SIGINT or SIGTERM.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@output_option
@connection_options(timeout=30)
def status(connection: Connection, topics: Sequence[str], watch: bool, interval: float, output: str) -> None:
    """Show managed topics: layout, open change, writers, retired partitions, and the closed gates of each group.

    With --watch and --output json each look is one object on a line of its own.
    """
    connection.reach()
    with closing(Overview(connection.config)) as overview:
        if not watch:
            found = overview.look(topics)
            unreadable = {} if topics else overview.unreadable
            if output == "json":
                emit_json(status_document(found, unreadable))
            else:
                _print(found, unreadable)
                warn_of_unreadable(unreadable)
            return
        with stopped_by_signals() as stop, _screen(output) as show:
            while not stop.is_set():
                show(overview.look(topics), {} if topics else overview.unreadable)
                stop.wait(interval)


def status_document(found: Sequence[TopicDescription], unreadable: Mapping[str, OrderError]) -> dict[str, Any]:
    """The object of one look."""
    described = [description_document(topic) for topic in found]
    return {"at_ms": clock.wall_ms(), "topics": described, "unreadable": unreadable_document(unreadable)}


def _row(found: TopicDescription) -> tuple[str, ...]:
    change = found.change
    behind = [
        f"{g.group} ({len(g.closed)}, {max(gate.missing for gate in g.closed)})" for g in found.groups if g.closed
    ]
    states = [drain.state.value.replace("_", " ") for drain in found.retired]
    counted = [f"{states.count(state)} {state}" for state in sorted(set(states))]
    return (
        found.topic,
        f"{found.layout.count} ({found.layout.initial} at first)",
        str(found.epochs[-1].number),
        "-" if change is None else f"to {change.count}, {change.phase.value}, attempt {change.attempt}",
        ", ".join(writer.writer for writer in found.writers) or "-",
        ", ".join(counted) or "-",
        ", ".join(behind) or ("-" if found.groups else "no group"),
    )


def _table(found: Sequence[TopicDescription], unreadable: Mapping[str, OrderError]) -> Any:
    from rich import box
    from rich.table import Table

    note = "groups: (closed gates, offsets missing at the one that lacks most)"
    table = Table(box=box.SIMPLE, caption=note, caption_justify="left")
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for topic in found:
        table.add_row(*_row(topic))
    for name, error in sorted(unreadable.items()):
        table.add_row(name, "cannot be read", *[""] * (len(_COLUMNS) - 3), type(error).__name__)
    return table


def _print(found: Sequence[TopicDescription], unreadable: Mapping[str, OrderError]) -> None:
    from rich.console import Console

    console = Console()
    # A pipe has no width: folded cells would break what reads them.
    (console if console.is_terminal else Console(width=400)).print(_table(found, unreadable), markup=False)


@contextmanager
def _screen(output: str) -> Iterator[Any]:
    """Where each look goes: a line of JSON, a table that changes in place on a terminal, or one table after another."""
    if output == "json":
        yield lambda *found: click.echo(json.dumps(status_document(*found), default=str))
    elif sys.stdout.isatty():
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield lambda *found: live.update(_table(*found), refresh=True)
    else:
        yield _print
