"""`keyorder topics drain`: empties retired partitions now, as far as they may be; on compacted topics values go home first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from ..admin import TopicAdmin
from ..topology.draining import DrainStep
from ..topology.rehoming import RehomingPlan, RehomingTerms
from .connecting import Connection, connection_options
from .output import echo_wrapped, emit, emit_json, output_option

_COLUMNS = ("partition", "keys", "bytes", "superseded", "foreign")


@click.command(short_help="Empty retired partitions of a topic, as far as they may be.")
@click.option("--topic", required=True, help="The topic's name.")
@click.option(
    "--rehome",
    is_flag=True,
    help="On a compacted topic let surviving values go to their keys' present homes; without it they stay.",
)
@click.option(
    "--allow-delete-policy",
    is_flag=True,
    help="Consent to --rehome where cleanup.policy has delete in it: copies keep their age, and expire by it.",
)
@click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")
@output_option
@connection_options(timeout=120)
def drain(
    connection: Connection, topic: str, rehome: bool, allow_delete_policy: bool, dry_run: bool, output: str
) -> None:
    """Empty what may be emptied of a topic's retired partitions now, and say what the others wait for.

    Writers hold the keys of a slice while its values are copied, some thousand at a time. The same command again resumes
    one that was cut off; a growth that uses the partition again calls it off. --timeout bounds each slice. With --dry-run
    the retired partitions of a compacted topic are read through and their surviving values counted.
    """
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        if dry_run:
            retired, plans = admin.timeline(topic).drains, admin.rehoming_plans(topic)
            if output == "json":
                waiting = [{"partition": d.partition, "upto": d.upto, "state": d.state.value} for d in retired]
                emit_json({"dry_run": True, "topic": topic, "retired": waiting, "rehoming": [asdict(p) for p in plans]})
            elif plans:
                emit(output, {}, _COLUMNS, [_row(plan) for plan in plans])
            else:
                echo_wrapped(f"Topic {topic} has {len([d for d in retired if not d.emptied])} partitions to be emptied")
            return
        with _progress_shown(topic) as progress:
            terms = RehomingTerms(allow_delete_policy, timeout=connection.timeout, progress=progress)
            steps = admin.drain(topic, rehoming=terms if rehome else None)
    if output == "json":
        emit_json({"topic": topic, "drained": [asdict(step) for step in steps]})
    elif not steps:
        echo_wrapped(f"Topic {topic} has no retired partition that is not empty")
    for step in steps if output != "json" else ():
        echo_wrapped(_words(step))


def _words(step: DrainStep) -> str:
    return f"Partition {step.partition}: {step.what if step.done else 'waits for ' + step.what}"


def _row(plan: RehomingPlan) -> tuple[int, ...]:
    return plan.partition, plan.keys, plan.size, plan.superseded, plan.foreign


@contextmanager
def _progress_shown(topic: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that counts keys; a line for each slice where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: click.echo(f"re-homed {done} of {total} keys", err=True)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"re-homing values of {topic}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
