"""Which of a key's records survives, as a setting: KIP-280's strategies by offset, timestamp or header.

The comparator itself is `partitioner/version_order.py`, since re-homing has to choose by it too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, blank_header, chosen_strategy
from ..partitioner.errors import ConfigError
from ..partitioner.version_order import ABSENT, Headers, Rank, StrategyKind, VersionOrder, header_version, malformed

__all__ = [
    "ABSENT",
    "Headers",
    "Rank",
    "Strategy",
    "StrategyKind",
    "encode_version",
    "header_version",
    "malformed",
    "survivor",
]

_LOGGER = logging.getLogger("keyorder.compaction")


def encode_version(version: int) -> bytes:
    """The header value of a version, as producers have to write it. Raises OverflowError beyond 64 bits."""
    return version.to_bytes(8, "big", signed=True)


@dataclass(frozen=True, slots=True)
class Strategy(VersionOrder):
    """How records of one key compete.

    header: the header's name, for the header strategy alone.
    positive_only: count only versions above 0, as the public implementation of the KIP does; else any signed long.

    Raises ConfigError for a header strategy without a name.
    """

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


def survivor(ranks: Iterable[Rank]) -> Rank:
    """The highest rank. Raises ValueError when there is none."""
    return max(ranks)
