"""`keyorder topics create|adopt|alter|describe|plan|expand|shrink|drain|release|list`, by the flags of Kafka's tools."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not re-exported

from ...partitioner.adoption import KeySample, chosen_hash
from ...partitioner.errors import BrokerUnreachableError, ConfigError, OrderError, TopicNotFoundError
from ...partitioner.hashing import DEFAULT_HASH, HASHES
from ...partitioner.layout import Layout, same_routing
from ...partitioner.timeline import Timeline, TopicIdentity
from ..admin import TopicAdmin
from ..config import JUST_MADE
from ..control.timeline_edit import ChangeOpenError
from ..kafka_errors import translate
from ..metadata import cluster_metadata, identify
from ..operations.adopting import check_hash
from ..operations.notices import of_adoption
from ..operations.topic_settings import altered, settings_of_existing, split_topic_config
from .changes.confirming import confirm
from .changes.resizing import expand, plan, shrink
from .connecting import Connection, connection_options, pairs
from .output import echo_wrapped, emit, emit_json, output_option, unreadable_document, warn_of_unreadable
from .topics_drain import drain
from .topics_output import (
    description_document,
    layout_document,
    notices_document,
    sample_document,
    show_description,
    show_notices,
)
from .topics_release import release, require_as_released, under_management

_COUNT = click.IntRange(min=1, max=100_000)
_REPLICAS = click.IntRange(min=1, max=10_000)  # the client library takes no more
_topic_option = click.option("--topic", required=True, help="The topic's name.")
_HASH = click.Choice(list(HASHES))
_config_option = click.option(
    "--config", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; may be given repeatedly."
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")


@click.group(short_help="Create, adopt, inspect, grow and shrink topics.")
def topics() -> None:
    """Create, adopt, inspect and grow topics whose keys stay in order."""


topics.add_command(drain)
topics.add_command(release)


@topics.command()
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="How many partitions the topic has at first.")
@click.option(
    "--replication-factor", type=_REPLICAS, default=None, help="Replicas of each partition. [default: the cluster's]"
)
@_config_option
@click.option(
    "--initial-partition-count",
    type=_COUNT,
    default=None,
    help="The lowest count to which it may shrink later. [default: --partitions]",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing when the topic exists already.")
@click.option(
    "--hash",
    "hash_name",
    type=_HASH,
    default=DEFAULT_HASH,
    show_default=True,
    help="By which keys are placed: that of the stock producers that will write it too.",
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
    if_not_exists: bool,
    hash_name: str,
    dry_run: bool,
    output: str,
) -> None:
    """Create a topic and bring it under management."""
    settings = pairs(config, "--config")
    layout = Layout(initial_partition_count or partitions, partitions, hash_name)
    if if_not_exists and _exists(connection, topic):
        if output == "json":
            emit_json({"dry_run": dry_run, "topic": topic, "created": False})
        else:
            echo_wrapped(f"Topic {topic} exists already: nothing was done")
        return
    if dry_run:
        _validate(connection, topic, partitions, replication_factor, settings)
        document = {"dry_run": True, "topic": topic, "layout": layout_document(layout), "settings": settings}
        if output == "json":
            emit_json(document)
        else:
            echo_wrapped(f"Would create topic {topic} with {partitions} partitions (initial {layout.initial})")
        return
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        made = admin.create(
            topic,
            partitions,
            replication_factor,
            settings,
            initial_partition_count,
            timeout=connection.request_timeout,
            hash=hash_name,
        )
    if output == "json":
        emit_json(description_document(made))
    else:
        echo_wrapped(f"Created topic {topic} with {partitions} partitions (initial {layout.initial})")


@topics.command()
@_topic_option
@click.option(
    "--initial-partition-count",
    type=_COUNT,
    default=None,
    help="A lower count to which it may shrink later; only one under which no key moves.",
)
@click.option("--again", is_flag=True, help="The topic was deleted and made again: replace its old timeline.")
@click.option(
    "--hash",
    "hash_name",
    type=_HASH,
    default=None,
    help="Adopt it under this hash alone. [default: the one that explains its records, murmur2 for an empty topic]",
)
@click.option(
    "--accept-misplaced",
    is_flag=True,
    help="Adopt it although some records lie where no hash puts them: their keys may be read out of order.",
)
@_config_option
@_dry_run_option
@output_option
@connection_options(timeout=30)
def adopt(
    connection: Connection,
    topic: str,
    initial_partition_count: int | None,
    again: bool,
    hash_name: str | None,
    accept_misplaced: bool,
    config: Sequence[str],
    dry_run: bool,
    output: str,
) -> None:
    """Bring an existing topic under management at its present count. Running again changes nothing.

    Some of its newest and oldest records are read first, to see by which hash its producers place keys: librdkafka's
    clients use crc32 unless told otherwise, Java's murmur2, Sarama fnv1a. Under that hash every key stays where it is. A
    topic whose records no hash explains is refused (exit code 3), and nothing is changed. --config takes the settings
    that `alter` takes.
    """
    settings = settings_of_existing(pairs(config, "--config"))
    client = connection.reach()
    with TopicAdmin(connection.config) as admin:
        identity = identify(
            client,
            topic,
            connection.bootstrap_servers,
            connection.timeout,
            just_made=min(connection.timeout, JUST_MADE),
            ask_controller=True,
        )
        physical = identity.partitions
        if initial_partition_count is not None:
            same_routing(initial_partition_count, physical)  # raises where keys would move
        managed = _already_managed(admin, topic, identity, again)
        released = managed.released if managed is not None else None
        if managed is not None:
            check_hash(managed, hash_name)
            if altered(managed, settings) != managed:
                raise ConfigError("config", f"topic {topic!r} is managed already, with other settings", "use `alter`")
        warnings = [] if managed else of_adoption(topic)
        if dry_run:
            sample: KeySample | None = None
            if managed:
                if released is not None:
                    require_as_released(connection.config, managed, physical, accept_misplaced, connection.timeout)
                layout = managed.layout
            else:
                sample = admin.sample(topic, connection.timeout)
                found = chosen_hash(sample, hash_name, accept_misplaced)
                layout = same_routing(initial_partition_count or physical, physical, found)
            if output == "json":
                emit_json(
                    {
                        "dry_run": True,
                        "topic": topic,
                        "managed": managed is not None and released is None,
                        "layout": layout_document(layout),
                        "sample": sample_document(sample),
                        "warnings": notices_document(warnings),
                    }
                )
            elif released is not None:
                echo_wrapped(f"Would take topic {topic} back, which was released {released}")
            elif managed:
                echo_wrapped(f"Topic {topic} is under management already, with {layout.count} partitions")
            else:
                echo_wrapped(f"Would bring topic {topic} under management with {_placed(layout)}")
                echo_wrapped(f"Looked at {sample}")
                show_notices(warnings)
            return
        adopted = admin.adopt(
            topic,
            timeout=connection.request_timeout,
            again=again,
            initial_partition_count=initial_partition_count,
            hash=hash_name,
            accept_misplaced=accept_misplaced,
            config=settings,
        )
    if output == "json":
        emit_json(
            {
                **description_document(adopted),
                "adopted": managed is None or released is not None,
                "sample": sample_document(adopted.sample),
                "warnings": notices_document(warnings),
            }
        )
    elif released is not None:
        echo_wrapped(f"Topic {topic} is under management again, with {_placed(adopted.layout)}")
    elif managed:
        echo_wrapped(f"Topic {topic} is under management already, with {adopted.layout.count} partitions")
    else:
        echo_wrapped(f"Topic {topic} is under management now, with {_placed(adopted.layout)}")
        echo_wrapped(f"Looked at {adopted.sample}")
        show_notices(warnings)


@topics.command(short_help="Change a topic's settings that its timeline keeps.")
@_topic_option
@_config_option
@_dry_run_option
@output_option
@connection_options(timeout=30)
def alter(connection: Connection, topic: str, config: Sequence[str], dry_run: bool, output: str) -> None:
    """Change settings of a managed topic that its timeline keeps; those that are not named stay.

    They are enable.ordered.delivery, keyorder.view.age.ms, delete.topic.partition.enable and
    delete.topic.partition.interval.delay.ms. A strategy of compaction is changed by `keyorder compact set-strategy`, all
    else by Kafka's own tools.
    """
    if not config:
        raise click.UsageError("Give at least one --config NAME=VALUE.")
    settings = settings_of_existing(pairs(config, "--config"))
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        timeline = under_management(admin, topic)
        changes = altered(timeline, settings) != timeline
        if timeline.change is not None:
            raise ChangeOpenError(topic, timeline.change)
        if not dry_run:
            after = admin.alter(topic, settings)
    if output == "json":
        if dry_run:
            emit_json({"dry_run": True, "topic": topic, "settings": settings, "changed": changes})
        else:
            emit_json({**description_document(after), "changed": changes})
        return
    said = ", ".join(f"{name}={value}" for name, value in settings.items())
    what = ("Would set" if dry_run else "Set") if changes else "Nothing to change:"
    echo_wrapped(f"{what} {said} for topic {topic}")


@topics.command(short_help="Show a topic's layout, epochs, change, writers and gates.")
@_topic_option
@click.option("--group", "groups", multiple=True, help="Whose gates to show; repeatable. [default: all that read it]")
@click.option(
    "--records",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="How many of each partition's newest records are searched for misplaced records and stock producers; 0: none.",
)
@output_option
@connection_options(timeout=30)
def describe(connection: Connection, topic: str, groups: Sequence[str], records: int, output: str) -> None:
    """Show a topic's layout, epochs and cuts, an open change, who writes, misplaced records, and the gates of its groups."""
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        description = admin.describe(topic, groups or None, records)
    if output == "json":
        emit_json(description_document(description))
    else:
        show_description(description)


@topics.command()
@_topic_option
@click.option("--confirm", "confirmed", default=None, metavar="TOPIC", help="The topic's name again: do not ask.")
@click.option("--if-exists", is_flag=True, help="Do nothing when there is no such topic.")
@_dry_run_option
@output_option
@connection_options(timeout=30)
def delete(
    connection: Connection, topic: str, confirmed: str | None, if_exists: bool, dry_run: bool, output: str
) -> None:
    """Delete a topic with all its records. Its timeline stays until a topic of that name is created or adopted again."""
    found = _exists(connection, topic)
    if not found and not if_exists:
        raise TopicNotFoundError(topic)
    if found and not dry_run:
        confirm(topic, confirmed, [f"All records of topic {topic} will be deleted."])
        with TopicAdmin(connection.config) as admin:
            admin.delete(topic, timeout=connection.request_timeout)
    if output == "json":
        emit_json({"dry_run": dry_run, "topic": topic, "deleted": found and not dry_run})
    elif not found:
        echo_wrapped(f"Topic {topic} does not exist: nothing was done")
    else:
        echo_wrapped(f"{'Would delete' if dry_run else 'Deleted'} topic {topic}")


@topics.command("list")
@output_option
@connection_options(timeout=30)
def list_(connection: Connection, output: str) -> None:
    """List the topics under management."""
    client = connection.reach()
    with TopicAdmin(connection.config) as admin:
        unreadable: dict[str, OrderError] = {}
        managed = admin.topics(unreadable)
    names = cluster_metadata(client, connection.bootstrap_servers).topics
    found = [
        {
            "topic": name,
            "topic_id": timeline.topic_id,
            "layout": layout_document(timeline.layout),
            "epoch": timeline.newest.number,
            "ordered": timeline.ordered,
            "released": timeline.released,
            "changing": timeline.change is not None,
            "exists": name in names,
        }
        for name, timeline in sorted(managed.items())
    ]
    rows: list[tuple[object, ...]] = [
        (
            name,
            t.layout.initial,
            t.layout.count,
            t.newest.number,
            _state(name in names, t),
        )
        for name, t in sorted(managed.items())
    ]
    rows += [(name, None, None, None, "unreadable") for name in sorted(unreadable)]
    document = {"topics": found, "unreadable": unreadable_document(unreadable)}
    emit(output, document, ("topic", "initial", "partitions", "epoch", "state"), rows)
    if output == "table":
        warn_of_unreadable(unreadable)


def _exists(connection: Connection, topic: str) -> bool:
    return topic in cluster_metadata(connection.reach(), connection.bootstrap_servers, connection.timeout).topics


def _already_managed(admin: TopicAdmin, topic: str, identity: TopicIdentity, again: bool) -> Timeline | None:
    """The timeline that an adoption finds; None where it makes a new one, `again` for a topic that was made anew.

    Raises IdentityMismatchError where it was made anew and nobody says so.
    """
    timeline = admin.managed(topic)
    if timeline is None or (again and timeline.topic_id != identity.topic_id):
        return None
    timeline.check_identity(identity.topic_id, identity.cluster_id)
    return timeline


def _placed(layout: Layout) -> str:
    return f"{layout.count} partitions, keys placed by {layout.hash}"


def _state(exists: bool, timeline: Timeline) -> str:
    if not exists:
        return "deleted"
    if timeline.released is not None:
        return "released"
    if timeline.change is not None:
        return "changing"
    return "ordered" if timeline.ordered else "ordered delivery off"


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
    except FutureTimeout as raised:
        raise BrokerUnreachableError(servers, f"create topic {topic}") from raised


for _command in (plan, expand, shrink):
    topics.add_command(_command)
