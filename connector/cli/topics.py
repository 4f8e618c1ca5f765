"""`keyorder topics create|adopt|describe|plan|expand|shrink|drain|list`: managed topics, by the flags of Kafka's tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not re-exported

from ...partitioner.errors import BrokerUnreachableError, CountError
from ...partitioner.layout import Layout, same_routing
from ...partitioner.timeline import Retirement
from ..admin import TopicAdmin, split_topic_config
from ..kafka_errors import translate
from ..metadata import cluster_metadata, identify
from ..operations.forecast import ForcedDrain
from ..operations.notices import Code, of_adoption, of_change
from .confirming import confirm
from .connecting import Connection, connection_options, pairs
from .output import emit, emit_json, output_option
from .plan_output import forced_document, plan_document, show_plan
from .topics_drain import drain
from .topics_output import (
    change_document,
    description_document,
    layout_document,
    notices_document,
    show_change,
    show_description,
    show_notices,
    steps_shown,
)

_COUNT = click.IntRange(min=1)
_topic_option = click.option("--topic", required=True, help="The topic's name.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")

_groups_option = click.option(
    "--group", "groups", multiple=True, help="Whose backlog to tell; repeatable. [default: all that read the topic]"
)
_sample_option = click.option(
    "--sample",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Look twice, so many seconds apart, for the pace of groups and producers.",
)
_wait_option = click.option(
    "--wait-for-groups", "waited", default="", help="Comma-separated groups that have to read what a shrink retires."
)
_delay_option = click.option(
    "--delete-partitions-delay",
    "delay_ms",
    type=click.IntRange(min=0),
    default=None,
    metavar="MS",
    help="How long retired partitions stay readable, 0 for not at all. [default: the topic's setting]",
)


@click.group()
def topics() -> None:
    """Create, adopt, inspect and grow topics whose keys stay in order."""


topics.add_command(drain)


@topics.command()
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="How many partitions the topic has at first.")
@click.option("--replication-factor", type=_COUNT, default=None, help="Copies of each. [default: the cluster's]")
@click.option("--config", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; may be given repeatedly.")
@click.option(
    "--initial-partition-count", type=_COUNT, default=None, help="The lowest count ever. [default: --partitions]"
)
@_dry_run_option
@output_option
@connection_options(timeout=30)
def create(
    connection: Connection,
    topic: str,
    partitions: int,
    replication_factor: int | None,
    config: Sequence[str],
    initial_partition_count: int | None,
    dry_run: bool,
    output: str,
) -> None:
    """Create a topic and bring it under management."""
    settings = pairs(config, "--config")
    layout = Layout(initial_partition_count or partitions, partitions)
    if dry_run:
        _validate(connection, topic, partitions, replication_factor, settings)
        document = {"dry_run": True, "topic": topic, "layout": layout_document(layout), "settings": settings}
        if output == "json":
            emit_json(document)
        else:
            click.echo(f"Would create topic {topic} with {partitions} partitions (initial {layout.initial})")
        return
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        made = admin.create(
            topic, partitions, replication_factor, settings, initial_partition_count, timeout=connection.timeout
        )
    if output == "json":
        emit_json(description_document(made))
    else:
        click.echo(f"Created topic {topic} with {partitions} partitions (initial {layout.initial})")


@topics.command()
@_topic_option
@click.option(
    "--initial-partition-count",
    type=_COUNT,
    default=None,
    help="A lower count to which it may shrink later; only one under which no key moves.",
)
@click.option("--again", is_flag=True, help="The topic was deleted and made again: replace its old timeline.")
@_dry_run_option
@output_option
@connection_options(timeout=30)
def adopt(
    connection: Connection, topic: str, initial_partition_count: int | None, again: bool, dry_run: bool, output: str
) -> None:
    """Bring an existing topic under management at its present count. Running again changes nothing.

    Nothing moves: every key stays where the stock partitioner has put it, until the topic grows.
    """
    client = connection.reach()
    with TopicAdmin(connection.config) as admin:
        physical = identify(client, topic, connection.bootstrap_servers, connection.timeout).partitions
        managed = admin.managed(topic)
        warnings = [] if managed else of_adoption(topic)
        if dry_run:
            layout = managed.layout if managed else same_routing(initial_partition_count or physical, physical)
            if output == "json":
                emit_json(
                    {
                        "dry_run": True,
                        "topic": topic,
                        "managed": managed is not None,
                        "layout": layout_document(layout),
                        "warnings": notices_document(warnings),
                    }
                )
            elif managed:
                click.echo(f"Topic {topic} is under management already, with {layout.count} partitions")
            else:
                click.echo(f"Would bring topic {topic} under management with {layout.count} partitions")
                show_notices(warnings)
            return
        adopted = admin.adopt(
            topic, timeout=connection.timeout, again=again, initial_partition_count=initial_partition_count
        )
    if output == "json":
        emit_json({**description_document(adopted), "adopted": managed is None, "warnings": notices_document(warnings)})
    elif managed:
        click.echo(f"Topic {topic} is under management already, with {adopted.layout.count} partitions")
    else:
        click.echo(f"Topic {topic} is under management now, with {adopted.layout.count} partitions")
        show_notices(warnings)


@topics.command()
@_topic_option
@click.option("--group", "groups", multiple=True, help="Whose gates to show; repeatable. [default: all that read it]")
@output_option
@connection_options(timeout=30)
def describe(connection: Connection, topic: str, groups: Sequence[str], output: str) -> None:
    """Show a topic's layout, its epochs with their cuts, an open change, who writes, and the gates of its groups."""
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        description = admin.describe(topic, groups or None)
    if output == "json":
        emit_json(description_document(description))
    else:
        show_description(description)


@topics.command()
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="How many partitions the topic would have.")
@_groups_option
@_sample_option
@_wait_option
@_delay_option
@output_option
@connection_options(timeout=30)
def plan(
    connection: Connection,
    topic: str,
    partitions: int,
    groups: Sequence[str],
    sample: float,
    waited: str,
    delay_ms: int | None,
    output: str,
) -> None:
    """Say what a change would do, and change nothing.

    Which keys move from where to where, what each group has to read first, how long that may take, and what to know
    before. A time that was not measured is unknown: --sample looks twice.
    """
    connection.reach()
    _show_plan(connection, topic, partitions, groups, sample, output, Retirement(False, _names(waited), delay_ms))


@topics.command()
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="How many partitions the topic shall have.")
@_groups_option
@_sample_option
@_dry_run_option
@output_option
@connection_options(timeout=120)
def expand(
    connection: Connection,
    topic: str,
    partitions: int,
    groups: Sequence[str],
    sample: float,
    dry_run: bool,
    output: str,
) -> None:
    """Grow a topic while it is written and read. The same command again resumes a change that was cut off.

    A change that does not get through within --timeout is given up; the layout is then as it was before. --group and
    --sample go with --dry-run.
    """
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        timeline = admin.timeline(topic)
    if partitions < timeline.layout.count:
        raise CountError(topic, timeline.layout.count, partitions, "expand only grows")
    if dry_run:
        _show_plan(connection, topic, partitions, groups, sample, output, Retirement())
        return
    show_notices(of_change(timeline, partitions))
    with steps_shown(topic, partitions) as progress, TopicAdmin(connection.config, progress) as admin:
        change = admin.expand(topic, partitions, connection.timeout)
    if output == "json":
        emit_json(change_document(change))
    else:
        show_change(change)


@topics.command()
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="How many partitions shall stay active.")
@click.option(
    "--immediate", is_flag=True, help="Empty the retired partitions without the delay (groups are waited for)."
)
@_wait_option
@_delay_option
@click.option("--force", is_flag=True, help="Do not wait for groups either. What they have not read is lost.")
@click.option("--confirm", "confirmation", default=None, metavar="TOPIC", help="The topic's name again, for --force.")
@_groups_option
@_sample_option
@_dry_run_option
@output_option
@connection_options(timeout=120)
def shrink(
    connection: Connection,
    topic: str,
    partitions: int,
    immediate: bool,
    waited: str,
    delay_ms: int | None,
    force: bool,
    confirmation: str | None,
    groups: Sequence[str],
    sample: float,
    dry_run: bool,
    output: str,
) -> None:
    """Retire partitions while the topic is written and read, down to its initial count at the lowest.

    A retired partition is read to its end and then kept empty: a stock cluster cannot remove it, a later growth uses it
    again. The same command again resumes a change that was cut off. --immediate, --delete-partitions-delay and --force also
    apply to what was retired before and is not emptied yet. --group and --sample go with --dry-run.
    """
    if confirmation is not None and not force:
        raise click.UsageError("--confirm goes with --force.")
    connection.reach()
    retirement = Retirement(immediate, _names(waited), delay_ms, force)
    with TopicAdmin(connection.config) as admin:
        timeline = admin.timeline(topic)
        layout = timeline.layout
        if partitions > layout.count:
            raise CountError(topic, layout.count, partitions, "shrink only retires")
        if partitions < layout.initial:
            raise CountError(topic, layout.count, partitions, f"it cannot go below its initial {layout.initial}")
        lost = admin.forced_drain(topic, partitions) if force else None
    if dry_run:
        _show_plan(connection, topic, partitions, groups, sample, output, retirement, lost)
        return
    show_notices(of_change(timeline, partitions))
    if lost is not None:
        confirm(topic, confirmation, lost.lines())
    with steps_shown(topic, partitions) as progress, TopicAdmin(connection.config, progress) as admin:
        change = admin.shrink(topic, partitions, immediate, retirement.groups, connection.timeout, delay_ms, force)
        show_notices([notice for notice in change.warnings if notice.code in (Code.SWITCH_OFF, Code.COMPACTED)])
        drained = admin.drain(topic) if retirement.asked_for else []
    if output == "json":
        steps = [{**asdict(step), "state": step.state.value} for step in drained]
        emit_json({**change_document(change), "drained": steps})
    else:
        show_change(change)
        for step in drained:
            click.echo(f"Partition {step.partition}: {step.what if step.done else 'waits for ' + step.what}")


@topics.command("list")
@output_option
@connection_options(timeout=30)
def list_(connection: Connection, output: str) -> None:
    """List the topics under management."""
    client = connection.reach()
    with TopicAdmin(connection.config) as admin:
        managed = admin.topics()
    names = cluster_metadata(client, connection.bootstrap_servers).topics
    found = [
        {
            "topic": name,
            "topic_id": timeline.topic_id,
            "layout": layout_document(timeline.layout),
            "epoch": timeline.newest.number,
            "ordered": timeline.ordered,
            "changing": timeline.change is not None,
            "exists": name in names,
        }
        for name, timeline in sorted(managed.items())
    ]
    rows = [
        (
            name,
            t.layout.initial,
            t.layout.count,
            t.newest.number,
            _state(name in names, t.change is not None, t.ordered),
        )
        for name, t in sorted(managed.items())
    ]
    emit(output, {"topics": found}, ("topic", "initial", "partitions", "epoch", "state"), rows)


def _show_plan(
    connection: Connection,
    topic: str,
    partitions: int,
    groups: Sequence[str],
    sample: float,
    output: str,
    wishes: Retirement,
    lost: ForcedDrain | None = None,
) -> None:
    with TopicAdmin(connection.config) as admin:
        found = admin.plan(
            topic, partitions, groups or None, wishes.groups, wishes.immediate, wishes.delay_ms, sample, wishes.forced
        )
    if output == "json":
        emit_json({**plan_document(found), "forced": None if lost is None else forced_document(lost)})
        return
    show_plan(found)
    for line in [] if lost is None else lost.lines():
        click.echo(line)


def _names(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())


def _state(exists: bool, changing: bool, ordered: bool) -> str:
    if not exists:
        return "deleted"
    if changing:
        return "changing"
    return "ordered" if ordered else "ordered delivery off"


def _validate(
    connection: Connection, topic: str, partitions: int, replication_factor: int | None, settings: dict[str, str]
) -> None:
    """Let the broker check a topic that is not created."""
    client, servers = connection.reach(), connection.bootstrap_servers
    _, theirs = split_topic_config(settings)
    wanted = NewTopic(topic, partitions, replication_factor if replication_factor else -1, config=theirs)
    try:
        client.create_topics([wanted], validate_only=True)[topic].result(connection.timeout)
    except KafkaException as raised:
        raise translate(raised.args[0], "create", f"topic {topic}", servers) from raised
    except TimeoutError as raised:
        raise BrokerUnreachableError(servers, f"create topic {topic}") from raised
