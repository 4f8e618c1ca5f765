"""Where a query starts and a batch query ends, from what the options say. Asks the cluster only what it must."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import NoOffsetForTimeError, OffsetsMismatchError, UnknownStartError
from .cluster import QueryCluster
from .offsets import EARLIEST, LATEST, Place
from .options import Bound, BoundKind


def resolve(
    bound: Bound,
    cluster: QueryCluster,
    ends: Mapping[Place, int],
    log_starts: Mapping[Place, int],
    latest_without_match: bool,
) -> dict[Place, int]:
    """The offsets that `bound` means, for every place of `ends`. An offset given by hand is taken as it is.

    latest_without_match: a time later than the last record means the end; otherwise it is an error. That the bound names
    the partitions that there are is for `check_places` to say.

    Raises NoOffsetForTimeError.
    """
    if bound.kind is BoundKind.LATEST:
        return dict(ends)
    if bound.kind is BoundKind.EARLIEST:
        return dict(log_starts)
    if bound.kind is BoundKind.OFFSETS:
        special = {LATEST: ends, EARLIEST: log_starts}
        return {p: special[o][p] if o in special else o for p, o in bound.expanded(ends).items() if p in ends}
    if bound.kind is BoundKind.TIMES:
        times = {p: time for p, time in bound.offsets.items() if p in ends}
    else:
        times = dict.fromkeys(ends, bound.time)
    found: dict[Place, int] = {}
    for place, offset in cluster.offsets_for_times(times).items():
        if offset is None and not latest_without_match:
            raise NoOffsetForTimeError(*place, times[place])
        found[place] = ends[place] if offset is None else offset
    return found


def check_places(bound: Bound, there: Collection[Place]) -> None:
    """Raises OffsetsMismatchError where offsets or times are given for other partitions than there are."""
    hints = {
        BoundKind.OFFSETS: "Use -1 for latest, -2 for earliest.",
        BoundKind.TIMES: "Every partition needs a time.",
    }
    given = set(bound.expanded(there)) | {(topic, 0) for topic in bound.topics}
    if bound.kind in hints and given != set(there):
        raise OffsetsMismatchError(bound.option, _text(given), _text(there), hints[bound.kind])


def first_start(bound: Bound, start: Mapping[Place, int]) -> dict[Place, int]:
    """What the end of a query's first batch has to say of that batch's start.

    Spark keeps the end of each batch. The first one has no batch before it that would have kept its start, and when it
    is run again after a failure, "latest" or "earliest" mean later offsets: what lies in between would be skipped unseen.
    Offsets that were given as numbers need no record, nor does the beginning of a log from which nothing was deleted.
    """
    if _is_fixed(bound):
        return {}
    return {place: offset for place, offset in start.items() if offset or bound.kind is not BoundKind.EARLIEST}


def known_start(bound: Bound, start: Mapping[Place, int], recorded: Mapping[Place, int]) -> dict[Place, int]:
    """Where the first batch starts, from what `first_start` has recorded. start: what `bound` means now.

    Raises UnknownStartError: the batch was planned by another source, or by a version that recorded nothing.
    """
    if _is_fixed(bound):
        return dict(start)
    if not recorded and bound.kind is not BoundKind.EARLIEST and start:
        raise UnknownStartError(bound.option)
    return {place: recorded.get(place, 0) for place in start}


def _is_fixed(bound: Bound) -> bool:
    return bound.kind is BoundKind.OFFSETS and not bound.topics and not {LATEST, EARLIEST} & set(bound.offsets.values())


def _text(places: Collection[Place]) -> str:
    return "{" + ", ".join(f"{t}-{p}" for t, p in sorted(places)) + "}"
