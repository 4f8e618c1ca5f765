"""KIP-280's settings of a topic, and the broker's settings that work against them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from keyorder.connector.compaction_settings import blank_header, check_compaction, chosen_strategy
from keyorder.partitioner.errors import ConfigError

STOCK = {
    "cleanup.policy": "compact",
    "segment.ms": "604800000",
    "max.compaction.lag.ms": "9223372036854775807",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "86400000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
}
FIT = {**STOCK, "segment.ms": "3600000", "max.compaction.lag.ms": "7200000", "min.compaction.lag.ms": "600000"}
FIT["message.timestamp.type"] = "LogAppendTime"
HEADER = {"compaction.strategy": "header", "compaction.strategy.header": "v"}


def settings_named(config: Mapping[str, str], settings: Mapping[str, str]) -> list[tuple[str, bool]]:
    """(setting, fatal) of each finding."""
    return [(finding.setting, finding.fatal) for finding in check_compaction(config, settings)]


@pytest.mark.kip("K280-07")
def test_stock_defaults_let_tombstones_expire_too_soon() -> None:
    """7 days, unlimited and 1 day: both of the KIP's settings are named, with the value that they have to be below."""
    found = check_compaction(STOCK, {})

    assert [finding.setting for finding in found] == ["segment.ms", "max.compaction.lag.ms"]
    assert all("86400000" in finding.fix and not finding.fatal for finding in found)
    assert "unlimited" in str(found[1])


@pytest.mark.kip("K280-07")
@pytest.mark.parametrize(("value", "fits"), [("86399999", True), ("86400000", False), ("86400001", False)])
@pytest.mark.parametrize("setting", ["segment.ms", "max.compaction.lag.ms"])
def test_both_have_to_be_below_the_retention_of_tombstones(setting: str, value: str, fits: bool) -> None:
    """Below, not at it."""
    assert settings_named({**FIT, setting: value}, HEADER) == ([] if fits else [(setting, False)])


@pytest.mark.kip("K280-20")
def test_without_a_lag_the_cleaner_may_win_the_race() -> None:
    """Fatal for a strategy by version, nothing to the default one; and it is named first."""
    exposed = {**FIT, "min.compaction.lag.ms": "0", "segment.ms": "604800000"}

    assert settings_named(exposed, HEADER) == [("min.compaction.lag.ms", True), ("segment.ms", False)]
    assert settings_named({**FIT, "min.compaction.lag.ms": "0"}, {}) == []


@pytest.mark.kip("K280-11")
def test_append_time_makes_the_timestamp_strategy_pointless() -> None:
    """Named for `timestamp`, fine for `header`."""
    assert settings_named(FIT, {"compaction.strategy": "timestamp"}) == [("message.timestamp.type", False)]
    assert settings_named(FIT, HEADER) == []


def test_create_time_leaves_late_records_without_a_guard() -> None:
    """The broker counts the lag from timestamps; `header` can do without the producers', `timestamp` cannot."""
    config = {**FIT, "message.timestamp.type": "CreateTime"}

    for settings in (HEADER, {"compaction.strategy": "timestamp"}):
        assert settings_named(config, settings) == [("message.timestamp.type", False)]
        (finding,) = check_compaction(config, settings)
        assert ("LogAppendTime" in finding.fix) == (settings is HEADER)


def test_a_bound_on_old_timestamps_would_refuse_winners() -> None:
    """A winner is written again with its own timestamp; where the broker sets timestamps, the bound does not matter."""
    bounded = {**FIT, "message.timestamp.before.max.ms": "3600000"}

    assert settings_named(bounded, HEADER) == []
    by_time = {**bounded, "message.timestamp.type": "CreateTime"}
    assert settings_named(by_time, {"compaction.strategy": "timestamp"})[0] == ("message.timestamp.before.max.ms", True)


def test_a_topic_that_is_not_compacted() -> None:
    """Nothing to say of it, unless it has a strategy that nobody will obey; with both policies retention may interfere."""
    assert settings_named({**STOCK, "cleanup.policy": "delete"}, {}) == []
    assert settings_named({**STOCK, "cleanup.policy": "delete"}, HEADER) == [("cleanup.policy", True)]
    assert settings_named({**FIT, "cleanup.policy": "compact,delete"}, HEADER) == [("cleanup.policy", False)]


@pytest.mark.kip("K280-15", "K280-10")
def test_the_chosen_strategy() -> None:
    """Any case; nothing is offset; header without a name is offset and told apart; others are refused."""
    assert chosen_strategy({}) == chosen_strategy({"compaction.strategy": " OFFSET "}) == ("offset", "")
    assert chosen_strategy(HEADER) == ("header", "v")
    assert chosen_strategy({**HEADER, "compaction.strategy": "timestamp"}) == ("timestamp", "")
    blank = {"compaction.strategy": "header", "compaction.strategy.header": " "}
    assert chosen_strategy(blank) == ("offset", "")
    assert [blank_header(settings) for settings in (blank, HEADER, {})] == [True, False, False]
    assert settings_named(FIT, blank) == [("compaction.strategy.header", False)]
    with pytest.raises(ConfigError, match="'best'"):
        chosen_strategy({"compaction.strategy": "best"})
