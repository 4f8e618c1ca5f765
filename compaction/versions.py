"""A record as a version of its key, and the total order of a key's versions over all partitions of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..connector.messages import Headers
from ..partitioner.routing import Routing
from .strategy import ABSENT, Rank


class Version(NamedTuple):
    """One record of a key. Two versions of one key compare by their rank, the first three fields.

    version: what it competes with; `ABSENT` when it has nothing. epoch: of the layout under which its key lived in
    `partition`, negative for a record that lies where its key never lived. value: None is a tombstone.
    """

    version: int
    epoch: int
    offset: int
    partition: int
    timestamp: int
    headers: Headers | None
    value: bytes | None

    @property
    def rank(self) -> Rank:
        """(version, epoch, offset): the highest survives."""
        return self[:3]

    @property
    def versioned(self) -> bool:
        """Whether it has a version at all; under the offset strategy all have."""
        return self.version != ABSENT

    def size(self) -> int:
        """Bytes of the value and the headers."""
        headers = sum(len(name) + len(data or b"") for name, data in self.headers or ())
        return len(self.value or b"") + headers


class Entry(NamedTuple):
    """What is known of a key: its highest version, and (epoch, offset) of its newest record, which cleaners keep."""

    best: Version
    last_epoch: int
    last_offset: int

    @property
    def displaced(self) -> bool:
        """Whether the newest record is not the highest version: a stock cleaner will drop the wrong one."""
        return self.last_offset != self.best.offset or self.last_epoch != self.best.epoch

    def merged(self, other: Entry) -> Entry:
        """Both taken together. Any grouping and any order give the same."""
        best = max(self.best, other.best)
        last = max(self[1:], other[1:])
        return Entry(best, *last)


def place_epoch(routing: Routing, key: bytes, partition: int, offset: int) -> int:
    """The epoch with which a record at this place competes.

    One that lies where its key never lived (a foreign partitioner's) ranks below all that lie at a home; such ones of two
    partitions have different numbers, so that the order stays total. It never changes as later epochs become known,
    provided that the timeline held every epoch below `offset` when it was asked first.
    """
    stay = routing.stay(key, partition, offset)
    return -1 - partition if stay is None else stay


def positions_text(positions: Mapping[int, int]) -> dict[str, int]:
    """Positions by partition, as JSON wants its keys."""
    return {str(partition): offset for partition, offset in sorted(positions.items())}
