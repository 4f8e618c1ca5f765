"""When to grow and when to shrink: examples, and what holds for every load."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.changes.scaling import Decision, History, decide, predicted
from keyorder.partitioner.changes.scaling_policy import STEPS, GroupLag, Load, Policy
from keyorder.partitioner.errors import ConfigError
from keyorder.partitioner.layout import Layout

QUICK = Policy(
    max_records_per_s=1_000,
    min_records_per_s=100,
    hot_window_s=60,
    cold_window_s=300,
    cooldown_after_growth_s=120,
    cooldown_after_shrink_s=240,
)


def even(rate: float, layout: Layout) -> Load:
    """A load of many keys, `rate` records a second in all."""
    return Load({p: rate * float(layout.share(p)) for p in range(layout.count)})


def with_policy(**changes: Any) -> Policy:
    """The quick policy with other values."""
    known = {name: getattr(QUICK, name) for name in QUICK.__slots__}
    return Policy(**{**known, **changes})


def settled(load: Load, layout: Layout, policy: Policy = QUICK) -> Decision:
    """The decision on a load that has lasted for an hour."""
    first = decide(load, layout, policy, 0.0)
    return decide(load, layout, policy, 3_600.0, first.history)


@pytest.mark.parametrize(
    ("rate", "step", "count"),
    [(3_900, "fit", 4), (4_100, "fit", 8), (3_900, "double", 4), (4_100, "multiple", 8), (4_100, "double", 8),
     (90_000, "fit", 8), (90_000, "double", 8)],
)  # fmt: skip
def test_an_even_load_leads_to_an_even_count(rate: float, step: str, count: int) -> None:
    """Between initial * 2**k some partition still carries a whole old share, so the first count that fits is even.

    More than one doubling is not taken at a time.
    """
    assert settled(even(rate, Layout(4, 4)), Layout(4, 4), with_policy(step=step)).count == count


@pytest.mark.kip("K253-05")
def test_one_busy_partition_is_split_in_its_turn() -> None:
    """Partitions are split in order: relieving 1 of 4 takes two more, not eight."""
    decision = settled(Load({0: 700, 1: 1_100, 2: 650, 3: 600}), Layout(4, 4))

    assert decision.count == 6
    assert decision.reason == "partition 1 takes 1100 records/s, more than 1000"


def test_few_keys_are_named_and_not_grown_for() -> None:
    """What one partition carries beyond its neighbours cannot be split away: no growth, and the decision says so."""
    decision = settled(Load({0: 200, 1: 9_000, 2: 210, 3: 190}), Layout(4, 4))

    assert (decision.count, decision.act_from, decision.hot_keys) == (4, inf, (1,))
    assert "partition 1 is far above the rest" in decision.reason
    assert "no growth can part" in decision.reason


def test_a_hot_key_ends_growth_after_few_steps() -> None:
    """One key of ten times the limit beside a moderate load: growth stops long before the highest count."""
    layout, policy = Layout(1, 1), with_policy(headroom=0.0)
    for _ in range(10):
        load = Load({p: 300 * float(layout.share(p)) + 10_000 * (p == 0) for p in range(layout.count)})
        layout = layout.resized(settled(load, layout, policy).count)

    assert layout.count <= 2


def test_a_reason_must_hold_for_its_window() -> None:
    """Hot for the whole window: act; a pause in between starts the window anew."""
    layout = Layout(4, 4)
    hot, warm = even(5_000, layout), even(3_000, layout)
    first = decide(hot, layout, QUICK, 10.0)
    assert (first.count, first.act_from) == (8, 70.0)
    assert not first.due(69.9)
    assert decide(hot, layout, QUICK, 70.0, first.history).due(70.0)

    pause = decide(warm, layout, QUICK, 40.0, first.history)
    assert decide(hot, layout, QUICK, 70.0, pause.history).act_from == 130.0


@pytest.mark.parametrize(("before", "rate", "quiet"), [(2, 9_000, 120), (8, 9_000, 240), (2, 200, 300), (8, 200, 300)])
def test_after_a_change_by_anybody_there_is_quiet_and_a_new_window(before: int, rate: float, quiet: float) -> None:
    """A count that differs from the last one seen is a change: cool-down of its direction, then or later the window."""
    layout = Layout(2, 4)
    seen = History(count=before, hot_since=0.0, cold_since=0.0)

    decision = decide(even(rate, layout), layout, QUICK, 1_000.0, seen)

    assert decision.count != 4
    assert decision.act_from == 1_000 + quiet


def test_a_cold_topic_shrinks_as_far_as_the_merged_loads_fit() -> None:
    """Cold everywhere: the smallest count whose sums stay below the limit with its headroom; never below the initial."""
    layout = Layout(2, 32)

    assert settled(even(3_100, layout), layout).count == 4
    assert settled(even(3_000, layout), layout, with_policy(min_partitions=12)).count == 12
    assert settled(even(3_000, layout), layout, with_policy(min_partitions=12, step="double")).count == 12
    assert settled(even(3_100, layout), layout, with_policy(min_partitions=3, max_records_per_s=400)).count == 16
    assert settled(even(0, layout), layout).count == 2


def test_one_partition_that_is_not_cold_prevents_a_shrink() -> None:
    """All partitions must be at or below the lower mark."""
    assert settled(Load({**dict.fromkeys(range(7), 10.0), 7: 101.0}), Layout(2, 8)).count == 8


def test_too_few_partitions_grow_to_the_lowest_count() -> None:
    """min_partitions is reached at once; cool-downs alone may delay it."""
    decision = decide(even(1, Layout(2, 2)), Layout(2, 2), with_policy(min_partitions=6), 5.0)

    assert decision.count == 6
    assert decision.due(5.0)


def test_a_group_behind_asks_for_growth_while_it_moves() -> None:
    """Lag above the limit doubles; a group that commits nothing is down, and does not count, but forbids a shrink."""
    layout, policy = Layout(4, 8), with_policy(max_lag=1_000, groups=("billing",))
    quiet = even(400, layout)
    behind = Load(quiet.records, groups={"billing": GroupLag(5_000, 20.0)})
    down = Load(quiet.records, groups={"billing": GroupLag(5_000, 0.0)})

    assert settled(behind, layout, policy).count == 16
    assert settled(behind, layout, policy).reason == "group billing is 5000 records behind, more than 1000"
    assert settled(down, layout, policy).count == 8
    assert settled(quiet, layout, policy).count < 8


def test_bytes_count_where_they_are_measured() -> None:
    """A limit of bytes asks for growth; without a measurement a shrink is not proven to fit."""
    layout, policy = Layout(4, 4), with_policy(max_bytes_per_s=1e6)
    records = even(100, layout).records

    assert settled(Load(records, dict.fromkeys(range(4), 1.1e6)), layout, policy).count == 8
    assert "were not measured" in settled(even(10, Layout(4, 8)), Layout(4, 8), policy).reason


def test_an_unmeasured_layout_is_left_alone() -> None:
    """A load that misses a partition is of another layout."""
    assert settled(Load({0: 1e6}), Layout(1, 2)).reason == "the load of this layout is not measured yet"


def test_no_step_is_left_below_the_highest_count() -> None:
    """Where the step allows no further count the decision says so instead of taking another."""
    decision = settled(even(9_000, Layout(4, 4)), Layout(4, 4), with_policy(step="double", max_partitions=7))

    assert (decision.count, decision.act_from) == (4, inf)
    assert "no count of step 'double' up to 7 is left" in decision.reason


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_records_per_s", -1), ("max_records_per_s", "many"), ("max_records_per_s", None), ("max_bytes_per_s", True),
     ("min_records_per_s", 401), ("min_bytes_per_s", 5), ("hot_window_s", -1), ("cold_window_s", float("nan")),
     ("cooldown_after_growth_s", None), ("cooldown_after_shrink_s", float("inf")), ("min_partitions", 0),
     ("min_partitions", 1.5), ("max_partitions", 0), ("step", "half"), ("headroom", 1), ("skew_factor", 0.5),
     ("sample_s", 0), ("groups", ("",)), ("max_lag", 5)],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_names_its_field(setting: str, value: object) -> None:
    """Each field is checked, and the error says which one it is."""
    changes = {setting: value}
    if setting == "max_records_per_s" and value is None:
        changes["min_records_per_s"] = None
    with pytest.raises(ConfigError) as raised:
        with_policy(**changes)
    assert raised.value.setting == setting


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any small layout."""
    initial = draw(st.integers(1, 5))
    return Layout(initial, draw(st.integers(initial, 24)))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Policies of every step, with limits around the loads below."""
    lowest = draw(st.integers(1, 8))
    headroom = draw(st.sampled_from([0.0, 0.2, 0.5]))
    most = draw(st.floats(100, 2_000))
    return with_policy(
        max_records_per_s=most,
        min_records_per_s=draw(st.floats(0, (1 - headroom) * most / 2)),
        headroom=headroom,
        min_partitions=lowest,
        max_partitions=draw(st.integers(lowest, 40)),
        step=draw(st.sampled_from(STEPS)),
        skew_factor=draw(st.sampled_from([1.0, 2.0, 4.0])),
        max_lag=draw(st.sampled_from([None, 50.0])),
        groups=("g",),
    )


@st.composite
def loads(draw: st.DrawFn, layout: Layout) -> Load:
    """Any rates in that layout."""
    rates = draw(st.lists(st.floats(0, 4_000), min_size=layout.count, max_size=layout.count))
    lag = GroupLag(draw(st.integers(0, 100)), draw(st.sampled_from([0.0, 10.0])))
    return Load(dict(enumerate(rates)), groups={"g": lag})


@given(st.data(), layouts(), policies())
def test_a_decision_keeps_the_limits(data: st.DataObject, layout: Layout, policy: Policy) -> None:
    """The count lies within the limits, or on the way to them; never below the initial one."""
    count = settled(data.draw(loads(layout)), layout, policy).count

    assert min(layout.count, max(policy.min_partitions, layout.initial)) <= count
    assert count <= max(layout.count, policy.max_partitions)


@given(st.data(), layouts(), policies(), st.floats(0, 1e6))
def test_a_decision_repeated_is_the_same(data: st.DataObject, layout: Layout, policy: Policy, now: float) -> None:
    """With its own history handed in again, at the same moment, nothing is decided differently."""
    load = data.draw(loads(layout))
    decision = decide(load, layout, policy, now)

    assert decide(load, layout, policy, now, decision.history) == decision


@given(st.data(), layouts(), policies())
def test_more_load_never_asks_for_less(data: st.DataObject, layout: Layout, policy: Policy) -> None:
    """With more records in any partitions, and more lag, the wanted count is not lower."""
    low, more = data.draw(loads(layout)), data.draw(loads(layout))
    sums = {p: low.records[p] + more.records[p] for p in low.records}
    lag = GroupLag(low.groups["g"].records + more.groups["g"].records, low.groups["g"].consumed_per_s)

    high = Load(sums, groups={"g": lag})

    assert decide(low, layout, policy, 0.0).count <= decide(high, layout, policy, 0.0).count


@given(layouts(), policies(), st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(0, 900)), max_size=40))
def test_a_constant_load_comes_to_rest(layout: Layout, policy: Policy, keys: list[tuple[int, float]]) -> None:
    """Applying decisions to fixed keys, hot ones among them, ends: first growth, then shrinks, and then nothing."""
    history, now = History(), 0.0
    counts = [layout.count]
    for _ in range(80):
        rates = dict.fromkeys(range(layout.count), 0.0)
        for h, rate in keys:
            rates[layout.home_of_hash(h)] += rate
        decision = decide(Load(rates), layout, policy, now, history)
        history = decision.history
        if decision.count == layout.count:
            break
        if decision.due(now):
            layout = layout.resized(decision.count)
            counts.append(layout.count)
        now = max(now + 1.0, decision.act_from)
    else:
        pytest.fail(f"no rest: {counts}")
    falling = [b < a for a, b in pairwise(counts)]
    below = max(policy.min_partitions, layout.initial)
    # Only a topic that began outside its limits may turn round, to reach them.
    assert falling == sorted(falling) or counts[0] < below, counts


@pytest.mark.slow
@given(st.data(), layouts(), policies(), st.lists(st.floats(0, 200), min_size=1, max_size=30))
def test_changes_keep_their_distance(data: st.DataObject, layout: Layout, policy: Policy, pauses: list[float]) -> None:
    """Under any loads at any times two changes lie a cool-down apart."""
    history, now, changed_at, quiet = History(), 0.0, -inf, 0.0
    for pause in pauses:
        now += pause
        decision = decide(data.draw(loads(layout)), layout, policy, now, history)
        history = decision.history
        if decision.due(now):
            assert now >= changed_at + quiet
            grown = decision.count > layout.count
            quiet = policy.cooldown_after_growth_s if grown else policy.cooldown_after_shrink_s
            changed_at, layout = now, layout.resized(decision.count)
            # The controller sees the new count right after its change.
            history = decide(Load({}), layout, policy, now, history).history


@given(layouts(), st.integers(1, 40), st.integers(0, 2**20))
def test_a_merge_is_predicted_exactly(layout: Layout, target: int, seed: int) -> None:
    """The sums of a shrink are those of the keys themselves, whatever their rates."""
    target = max(layout.initial, min(target, layout.count))
    hashes = [(seed * 2_654_435_761 + n * 40_503) % 2**31 for n in range(60)]
    before, after = [0.0] * layout.count, [0.0] * target
    for weight, h in enumerate(hashes):
        before[layout.home_of_hash(h)] += weight
        after[layout.resized(target).home_of_hash(h)] += weight

    assert predicted(before, layout, target) == after
