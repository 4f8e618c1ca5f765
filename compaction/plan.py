"""What a compaction finds and does, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..connector.compaction_settings import Finding
from .strategy import Strategy


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A dry run. Bytes are those of keys, values and headers; durations are seconds.

    keys: with a value. tombstones: keys whose highest version is one. appends: keys whose last record is not their
    highest version, each of which is written once more. seconds: what reading took. lag: `min.compaction.lag.ms`.
    findings: settings that work against it; fatal ones refuse a run.
    """

    topic: str
    strategy: Strategy
    managed: bool
    records: int
    bytes: int
    keys: int
    tombstones: int
    appends: int
    append_bytes: int
    malformed: int
    unversioned: int
    seconds: float
    lag: float
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class CompactionReport:
    """What a pass did. raced: appends that had to be followed by a higher version written meanwhile.

    unappendable: winners that were left as they are, by the last look: one without a timestamp under the timestamp strategy
    (a broker would give it a newer one), and one that is larger than the topic's `max.message.bytes`.
    """

    topic: str
    strategy: Strategy
    records: int = 0
    bytes: int = 0
    keys: int = 0
    tombstones: int = 0
    appends: int = 0
    append_bytes: int = 0
    transactions: int = 0
    raced: int = 0
    unappendable: int = 0
    seconds: float = 0.0
    findings: tuple[Finding, ...] = field(default_factory=tuple)
