"""`keyorder consume`: records of a topic on standard output, each key in order across layout changes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import click
from confluent_kafka import KafkaError, KafkaException, Message

from ...partitioner.errors import TopicNotFoundError
from .. import clock
from ..admin_link import AdminLink
from ..consuming.consumer import OrderedConsumer
from ..metadata import cluster_metadata
from .connecting import Connection, connection_options, pairs
from .output import echo_wrapped, fields_in_json, in_json, is_text, output_option
from .seconds import Seconds

CONSOLE_GROUP = "keyorder-console-"


@click.command(short_help="Print records as they arrive.")
@click.option("--topic", required=True, help="The topic.")
@click.option("--group", default=None, help="The consumer group. [default: a temporary one, deleted at the end]")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the log's beginning if the group has no offsets. [default: its end]",
)
@click.option("--max-messages", type=click.IntRange(min=1), default=None, help="Stop after this many records.")
@click.option(
    "--idle-timeout",
    type=Seconds(),
    default=None,
    help="Stop after this many seconds without a record. [default: never]",
)
@click.option("--print-key", is_flag=True, help="Print key and separator before the value. JSON always has the key.")
@click.option("--key-separator", default="\t", help="Between key and value. [default: a tab]")
@click.option("--print-place", is_flag=True, help="Print partition and offset before each record.")
@click.option("--consumer-property", multiple=True, metavar="NAME=VALUE", help="A setting of the consumer.")
@output_option
@connection_options(timeout=30)
def consume(
    connection: Connection,
    topic: str,
    group: str | None,
    from_beginning: bool,
    max_messages: int | None,
    idle_timeout: float | None,
    print_key: bool,
    key_separator: str,
    print_place: bool,
    consumer_property: tuple[str, ...],
    output: str,
) -> None:
    """Print records as they arrive, until --max-messages, --idle-timeout or Ctrl-C; JSON has one object per line."""
    admin = connection.reach()
    if topic not in cluster_metadata(admin, connection.bootstrap_servers, connection.timeout).topics:
        raise TopicNotFoundError(topic)
    name = group or f"{CONSOLE_GROUP}{uuid.uuid4().hex[:8]}"
    config: dict[str, Any] = {
        **connection.config,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "group.id": name,
        **pairs(consumer_property, "--consumer-property"),
    }

    def show(message: Message) -> None:
        if output == "json":
            click.echo(json.dumps(document_of(message)))
        else:
            click.echo(_line(message, print_key, key_separator, print_place))

    try:
        with OrderedConsumer(config) as consumer:
            consumer.subscribe([topic])
            _print_records(consumer, show, max_messages, idle_timeout)
    finally:
        if group is None:
            # Closed gates open by commits, so even this group has some: left behind, they would show as its lag.
            _delete(AdminLink(config), name)


def _print_records(
    consumer: OrderedConsumer, show: Callable[[Message], None], most: int | None, idle_timeout: float | None
) -> None:
    printed, heard = 0, clock.now()
    while most is None or printed < most:
        message = consumer.poll(0.2)
        if message is None:
            if idle_timeout is not None and clock.now() - heard >= idle_timeout:
                return
            continue
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        heard = clock.now()
        printed += 1
        show(message)


def _delete(cluster: AdminLink, group: str) -> None:
    try:
        cluster.delete_group(group, 10)
    except KafkaException as raised:
        if raised.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            echo_wrapped(f"The group {group} of this run could not be deleted: {raised.args[0].str()}", err=True)


def document_of(message: Message) -> dict[str, Any]:
    """A record as JSON; `encoding` names the fields, and the headers, that are base64, since they are not UTF-8."""
    found: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
    }
    parts, encoding = fields_in_json({"key": _given(message.key()), "value": _given(message.value())})
    found |= parts
    given: Any = message.headers() or []
    headers = [(name, _given(value)) for name, value in given]
    # By name: of a name that comes twice either all values are base64, or none.
    binary = {name: "base64" for name, value in headers if not is_text(value)}
    found["headers"] = [[name, in_json(value, name not in binary)] for name, value in headers]
    if binary:
        encoding["headers"] = binary
    if encoding:
        found["encoding"] = encoding
    return found


def _line(message: Message, print_key: bool, separator: str, print_place: bool) -> bytes:
    key, value = message.key(), message.value()
    parts: list[bytes] = []
    if print_place:
        parts.append(f"{message.partition()}:{message.offset()}{separator}".encode())
    if print_key:
        parts.append(_bytes(key) + separator.encode())
    return b"".join(parts) + _bytes(value)


def _bytes(data: Any) -> bytes:
    given = _given(data)
    return b"null" if given is None else given


def _given(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else None if data is None else bytes(data)
