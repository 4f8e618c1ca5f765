"""A batch query's ranges."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import DataLossError, RangeError
from .cluster import QueryCluster
from .offsets import Range
from .options import SourceOptions
from .starts import resolve
from .tasks import pack, split


def plan_batch(options: SourceOptions) -> tuple[list[tuple[Range, ...]], Mapping[str, str]]:
    """What each task reads, and the ids of the topics.

    Raises RangeError (a start behind its end), DataLossError, and as `starts.resolve`.
    """
    cluster = QueryCluster(options)
    try:
        places = cluster.places()
        ends, log_starts = cluster.ends(places), cluster.log_starts(places)
        start = resolve(options.start, cluster, ends, log_starts, options.latest_without_match)
        until = resolve(options.end, cluster, ends, log_starts, latest_without_match=True)
    finally:
        cluster.close()
    ranges = [Range(t, p, start[t, p], end) for (t, p), end in sorted(until.items())]
    for r in ranges:
        if r.start > r.end:
            raise RangeError(r.topic, r.partition, r.start, r.end)
    lost = [
        f"{r.topic}-{r.partition} ends at {ends[r.topic, r.partition]}"
        for r in ranges
        if r.end > ends[r.topic, r.partition]
    ]
    if lost and options.fail_on_data_loss:
        raise DataLossError("; ".join(lost))
    ranges = [Range(r.topic, r.partition, r.start, min(r.end, ends[r.topic, r.partition])) for r in ranges]
    if options.min_partitions is not None or options.max_records is not None:
        return [(r,) for r in split(ranges, options.min_partitions, options.max_records)], cluster.topic_ids
    return pack(ranges, options.task_records), cluster.topic_ids
