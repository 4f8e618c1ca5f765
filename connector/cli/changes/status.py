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
from ...monitoring.status_server import StatusServer
from ...monitoring.watching import ClusterWatch, Look
from ...operations.description import TopicDescription
from ...operations.overview import Overview
from ..connecting import Connection, connection_options
from ..output import (
    emit_json,
    emit_table,
    fitted,
    is_terminal,
    output_option,
    table_or_blocks,
    unreadable_document,
    warn_of_unreadable,
)
from ..seconds import Seconds
from ..signals import stopped_by_signals
from ..topics_output import description_document
from .change import status_document as change_status_document

# Of a group: (closed gates, offsets missing at the one that lacks most).
_COLUMNS = ("topic", "partitions", "epoch", "change", "writers", "retired", "groups (closed gates, offsets missing)")


@click.command(short_help="Show managed topics: layout, change, writers, closed gates.")
@click.option("--topic", "topics", multiple=True, help="A topic to show; repeatable. [default: all managed ones]")
@click.option("--watch", is_flag=True, help="Show it again and again until SIGINT or SIGTERM.")
@click.option(
    "--serve",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="PORT",
    help="Show it as a page for a browser of this machine, until SIGINT or SIGTERM; 0 for a free port.",
)
@click.option(
    "--interval",
    type=Seconds(),
    default=2.0,
    show_default=True,
    help="Seconds between two refreshes.",
)
@output_option
@connection_options(timeout=30)
def status(
    connection: Connection, topics: Sequence[str], watch: bool, serve: int | None, interval: float, output: str
) -> None:
    """Show managed topics: layout, open change, writers, retired partitions, and the closed gates of each group.

    With --watch and --output json each refresh prints one object on a line of its own. With --serve the page is at
    http://localhost:PORT/ and the same data at /status.json. It is read-only and served to this machine alone.
    """
    if watch and serve is not None:
        raise click.UsageError("--watch and --serve exclude each other.")
    connection.reach()
    if serve is not None:
        _serve(connection, topics, interval, serve, output)
        return
    with closing(Overview(connection.config)) as overview:
        if not watch:
            found = overview.look(topics)
            unreadable = {} if topics else overview.unreadable
            if output == "json":
                emit_json(status_document(found, unreadable))
            else:
                emit_table(_COLUMNS, _rows(found, unreadable))
                warn_of_unreadable(unreadable)
            return
        with stopped_by_signals() as stop, _screen(output) as show:
            while not stop.is_set():
                show(overview.look(topics), {} if topics else overview.unreadable)
                stop.wait(interval)


def _serve(connection: Connection, topics: Sequence[str], interval: float, port: int, output: str) -> None:
    """Until a signal."""
    with closing(Overview(connection.config)) as overview:
        overview.look(topics)  # a topic that is not there is told before anything is served
    with stopped_by_signals() as stop, closing(ClusterWatch(connection.config, topics, interval)) as looks:
        server = StatusServer(looks, look_document, interval, port)
        try:
            if output == "json":
                click.echo(json.dumps({"url": server.url}))
            else:
                click.echo(f"Status at {server.url} until Ctrl-C")
            stop.wait()
        finally:
            server.close()


def look_document(look: Look) -> dict[str, Any]:
    """The object at /status.json: as that of `status`, with what a changing topic waits for and the lag of each group."""
    document = {**status_document(look.topics, look.unreadable), "at_ms": look.at_ms or None}
    for described, topic in zip(document["topics"], look.topics, strict=True):
        status = look.changes.get(topic.topic)
        described["change_status"] = None if status is None else change_status_document(status)
        for group, found in zip(described["groups"], topic.groups, strict=True):
            group["lag"] = look.lag(topic.topic, found)
    return document


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


def _rows(found: Sequence[TopicDescription], unreadable: Mapping[str, OrderError]) -> list[tuple[str, ...]]:
    nothing = [""] * (len(_COLUMNS) - 3)
    cannot = [(name, "cannot be read", *nothing, type(error).__name__) for name, error in sorted(unreadable.items())]
    return [*(_row(topic) for topic in found), *cannot]


def screenful(found: Sequence[TopicDescription], unreadable: Mapping[str, OrderError], columns: int, lines: int) -> str:
    """A look as it goes on a screen of that size: topics where something waits first, and how much does not fit."""
    waiting = sorted(found, key=lambda t: t.change is None and not any(group.closed for group in t.groups))
    return fitted(table_or_blocks(_COLUMNS, _rows(waiting, unreadable), columns), lines)


@contextmanager
def _screen(output: str) -> Iterator[Any]:
    """Where each look goes: a line of JSON, a table that changes in place on a terminal, or one table after another."""
    if output == "json":
        yield lambda *found: click.echo(json.dumps(status_document(*found), default=str))
    elif is_terminal(sys.stdout):
        from rich.live import Live
        from rich.text import Text

        with Live(auto_refresh=False) as live:

            def show(found: Sequence[TopicDescription], unreadable: Mapping[str, OrderError]) -> None:
                size = live.console.size
                text = screenful(found, unreadable, size.width, size.height - 1)
                live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

            yield show
    else:
        yield lambda *found: emit_table(_COLUMNS, _rows(*found))
