"""The client library's statistics, from when on they tell of the partitions that were assigned."""

from __future__ import annotations

import json
from collections.abc import Callable, Container

from .. import clock
from ..messages import Place

# Seconds. Where a partition is not there after them, a broker is away or a gate is closed: then statistics are wanted most.
_PATIENCE = 5.0


class Statistics:
    """Keeps statistics back that do not tell yet of a partition that was assigned a moment ago.

    With the library's own `assign()` the next statistics have the partition, and programs look it up there without asking.
    Here the library is given a partition when its start is known, and statistics of before may still be under way then.

    owned: all partitions of this member. Used by the polling thread alone.
    """

    def __init__(self, owned: Container[Place]) -> None:
        self._owned = owned
        self._awaited: dict[Place, float] = {}

    def assigned(self, place: Place) -> None:
        """From now on."""
        self._awaited[place] = clock.now()

    def tell(self, callback: Callable[[str], object], text: str) -> None:
        """Call the application's `stats_cb`, if they are complete."""
        if not self._awaited or self._complete(text):
            callback(text)

    def _complete(self, text: str) -> bool:
        now = clock.now()
        self._awaited = {p: at for p, at in self._awaited.items() if p in self._owned and now - at < _PATIENCE}
        if self._awaited:
            topics = json.loads(text).get("topics", {})
            for topic, partition in list(self._awaited):
                if str(partition) in topics.get(topic, {}).get("partitions", {}):
                    del self._awaited[topic, partition]
        return not self._awaited
