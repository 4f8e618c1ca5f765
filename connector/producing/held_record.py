"""A record as produce() was given it, kept while it is held or until its fate is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message

from ...partitioner.routing import HINT_HEADER
from ...partitioner.writers.sending import Held, TopicSending

DeliveryCallback = Callable[[KafkaError | None, Message], None]
Headers = list[tuple[str, Any]] | dict[str, Any] | None


class Record:
    """What produce() was given, but for the key."""

    __slots__ = ("callback", "headers", "sending", "timestamp", "topic", "value")

    def __init__(
        self,
        topic: str,
        sending: TopicSending[Record],
        value: Any,
        callback: DeliveryCallback | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        self.topic, self.sending, self.value = topic, sending, value
        self.callback, self.timestamp, self.headers = callback, timestamp, headers


def row_failed(error: KafkaError | None, message: Message) -> None:
    """Stands where a callback would: the record is a row of produce_arrow, whose failures are kept for arrow_failures."""


def undelivered(held: Held[Record]) -> Message:
    """The message that a callback is given for a record that was never sent."""
    record = held.record
    return Message(topic=record.topic, key=held.key, value=record.value, headers=None, error=None)


def with_hint(headers: Headers, hint: bytes) -> list[tuple[str, Any]]:
    """The user's headers and the hint; a header of that name from the user gives way."""
    if not headers:
        return [(HINT_HEADER, hint)]
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [*(pair for pair in pairs if pair[0] != HINT_HEADER), (HINT_HEADER, hint)]
