"""A record as a version of its key, and the total order of a key's versions over all partitions of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from ..connector.messages import Headers
from ..partitioner.version_order import ABSENT, COPY_HEADER, Rank, copied_place, original_of, place_epoch

__all__ = [
    "COPY_HEADER",
    "Entry",
    "Last",
    "Version",
    "copied_place",
    "copy_header",
    "original_of",
    "place_epoch",
    "positions_text",
]


class Version(NamedTuple):
    """One record of a key. Two versions of one key compare by their rank, the first three fields.

    version: what it competes with; `ABSENT` when it has nothing. epoch: of the layout under which its key lived in
    `partition`, negative for a record that lies where its key never lived. value: None is a tombstone.

    A compactor's copy competes with the epoch and the offset of the record that it was made of, or it would win a tie
    against a record that was written between look and append.
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
        """Bytes of the value and the headers, a header counted as its name and 8 bytes."""
        size = 0 if self.value is None else len(self.value)
        for name, _ in self.headers or ():
            size += len(name) + 8
        return size


class Last(NamedTuple):
    """The newest record of a key, which stock cleaners keep: where it lies, and (epoch, offset) that it competes with."""

    epoch: int
    offset: int
    of_epoch: int
    of_offset: int


class Entry(NamedTuple):
    """What is known of a key: its highest version, and its newest record."""

    best: Version
    last: Last

    @property
    def displaced(self) -> bool:
        """Whether the newest record is not the highest version, nor a copy of it: a cleaner will drop the wrong one."""
        return self.last.of_offset != self.best.offset or self.last.of_epoch != self.best.epoch

    def merged(self, other: Entry) -> Entry:
        """Both taken together. Any grouping and any order give the same."""
        return Entry(other.best if other.best[:3] > self.best[:3] else self.best, max(self.last, other.last))


def copy_header(topic_id: str, version: Version) -> tuple[str, bytes]:
    """The header of a copy: which record of which topic it was made of, and the checksum of its value.

    An application that passes headers on, to this topic or another, does not make copies: the topic or the value differs.
    """
    text = f"{topic_id}:{version.epoch}:{version.offset}:{crc32(version.value or b'')}"
    return COPY_HEADER, text.encode()


def positions_text(positions: Mapping[int, int]) -> dict[str, int]:
    """Positions by partition, as JSON wants its keys."""
    return {str(partition): offset for partition, offset in sorted(positions.items())}
