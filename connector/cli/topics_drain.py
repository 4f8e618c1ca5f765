"""`keyorder topics drain`: empties retired partitions now, as far as they may be; on compacted topics values go home first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from ...partitioner.errors import ConsentNeededError, KeyorderError
from ...partitioner.modes import Mode
from ...partitioner.timeline import Timeline
from .. import clock
from ..admin import TopicAdmin
from ..control.timeline_edit import ChangeOpenError
from ..metadata import topic_config
from ..operations.change_status import DrainStatus
from ..topology.draining import DrainStep, switched_on
from ..topology.rehoming import RehomingPlan, RehomingTerms
from .connecting import Connection, connection_options
from .main import exit_code
from .output import echo_wrapped, emit, emit_json, is_terminal, output_option
from .topics_release import under_management

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
    the retired partitions of a compacted topic are read through and their surviving values counted; what can be told now to
    be refused ends it with the exit code of the command.
    """
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        if dry_run:
            timeline = under_management(admin, topic)
            refusal = _refusal(connection, admin, timeline, rehome, allow_delete_policy)
            retired, plans = timeline.drains, admin.rehoming_plans(topic)
            if output == "json":
                waiting = [{"partition": d.partition, "upto": d.upto, "state": d.state.value} for d in retired]
                emit_json({"dry_run": True, "topic": topic, "retired": waiting, "rehoming": [asdict(p) for p in plans]})
            elif plans:
                emit(output, {}, _COLUMNS, [_row(plan) for plan in plans])
            else:
                echo_wrapped(f"Topic {topic} has {len([d for d in retired if not d.emptied])} partitions to be emptied")
            if refusal is not None:
                echo_wrapped(f"Would be refused: {refusal}", err=True)
                click.get_current_context().exit(exit_code(refusal))
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


def _refusal(
    connection: Connection, admin: TopicAdmin, timeline: Timeline, rehome: bool, allow_delete_policy: bool
) -> KeyorderError | None:
    """What the command itself would end with now. A partition that still waits for something is no reason."""
    topic, change = timeline.topic, timeline.change
    if all(drain.emptied for drain in timeline.drains):
        return None
    due = [each.drain for each in admin.change_status(topic).drains if _due(timeline, each)]
    policy = topic_config(connection.reach(), topic, connection.bootstrap_servers)["cleanup.policy"] if due else ""
    for drain in due:
        kept = "compact" in policy and drain.mode is Mode.READ_ONLY  # unless its values are re-homed
        if kept and rehome and "delete" in policy and not allow_delete_policy:
            return ConsentNeededError(topic)
        if change is None or (kept and not rehome):
            continue
        if not kept or change.slice is None:  # one that re-homes values is gone on with
            return ChangeOpenError(topic, change)
    return None


def _due(timeline: Timeline, status: DrainStatus) -> bool:
    """Whether nothing keeps the command from a retired partition now."""
    drain = status.drain
    if drain.emptied:
        return False
    if drain.mode is not Mode.READ_ONLY:  # its records are being deleted already
        return True
    retired_at = next((epoch.committed_at_ms for epoch in timeline.epochs if epoch.number == drain.epoch), 0)
    elapsed_ms = clock.wall_ms() - retired_at if retired_at else 0
    return switched_on(timeline) and drain.mode.next(elapsed_ms, status.delay_ms, not status.behind) is Mode.NONE


def _words(step: DrainStep) -> str:
    return f"Partition {step.partition}: {step.what if step.done else 'waits for ' + step.what}"


def _row(plan: RehomingPlan) -> tuple[int, ...]:
    return plan.partition, plan.keys, plan.size, plan.superseded, plan.foreign


@contextmanager
def _progress_shown(topic: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that counts keys; a line for each slice where stderr is no terminal."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: click.echo(f"re-homed {done} of {total} keys", err=True)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"re-homing values of {topic}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
