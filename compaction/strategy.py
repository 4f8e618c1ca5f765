"""Which of a key's records survives: KIP-280's total order, by offset, timestamp or header.

One comparator serves the library, the Spark job and the compacted view, since a reader that applies another strategy
than the compaction keeps other records. Ties go to the later layout epoch, then to the higher offset: after a move a key
has copies in two partitions, and offsets of two partitions cannot be compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ..connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, blank_header, chosen_strategy
from ..partitioner.errors import ConfigError

_LOGGER = logging.getLogger("keyorder.compaction")
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


def encode_version(version: int) -> bytes:
    """The header value of a version, as producers have to write it. Raises OverflowError beyond 64 bits."""
    return version.to_bytes(8, "big", signed=True)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How records of one key compete.

    header: the header's name, for the header strategy alone.
    positive_only: count only versions above 0, as the public implementation of the KIP does; else any signed long.

    Raises ConfigError for a header strategy without a name.
    """

    kind: StrategyKind = StrategyKind.OFFSET
    header: str = ""
    positive_only: bool = False

    def __post_init__(self) -> None:
        if self.kind is StrategyKind.HEADER and not self.header.strip():
            raise ConfigError(
                HEADER_CONFIG,
                "the header strategy needs the name of a header",
                f"set {HEADER_CONFIG} to the header that your producers write, or {STRATEGY_CONFIG} to offset",
            )

    @classmethod
    def parse(cls, name: str | None, header: str | None = None) -> Strategy:
        """From the two settings, in any case; an empty or absent strategy is offset. Raises ConfigError.

        `header` without a header name acts as offset (KIP-280), and a warning is logged.
        """
        return cls.of({STRATEGY_CONFIG: name or "", HEADER_CONFIG: header or ""})

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Strategy:
        """From a topic's settings; as `parse`."""
        if blank_header(settings):
            _LOGGER.warning("%s=header without %s acts as offset: name the header", STRATEGY_CONFIG, HEADER_CONFIG)
        kind, header = chosen_strategy(settings)
        return cls(StrategyKind(kind), header)

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


def survivor(ranks: Iterable[Rank]) -> Rank:
    """The highest rank. Raises ValueError when there is none."""
    return max(ranks)


def _last(headers: Headers | None, name: str) -> bytes | None:
    found: bytes | None = None
    for header, value in headers or ():
        if header == name:
            found = value
    return found
