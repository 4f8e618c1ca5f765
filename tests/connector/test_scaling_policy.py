"""Policy files: what they say, and what is wrong with those that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from keyorder.connector.topology.scaling_policy import load_policies, parse_policies
from keyorder.partitioner.changes.scaling_policy import Policy
from keyorder.partitioner.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "examples" / "autoscale.toml"


def test_the_example_loads() -> None:
    """The project's example is valid, and its topic's table adds to what stands at the top."""
    policies = load_policies(EXAMPLE)

    assert policies.default.max_records_per_s == 5_000
    assert policies.of("payments") == policies.default
    orders = policies.of("orders")
    assert (orders.max_records_per_s, orders.max_lag, orders.groups) == (2_000, 100_000, ("billing",))
    assert not orders.accept_stock_writers
    assert orders.cold_window_s == policies.default.cold_window_s == 600
    assert policies.all == (policies.default, orders)


def test_an_empty_file_means_the_defaults() -> None:
    """Every field has a default."""
    assert parse_policies("").of("anything") == Policy()


def test_a_limit_is_taken_back_by_a_word() -> None:
    """ "none" is TOML's missing null."""
    policy = parse_policies('max_records_per_s = "none"\nmin_records_per_s = "none"\nmax_bytes_per_s = 1e6').default

    assert (policy.max_records_per_s, policy.min_records_per_s, policy.max_bytes_per_s) == (None, None, 1e6)


@pytest.mark.parametrize(
    ("text", "setting", "words"),
    [
        ("max_record_per_s = 1", "policy: max_record_per_s", "did you mean max_records_per_s? Known are max_records"),
        ("colour = 1", "policy: colour", "known are max_records_per_s"),
        ("[topics.orders]\nstep = 'half'", "policy: topics.orders: step", "fit, multiple, double"),
        ("[topics.orders]\nsize = 1", "policy: topics.orders: size", "known are"),
        ("topics = 3", "policy: topics", "[topics.NAME]"),
        ("[topics]\norders = 3", "policy: topics.orders", "[topics.NAME]"),
        ("groups = 'billing'", "policy: groups", 'groups = ["NAME"]'),
        ("max_partitions = 'ten'", "policy: max_partitions", "whole number"),
        ("a b", "policy", "no TOML"),
    ],
)
def test_a_mistake_is_named(text: str, setting: str, words: str) -> None:
    """Each error says where in the file it is and what would be right."""
    with pytest.raises(ConfigError) as raised:
        parse_policies(text)

    assert raised.value.setting == setting
    assert words in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path is in the error."""
    with pytest.raises(ConfigError, match=r"none\.toml: it cannot be read"):
        load_policies(tmp_path / "none.toml")
