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
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
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
# By their options, the one that was used last at the end. A long-lived worker meets other options with every query.
_idle: OrderedDict[Any, QueryCluster] = OrderedDict()
_IDLE_AT_MOST = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a partition. start, end: where it was cut; None for where the query's options say, looked up when it is read."""

    topic: str
    partition: int
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Portion:
    """What one task of a batch reads.

    beside: the partitions of the other tasks, in the task that also reads what is in neither: partitions that were made
    since; None in all others.
    """

    pieces: tuple[Piece, ...] = ()
    beside: tuple[Place, ...] | None = None


def plan_batch(options: SourceOptions) -> list[Portion]:
    """What each task reads, at least one.

    Raises RangeError (a start behind its end), DataLossError, and as `starts.resolve`.
    """
    cluster = QueryCluster(options)
    try:
        places = cluster.places()
        check_places(options.start, places)
        check_places(options.end, places)
        ranges = bounds_of(options, cluster, places)
    finally:
        cluster.close()
    cut = options.min_partitions is not None or options.max_records is not None
    tasks: list[tuple[Range, ...]] = pack(ranges, options.task_records)
    if cut:
        tasks = [(r,) for r in split(ranges, options.min_partitions, options.max_records)]
    portions = [Portion(tuple(_piece(r, ranges) for r in task)) for task in tasks]
    named = {(r.topic, r.partition) for task in tasks for r in task}
    if cut or not portions:
        portions.append(Portion())
    # Empty now is not empty later: these cost a task nothing while they are, so one has them all.
    empty = tuple(Piece(*place) for place in sorted(places - named))
    last = portions.pop()
    mine = {(piece.topic, piece.partition) for piece in (*last.pieces, *empty)}
    others = tuple(sorted((named | places) - mine))
    return [*portions, Portion((*last.pieces, *empty), beside=others)]


def _piece(r: Range, whole: Iterable[Range]) -> Piece:
    """A range without the edges that it shares with its partition's."""
    edges = next((w.start, w.end) for w in whole if (w.topic, w.partition) == (r.topic, r.partition))
    return Piece(r.topic, r.partition, None if r.start == edges[0] else r.start, None if r.end == edges[1] else r.end)


def bind(options: SourceOptions, portion: Portion) -> tuple[tuple[Range, ...], Mapping[str, str]]:
    """The ranges of a task as of now, and the ids of its topics. Runs in an executor; raises as `plan_batch`."""
    with warm_cluster(options) as cluster:
        there = cluster.places()
        pieces = list(portion.pieces)
        mine = {(piece.topic, piece.partition) for piece in pieces}
        if portion.beside is not None:
            check_places(options.start, there)
            check_places(options.end, there)
            new = there - set(portion.beside) - mine
            pieces += [Piece(*place) for place in sorted(new)]
            mine |= new
        gone = mine - there
        if gone:
            _lost(options, [f"partitions {', '.join(f'{t}-{p}' for t, p in sorted(gone))} have been deleted"])
        bounds = {(r.topic, r.partition): r for r in bounds_of(options, cluster, mine & there)}
        found = [_bound(piece, bounds[piece.topic, piece.partition]) for piece in pieces if _place(piece) in bounds]
        return tuple(found), dict(cluster.topic_ids)


def _bound(piece: Piece, whole: Range) -> Range:
    start = whole.start if piece.start is None else max(piece.start, whole.start)
    end = whole.end if piece.end is None else min(piece.end, whole.end)
    return Range(piece.topic, piece.partition, start, max(start, end))


def _place(piece: Piece) -> Place:
    return piece.topic, piece.partition


@contextmanager
def warm_cluster(options: SourceOptions) -> Iterator[QueryCluster]:
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
        surplus = [other] if (other := _idle.pop(name, None)) is not None else []
        _idle[name] = cluster
        while len(_idle) > _IDLE_AT_MOST:
            surplus.append(_idle.popitem(last=False)[1])
    for other in surplus:
        other.close()


@atexit.register
def _close_idle() -> None:
    with _lock:
        found = list(_idle.values())
        _idle.clear()
    for cluster in found:
        cluster.close()


def bounds_of(options: SourceOptions, cluster: QueryCluster, places: Collection[Place]) -> list[Range]:
    """What there is to read now, partition by partition. Raises RangeError, DataLossError, and as `starts.resolve`."""
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
