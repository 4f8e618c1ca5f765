"""`keyorder compact plan|run|view|set-strategy`: compaction by version (KIP-280), with the flags of Kafka's own tools."""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ..connector.cli.connecting import Connection, connection_options
from ..connector.cli.output import emit, output_option
from .cli_output import (
    change_document,
    change_rows,
    plan_document,
    plan_rows,
    report_document,
    report_rows,
    version_document,
)
from .compactor import TopicCompactor
from .migration import set_strategy as change_strategy
from .store import DEFAULT_MEMORY
from .strategy import Strategy, StrategyKind
from .view import CompactedView

Command = TypeVar("Command", bound=Callable[..., Any])

_topic_option = click.option("--topic", required=True, help="The topic's name.")
_STRATEGIES = click.Choice([kind.value for kind in StrategyKind], case_sensitive=False)
_MEBIBYTE = 1024 * 1024


def _reading_options(command: Command) -> Command:
    """What plan, run and view have in common."""
    options = (
        _topic_option,
        click.option(
            "--strategy",
            type=_STRATEGIES,
            default=None,
            help="Which of a key's records is its highest version. [default: the topic's]",
        ),
        click.option("--header", default=None, help="The header with the version, for --strategy header."),
        click.option("--positive-only", is_flag=True, help="Treat a version of 0 or below as missing."),
        click.option(
            "--state",
            type=click.Path(dir_okay=False, path_type=Path),
            default=None,
            help="A file that keeps what was read, so that the next run continues there. Only one compactor or view may have it "
            "open.",
        ),
        click.option(
            "--memory-mib",
            type=click.IntRange(min=1),
            default=DEFAULT_MEMORY // _MEBIBYTE,
            show_default=True,
            help="Memory for versions, in MiB; the rest goes to disk.",
        ),
    )
    decorated: Any = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _finite(_context: click.Context, _option: click.Parameter, number: float | None) -> float | None:
    """A range takes nan, and inf where it has no upper end: a rate of either would be no limit."""
    if number is not None and not math.isfinite(number):
        raise click.BadParameter(f"{number} is not a finite number.")
    return number


@click.group(short_help="Keep the highest version of each key.")
def compact() -> None:
    """Keep the highest version of each key: plan, run, view the result, change the strategy."""


@compact.command()
@_reading_options
@output_option
@connection_options(timeout=30)
def plan(
    connection: Connection,
    topic: str,
    strategy: str | None,
    header: str | None,
    positive_only: bool,
    state: Path | None,
    memory_mib: int,
    output: str,
) -> None:
    """Read a topic and say what `run` would write. Nothing is written."""
    connection.reach()
    chosen = _chosen(strategy, header, positive_only)
    with (
        _progress() as shown,
        TopicCompactor(connection.config, topic, chosen, state, memory_mib * _MEBIBYTE, progress=shown) as compactor,
    ):
        found = compactor.plan()
    emit(output, plan_document(found), ("what", ""), plan_rows(found))


@compact.command(short_help="Save the highest versions that the cleaner would remove.")
@_reading_options
@click.option(
    "--throttle",
    type=click.FloatRange(min=1),
    callback=_finite,
    default=None,
    help="Append at most this many bytes per second.",
)
@click.option(
    "--margin-ms",
    type=click.IntRange(min=0),
    default=60_000,
    show_default=True,
    help="The margin between the length of a pass and min.compaction.lag.ms.",
)
@click.option("--follow", is_flag=True, help="Keep running until interrupted.")
@click.option("--force", is_flag=True, help="Run even if the topic's settings may lose versions.")
@click.option("--dry-run", is_flag=True, help="The same as `plan`.")
@output_option
@connection_options(timeout=30)
def run(
    connection: Connection,
    topic: str,
    strategy: str | None,
    header: str | None,
    positive_only: bool,
    state: Path | None,
    memory_mib: int,
    throttle: float | None,
    margin_ms: int,
    follow: bool,
    force: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Write each highest version again that is not its key's last record, so that the log cleaner keeps it.

    It can be killed at any time and run again; a second one takes over from the first, unless both name one --state.
    """
    connection.reach()
    chosen = _chosen(strategy, header, positive_only)
    with (
        _progress() as shown,
        TopicCompactor(
            connection.config, topic, chosen, state, memory_mib * _MEBIBYTE, throttle, margin_ms / 1000, force, shown
        ) as compactor,
    ):
        if dry_run:
            found = compactor.plan()
            emit(output, {"dry_run": True, **plan_document(found)}, ("what", ""), plan_rows(found))
            return
        if follow:
            with _interrupted() as stopped:
                report = compactor.follow(stopped.is_set)
        else:
            report = compactor.run()
    emit(output, report_document(report), ("what", ""), report_rows(report))


@compact.command()
@_reading_options
@click.option("--key", "keys", multiple=True, help="Only this key; may be given repeatedly.")
@click.option(
    "--snapshot",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write the table to this Parquet file instead.",
)
@output_option
@connection_options(timeout=30)
def view(
    connection: Connection,
    topic: str,
    strategy: str | None,
    header: str | None,
    positive_only: bool,
    state: Path | None,
    memory_mib: int,
    keys: tuple[str, ...],
    snapshot: Path | None,
    output: str,
) -> None:
    """Print the latest version of each key. With `--output json` that is one object per key and line."""
    if keys and snapshot is not None:
        raise click.UsageError("--snapshot writes the whole table: it does not go with --key.")
    connection.reach()
    chosen = _chosen(strategy, header, positive_only)
    with (
        _progress() as shown,
        CompactedView(connection.config, topic, chosen, state, memory_mib * _MEBIBYTE) as table,
    ):
        table.load(lambda done, total: shown("reading", done, total))
        if snapshot is not None:
            rows = table.snapshot(snapshot)
            emit(
                output,
                {"topic": topic, "snapshot": str(snapshot), "rows": rows},
                ("snapshot", "rows"),
                [(snapshot, rows)],
            )
            return
        if keys:
            wanted = ((key.encode(), table.version(key)) for key in keys)
            versions = iter([(key, found) for key, found in wanted if found is not None and found.value is not None])
        else:
            versions = table.versions()
        if output == "json":
            for key, version in versions:
                click.echo(json.dumps(version_document(key, version)))
        else:
            rows_shown = ((key, found.value, found.version if found.versioned else None, found.partition, found.offset)
                          for key, found in versions)  # fmt: skip
            emit("table", {}, ("key", "value", "version", "partition", "offset"), rows_shown)


@compact.command("set-strategy", short_help="Change how versions of a key compete in a topic.")
@_topic_option
@click.option("--strategy", type=_STRATEGIES, required=True, help="Which of a key's records is its highest version.")
@click.option("--header", default=None, help="The header with the version, for --strategy header.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many recent records are checked for the header.",
)
@click.option("--force", is_flag=True, help="Change it even if recent records lack the header.")
@click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")
@output_option
@connection_options(timeout=30)
def set_strategy(
    connection: Connection,
    topic: str,
    strategy: str,
    header: str | None,
    sample: int,
    force: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Change a topic's compaction strategy.

    To begin with a header, let every producer write it first, then change the strategy. To stop using it, change the
    strategy first, then the producers.
    """
    chosen = _chosen(strategy, header, False)
    assert chosen is not None
    connection.reach()
    change = change_strategy(connection.config, topic, chosen, force, sample, dry_run)
    document = {"dry_run": True, **change_document(change)} if dry_run else change_document(change)
    emit(output, document, ("what", ""), change_rows(change))


def _chosen(strategy: str | None, header: str | None, positive_only: bool) -> Strategy | None:
    """The strategy of the flags, None for the topic's own. A strategy that is asked for by hand has to be whole."""
    if strategy is None:
        if header is not None or positive_only:
            raise click.UsageError("--header and --positive-only need --strategy header.")
        return None
    kind = StrategyKind(strategy.lower())
    if (header is not None or positive_only) and kind is not StrategyKind.HEADER:
        raise click.UsageError("--header and --positive-only need --strategy header.")
    return Strategy(kind, (header or "").strip(), positive_only)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr for each phase; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:

        def shown(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=total)
            bar.update(tasks[phase], completed=done, total=total)

        yield shown


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that a run ends between two transactions and reports."""
    stopped = threading.Event()
    before = {sig: signal.signal(sig, lambda *_: stopped.set()) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
