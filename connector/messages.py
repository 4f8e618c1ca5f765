"""Where a message lies. The client library's stubs allow None everywhere; a fetched message always has a place."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Message

Place = tuple[str, int]
Headers = list[tuple[str, bytes | None]]


def place_of(message: Message) -> Place:
    """(topic, partition) of a fetched message or a partition's event."""
    return cast(Place, (message.topic(), message.partition()))


def offset_of(message: Message) -> int:
    """The offset of a fetched message or a partition's event."""
    return cast(int, message.offset())


def key_of(message: Message) -> bytes | None:
    """A fetched message's key as bytes."""
    key = message.key()
    return key.encode() if isinstance(key, str) else key
