"""`keyorder topics release`: a topic goes back to stock clients, once nothing of it could get out of order."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..admin import TopicAdmin
from ..operations.releasing import Release
from .connecting import Connection, connection_options
from .main import REFUSED
from .output import echo_wrapped, emit_json, output_option


@click.command()
@click.option("--topic", required=True, help="The topic's name.")
@click.option("--dry-run", is_flag=True, help="Print what prevents it and change nothing.")
@output_option
@connection_options(timeout=60)
def release(connection: Connection, topic: str, dry_run: bool, output: str) -> None:
    """Give a topic back to stock clients. `topics adopt` takes it back.

    Refused (exit code 3) while keys could get out of order: an open change, a count at which stock producers place keys
    elsewhere, a live OrderedProducer, a group with a closed gate, a compacted topic whose keys have moved. Its timeline
    stays, so that ordered consumers still read older records in order. --timeout bounds the wait for killed writers. The
    dry run also ends with exit code 3 where something is in the way.
    """
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        done = admin.release(topic, dry_run, connection.timeout)
    if output == "json":
        emit_json({"dry_run": dry_run, **asdict(done)})
    else:
        _show(topic, done)
    if done.obstacles:  # of a dry run: otherwise they have been raised
        click.get_current_context().exit(REFUSED)


def _show(topic: str, done: Release) -> None:
    for obstacle in done.obstacles:
        echo_wrapped(f"In the way: {obstacle.text}")
    if done.obstacles:
        echo_wrapped(f"Topic {topic} would stay under management")
    elif done.changed:
        echo_wrapped(
            f"Topic {topic} is released: stock producers that place keys by {done.hash} may write its "
            f"{done.partitions} partitions"
        )
    elif done.released is not None:
        echo_wrapped(f"Topic {topic} was released already: {done.released}")
    else:
        echo_wrapped(f"Would release topic {topic}: nothing is in the way")
    for warning in done.warnings:
        echo_wrapped(f"WARNING: {warning}", "  ", err=True)
