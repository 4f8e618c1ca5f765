"""Folding: the oldest epochs of a timeline leave it when nothing of them is left to wait for.

An epoch may fold when all before it have and its `ends` lie at or below the log start of each origin: no record of a
leaving key is left below its cuts, so a gate of it would wait for what nobody can read any more. The log start alone is
not enough. A reader may hold old records in memory that retention has deleted meanwhile, and would give them out behind
newer ones that no gate held back. So the epoch stays, and is gated, for longer than any reader may hold a record: the
longest `max.poll.interval.ms` that the client library takes (a day), and one hour for clocks that disagree.

A partition that its application keeps paused for longer than that, without losing its membership, is the exception: what
it then gives out from memory is a misplaced record by the base layout, and is counted and treated as one.

A compacted topic never folds. Its logs keep old values and the move tombstones that clear them, and a tombstone is told
from an application's own delete by the epoch that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .epochs import Epoch
from .timeline import Timeline

#: The longest `max.poll.interval.ms` that librdkafka takes, in seconds: a group member cannot be silent for longer.
LONGEST_POLL_INTERVAL_S = 86_400
#: How long an epoch stays after it was first seen that it may fold, in seconds.
FOLD_AFTER_S = LONGEST_POLL_INTERVAL_S + 3_600


def origins_to_fold(timeline: Timeline) -> frozenset[int]:
    """The partitions whose log starts decide what may fold; none when there is nothing to fold."""
    return frozenset(q for epoch in timeline.epochs[1:] for q in epoch.ends)


def folded(timeline: Timeline, log_starts: Mapping[int, int], now_ms: int) -> Timeline:
    """This timeline with what may fold noted, and folded once it has been noted for long enough.

    log_starts: of the partitions in `origins_to_fold`; one that is missing folds nothing. now_ms: the wall clock. A note
    from the future was made by a clock that was wrong, and counts from now.
    """
    noted: dict[int, int] = {}
    upto, due = None, True
    for epoch in timeline.epochs[1:]:
        if not _is_over(epoch, log_starts):
            break
        since = min(timeline.foldable.get(epoch.number, now_ms), now_ms)
        # Notes of several controllers: an older epoch may bear the later one.
        due = due and now_ms - since >= FOLD_AFTER_S * 1000
        if due:
            upto = epoch.number
        noted[epoch.number] = since
    found = timeline if noted == dict(timeline.foldable) else replace(timeline, foldable=noted)
    return found if upto is None else found.folded_to(upto)


def _is_over(epoch: Epoch, log_starts: Mapping[int, int]) -> bool:
    return all(q in log_starts and log_starts[q] >= ends for q, ends in epoch.ends.items())
