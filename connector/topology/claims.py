"""Which topics this process is changing: a second controller of its own would fence the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Claims:
    """A topic is claimed by one worker of the process at a time. Thread-safe; nobody waits."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._claimed: set[str] = set()

    def take(self, topic: str) -> bool:
        """Claim it, until `give_back`. False where somebody else has."""
        with self._lock:
            free = topic not in self._claimed
            self._claimed.add(topic)
            return free

    def give_back(self, topic: str) -> None:
        """To be called by who took it."""
        with self._lock:
            self._claimed.discard(topic)

    def __contains__(self, topic: str) -> bool:
        with self._lock:
            return topic in self._claimed

    @contextmanager
    def claimed(self, topic: str) -> Iterator[bool]:
        """`take` for as long as the block lasts, and give back if it was free."""
        free = self.take(topic)
        try:
            yield free
        finally:
            if free:
                self.give_back(topic)
