"""What a demonstration is asked to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from keyorder.connector.demo.schedule import schedule
from keyorder.connector.demo.settings import DemoSettings, parse_counts
from keyorder.partitioner.errors import ConfigError


def test_the_defaults_write_at_least_twenty_thousand_keys() -> None:
    """The default run has 20 000 keys and time for three changes."""
    settings = DemoSettings(Path("r"))
    assert settings.keys >= 20_000
    assert settings.records_per_key >= 1
    assert settings.changes == 3


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"counts": (4,)}, "--partitions"),
        ({"counts": (4, 4)}, "--partitions"),
        ({"counts": (6, 4)}, "--partitions"),
        ({"counts": (0, 4)}, "--partitions"),
        ({"counts": (4, 1000)}, "--partitions"),
        ({"seconds": 3.0}, "--seconds"),
        ({"seconds": float("nan")}, "--seconds"),
        ({"seconds": float("inf")}, "--seconds"),
        ({"rate": 1}, "--rate"),
        ({"keys": 10**9}, "--keys"),
        ({"brokers": 2}, "--brokers"),
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, Any], option: str) -> None:
    """Each setting that cannot be is refused before anything starts, by the name of its option."""
    with pytest.raises(ConfigError) as raised:
        DemoSettings(Path("r"), **wrong)
    assert raised.value.setting == option


def test_partition_counts_are_read_from_text() -> None:
    """Counts are numbers with commas between them; anything else is a ConfigError."""
    assert parse_counts("4, 6,9") == (4, 6, 9)
    for text in ("", "4,,6", "four,five", "4;6"):
        with pytest.raises(ConfigError):
            parse_counts(text)


@pytest.mark.parametrize("counts", [(4, 6), (4, 6, 9), (4, 6, 9, 16), (1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize("seed", range(5))
def test_everything_happens_once_and_under_load(counts: tuple[int, ...], seed: int) -> None:
    """Each growth, one join and one kill of a member of the start fall into the load, in order of time."""
    acts = schedule(counts, 30, 3, seed)
    assert [act.count for act in acts if act.kind == "grow"] == list(counts[1:])
    assert [act.member for act in acts if act.kind == "join"] == [4]
    assert [act.member in (1, 2, 3) for act in acts if act.kind == "kill"] == [True]
    assert [act.at for act in acts] == sorted(act.at for act in acts)
    assert acts[0].at > 0
    assert acts[-1].at < 30
