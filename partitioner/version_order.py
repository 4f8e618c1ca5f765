"""The total order of a key's versions: KIP-280's strategies, over all partitions that a key has lived in. Pure.

One comparator serves compaction, its readers and re-homing: who chooses by another order keeps another record. Ties go to
the later layout epoch, then to the higher offset: after a move a key has records in two partitions, and offsets of two
partitions cannot be compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from zlib import crc32

from .routing import Routing

#: The header of a compactor's copy: which record of which topic it was made of, and the checksum of its value.
COPY_HEADER = "keyorder-copy"
_COPY = re.compile(rb"([^:]*):(-?\d{1,10}):(\d{1,19}):(\d{1,10})")
ABSENT = -(2**63) - 1  # below every signed 64-bit version: a record with one wins over a record without

Headers = Sequence[tuple[str, bytes | None]]
Rank = tuple[int, int, int]


class StrategyKind(str, Enum):
    """KIP-280's strategies."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADER = "header"


def header_version(headers: Headers | None, name: str) -> int | None:
    """The version in a record's headers: 8 bytes, big-endian, signed; the last header of that name counts.

    None when there is none or when its length is not 8, which KIP-280 leaves open: such a record competes as one
    without a version, and a caller that counts them can ask `malformed`.
    """
    value = _last(headers, name)
    return int.from_bytes(value, "big", signed=True) if value is not None and len(value) == 8 else None


def malformed(headers: Headers | None, name: str) -> bool:
    """Whether the header that counts is there, but is no version."""
    named = [value for header, value in headers or () if header == name]
    return bool(named) and (named[-1] is None or len(named[-1]) != 8)


@dataclass(frozen=True, slots=True)
class VersionOrder:
    """How records of one key compete.

    header: the header's name, for the header strategy alone.
    positive_only: count only versions above 0, as the public implementation of the KIP does; else any signed long.
    """

    kind: StrategyKind = StrategyKind.OFFSET
    header: str = ""
    positive_only: bool = False

    def version(self, offset: int, timestamp: int, headers: Headers | None = None) -> int:
        """What a record competes with under this strategy; ABSENT when it has nothing."""
        if self.kind is StrategyKind.TIMESTAMP:
            return timestamp
        if self.kind is StrategyKind.OFFSET:
            return 0  # all equal: the epoch and the offset decide
        version = header_version(headers, self.header)
        return ABSENT if version is None or (self.positive_only and version <= 0) else version

    def rank(self, offset: int, timestamp: int, headers: Headers | None = None, epoch: int = 0) -> Rank:
        """(version, layout epoch, offset): of two records of a key the one with the higher rank survives."""
        return self.version(offset, timestamp, headers), epoch, offset


def copied_place(headers: Headers, topic_id: str, value: bytes | None) -> tuple[int, int] | None:
    """(epoch, offset) of the record that this one is a copy of; None for an original. The last header of the name counts."""
    found = None
    for name, data in headers:
        if name == COPY_HEADER:
            found = data
    return None if found is None else original_of(found, topic_id, crc32(value or b""))


def original_of(header: bytes, topic_id: str, checksum: int) -> tuple[int, int] | None:
    """What a copy's header says, if it is of this topic and of a value of this checksum: headers are data from anybody."""
    found = _COPY.fullmatch(header)
    if found is None or found[1] != topic_id.encode() or int(found[4]) != checksum:
        return None
    epoch, offset = int(found[2]), int(found[3])
    return (epoch, offset) if -(2**31) <= epoch < 2**31 and offset < 2**63 else None


def place_epoch(routing: Routing, key: bytes, partition: int, offset: int) -> int:
    """The epoch with which a record at this place competes.

    One that lies where its key never lived (a foreign partitioner's) ranks below all that lie at a home; such ones of two
    partitions have different numbers, so that the order stays total. It never changes as later epochs become known,
    provided that the timeline held every epoch below `offset` when it was asked first.
    """
    stay = routing.stay(key, partition, offset)
    return -1 - partition if stay is None else stay


def _last(headers: Headers | None, name: str) -> bytes | None:
    found: bytes | None = None
    for header, value in headers or ():
        if header == name:
            found = value
    return found
