"""`keyorder topics release`: a topic goes back to stock clients, once nothing of it could get out of order.

Also what other commands ask of a topic that was released, before they do anything or say what they would do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from ...partitioner.errors import LayoutError, MisplacedKeysError, ReleasedTopicError
from ...partitioner.timeline import Timeline
from ..admin import TopicAdmin
from ..operations.releasing import Release
from ..operations.stray_scan import scan
from .connecting import Connection, connection_options
from .main import REFUSED
from .output import echo_wrapped, emit_json, output_option

# Of each partition, as an adoption does.
_NEWEST = 200


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


def under_management(admin: TopicAdmin, topic: str) -> Timeline:
    """The timeline of a topic that is to be changed. Raises as `TopicAdmin.timeline`, and ReleasedTopicError."""
    timeline = admin.timeline(topic)
    if timeline.released is not None:
        raise ReleasedTopicError(topic, timeline.released)
    return timeline


def require_as_released(
    config: Mapping[str, Any], timeline: Timeline, physical: int, accept_misplaced: bool, timeout: float
) -> None:
    """Stop where an adoption would not take a released topic back; changes nothing.

    Raises LayoutError where its count has changed since, MisplacedKeysError where records lie elsewhere than its hash puts
    them and that is not accepted.
    """
    topic, count = timeline.topic, timeline.newest.count
    if physical != count:
        raise LayoutError(
            f"topic {topic!r} went from {count} to {physical} partitions after it was released ({timeline.released}), which "
            "moved keys that nobody held: copy it into a managed topic with Connect's MirrorConnector "
            "(docs/connect-migrate.md)"
        )
    if accept_misplaced:
        return
    counted = scan(config, timeline, physical, _NEWEST, timeout)
    records, misplaced = sum(each.records for each in counted), sum(each.strays for each in counted)
    if misplaced:
        sample = f"{misplaced} of the newest {records} records lie elsewhere than the hash {timeline.hash} puts them"
        raise MisplacedKeysError(topic, physical, sample, timeline.hash)


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
