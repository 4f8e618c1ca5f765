"""`keyorder change status|abort`: a layout change that is under way, seen and given up from outside."""

from __future__ import annotations

from typing import Any

import click

from ....partitioner.errors import OrderError
from ...admin import TopicAdmin
from ...metadata import cluster_metadata
from ...operations.aborting import Abort
from ...operations.change_status import ChangeStatus, DrainStatus
from ..connecting import Connection, connection_options
from ..output import echo_wrapped, emit_json, emit_table, output_option, unreadable_document, warn_of_unreadable
from ..topics_output import drain_document, layout_document, open_change_document, time_text


@click.group()
def change() -> None:
    """Look at layout changes that are under way, or give one up."""


@change.command("status", short_help="Show open changes, and who keeps them waiting.")
@click.option("--topic", default=None, help="One topic. [default: all with an open change or retired partitions]")
@output_option
@connection_options(timeout=30)
def status(connection: Connection, topic: str | None, output: str) -> None:
    """Show open changes: phase, attempt, deadline, who keeps them waiting, and what becomes of retired partitions."""
    client = connection.reach()
    unreadable: dict[str, OrderError] = {}
    with TopicAdmin(connection.config) as admin:
        if topic is not None:
            names = [topic]
        else:
            there = cluster_metadata(client, connection.bootstrap_servers).topics
            managed = admin.topics(unreadable).items()
            names = sorted(n for n, t in managed if n in there and (t.change or any(not d.emptied for d in t.drains)))
        found = []
        for name in names:
            try:
                found.append(admin.change_status(name))
            except OrderError as error:  # such as of a topic that was deleted and made again
                if topic is not None:
                    raise
                unreadable[name] = error
    if output == "json":
        changes = [status_document(each) for each in found]
        emit_json({"changes": changes, "unreadable": unreadable_document(unreadable)})
    elif not found:
        echo_wrapped("No topic is being changed, and no retired partition is left to be emptied")
    if output == "table":
        for each in found:
            _show(each)
        warn_of_unreadable(unreadable)


@change.command(short_help="Give a topic's open change up.")
@click.option("--topic", required=True, help="The topic's name.")
@click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")
@output_option
@connection_options(timeout=60)
def abort(connection: Connection, topic: str, dry_run: bool, output: str) -> None:
    """Give a topic's open change up: whoever works on it is fenced, held records
    go to the old partitions.

    The layout stays as it was. With nothing to abort nothing is done, and the exit code is 0.
    """
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        if dry_run:
            timeline = admin.timeline(topic)
            newest = timeline.newest
            done = Abort(topic, timeline.change is not None, timeline.change, newest.count, newest.number)
        else:
            done = admin.abort(topic, connection.timeout)
    if output == "json":
        emit_json(
            {
                "dry_run": dry_run,
                "topic": topic,
                "aborted": done.aborted and not dry_run,
                "change": None if done.change is None else open_change_document(done.change),
                "count": done.count,
                "epoch": done.epoch,
            }
        )
    elif done.change is None:
        echo_wrapped(f"Topic {topic} is not being changed: nothing to abort, it has {done.count} partitions")
    else:
        what = "Would give up" if dry_run else "Gave up"
        echo_wrapped(
            f"{what} the change of {topic} to {done.change.count} partitions (epoch {done.change.epoch}, attempt "
            f"{done.change.attempt}, {done.change.phase.value}): it has {done.count} partitions"
        )


def status_document(found: ChangeStatus) -> dict[str, Any]:
    """One topic of `change status`."""
    return {
        "topic": found.topic,
        "layout": layout_document(found.layout),
        "epoch": found.epoch,
        "change": None if found.change is None else open_change_document(found.change),
        "since_ms": found.since_ms,
        "deadline_at_ms": found.deadline_at_ms,
        "stalled": found.stalled,
        "late": list(found.late),
        "writers": [
            {
                "writer": w.writer,
                "incarnation": w.incarnation,
                "transactional": w.transactional,
                "answer": w.answer.value,
                "late": w.late,
                "lease_ms": w.lease_ms,
                "renewed_at_ms": w.renewed_at_ms,
            }
            for w in found.writers
        ],
        "next_step": found.next_step,
        "drains": [_drain(each) for each in found.drains],
    }


def _drain(found: DrainStatus) -> dict[str, Any]:
    return {
        **drain_document(found.drain),
        "delay_ms": found.delay_ms,
        "due_at_ms": found.due_at_ms,
        "waits_for": found.waits_for or None,
        "groups_behind": dict(found.behind),
    }


def _show(found: ChangeStatus) -> None:
    echo_wrapped(f"Topic {found.topic}: {found.layout.count} partitions, epoch {found.epoch}")
    change = found.change
    if change is None:
        echo_wrapped("Change: none")
    else:
        what = "re-homing values" if change.slice is not None else f"to {change.count} partitions"
        echo_wrapped(
            f"Change: {what}, {change.phase.value} since {time_text(found.since_ms)}, epoch {change.epoch}, "
            f"attempt {change.attempt}"
        )
        if found.deadline_at_ms is not None:
            echo_wrapped(f"Deadline: {time_text(found.deadline_at_ms)}{', passed long ago' if found.stalled else ''}")
        echo_wrapped(f"Next: {found.next_step}")
        if found.writers:
            emit_table(
                ("writer", "answer", "last heard", "lease", "transactional"),
                [
                    (
                        w.writer,
                        w.answer.value,
                        time_text(w.renewed_at_ms),
                        f"{w.lease_ms / 1000:g} s",
                        "yes" if w.transactional else "no",
                    )
                    for w in found.writers
                ],
            )
    if found.drains:
        emit_table(
            ("retired", "state", "emptied below", "due", "waits for"),
            [
                (
                    d.drain.partition,
                    d.drain.state.value.replace("_", " "),
                    d.drain.upto,
                    time_text(d.due_at_ms),
                    d.waits_for or None,
                )
                for d in found.drains
            ],
        )
