"""How long things took, counted by their size: cheap to add to, cheap to read, and small for ever."""

from __future__ import annotations

from bisect import bisect_left

#: Upper bounds of the counts, in seconds; one more count is for what took longer.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Durations:
    """Counts of durations since it was made. One thread adds; any thread may read, and may miss the newest one.

    counts: how many were at most as long as each of `BOUNDS` and longer than the one before. total: their sum in seconds.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds
