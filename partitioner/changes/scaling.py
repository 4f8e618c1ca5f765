"""When a topic should grow or shrink: load and layout go in, a wanted count with its reason comes out.

Linear hashing changes one partition at a time: growing from `c` to `c + 1` halves `parent(c)`, and shrinking undoes it.
Three things follow, and the rules stand on them:

- What a change does to each partition can be predicted: a split halves, a merge adds up.
- At the counts `initial * 2**k` all partitions have equal shares. Between them those that were not split yet carry twice
  as much as the others, and the partitions are split in their own order. Under even load a count in between relieves
  nobody who is at the limit, so the smallest count that fits is then one of the even ones by itself.
- A split parts keys, never one key. What a partition carries beyond its neighbours comes from few keys, and no count
  helps against it. It is named in the decision, and not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median_low

from ..layout import Layout
from .scaling_policy import GroupLag, Load, Policy


@dataclass(frozen=True, slots=True)
class History:
    """What one decision must know of the time before: hand each decision's history to the next.

    count: the last one seen. hot_since, cold_since: since when there is a reason to grow or shrink. quiet_until: the
    end of the cool-down.
    """

    count: int | None = None
    hot_since: float | None = None
    cold_since: float | None = None
    quiet_until: float = -inf


@dataclass(frozen=True, slots=True)
class Decision:
    """The topic has `current` partitions and should have `count`, because of `reason`, from `act_from` on.

    hot_keys: partitions above a limit that no growth would help.
    """

    current: int
    count: int
    reason: str
    act_from: float
    hot_keys: tuple[int, ...]
    history: History

    def due(self, now: float) -> bool:
        """Whether to change the topic now."""
        return self.count != self.current and now >= self.act_from


@dataclass(frozen=True, slots=True)
class _Metric:
    """One measured rate with its limits. counted: without what a split cannot help."""

    unit: str
    loads: list[float]
    counted: list[float]
    most: float
    least: float | None
    target: float


def decide(load: Load, layout: Layout, policy: Policy, now: float, history: History | None = None) -> Decision:
    """What should become of the topic, under a load that was measured in this layout.

    now: seconds of any clock that the history's times come from too. The same arguments give the same decision, and so
    does its own history handed in again.
    """
    past = _noticed(history or History(), layout, policy, now)
    lowest = max(policy.min_partitions, layout.initial)
    if not set(load.records) >= set(range(layout.count)):
        return _stay(layout, past, "the load of this layout is not measured yet")
    metrics = list(_metrics(load, layout, policy))
    beyond = {p for m in metrics for p in range(layout.count) if m.loads[p] > m.most >= m.counted[p]}
    hot_keys = tuple(sorted(beyond))
    wanted, why = _growth(metrics, load, layout, policy, lowest)
    note = f"{_named(hot_keys)} far above the rest: few keys, which no growth can part" if hot_keys else ""
    if why:
        since = now if past.hot_since is None else past.hot_since
        past = replace(past, hot_since=since, cold_since=None)
        if wanted == layout.count:
            return _stay(
                layout,
                past,
                f"{why}, but no count of step {policy.step!r} up to {policy.max_partitions} is left",
                hot_keys,
            )
        act_from = max(since + policy.hot_window_s, past.quiet_until)
        return Decision(layout.count, wanted, "; ".join(filter(None, (why, note))), act_from, hot_keys, past)
    past = replace(past, hot_since=None)
    if layout.count < lowest:
        past = replace(past, cold_since=None)
        return Decision(layout.count, lowest, f"below min_partitions {lowest}", past.quiet_until, hot_keys, past)
    wanted, why = _shrink(metrics, load, layout, policy, lowest)
    if wanted == layout.count:
        return _stay(layout, replace(past, cold_since=None), note or why, hot_keys)
    since = now if past.cold_since is None else past.cold_since
    act_from = max(since + policy.cold_window_s, past.quiet_until)
    return Decision(layout.count, wanted, why, act_from, hot_keys, replace(past, cold_since=since))


def predicted(loads: Sequence[float], layout: Layout, count: int) -> list[float]:
    """What each of `count` partitions would carry, if `loads` is what those of `layout` carry now.

    A merge adds up exactly. A split is taken to halve, which holds for many keys of like size.
    """
    found = list(loads)
    while len(found) < count:
        parent = layout.parent(len(found))
        found[parent] /= 2
        found.append(found[parent])
    while len(found) > count:
        retired = found.pop()
        found[layout.parent(len(found))] += retired
    return found


def _noticed(past: History, layout: Layout, policy: Policy, now: float) -> History:
    """The history after a look at the count: whoever changed it, the windows begin anew and the cool-down runs."""
    if past.count == layout.count:
        return past
    if past.count is None:
        return replace(past, count=layout.count)
    grown = layout.count > past.count
    quiet = policy.cooldown_after_growth_s if grown else policy.cooldown_after_shrink_s
    return History(layout.count, quiet_until=max(past.quiet_until, now + quiet))


def _metrics(load: Load, layout: Layout, policy: Policy) -> Iterator[_Metric]:
    for unit, rates, most, least in (
        ("records/s", load.records, policy.max_records_per_s, policy.min_records_per_s),
        ("bytes/s", load.bytes, policy.max_bytes_per_s, policy.min_bytes_per_s),
    ):
        if most is not None and rates is not None and set(rates) >= set(range(layout.count)):
            loads = [float(rates[p]) for p in range(layout.count)]
            counted = _counted(loads, layout, policy.skew_factor)
            yield _Metric(unit, loads, counted, most, least, (1 - policy.headroom) * most)


def _counted(loads: list[float], layout: Layout, factor: float) -> list[float]:
    """The loads without what few keys bring: at most `factor` times what is typical for a partition's share.

    The lower median is typical: with two partitions, of which one is hot, it is that of the other. Each value grows with
    each load, so more load never asks for fewer partitions.
    """
    shares = [float(layout.share(p)) for p in range(layout.count)]
    typical = median_low([rate / share for rate, share in zip(loads, shares, strict=True)])
    return [min(rate, factor * typical * share) for rate, share in zip(loads, shares, strict=True)]


def _growth(metrics: list[_Metric], load: Load, layout: Layout, policy: Policy, lowest: int) -> tuple[int, str]:
    """(count, why); without a reason the why is empty."""
    # One doubling at a time: whether splits part the load is seen only after them, and a lone partition has no neighbour
    # that would show a hot key.
    highest, reasons = min(policy.max_partitions, max(layout.low * 2, lowest)), []
    needed = max(layout.count, lowest)
    for metric in metrics:
        worst = max(range(layout.count), key=metric.counted.__getitem__)
        if metric.counted[worst] > metric.most:
            rate = f"{metric.loads[worst]:.0f} {metric.unit}"
            reasons.append(f"partition {worst} takes {rate}, more than {metric.most:.0f}")
            needed = max(needed, _smallest_growth(metric, layout, highest))
    for group, lag in _behind(load, policy):
        reasons.append(f"group {group} is {lag} records behind, more than {policy.max_lag:.0f}")
        # Lag does not tell which partition is short of readers: all of them are split.
        needed = max(needed, layout.low * 2)
    if not reasons:
        return layout.count, ""
    allowed = [c for c in range(layout.count + 1, highest + 1) if c == lowest or _allowed(c, layout, policy.step)]
    enough = [c for c in allowed if c >= needed]
    # Where nothing is enough the most that is allowed still helps.
    return (enough or allowed[-1:] or [layout.count])[0], ", ".join(reasons)


def _smallest_growth(metric: _Metric, layout: Layout, highest: int) -> int:
    loads = metric.counted
    for count in range(layout.count + 1, highest + 1):
        loads = predicted(loads, layout, count)
        if max(loads) <= metric.target:
            return count
    return highest + 1


def _shrink(metrics: list[_Metric], load: Load, layout: Layout, policy: Policy, lowest: int) -> tuple[int, str]:
    """(count, why). A shrink must fit by the loads as they are, hot keys included: growth never has to undo it."""
    if policy.max_bytes_per_s is not None and load.bytes is None:
        return layout.count, "bytes/s are limited and were not measured, so nothing says that a shrink would fit"
    cold = [m for m in metrics if m.least is not None and max(m.loads) <= m.least]
    wanting = [m for m in metrics if m.least is not None]
    if layout.count <= lowest or not wanting or len(cold) < len(wanting) or _lagging(load, policy):
        return layout.count, "the load fits"
    enough = layout.count
    merged = [m.loads for m in metrics]
    for count in range(layout.count - 1, lowest - 1, -1):
        merged = [predicted(loads, layout, count) for loads in merged]
        # A merge only adds, so from the first that does not fit on none does.
        if any(max(loads) > m.target for loads, m in zip(merged, metrics, strict=True)):
            break
        if count == lowest or _allowed(count, layout, policy.step):
            enough = count
    worst = ", ".join(f"{max(m.loads):.0f} {m.unit}" for m in cold)
    if enough == layout.count:
        return enough, f"no partition takes more than {worst}, but no smaller count fits"
    return enough, f"no partition takes more than {worst}"


def _behind(load: Load, policy: Policy) -> list[tuple[str, int]]:
    """Groups behind that move. One that stands still is down, and more partitions do not bring it back."""
    return [(name, group.records) for name, group in _lagging(load, policy) if group.consumed_per_s > 0]


def _lagging(load: Load, policy: Policy) -> list[tuple[str, GroupLag]]:
    if policy.max_lag is None:
        return []
    return sorted((name, group) for name, group in load.groups.items() if group.records > policy.max_lag)


def _allowed(count: int, layout: Layout, step: str) -> bool:
    if step == "multiple":
        return count % layout.initial == 0
    return step == "fit" or layout.resized(count).split == 0


def _stay(layout: Layout, past: History, reason: str, hot_keys: tuple[int, ...] = ()) -> Decision:
    return Decision(layout.count, layout.count, reason, inf, hot_keys, past)


def _named(partitions: tuple[int, ...]) -> str:
    names = ", ".join(map(str, partitions))
    return f"partition {names} is" if len(partitions) == 1 else f"partitions {names} are"
