"""What scaling goes by: a topic's measured load, and the policy that an operator wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite

from ..errors import ConfigError

STEPS = ("fit", "multiple", "double")


@dataclass(frozen=True, slots=True)
class GroupLag:
    """records: written and not yet committed by the group. consumed_per_s: how fast its commits advance."""

    records: int
    consumed_per_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of one topic.

    records, bytes: per second, by partition; bytes is None where they are not measured. groups: lag by group.
    """

    records: Mapping[int, float]
    bytes: Mapping[int, float] | None = None
    groups: Mapping[str, GroupLag] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """When to change the count, and how far. Rates are per partition and second; durations are in seconds.

    max_*: above it a partition asks for growth. min_*: the topic may shrink when no partition is above it.
    max_lag: records that one of `groups` may be behind; None: lag never counts.
    hot_window_s, cold_window_s: how long a reason must have held. cooldown_*: quiet time after a change, either way.
    step: which counts growth and shrink may choose. `fit`: any. `multiple`: of the initial count. `double`: even ones.
    min_partitions itself is always among them.
    headroom: the part of a limit that a change leaves free. skew_factor: how many times the typical load of its share
    a partition counts at most. sample_s: time between two measurements. accept_stock_writers: change the count although
    producers without keyorder write the topic, or nobody can tell.

    Raises ConfigError, which names the field.
    """

    max_records_per_s: float | None = 10_000.0
    min_records_per_s: float | None = 1_000.0
    max_bytes_per_s: float | None = None
    min_bytes_per_s: float | None = None
    max_lag: float | None = None
    groups: tuple[str, ...] = ()
    hot_window_s: float = 60.0
    cold_window_s: float = 300.0
    cooldown_after_growth_s: float = 120.0
    cooldown_after_shrink_s: float = 300.0
    min_partitions: int = 1
    max_partitions: int = 64
    step: str = "fit"
    headroom: float = 0.2
    skew_factor: float = 2.0
    sample_s: float = 10.0
    accept_stock_writers: bool = False

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in ("groups", "step", "accept_stock_writers"):
                _check_number(each.name, value, optional="None" in str(each.type), whole="int" in str(each.type))
        if not isinstance(self.accept_stock_writers, bool):
            wrong = f"{self.accept_stock_writers!r} is neither true nor false"
            raise ConfigError("accept_stock_writers", wrong, "write one of them")
        if self.step not in STEPS:
            raise ConfigError("step", f"{self.step!r} is none of {', '.join(STEPS)}", "write one of them")
        if self.min_partitions < 1:
            raise ConfigError("min_partitions", f"a topic cannot have {self.min_partitions}", "write 1 or more")
        if self.max_partitions < self.min_partitions:
            raise ConfigError("max_partitions", f"{self.max_partitions} is below min_partitions", "raise it")
        if self.headroom >= 1:
            raise ConfigError("headroom", f"{self.headroom} leaves nothing", "write a part below 1, such as 0.2")
        if self.skew_factor < 1:
            raise ConfigError("skew_factor", f"{self.skew_factor} would count less than is typical", "write 1 or more")
        if self.sample_s <= 0:
            raise ConfigError("sample_s", "a rate needs time between two measurements", "write a positive number")
        if not all(isinstance(group, str) and group for group in self.groups):
            raise ConfigError("groups", f"{self.groups!r} is no list of names", "write the groups' names")
        if self.max_lag is not None and not self.groups:
            raise ConfigError("max_lag", "it is a group's lag, and no group is named", "name some in groups")
        for what in ("records", "bytes"):
            _check_pair(what, getattr(self, f"min_{what}_per_s"), getattr(self, f"max_{what}_per_s"), self.headroom)
        if self.max_records_per_s is None and self.max_bytes_per_s is None and self.max_lag is None:
            raise ConfigError("max_records_per_s", "no limit is set, so nothing would be done", "set one max_*")


def _check_number(name: str, value: object, optional: bool, whole: bool) -> None:
    if value is None and optional:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value >= 0
    if not number or (whole and not isinstance(value, int)):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(name, f"{value!r} is not {kind} of 0 or more", f"write {kind}")


def _check_pair(what: str, least: float | None, most: float | None, headroom: float) -> None:
    if least is None:
        return
    setting = f"min_{what}_per_s"
    if most is None:
        raise ConfigError(setting, f"a shrink needs max_{what}_per_s, which it must not reach", "set both")
    if least > (1 - headroom) * most / 2:
        raise ConfigError(
            setting,
            f"two partitions at {least:g} would make one that is too near to max_{what}_per_s {most:g}",
            f"write {(1 - headroom) * most / 2:g} or less",
        )
