"""A batch query: planned in the driver, bound to offsets when a task reads.

Spark plans a frame of a Python source once and runs that plan with every action. Offsets that were fixed then would show
an old state of the topic for ever: `count()` again, a view, a stream joined with a static frame. So a task knows its
partitions, and what `earliest`, `latest` and times mean is looked up when it runs, as Spark's own source does it. The
plan's offsets serve the checks and the sharing out alone.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import DataLossError, RangeError
from .cluster import QueryCluster
from .offsets import Place, Range
from .options import SourceOptions
from .starts import check_places, resolve
from .tasks import pack, split

_LOG = logging.getLogger("keyorder.streaming")
_lock = threading.Lock()
_idle: dict[Any, QueryCluster] = {}


@dataclass(frozen=True)
class Portion:
    """What one task of a batch reads.

    places: its partitions. beside: those of the other tasks, in the task that also reads what is in neither: partitions
    that were made since; None in all others. pieces: fixed ranges instead, where partitions are split over tasks.
    """

    places: tuple[Place, ...] = ()
    beside: tuple[Place, ...] | None = None
    pieces: tuple[Range, ...] | None = None


def plan_batch(options: SourceOptions) -> tuple[list[Portion], Mapping[str, str]]:
    """What each task reads, at least one, and the ids of the topics.

    Raises RangeError (a start behind its end), DataLossError, and as `starts.resolve`.
    """
    cluster = QueryCluster(options)
    try:
        places = cluster.places()
        check_places(options.start, places)
        check_places(options.end, places)
        ranges = _ranges(options, cluster, places)
        topic_ids = dict(cluster.topic_ids)
    finally:
        cluster.close()
    if options.min_partitions is not None or options.max_records is not None:
        pieces = split(ranges, options.min_partitions, options.max_records)
        return [Portion(pieces=(r,)) for r in pieces] or [Portion(pieces=())], topic_ids
    shares = [tuple((r.topic, r.partition) for r in task) for task in pack(ranges, options.task_records)]
    named = {place for share in shares for place in share}
    # Empty now is not empty later: these cost a task nothing while they are, so one has them all.
    shares.append(tuple(sorted(places - named)))
    return [Portion(share) for share in shares[:-1]] + [Portion(shares[-1], beside=tuple(sorted(named)))], topic_ids


def bind(options: SourceOptions, portion: Portion) -> tuple[tuple[Range, ...], Mapping[str, str]]:
    """The ranges of a task as of now, and the ids of its topics. Runs in an executor; raises as `plan_batch`."""
    assert portion.pieces is None
    with _warm_cluster(options) as cluster:
        there = cluster.places()
        mine = set(portion.places)
        if portion.beside is not None:
            check_places(options.start, there)
            check_places(options.end, there)
            mine |= there - set(portion.beside)
        gone = mine - there
        if gone:
            _lost(options, [f"partitions {', '.join(f'{t}-{p}' for t, p in sorted(gone))} have been deleted"])
        return tuple(_ranges(options, cluster, mine & there)), dict(cluster.topic_ids)


@contextmanager
def _warm_cluster(options: SourceOptions) -> Iterator[QueryCluster]:
    """A cluster that an earlier task of this worker process asked, or a new one: connecting takes longer than asking."""
    name = (repr(options), tuple(sorted((name, str(value)) for name, value in options.client.items())))
    with _lock:
        cluster = _idle.pop(name, None)
    cluster = cluster or QueryCluster(options)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    with _lock:
        surplus = _idle.get(name)
        _idle[name] = cluster
    if surplus is not None:
        surplus.close()


@atexit.register
def _close_idle() -> None:
    with _lock:
        found = list(_idle.values())
        _idle.clear()
    for cluster in found:
        cluster.close()


def _ranges(options: SourceOptions, cluster: QueryCluster, places: Collection[Place]) -> list[Range]:
    ends, log_starts = cluster.ends(places), cluster.log_starts(places)
    start = resolve(options.start, cluster, ends, log_starts, options.latest_without_match)
    until = resolve(options.end, cluster, ends, log_starts, latest_without_match=True)
    ranges = [Range(t, p, start[t, p], end) for (t, p), end in sorted(until.items())]
    for r in ranges:
        if r.start > r.end:
            raise RangeError(r.topic, r.partition, r.start, r.end)
    _lost(
        options,
        [
            f"{r.topic}-{r.partition} ends at {ends[r.topic, r.partition]}"
            for r in ranges
            if r.end > ends[r.topic, r.partition]
        ],
    )
    return [Range(r.topic, r.partition, r.start, min(r.end, ends[r.topic, r.partition])) for r in ranges]


def _lost(options: SourceOptions, found: list[str]) -> None:
    if found and options.fail_on_data_loss:
        raise DataLossError("; ".join(found))
    if found:
        _LOG.warning("reading without lost data, as failOnDataLoss=false says: %s", "; ".join(found))
