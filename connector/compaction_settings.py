"""KIP-280's settings of a topic: what they may be, and what of the broker's own settings works against them. Pure.

The two settings of the KIP are kept in the control topic, since a stock broker refuses names that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..partitioner.errors import ConfigError

STRATEGY_CONFIG = "compaction.strategy"
HEADER_CONFIG = "compaction.strategy.header"
# Where each partition ended when the strategy was last changed: a JSON object {partition: offset}. Written by keyorder.
SWITCHED_CONFIG = "compaction.strategy.switched"
STRATEGIES = ("offset", "timestamp", "header")

_DAY_MS = 86_400_000
_FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting that does not fit. fatal: versions would be lost, not merely kept too long or too short."""

    setting: str
    problem: str
    fix: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}; {self.fix}"


def chosen_strategy(settings: Mapping[str, str]) -> tuple[str, str]:
    """(strategy, header name) of a topic's settings, in any case; the name is empty except for `header`.

    Nothing means `offset`. `header` without a header name means `offset` too, as in the KIP; `blank_header` tells it
    apart. Raises ConfigError for a strategy that there is not.
    """
    given = settings.get(STRATEGY_CONFIG) or ""
    kind = given.strip().lower() or "offset"
    if kind not in STRATEGIES:
        raise ConfigError(STRATEGY_CONFIG, f"{given!r} is no strategy", f"use one of {', '.join(STRATEGIES)}")
    header = (settings.get(HEADER_CONFIG) or "").strip()
    if kind != "header":
        return kind, ""
    return (kind, header) if header else ("offset", "")


def blank_header(settings: Mapping[str, str]) -> bool:
    """Whether the strategy is `header` without a header name: it acts as `offset`, which deserves a warning."""
    kind = (settings.get(STRATEGY_CONFIG) or "").strip().lower()
    return kind == "header" and not (settings.get(HEADER_CONFIG) or "").strip()


def check_compaction(topic_config: Mapping[str, str], settings: Mapping[str, str]) -> list[Finding]:
    """What of a topic's configuration works against compaction by version, fatal findings first.

    topic_config: the broker's, defaults included. settings: those of the control topic. Milliseconds throughout.
    A topic that is not compacted and asks for no strategy has none. Raises ConfigError for an unknown strategy.

    Source: KIP-280, "Recommendations": `segment.ms` and `max.compaction.lag.ms` below `delete.retention.ms`.
    """
    kind, _ = chosen_strategy(settings)
    found: list[Finding] = []
    if blank_header(settings):
        found.append(
            Finding(
                HEADER_CONFIG, "the strategy is header, but no header is named: it acts as offset", "name the header"
            )
        )
    policy = topic_config.get("cleanup.policy", "delete")
    if "compact" not in policy:
        if kind != "offset":
            problem = f"it is {policy}: retention takes versions, high or low"
            found.append(Finding("cleanup.policy", problem, "set it to compact", fatal=True))
        return found
    found += _expiry(topic_config)
    if kind != "offset":
        found += _winners(topic_config, kind)
    return sorted(found, key=lambda finding: not finding.fatal)


def _expiry(config: Mapping[str, str]) -> list[Finding]:
    retention = _number(config, "delete.retention.ms", _DAY_MS)
    why = f"delete.retention.ms is {retention}, so a tombstone may go before the values that it deletes are compacted"
    return [
        Finding(name, f"it is {_shown(value)} and {why}", f"set it below {retention}")
        for name, value in (
            ("segment.ms", _number(config, "segment.ms", 7 * _DAY_MS)),
            ("max.compaction.lag.ms", _number(config, "max.compaction.lag.ms", _FOREVER)),
        )
        if value >= retention
    ]


def _winners(config: Mapping[str, str], kind: str) -> list[Finding]:
    found: list[Finding] = []
    if _number(config, "min.compaction.lag.ms", 0) <= 0:
        found.append(
            Finding(
                "min.compaction.lag.ms",
                "it is 0, so the broker may drop the highest version before it has been written again",
                "set it well above the time that `keyorder compact run` takes",
                fatal=True,
            )
        )
    append_time = config.get("message.timestamp.type", "CreateTime") == "LogAppendTime"
    if append_time and kind == "timestamp":
        found.append(
            Finding(
                "message.timestamp.type",
                "it is LogAppendTime, so the highest timestamp is always the last record's",
                "set it to CreateTime",
            )
        )
    if not append_time:
        by_header = kind == "header"
        found.append(
            Finding(
                "message.timestamp.type",
                "it is CreateTime, so min.compaction.lag.ms counts from the producers' timestamps and guards no record that "
                "is older than that when it is written",
                ("set it to LogAppendTime, or " if by_header else "")
                + "let producers send no timestamps as old as that",
            )
        )
    before = _number(config, "message.timestamp.before.max.ms", _FOREVER)
    if not append_time and before < _FOREVER:
        found.append(
            Finding(
                "message.timestamp.before.max.ms",
                f"it is {before}: the broker would refuse to take an older winner once more, with its timestamp",
                "leave it unset, or use LogAppendTime with the header strategy",
                fatal=True,
            )
        )
    if "delete" in config.get("cleanup.policy", ""):
        found.append(
            Finding("cleanup.policy", "delete is in it: retention may take the highest version", "leave compact alone")
        )
    return found


def _number(config: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(config.get(name) or default)
    except ValueError:
        return default


def _shown(value: int) -> str:
    return "unlimited" if value == _FOREVER else str(value)
