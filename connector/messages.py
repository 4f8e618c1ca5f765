"""Where a message lies. The client library's stubs allow None everywhere; a fetched message always has a place."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Message, TopicPartition

Place = tuple[str, int]
Headers = list[tuple[str, bytes | None]]


def place_of(message: Message) -> Place:
    """(topic, partition) of a fetched message or a partition's event."""
    return cast(Place, (message.topic(), message.partition()))


def offset_of(message: Message) -> int:
    """The offset of a fetched message or a partition's event."""
    return cast(int, message.offset())


def with_words(
    topic: str, partition: int, offset: int, metadata: str | None, leader_epoch: int | None
) -> TopicPartition:
    """A place with what is said of it: the client library takes no None for either."""
    epoch = -1 if leader_epoch is None else leader_epoch
    if metadata is None:
        return TopicPartition(topic, partition, offset, leader_epoch=epoch)
    return TopicPartition(topic, partition, offset, metadata, epoch)


def key_of(message: Message) -> bytes | None:
    """A fetched message's key as bytes."""
    key = message.key()
    return key.encode() if isinstance(key, str) else key
