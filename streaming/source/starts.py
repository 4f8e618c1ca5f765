"""Where a query starts and a batch query ends, from what the options say. Asks the cluster only what it must."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import NoOffsetForTimeError, OffsetsMismatchError
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

    latest_without_match: a time later than the last record means the end; otherwise it is an error.

    Raises OffsetsMismatchError, NoOffsetForTimeError.
    """
    if bound.kind is BoundKind.LATEST:
        return dict(ends)
    if bound.kind is BoundKind.EARLIEST:
        return dict(log_starts)
    if bound.kind is BoundKind.OFFSETS:
        _check_same(bound.option, bound.offsets, ends, "Use -1 for latest, -2 for earliest.")
        special = {LATEST: ends, EARLIEST: log_starts}
        return {p: special[o][p] if o in special else o for p, o in bound.offsets.items()}
    if bound.kind is BoundKind.TIMES:
        _check_same(bound.option, bound.offsets, ends, "Every partition needs a time.")
    times = dict(bound.offsets) if bound.kind is BoundKind.TIMES else dict.fromkeys(ends, bound.time)
    found: dict[Place, int] = {}
    for place, offset in cluster.offsets_for_times(times).items():
        if offset is None and not latest_without_match:
            raise NoOffsetForTimeError(*place, times[place])
        found[place] = ends[place] if offset is None else offset
    return found


def _check_same(option: str, given: Mapping[Place, int], there: Collection[Place], hint: str) -> None:
    if set(given) != set(there):
        raise OffsetsMismatchError(option, _text(given), _text(there), hint)


def _text(places: Collection[Place]) -> str:
    return "{" + ", ".join(f"{t}-{p}" for t, p in sorted(places)) + "}"
