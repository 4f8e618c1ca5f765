"""`keyorder groups list|describe|reset`: a group's positions on managed topics, and setting them at a consistent cut."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from ...partitioner.errors import OrderError
from ..groups.group_admin import GroupAdmin, GroupStatus
from ..groups.resetting import Point, Reset, Target, milliseconds_of
from .connecting import Connection, connection_options
from .output import (
    echo_wrapped,
    emit,
    emit_json,
    emit_table,
    is_terminal,
    output_option,
    unreadable_document,
    warn_of_unreadable,
)


@click.group()
def groups() -> None:
    """Consumer groups of managed topics."""


@groups.command("list", short_help="List groups that read managed topics, with their lag.")
@output_option
@connection_options(timeout=30)
def list_(connection: Connection, output: str) -> None:
    """List the groups that have committed offsets on a managed topic, with their lag and closed gates."""
    connection.reach()
    unreadable: dict[str, OrderError] = {}
    found = GroupAdmin(connection.config).groups(unreadable)
    columns = ("GROUP", "STATE", "MEMBERS", "TOPICS", "LAG", "CLOSED-GATES")
    rows = [(g.group, g.state, g.members, ",".join(g.topics), g.lag, g.closed_gates) for g in found]
    if output == "table" and not found:
        echo_wrapped("No group has committed offsets on a managed topic")
    else:
        document = {"groups": [asdict(each) for each in found], "unreadable": unreadable_document(unreadable)}
        emit(output, document, columns, rows)
    if output == "table":
        warn_of_unreadable(unreadable)


@groups.command(short_help="Show a group's positions, lag and closed gates.")
@click.option("--group", required=True, help="The consumer group.")
@click.option("--topic", default=None, help="One topic. [default: all managed topics of the group]")
@output_option
@connection_options(timeout=30)
def describe(connection: Connection, group: str, topic: str | None, output: str) -> None:
    """Show positions and lag as kafka-consumer-groups does, with the epoch that is flushed and the closed gate."""
    connection.reach()
    admin = GroupAdmin(connection.config)
    admin.require(group)
    unreadable: dict[str, OrderError] = {}
    topics = admin.topics_of(group, unreadable) if topic is None else [topic]
    found = []
    for name in topics:
        try:
            found.append(admin.describe(group, name))
        except OrderError as error:  # such as of a topic that was deleted and made again
            if topic is not None:
                raise
            unreadable[name] = error
    state = found[0].state if found else "Dead"
    partitions = [row for status in found for row in _documents(status)]
    document = {
        "group": group,
        "state": state,
        "members": found[0].members if found else 0,
        "partitions": partitions,
        "unreadable": unreadable_document(unreadable),
    }
    if output == "table":
        warn_of_unreadable(unreadable)
    columns = (
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
        "EPOCH-FLUSHED", "GATE",
    )  # fmt: skip
    if output == "table" and is_terminal(sys.stdout):
        # The group and its members are named once below; the rows are what fits 80 columns.
        _show(group, state, partitions)
        return
    if output == "table" and not partitions:
        echo_wrapped(f"Group {group} has no offsets on a managed topic")
        return
    emit(output, document, columns, [_row(group, row) for row in partitions])
    if output == "table":
        echo_wrapped(f"Group {group}: {state}, {document['members']} member(s)")


@groups.command(short_help="Set a group's offsets, at a cut that breaks no order.")
@click.option("--group", required=True, help="The consumer group; it must be empty.")
@click.option("--topic", required=True, help="The topic, all partitions of it.")
@click.option("--to-earliest", is_flag=True, help="To the start of each partition's log.")
@click.option("--to-latest", is_flag=True, help="To the end of each partition's log.")
@click.option("--to-datetime", default=None, metavar="TIME", help="To a time, such as 2026-01-31T12:00:00+00:00.")
@click.option("--to-epoch", type=click.IntRange(min=0), default=None, help="To where this epoch of the layout began.")
@click.option("--to-offset", type=click.IntRange(min=0), default=None, help="To this offset on every partition.")
@click.option(
    "--shift-by", type=int, default=None, help="By so many records on every partition; a negative number goes back."
)
@click.option("--execute", is_flag=True, help="Do it. Without this the offsets are only shown.")
@click.option("--dry-run", is_flag=True, help="Only show the offsets, which is the default.")
@output_option
@connection_options(timeout=30)
def reset(
    connection: Connection,
    group: str,
    topic: str,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    to_epoch: int | None,
    to_offset: int | None,
    shift_by: int | None,
    execute: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Set a group's offsets on all partitions of a topic, at a cut that breaks no key's order.

    One partition alone cannot be reset: a key's records lie on several. What lies behind a closed gate is lowered to it.
    """
    targets = [
        *([Target(Point.EARLIEST)] if to_earliest else []),
        *([Target(Point.LATEST)] if to_latest else []),
        *([Target(Point.TIME, milliseconds_of(to_datetime))] if to_datetime is not None else []),
        *([Target(Point.EPOCH, to_epoch)] if to_epoch is not None else []),
        *([Target(Point.OFFSET, to_offset)] if to_offset is not None else []),
        *([Target(Point.SHIFT, shift_by)] if shift_by is not None else []),
    ]
    if len(targets) != 1:
        raise click.UsageError(
            "Give one of --to-earliest, --to-latest, --to-datetime, --to-epoch, --to-offset, --shift-by."
        )
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    connection.reach()
    admin = GroupAdmin(connection.config)
    known = admin.knows(group)
    done = admin.reset(topic, group, targets[0], execute)
    if output == "json":
        emit_json(_reset_document(done))
        return
    rows = [(topic, p, done.before.get(p), offset, done.clipped.get(p)) for p, offset in sorted(done.offsets.items())]
    emit_table(("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "LOWERED FROM"), rows)
    if not known:  # as Kafka's own tool this may prepare a group's start, so a misspelt name is told and not refused
        echo_wrapped(f"Group {group} has no members and no offsets yet: its first offsets are these")
    for waiver in done.taken_back:
        echo_wrapped(f"Waiver of {topic}[{waiver.partition}], epoch {waiver.epoch}, ends: its gate is passed anew")
    echo_wrapped("Done" if execute else "Nothing was changed: give --execute to do it")


def _show(group: str, state: str, partitions: list[dict[str, Any]]) -> None:
    """For a terminal: a table a topic, the closed gates as sentences, the members by number."""
    members = list(dict.fromkeys(_member(row) for row in partitions if row["owner"]))
    echo_wrapped(f"Group {group}: {state}, {len(members)} member(s) with partitions")
    for topic in dict.fromkeys(row["topic"] for row in partitions):
        rows = [row for row in partitions if row["topic"] == topic]
        table = [
            (
                row["partition"], row["current_offset"], row["log_end_offset"], row["lag"], row["epoch_flushed"],
                "closed" if row["gate"] else "open",
                f"#{members.index(_member(row)) + 1}" if row["owner"] else None,
            )
            for row in rows
        ]  # fmt: skip
        columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "EPOCH", "GATE", "MEMBER")
        emit_table(columns, table, f"Topic {topic}")
        for row in rows:
            if row["gate"]:
                waits = ", ".join(f"partition {n['partition']} up to {n['needs']}" for n in row["gate"]["waits_for"])
                echo_wrapped(
                    f" partition {row['partition']} from {row['gate']['begins']} waits for a commit of {waits}", "  "
                )
    for number, (member_id, client_id, host) in enumerate(members, 1):
        echo_wrapped(f" #{number}  {member_id} (client {client_id}, host {host})", "     ")


def _member(row: dict[str, Any]) -> tuple[str, str, str]:
    owner = row["owner"] or {}
    return owner.get("member_id", ""), owner.get("client_id", ""), owner.get("host", "")


def _documents(status: GroupStatus) -> list[dict[str, Any]]:
    rows = []
    for p in status.partitions:
        gate = p.gate
        rows.append(
            {
                **asdict(p),
                "gate": None
                if gate is None
                else {
                    "epoch": gate.epoch,
                    "begins": gate.begins,
                    "waits_for": [{"partition": n.partition, "needs": n.needs, "at": n.at} for n in gate.blockers],
                },
            }
        )
    return rows


def _row(group: str, row: dict[str, Any]) -> tuple[object, ...]:
    owner, gate = row["owner"] or {}, row["gate"]
    waits = ", ".join(f"{n['partition']} to {n['needs']}" for n in gate["waits_for"]) if gate else ""
    return (
        group, row["topic"], row["partition"], row["current_offset"], row["log_end_offset"], row["lag"],
        owner.get("member_id"), owner.get("host"), owner.get("client_id"), row["epoch_flushed"],
        f"closed from {gate['begins']}, waits for {waits}" if gate else "open",
    )  # fmt: skip


def _reset_document(done: Reset) -> dict[str, Any]:
    def by_partition(offsets: Any) -> dict[str, int]:
        return {str(p): offset for p, offset in sorted(offsets.items())}

    return {
        "executed": done.executed,
        "group": done.group,
        "topic": done.topic,
        "target": {"point": done.target.point.value, "at": done.target.at},
        "before": by_partition(done.before),
        "offsets": by_partition(done.offsets),
        "clipped": by_partition(done.clipped),
        "waivers_taken_back": [asdict(waiver) for waiver in done.taken_back],
    }
