"""Whether what a reader waits for is there at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from ..connector import clock
from ..partitioner.errors import BrokerUnreachableError
from .errors import LogShorterError

# Seconds without progress after which is looked.
_SILENCE = 5.0


class Silence:
    """Looks at the logs when nothing comes any more: a reader of a log that was cut off would wait for ever.

    ends: up to where each partition is to be read. look: checks the topic, and tells where the logs end now. A broker that is
    away is no reason to stop: the client library goes on when it is back.
    """

    def __init__(self, topic: str, ends: Mapping[int, int], look: Callable[[], Mapping[int, int]]) -> None:
        self._topic, self._ends, self._look = topic, ends, look
        self._waiting: dict[int, int] = {}
        self._short: set[int] = set()
        self._since = clock.now()

    def seen(self, positions: Mapping[int, int]) -> None:
        """Call it after each read with the next offset of each partition. Raises LogShorterError, and as `look` but for a
        broker that is away.
        """
        waiting = {p: positions.get(p, 0) for p, end in self._ends.items() if positions.get(p, 0) < end}
        if waiting != self._waiting:
            self._waiting, self._short, self._since = waiting, set(), clock.now()
        elif waiting and clock.now() - self._since >= _SILENCE:
            found: Mapping[int, int] = {}
            with suppress(BrokerUnreachableError):
                found = self._look()
            short = {p for p in waiting if found.get(p, self._ends[p]) < self._ends[p]}
            # A leader that is new may know less for a moment: only what two looks say counts.
            for p in sorted(short & self._short):
                raise LogShorterError(self._topic, p, found[p], self._ends[p])
            self._short, self._since = short, clock.now()
