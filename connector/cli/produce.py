"""`keyorder produce`: lines of standard input as records, each key in order whatever the topic's count does meanwhile."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO

import click
from confluent_kafka import KafkaError, Message

from ...partitioner.errors import KafkaOperationError, UsageError
from ..config import JUST_MADE
from ..metadata import identify
from ..producing.producer import OrderedProducer
from .connecting import Connection, connection_options, pairs
from .main import exit_code
from .output import emit_json, error_document, output_option


class _Outcome:
    """How the records fared."""

    def __init__(self) -> None:
        self.acknowledged = self.failed = 0
        self.first_error = ""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1
            self.first_error = self.first_error or f"{error.name()}: {error.str()}"


class _Lines(click.File):
    """A file, or standard input for `-`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does, which raises RuntimeError where standard input is closed."""
        if value == "-" and sys.stdin is None:
            raise click.UsageError("standard input is closed: name a FILE.", ctx)
        return super().convert(value, param, ctx)


@click.command(short_help="Write each line of a file as a record.")
@click.option("--topic", required=True, help="The topic; one that is not managed yet is adopted.")
@click.option("--key-separator", default=None, help="The text between key and value. [default: records have no key]")
@click.option("--null-marker", default=None, help="A value that stands for null, a tombstone.")
@click.option("--producer-property", multiple=True, metavar="NAME=VALUE", help="A setting of the producer.")
@click.argument("file", type=_Lines("rb"), default="-")
@output_option
@connection_options(timeout=60)
def produce(
    connection: Connection,
    topic: str,
    key_separator: str | None,
    null_marker: str | None,
    producer_property: tuple[str, ...],
    file: BinaryIO,
    output: str,
) -> None:
    """Write each line of FILE (standard input by default) as a record and wait until all are acknowledged.

    Exit code 1 when a record is not acknowledged; 2 when there is no such topic, or when a line has no separator. The lines
    before it are written.
    """
    if key_separator == "":
        raise click.UsageError("--key-separator is empty: give the text between key and value, or leave it out.")
    # A misspelt name is told at once, and where no line comes in too.
    awaited = min(connection.timeout, JUST_MADE)
    identify(connection.reach(), topic, connection.bootstrap_servers, just_made=awaited, ask_controller=True)
    config = {**connection.config, **pairs(producer_property, "--producer-property")}
    outcome = _Outcome()
    with OrderedProducer(config) as producer:
        for number, line in enumerate(file, 1):
            key, value = _record(line.rstrip(b"\r\n"), number, key_separator, null_marker)
            _send(producer, topic, key, value, outcome)
        producer.flush()
    error: KafkaOperationError | None = None
    if outcome.failed:
        error = KafkaOperationError(f"write {outcome.failed} records to topic {topic}", outcome.first_error)
    if output == "json":
        document: dict[str, Any] = {"topic": topic, "acknowledged": outcome.acknowledged, "failed": outcome.failed}
        if error is not None:  # in this document: one that is raised would be a second one
            document |= error_document(type(error).__name__, str(error), error.retriable)
        emit_json(document)
    else:
        click.echo(f"{outcome.acknowledged} record{'' if outcome.acknowledged == 1 else 's'} acknowledged")
    if error is not None:
        if output != "json":
            raise error
        click.get_current_context().exit(exit_code(error))


def _record(line: bytes, number: int, separator: str | None, null: str | None) -> tuple[bytes | None, bytes | None]:
    key: bytes | None = None
    value: bytes | None = line
    if separator is not None:
        key, found, value = line.partition(separator.encode())
        if not found:
            raise UsageError(f"line {number} has no key separator {separator!r}: correct the line or --key-separator")
    return key, None if null is not None and value == null.encode() else value


def _send(producer: OrderedProducer, topic: str, key: bytes | None, value: bytes | None, outcome: _Outcome) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=outcome)
        except BufferError:
            producer.poll(0.5)
        else:
            producer.poll(0)
            return
