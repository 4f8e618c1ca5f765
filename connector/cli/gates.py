"""`keyorder gates list|release`: closed gates of a group and why they are closed; letting one go, on the record."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from ...partitioner.errors import OrderError, UsageError
from ...partitioner.gates.gate import Gates
from ...partitioner.timeline import Timeline
from ..acting_user import acting_user
from ..control.timeline_edit import ChangeOpenError
from ..groups.group_admin import ClosedGate, GroupAdmin
from .connecting import Connection, connection_options
from .output import echo_wrapped, emit, emit_json, is_terminal, output_option, unreadable_document, warn_of_unreadable


@click.group(short_help="List closed gates, with their reasons; let one go.")
def gates() -> None:
    """Closed gates: what a group waits for before it reads on, and letting it go on without."""


@gates.command("list")
@click.option("--group", default=None, help="The consumer group. [default: every group that reads a managed topic]")
@click.option("--topic", default=None, help="One topic. [default: all managed topics of the group]")
@output_option
@connection_options(timeout=30)
def list_(connection: Connection, group: str | None, topic: str | None, output: str) -> None:
    """List closed gates, each with its reason.

    Judged by what the group has committed. A member knows more of itself: consumer.gates() in the program tells it.
    """
    connection.reach()
    admin = GroupAdmin(connection.config)
    unreadable: dict[str, OrderError] = {}
    if group is not None:
        admin.require(group)
        read = {group: admin.topics_of(group, unreadable) if topic is None else [topic]}
    elif topic is not None:
        admin.timeline(topic)
        read = {each: [topic] for each in admin.groups_of(topic)}
    else:
        read = {each.group: list(each.topics) for each in admin.groups(unreadable)}
    closed, waived = [], []
    for name, each in [(name, each) for each, names in read.items() for name in names]:
        try:
            closed += admin.closed_gates(name, each)
            waived += admin.waivers(name, each)
        except OrderError as error:  # such as of a topic that was deleted and made again
            if topic is not None:
                raise
            unreadable[name] = error
    found = sorted(closed, key=lambda g: (g.group, g.topic, g.partition, g.epoch, g.waits_for))
    document = {
        "group": group,
        "gates": [document_of(g) for g in found],
        "waivers": [asdict(w) for w in waived],
        "unreadable": unreadable_document(unreadable),
    }
    columns = ("group", "topic", "partition", "epoch", "waits for", "needs", "at", "reason")
    rows = [
        (g.group, g.topic, g.partition, g.epoch, g.waits_for, g.needs_offset, g.at_offset, g.reason.value)
        for g in found
    ]
    if output == "table" and not found:
        echo_wrapped("No gate is closed" if group is None else f"No gate of group {group} is closed")
    else:
        emit(output, document, columns, rows)
    if output == "table":
        warn_of_unreadable(unreadable)
        for gate in found:
            echo_wrapped(f"{gate.group}, {gate.topic}[{gate.partition}]: {gate.detail}", "  ")
        for waiver in waived:
            echo_wrapped(
                f"{waiver.topic}[{waiver.partition}], epoch {waiver.epoch}: released by {waiver.who} ({waiver.why})"
            )


@gates.command(short_help="Force a gate open for one group, on the record.")
@click.option("--group", required=True, help="The consumer group.")
@click.option("--topic", required=True, help="The topic.")
@click.option("--partition", type=click.IntRange(min=0), required=True, help="The partition that waits.")
@click.option("--epoch", type=click.IntRange(min=1), default=None, help="Which gate. [default: the first closed one]")
@click.option("--why", required=True, help="The reason, for the record.")
@click.option("--who", default=None, help="Who is responsible for it. [default: user@host]")
@click.option(
    "--allow-unknown-group",
    is_flag=True,
    help="Also for a group without members and offsets, such as that of a Spark query before its first batch.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")
@output_option
@connection_options(timeout=30)
def release(
    connection: Connection,
    group: str,
    topic: str,
    partition: int,
    epoch: int | None,
    why: str,
    who: str | None,
    allow_unknown_group: bool,
    yes: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Force a gate open for one group before its source partition is caught up.

    Keys that came to the partition may then be delivered before their older records. Who, when and why are
    recorded; members act on it at once, and a later `groups reset` takes it back.
    """
    connection.reach()
    admin = GroupAdmin(connection.config)
    if not allow_unknown_group:
        admin.require(group)
    closed = [g for g in admin.closed_gates(topic, group) if g.partition == partition]
    if epoch is None:
        if not closed:
            raise click.UsageError(f"No gate of {topic}[{partition}] is closed for group {group}.")
        epoch = min(closed, key=lambda g: g.begins).epoch
    _require_gate(admin.timeline(topic), partition, epoch)
    chosen = [g for g in closed if g.epoch == epoch]
    behind = {g.waits_for: g.needs_offset - g.at_offset for g in chosen}
    who = who or acting_user()
    if output == "table":
        for q, offsets in sorted(behind.items()):
            echo_wrapped(f"Up to {offsets} records of {topic}[{q}] may then come after newer ones of their keys.")
    if not dry_run:
        if not yes and not is_terminal(sys.stdin):
            raise click.UsageError("nobody can be asked to confirm: give --yes to release the gate.")
        if not yes:
            click.confirm(f"Release {topic}[{partition}], epoch {epoch}, for group {group}?", abort=True, err=True)
        admin.release(topic, group, partition, epoch, who, why)
    if output == "json":
        emit_json(
            {
                "dry_run": dry_run, "group": group, "topic": topic, "partition": partition, "epoch": epoch,
                "who": who, "why": why, "unprocessed": {str(q): offsets for q, offsets in sorted(behind.items())},
            }
        )  # fmt: skip
    else:
        echo_wrapped(f"{'Would release' if dry_run else 'Released'} {topic}[{partition}], epoch {epoch}, for {group}")


def _require_gate(timeline: Timeline, partition: int, epoch: int) -> None:
    """Stop before anybody is asked where a release would be refused. Raises UsageError (no such gate), ChangeOpenError."""
    gates = Gates(timeline)
    if all(gate.epoch != epoch for gate in gates.of(partition)):
        known = ", ".join(f"{gate.partition} in epoch {gate.epoch}" for gate in gates.all()) or "none"
        raise UsageError(
            f"{timeline.topic!r} has no gate into partition {partition} in epoch {epoch}: its gates are {known}"
        )
    if timeline.change is not None:
        raise ChangeOpenError(timeline.topic, timeline.change)


def document_of(gate: ClosedGate) -> dict[str, Any]:
    """A closed gate for programs; documented in docs/configuration.md, Command line."""
    return {**asdict(gate), "reason": gate.reason.value}
