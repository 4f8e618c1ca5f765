"""Where a moved key's move tombstones go, on a compacted topic (KIP-253, "Proposed Changes" 9, corrected).

A key's old value stays in the partition that it left, so a reader that builds its state anew would revive it. The KIP
sends one tombstone, to the direct parent, when that one's earliest offset is *above* the cut; that is when nothing old is
left. Here a tombstone goes to every earlier home that may still hold a value, as long as its log start is *below* the cut.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..hashing import key_bytes
from ..routing import Routing
from ..timeline import Timeline


def homes_to_clear(where: Routing | Timeline, key: bytes | str, log_starts: Mapping[int, int]) -> list[int]:
    """The partitions that need a move tombstone for `key`, in the order in which to send them: oldest home last.

    log_starts: {partition: earliest offset}, or what the compactor has purged to where that is higher. A partition that
    is missing there counts as holding all it ever had.

    The key's present home never appears: a tombstone there would delete its live value. A home that the key left more
    than once counts with its newest cut, and stands where its oldest stay belongs.
    """
    routing = where if isinstance(where, Routing) else Routing(where)
    route = routing.of(key_bytes(key))
    ends = {epoch.number: epoch.ends for epoch in routing.timeline.epochs}
    cuts: dict[int, int] = {}
    for move in route.moves:
        cuts[move.origin] = max(cuts.get(move.origin, 0), ends[move.epoch][move.origin])
    stale = [q for q, cut in cuts.items() if q != route.home and log_starts.get(q, 0) < cut]
    return stale[::-1]


def beginnings(log_starts: Mapping[int, int], purged: Mapping[int, int]) -> dict[int, int]:
    """{partition: offset} below which nothing old is left: the higher of log start and purge watermark."""
    return {p: max(log_starts.get(p, 0), purged.get(p, 0)) for p in {*log_starts, *purged}}
