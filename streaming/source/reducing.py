"""A task of a compacted batch: the highest version of each of its keys, over all partitions that they have lived in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...compaction.strategy import Strategy
from ...connector.consuming.view import View, unmanaged
from ...partitioner.layout import Layout
from ...partitioner.routing import Routing
from ...partitioner.timeline import Timeline
from .batch import bounds_of, warm_cluster
from .cluster import QueryCluster
from .compacting import Compaction, MisplacedVersionError, Share, dealt, homes_over, read_for, shares
from .offsets import Range
from .options import SourceOptions
from .starts import check_places

if TYPE_CHECKING:
    from ...compaction.columns import VersionColumns
    from ...compaction.placing import Places

_MOST_PARTS = 1 << 20
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def plan_reduction(options: SourceOptions) -> list[Share]:
    """Which keys each task has. Raises as `batch.plan_batch`."""
    compaction = _of(options)
    found: list[Share] = []
    with warm_cluster(options) as cluster:
        ranges = _ranges(options, cluster)
        topics = sorted({r.topic for r in ranges})
        timelines = cluster.known_timelines(topics)
        for topic in topics:
            sizes = {r.partition: r.size for r in ranges if r.topic == topic}
            line = timelines.get(topic) or unmanaged(topic, len(sizes))
            lived = homes_over(line.layout, Routing(line))
            if compaction.everywhere or lived is None:
                found += dealt(topic, line.layout, options.min_partitions or 1)
            else:
                found += shares(topic, line.layout, lived, sizes, options.task_records)
    if options.subscription.pattern is not None or not found:
        found.append(Share("", Layout(1, 1), beside=frozenset(topics)))
    return found


def reduced(options: SourceOptions, share: Share) -> Iterator[pa.RecordBatch]:
    """The winners of a task's keys, as of now. Runs in an executor.

    Raises MisplacedVersionError, and as `batch.plan_batch` and `reading.read_ranges`.
    """
    with warm_cluster(options) as cluster:
        # The ends first: a timeline that is read afterwards knows every epoch below them.
        ranges = [r for r in _ranges(options, cluster) if _concerns(share, r.topic)]
        topics = sorted({r.topic for r in ranges})
        timelines, topic_ids = cluster.known_timelines(topics), dict(cluster.topic_ids)
    for topic in topics:
        own = [r for r in ranges if r.topic == topic]
        yield from _Reduction(options, share, own, timelines.get(topic), topic_ids.get(topic, "")).run()


def _ranges(options: SourceOptions, cluster: QueryCluster) -> list[Range]:
    """What there is to read now. In each task anew: a partition that has come since may be one that no offset is given for."""
    places = cluster.places()
    check_places(options.start, places)
    check_places(options.end, places)
    return bounds_of(options, cluster, places)


class _Reduction:
    """One topic of one task."""

    def __init__(
        self, options: SourceOptions, share: Share, ranges: list[Range], timeline: Timeline | None, topic_id: str
    ) -> None:
        compaction = _of(options)
        self._options, self._compaction, self._topic_id = replace(options, headers=True), compaction, topic_id
        self._headers = options.headers
        topic, count = ranges[0].topic, len(ranges)
        known = timeline or replace(unmanaged(topic, count), topic_id=topic_id)
        self._view = View(known, timeline is not None)
        self._strategy = compaction.strategy or Strategy.of(known.settings)
        self._share = Share(topic, known.layout) if share.beside is not None else share
        whole = compaction.everywhere or self._share.homes is None
        self._lived = None if whole else homes_over(self._share.layout, self._view.routing)
        reading = read_for(self._share, self._lived, [r.partition for r in ranges])
        self._ranges = tuple(r for r in ranges if r.partition in reading and r.size)

    def run(self) -> Iterator[pa.RecordBatch]:
        """All winners. Where they do not fit into memory the ranges are read again for a part of the keys at a time."""
        parts = [(0, 1)]
        while parts and self._ranges:
            number, of = parts.pop()
            table = self._folded(number, of)
            if table is None:
                parts += [(number + of, 2 * of), (number, 2 * of)]
            else:
                yield from self._winners(table)

    def _folded(self, number: int, of: int) -> VersionColumns | None:
        """The winners among the keys of part `number` of `of`; None if they are too big and can be parted further."""
        from ...compaction.columns import VersionColumns
        from ...compaction.placing import Placer
        from ...connector.arrow.schema import SCHEMA
        from .reading import read_ranges

        placer, table = Placer(self._topic_id, self._strategy), VersionColumns(SCHEMA.names)
        for batch in read_ranges(self._options, self._ranges, {self._ranges[0].topic: self._topic_id}):
            places = placer.place(batch, self._view, lambda: self._view)
            keep = places.keep & self._mine(batch, places)
            if of > 1:
                keep &= ((places.hashes.astype(np.uint64) * _SPREAD) >> np.uint64(44)) % np.uint64(of) == number
            table.fold(batch, replace(places, keep=keep))
            if table.size > self._compaction.memory:
                table.tidy()
                # Not at the limit itself: a table just below it would be tidied again with every batch.
                if table.size > self._compaction.memory // 4 * 3 and len(table) > 1 and of < _MOST_PARTS:
                    return None
        return table

    def _mine(self, batch: pa.RecordBatch, places: Places) -> Any:
        """Which rows are of this task's keys. Raises MisplacedVersionError where one of another's is seen here alone."""
        from ...connector.arrow.hashing import home_column

        homes = self._share.homes
        if homes is None:
            return np.ones(len(batch), bool)
        at = home_column(self._share.layout, batch.column("key"))
        mine = np.isin(at, list(homes))
        if self._lived is not None:
            partitions = batch.column("partition").to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(places.keep & ~mine & (places.at_epoch < 0)).tolist():
                partition = int(partitions[row])
                if partition not in self._lived[int(at[row])]:
                    raise MisplacedVersionError(self._share.topic, partition, batch.column("offset")[row].as_py())
        return mine

    def _winners(self, table: VersionColumns) -> Iterator[pa.RecordBatch]:
        for batch, rows in table.batches():
            if not self._compaction.tombstones:
                batch = batch.filter(pa.array(rows["live"].astype(bool)))
            if len(batch):
                yield batch if self._headers else batch.select(batch.schema.names[:-1])


def _of(options: SourceOptions) -> Compaction:
    assert options.compaction is not None
    return options.compaction


def _concerns(share: Share, topic: str) -> bool:
    return topic == share.topic if share.beside is None else topic not in share.beside
