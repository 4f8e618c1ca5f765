"""A record as produce() was given it, kept while it is held or until its fate is known."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from ...partitioner.routing import HINT_HEADER
from ...partitioner.writers.sending import Held, TopicSending

DeliveryCallback = Callable[[KafkaError | None, Message], None]
Headers = list[tuple[str, Any]] | dict[str, Any] | None
# What the client library counts for a record beside its bytes.
_OVERHEAD = 36


class Record:
    """What produce() was given, but for the key. taken: it was handed to the client library, or refused."""

    __slots__ = ("callback", "headers", "sending", "taken", "timestamp", "topic", "value")

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
        self.callback, self.timestamp = callback, timestamp
        # A copy: the application may use its own again before the record goes.
        self.headers = headers.copy() if isinstance(headers, dict | list) else headers
        self.taken = False


def row_failed(error: KafkaError | None, message: Message) -> None:
    """Stands where a callback would: the record is a row of produce_arrow, whose failures are kept for arrow_failures."""


def undelivered(held: Held[Record], error: KafkaError, now: float) -> Message:
    """The message that a callback is given for a record that was never sent, as the client library makes it."""
    record = held.record
    value = record.value.encode() if isinstance(record.value, str) else record.value
    return Message(
        topic=record.topic,
        key=held.key,
        value=value,
        error=error,
        timestamp=(0, -1),
        latency=max(0.0, now - held.since),
    )


def with_hint(headers: Headers, hint: bytes | None) -> list[tuple[str, Any]]:
    """The user's headers and the hint, if there is one; a header of that name from the user gives way in any case."""
    if headers is not None and not isinstance(headers, list | dict):
        return headers  # the client library says what is wrong with it
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    own = [pair for pair in pairs if pair[0] != HINT_HEADER]
    return own if hint is None else [*own, (HINT_HEADER, hint)]


def sendable_size(record: Record, key: bytes | None, hint: bytes | None, most: int) -> int:
    """The record's bytes as the client library counts them: what it would refuse at produce() is not held either.

    hint: the hint header that it may get. most: `message.max.bytes`.
    Raises KafkaException (too large), TypeError and OverflowError as the library does.
    """
    if not isinstance(record.value, bytes | str | None):
        raise TypeError(f"a bytes-like object is required, not '{type(record.value).__name__}'")
    if not -(2**63) <= operator.index(record.timestamp) < 2**63:
        raise OverflowError("int too big to convert")
    if record.headers is not None and not isinstance(record.headers, list | dict):
        kind = type(record.headers).__name__
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {kind}")
    pairs = record.headers.items() if isinstance(record.headers, dict) else record.headers or ()
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError("Headers are expected to be a list of (key, value) tuples")
    size = _OVERHEAD + _length(record.value) + len(key or b"")
    for name, value in with_hint(record.headers, hint):
        if not isinstance(name, str | bytes):
            raise TypeError(f"expected header key to be a string, not {type(name).__name__}")
        if not isinstance(value, str | bytes | None):
            kind = type(value).__name__
            raise TypeError(f"expected header value to be None, binary, or unicode string, not {kind}")
        size += _prefixed(_length(name)) + _prefixed(_length(value))
    if size > most:
        raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    return size


def _length(data: str | bytes | None) -> int:
    return 0 if data is None else len(data.encode()) if isinstance(data, str) else len(data)


def _prefixed(length: int) -> int:
    """Bytes of a string behind its length as a zigzag varint."""
    return length + max(1, -(-(length * 2).bit_length() // 7))
