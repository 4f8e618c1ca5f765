"""Dry runs: what a change would do, and what a forced one would lose. Reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import AdminClient

from ...partitioner.changes.plan import plan_change
from ...partitioner.changes.terms import longest_hold
from ...partitioner.epochs import Retirement
from ...partitioner.timeline import Timeline
from ..group_gates import GroupOffsets
from ..metadata import identify, is_compacted
from ..topology.draining import topic_delay_ms
from . import notices
from .forecast import ChangeForecast, ForcedDrain, group_forecasts, hold_forecast, losses
from .sampling import take_sample, two_samples
from .stock_look import NOBODY_SEEN, WriterLook, look


class Planner:
    """Plans changes of one cluster's topics. Its methods raise Kafka's errors."""

    def __init__(self, config: Mapping[str, Any], admin: AdminClient) -> None:
        self._config, self._admin = config, admin
        self._servers = str(config.get("bootstrap.servers"))
        self._offsets = GroupOffsets(config, admin)

    def plan(
        self, timeline: Timeline, count: int, groups: Sequence[str] | None, retirement: Retirement, sample_s: float
    ) -> ChangeForecast:
        """See TopicAdmin.plan. retirement: how a shrink would empty what it retires."""
        topic, named = timeline.topic, retirement.groups
        plan = plan_change(timeline.layout, count)
        physical = identify(self._admin, topic, self._servers).partitions
        asked = self._all_groups(topic, named) if groups is None else [*groups, *named]
        partitions = range(min(physical, timeline.highest_count))
        first, last = two_samples(lambda: take_sample(self._config, self._offsets, topic, partitions, asked), sample_s)
        writers = WriterLook(self._config, topic)
        live = writers.live
        changes = count != timeline.newest.count
        stock = look(self._config, timeline, physical, writers) if changes else NOBODY_SEEN
        forecast = ChangeForecast(
            topic=topic,
            plan=plan,
            partitions_to_create=max(0, count - physical),
            hold=hold_forecast(timeline, plan, first, last, longest_hold(live)),
            groups=group_forecasts(plan, first, last, named),
            sampled_s=last.at - first.at,
            waits_for_groups=named if plan.retired else (),
            delay_ms=retirement.delay(topic_delay_ms(timeline)) if plan.retired else None,
            stock=stock,
        )
        warnings = notices.of_change(timeline, count, len(live), physical, stock)
        warnings += notices.long_leases(topic, {m.lease.writer: m.lease.lease_ms / 1000 for m in live})
        if plan.retired:
            compacted = is_compacted(self._admin, topic, self._servers)
            warnings += notices.of_shrink(timeline, retirement, compacted)
            warnings += notices.of_lagging(topic, forecast.not_waited_for, named)
        return replace(forecast, warnings=tuple(warnings))

    def forced_drain(self, timeline: Timeline, count: int, groups: Sequence[str] | None) -> ForcedDrain:
        """See TopicAdmin.forced_drain."""
        left = {d.partition: d.upto for d in timeline.drains if not d.emptied and d.partition >= count}
        partitions = sorted({*left, *range(count, timeline.newest.count)})
        sample = take_sample(self._config, self._offsets, timeline.topic, partitions, groups)
        upto = {p: left.get(p, sample.ends[p]) for p in partitions}
        records = {p: max(0, end - sample.starts[p]) for p, end in upto.items()}
        return ForcedDrain(timeline.topic, records, losses(upto, sample))

    def _all_groups(self, topic: str, named: Sequence[str]) -> list[str]:
        """Those with commits on the topic, and those that are named whether they have any or not."""
        return list(dict.fromkeys([*self._offsets.of_topic(topic), *named]))
