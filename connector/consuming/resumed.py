"""Partitions that the client library was told to go on with, until something has come of each.

The library pauses all partitions by itself as a rebalance begins. A pause or a resume of ours that meets one of its own is
dropped, and reported as done (librdkafka 5591): a partition whose resume was lost stands still for good. So it is told once
more of each that stays silent; a resume of what is not paused it takes no notice of. After a resume it tells of records, or of
the end of the partition. What is silent for longer has perhaps lost its start in the same way, and is fetched anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ..messages import Place

# Seconds: until a partition counts as silent, until it is fetched anew, and the longest wait between two such times.
_SILENT, _ANEW, _LONGEST = 1.0, 5.0, 60.0


class Resumed:
    """Which partitions are silent since they were resumed. Used by the polling thread alone."""

    def __init__(self) -> None:
        self._due: dict[Place, tuple[float, float]] = {}
        self._earliest = inf

    def told(self, places: Iterable[Place], now: float) -> None:
        """The library was told to go on with these."""
        for place in places:
            self._due[place] = now + _SILENT, _SILENT
        self._earliest = min(self._earliest, now + _SILENT)

    def begun(self, places: Iterable[Place], now: float) -> None:
        """The library was told so as their fetching began. Where one is silent already, its waits go on."""
        self.told([place for place in places if place not in self._due], now)

    def over(self, place: Place) -> None:
        """Something has come of it, or nothing is to come."""
        self._due.pop(place, None)

    def any_due(self, now: float) -> bool:
        """Whether `due` may have some."""
        return now >= self._earliest

    def due(self, now: float) -> tuple[list[Place], list[Place]]:
        """What to tell the library once more, and what to fetch anew. Each again later, as long as it stays silent."""
        silent: list[Place] = []
        anew: list[Place] = []
        for place, (at, waited) in self._due.items():
            if now >= at:
                (silent if waited < _ANEW else anew).append(place)
                wait = min(_ANEW if waited < _ANEW else 2 * waited, _LONGEST)
                self._due[place] = now + wait, wait
        self._earliest = min((at for at, _ in self._due.values()), default=inf)
        return silent, anew
