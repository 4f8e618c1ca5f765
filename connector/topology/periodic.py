"""The rhythm of a controller's jobs."""

from __future__ import annotations


class Periodic:
    """Due every so often."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._next = float("-inf")

    def due(self, now: float) -> bool:
        """Whether the time since the last turn is over; asking counts as the beginning of the next one."""
        if now < self._next:
            return False
        self._next = now + self._every
        return True
