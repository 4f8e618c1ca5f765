"""Whether a task's process has stood still for so long that the group may have given its partitions away.

A process that is stopped, swapped out or on a suspended machine wakes in the middle of its work, with records in memory
that other members have put in the meantime. The client library learns of that with its next heartbeat, which may come after
the next `put` or `flush`. So whoever has stood still asks first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .... import clock

_DEFAULT_SESSION_MS = 45_000


class Standstill:
    """Seen from one thread, which calls `turn` once per turn of its work."""

    def __init__(self, consumer: Mapping[str, Any]) -> None:
        """consumer: the client's settings; half of its session may pass unseen."""
        self._patience = float(consumer.get("session.timeout.ms", _DEFAULT_SESSION_MS)) / 2000
        self._seen_at = clock.now()
        self._doubtful = False

    @property
    def doubtful(self) -> bool:
        """Whether the group has to be asked before anything more is put or flushed."""
        return self._doubtful or clock.now() - self._seen_at > self._patience

    def turn(self) -> None:
        """The thread is at work."""
        self._doubtful = self.doubtful
        self._seen_at = clock.now()

    def passed(self, since: float) -> None:
        """The group has answered a question of `since`: this member still belongs to it."""
        self._doubtful = False
        self._seen_at = since
