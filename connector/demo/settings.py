"""What a demonstration is asked to do, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ...partitioner.errors import ConfigError

DEFAULT_COUNTS = (4, 6, 9, 16)
DEFAULT_SECONDS = 45.0
HOT_SHARE = 0.25
_MOST_PARTITIONS = 200
_LEAST_RATE = 200
_MOST_SECONDS = 1_800.0


def parse_counts(text: str) -> tuple[int, ...]:
    """Partition counts written as "4,6,9,16". Raises ConfigError for anything but numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError("--partitions", f"{text!r} is not a list of numbers", "write it as 4,6,9,16") from None


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One demonstration.

    counts: the partition counts that the topic goes through, growing. seconds: how long the load lasts.
    rate: records a second on each topic. keys: how many keys are written at least once. writers, members: processes.
    bootstrap_servers: an existing cluster; None for brokers of its own. work_ms: what a consumer spends on a record.

    Raises ConfigError, which names the option that is wrong.
    """

    report_dir: Path
    counts: tuple[int, ...] = DEFAULT_COUNTS
    seconds: float = DEFAULT_SECONDS
    seed: int = 1
    brokers: int = 1
    bootstrap_servers: str | None = None
    rate: int = 2_400
    keys: int = 24_000
    writers: int = 3
    members: int = 3
    work_ms: float = 0.6

    def __post_init__(self) -> None:
        if len(self.counts) < 2:
            raise ConfigError("--partitions", f"{len(self.counts)} count is no change", "give at least two, as 4,6")
        if self.counts[0] < 1 or any(b <= a for a, b in pairwise(self.counts)):
            shown = ",".join(map(str, self.counts))
            raise ConfigError("--partitions", f"{shown} does not grow at every step", "give rising counts, as 4,6,9,16")
        if self.counts[-1] > _MOST_PARTITIONS:
            fix = f"{_MOST_PARTITIONS} partitions are the most that the picture can show"
            raise ConfigError("--partitions", f"{self.counts[-1]} is too much for one machine", fix)
        if not self.seconds >= self.least_seconds:  # also refuses what is no number
            problem = f"{self.seconds:g} is too short for {self.changes} change(s), a join and a kill"
            raise ConfigError("--seconds", problem, f"give at least {self.least_seconds:g}")
        if not self.seconds <= _MOST_SECONDS:
            problem = f"{self.seconds:g} is more than the checker can hold in memory"
            raise ConfigError("--seconds", problem, f"give at most {_MOST_SECONDS:g}")
        if self.rate < _LEAST_RATE:
            raise ConfigError("--rate", f"{self.rate} records a second is no load", f"give at least {_LEAST_RATE}")
        if self.keys < 1 or self.keys > self.cold_records:
            problem = f"{self.keys} keys cannot all be written in {self.seconds:g} s at {self.rate} records a second"
            raise ConfigError("--keys", problem, f"give at most {self.cold_records:.0f}")
        if self.brokers not in (1, 3):
            raise ConfigError("--brokers", f"{self.brokers} brokers cannot be had", "give 1 or 3")

    @property
    def changes(self) -> int:
        """How often the topic grows."""
        return len(self.counts) - 1

    @property
    def least_seconds(self) -> float:
        """The shortest load in which every change, the join and the kill have room."""
        return 5.0 + 5.0 * self.changes

    @property
    def cold_records(self) -> float:
        """How many records go to keys that are not hot."""
        return self.rate * self.seconds * (1 - HOT_SHARE)

    @property
    def records_per_key(self) -> float:
        """How many records a key that is not hot gets, on average."""
        return self.cold_records / self.keys
