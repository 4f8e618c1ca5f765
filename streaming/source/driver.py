"""The driver of one streaming query: knows the cluster, plans batches, says what waits. Nothing of it needs a Spark import."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...connector import clock
from ...partitioner.errors import ConfigError
from ...partitioner.timeline import Timeline
from ..errors import AvailableNowError, DataLossError
from .cluster import QueryCluster
from .offsets import Place, Range
from .options import BoundKind, SourceOptions
from .planner import ClosedGate, Situation, begins_of, consistent, plan, stuck
from .starts import check_places, resolve
from .tasks import pack, split

_LOG = logging.getLogger("keyorder.streaming")


class QueryDriver:
    """What Spark asks of a source, between its offsets and the cluster. Used by one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = QueryCluster(options)
        self._timelines: dict[str, Timeline] = {}
        self._log_starts: dict[Place, int] = {}
        self._shown: dict[Place, int] = {}
        self._to_targets = False
        self._targets: dict[Place, int] | None = None
        self._at_start: frozenset[Place] = frozenset()
        self._last_batch = float("-inf")
        self._warned: set[str] = set()
        self.ends: dict[Place, int] = {}
        self.closed: tuple[ClosedGate, ...] = ()

    def initial(self) -> dict[Place, int]:
        """Where a new query starts: as the options say, lowered to a consistent cut. Raises as `starts.resolve`.

        Spark asks this again for a first batch that it runs once more. Its end is known then, and the partitions may have
        changed since: that the options name them all is for the first `latest` to check.
        """
        situation = self._look()
        options = self._options
        self._at_start = frozenset(situation.ends)
        wished = resolve(
            options.start, self._cluster, situation.ends, situation.log_starts, options.latest_without_match
        )
        # Times are looked up after the timelines were read: look again, so that no change lies in between.
        if options.start.kind in (BoundKind.TIME, BoundKind.TIMES):
            situation = self._look()
        found = consistent(wished, situation)
        lowered = [f"{t}-{p} from {wished[t, p]} to {o}" for (t, p), o in found.items() if o < wished[t, p]]
        if lowered:
            _LOG.warning(
                "%s: offsets lowered, since moved keys would have been read without their older records: %s",
                options.start.option,
                ", ".join(lowered),
            )
        return found

    def target(self) -> None:
        """Nothing is read beyond what is there when the first `latest` is asked (Trigger.AvailableNow).

        Spark says this before it asks for the start: an end from now could lie before it.
        """
        self._to_targets = True

    def latest(self, start: Mapping[Place, int], limited: bool, first: bool = False) -> dict[Place, int]:
        """The end of the batch that starts at `start`; `start` itself when there is nothing to do.

        limited: whether max/minOffsetsPerTrigger count. first: whether `start` is what `initial` found, for a query that has
        planned nothing yet. Raises DataLossError, AvailableNowError, ConfigError, OffsetsMismatchError.
        """
        if first:
            check_places(self._options.start, self._at_start)
        situation = whole = self._look()
        self.ends = dict(situation.ends)
        if self._to_targets:
            if self._targets is None:
                self._targets = consistent(situation.ends, situation)
            situation = self._within_targets(situation, self._targets)
        self._check_loss(start, situation)
        blocked = stuck(whole, start)
        if blocked is not None:
            raise ConfigError(
                "assign",
                f"{blocked.topic}[{blocked.partition}] waits for a partition that is not assigned ({blocked})",
                "assign its origins too, or set enable.ordered.delivery=false",
            )
        limit = self._options.max_offsets if limited else None
        planned = plan(start, situation, limit)
        self.closed = planned.closed
        begins = begins_of(start, situation)
        fresh = sum(max(0, end - begins[p]) for p, end in planned.open_ends.items())
        if limited and self._targets is None and self._too_few(fresh):
            return dict(start)
        if fresh:
            self._last_batch = clock.now()
        self._tell(planned.closed)
        return planned.ends

    def tasks(
        self, start: Mapping[Place, int], end: Mapping[Place, int]
    ) -> tuple[list[tuple[Range, ...]], Mapping[str, str]]:
        """The ranges that each task reads, and the ids of the topics.

        A function of both offsets, and for partitions that are new in `end` of their log start.
        """
        new = [place for place in end if place not in start]
        unknown = [place for place in new if place not in self._log_starts]
        if unknown:
            self._log_starts.update(self._cluster.log_starts(unknown))
        begins = {place: start.get(place, self._log_starts.get(place, 0)) for place in end}
        self._report(
            [f"added partition {t}-{p} starts from {begins[t, p]} instead of 0" for t, p in new if begins[t, p] > 0]
        )
        ranges = [Range(t, p, begins[t, p], o) for (t, p), o in end.items()]
        options = self._options
        if options.min_partitions is not None or options.max_records is not None:
            return [(r,) for r in split(ranges, options.min_partitions, options.max_records)], self._cluster.topic_ids
        return pack(ranges, options.task_records), self._cluster.topic_ids

    def commit(self, end: Mapping[Place, int]) -> None:
        """The batch up to `end` is done: show it to the group, where one is named and has not seen it."""
        if self._options.commit_group is not None and end and end != self._shown:
            self._cluster.commit(self._options.commit_group, end, self._timelines)
            self._shown = dict(end)

    def close(self) -> None:
        """Release the clients."""
        self._cluster.close()

    def _look(self) -> Situation:
        """Ends first, timelines second: a record below an end was written under a layout that the timeline then has."""
        cluster = self._cluster
        places = cluster.places()
        ends, log_starts = cluster.ends(places), cluster.log_starts(places)
        topics = sorted({topic for topic, _ in places})
        self._timelines = cluster.timelines(topics)
        outside = {(t, p) for t, line in self._timelines.items() for p in range(line.highest_count)} - places
        waived = cluster.waived(topics) if self._options.commit_group is not None else {}
        self._log_starts = dict(log_starts)
        return Situation(ends, log_starts, self._timelines, cluster.log_starts(outside) if outside else {}, waived)

    def _within_targets(self, situation: Situation, targets: Mapping[Place, int]) -> Situation:
        gone = [f"{t}-{p}" for t, p in sorted(set(targets) - set(situation.ends))]
        if gone:
            raise AvailableNowError(f"partitions {', '.join(gone)} have been lost")
        short = [f"{t}-{p}" for (t, p), target in targets.items() if situation.ends[t, p] < target]
        if short:
            raise AvailableNowError(f"partitions {', '.join(short)} end before what was to be read")
        log_starts = {place: situation.log_starts[place] for place in targets}
        outside = {**situation.outside, **{p: o for p, o in situation.log_starts.items() if p not in targets}}
        return Situation(targets, log_starts, situation.timelines, outside, situation.waived)

    def _check_loss(self, start: Mapping[Place, int], situation: Situation) -> None:
        gone = [f"{t}-{p}" for t, p in sorted(set(start) - set(situation.ends))]
        self._report([f"partitions {', '.join(gone)} have been deleted"] if gone else [])
        self._report(
            [
                f"partition {t}-{p} offset was changed from {start[t, p]} to {end}: the start was set beyond the end, "
                "or the topic was deleted and made again"
                for (t, p), end in situation.ends.items()
                if end < start.get((t, p), 0)
            ]
        )

    def _report(self, lost: list[str]) -> None:
        if not lost:
            return
        if self._options.fail_on_data_loss:
            raise DataLossError("; ".join(lost))
        text = "; ".join(lost)
        if text not in self._warned:
            self._warned.add(text)
            _LOG.warning("going on without lost data, as failOnDataLoss=false says: %s", text)

    def _too_few(self, fresh: int) -> bool:
        least = self._options.min_offsets
        if least is None or fresh >= least:
            return False
        return clock.now() - self._last_batch < self._options.max_trigger_delay

    def _tell(self, closed: tuple[ClosedGate, ...]) -> None:
        for gate in closed:
            _LOG.info("%s[%d] waits: %s", gate.topic, gate.partition, gate)
