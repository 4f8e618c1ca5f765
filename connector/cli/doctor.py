"""`keyorder doctor`: one report on machine, brokers, control topics, rights, topics and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click

from ..doctor.examine import examine
from ..doctor.findings import Finding, Status
from .connecting import Connection, connection_options
from .output import echo_wrapped, emit_json, output_option

_COLOURS = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red", Status.UNKNOWN: "blue"}


@click.command(short_help="Check cluster, topics and groups, with the fix for each problem.")
@click.option("--topic", "topics", multiple=True, help="A topic to look at; repeatable. [default: all managed ones]")
@click.option(
    "--records",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="How many of each partition's newest records are searched for misplaced records.",
)
@output_option
@connection_options(timeout=10)
@click.pass_context
def doctor(context: click.Context, connection: Connection, topics: Sequence[str], records: int, output: str) -> None:
    """Check cluster, topics and groups for problems, with the fix for each. Changes nothing; exit code 1 when a check fails."""
    found: list[Finding] = []
    for finding in examine(connection.config, tuple(topics), records, connection.request_timeout):
        found.append(finding)
        if output == "table":
            _show(finding)
    counts = Counter(finding.status for finding in found)
    if output == "json":
        emit_json(
            {
                "findings": [{**asdict(finding), "status": finding.status.value} for finding in found],
                "counts": {status.value: counts[status] for status in Status},
            }
        )
    else:
        click.echo(", ".join(f"{counts[status]} {status.value}" for status in Status))
    if counts[Status.FAIL]:
        context.exit(1)


def _show(finding: Finding) -> None:
    mark = click.style(f"{finding.status.value:7}", fg=_COLOURS[finding.status])
    echo_wrapped(f"{mark} {finding.check}, {finding.about}: {finding.text}", " " * 8)
    if finding.fix and finding.status is not Status.OK:
        echo_wrapped(f"        -> {finding.fix}", " " * 11)
