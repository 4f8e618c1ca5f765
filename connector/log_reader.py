"""Reading ranges of a log: leaders are found first, the ends were asked for, and no error passes for an empty log."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, Message, TopicPartition

from ..partitioner.errors import BrokerUnreachableError
from . import clock
from .kafka_errors import ends_partition
from .messages import Place, offset_of, place_of
from .metadata import prefetch_metadata

_BATCH, _TURN = 500, 0.1


def read_ranges(
    client: Consumer,
    ranges: Mapping[Place, tuple[int, int]],
    bootstrap_servers: str,
    timeout: float,
    known: bool = False,
) -> dict[Place, list[Message]]:
    """The records of `ranges`, (offset to begin at, offset to end before), through a client that is assigned nothing else.

    client: with `enable.partition.eof`, since a range may end with transaction markers. timeout: seconds without progress.
    known: as of `ends_partition`.
    Raises BrokerUnreachableError, and what no second try fixes.
    """
    found: dict[Place, list[Message]] = {place: [] for place in ranges}
    left = {place: end for place, (_, end) in ranges.items() if end > 0}
    if not left:
        return found
    for topic in sorted({topic for topic, _ in left}):
        prefetch_metadata(client, topic)
    client.assign([TopicPartition(*place, ranges[place][0]) for place in left])
    try:
        deadline = clock.now() + timeout
        while left:
            first = client.poll(_TURN)
            for message in [] if first is None else [first, *client.consume(_BATCH, 0)]:
                if _take(message, left, found, bootstrap_servers, known):
                    deadline = clock.now() + timeout
            if left and clock.now() >= deadline:
                names = ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(left))
                raise BrokerUnreachableError(bootstrap_servers, f"read {names} to the end")
    finally:
        client.unassign()
    return found


def _take(
    message: Message, left: dict[Place, int], found: dict[Place, list[Message]], bootstrap_servers: str, known: bool
) -> bool:
    """Whether the message belongs to a range that is still read."""
    error = message.error()
    if error is not None and not ends_partition(error, f"topic {message.topic()}", bootstrap_servers, known):
        return False
    place, offset = place_of(message), offset_of(message)
    end = left.get(place)
    if end is None:
        return False
    if error is None and offset < end:
        found[place].append(message)
    # An event names the offset that comes next, a record its own.
    if offset + (error is None) >= end:
        del left[place]
    return True
