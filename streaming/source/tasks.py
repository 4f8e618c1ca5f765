"""Which ranges of a batch one task reads. Pure.

A task costs some milliseconds of Python whatever it reads, so small ranges share one; a big one has its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from .offsets import Range


def pack(ranges: Iterable[Range], small: int) -> list[tuple[Range, ...]]:
    """One tuple per task. Ranges are put together, in their order, while a task has at most `small` records."""
    tasks: list[tuple[Range, ...]] = []
    gathered: list[Range] = []
    for each in sorted(r for r in ranges if r.size > 0):
        if gathered and sum(r.size for r in gathered) + each.size > small:
            tasks.append(tuple(gathered))
            gathered = []
        gathered.append(each)
    return [*tasks, tuple(gathered)] if gathered else tasks


def split(ranges: Iterable[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Cut ranges for `maxRecordsPerPartition` and `minPartitions`, as Spark's own source does: sizes, then shares."""
    found = [r for r in ranges if r.size > 0]
    if max_records is not None:
        found = [piece for r in found for piece in _cut(r, -(-r.size // max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(r.size for r in found)
    # The smallest ranges stay whole; the rest is cut into what is left, by size.
    whole = [r for r in found if r.size * min_partitions < total]
    left, size = min_partitions - len(whole), total - sum(r.size for r in whole)
    return [piece for r in found for piece in _cut(r, 1 if r in whole else int(r.size / size * left + 0.5))]


def _cut(whole: Range, parts: int) -> list[Range]:
    parts = max(1, min(parts, whole.size))
    edges = [whole.start + whole.size * i // parts for i in range(parts + 1)]
    return [Range(whole.topic, whole.partition, a, b) for a, b in pairwise(edges)]
