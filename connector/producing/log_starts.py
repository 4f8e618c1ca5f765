"""Where the logs of compacted topics begin, followed by a thread: a move tombstone below it would clear nothing.

An answer that is old, or missing, is too low at worst. A tombstone is then sent that was not needed, never the reverse.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ...partitioner.errors import KeyorderError
from ..interruptible import Event
from ..link import ClusterLink

_EVERY = 60.0


class LogStarts:
    """The log starts of some topics, asked for at once and then every `every` seconds. `close` it."""

    def __init__(self, link: ClusterLink, every: float = _EVERY) -> None:
        self._link, self._every = link, every
        self._counts: dict[str, Callable[[], int]] = {}
        self._known: dict[str, dict[int, int]] = {}
        self._closing = Event()
        self._threads: dict[str, threading.Thread] = {}

    def follow(self, topic: str, partitions: Callable[[], int]) -> None:
        """Ask on this thread now, and on one of its own from then on. partitions: how many may hold records by then."""
        self._ask(topic, partitions())
        self._counts[topic] = partitions
        thread = threading.Thread(target=self._run, name="keyorder-log-starts", daemon=True)
        # One, whichever of several threads comes first. Without a lock: a signal handler may come back here.
        if self._threads.setdefault("one", thread) is thread:
            thread.start()

    def of(self, topic: str) -> Mapping[int, int]:
        """{partition: log start} as last heard; a partition of which nothing was heard is missing."""
        return self._known.get(topic, {})

    def let_go(self) -> None:
        """Let the thread end."""
        self._closing.set()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        for thread in self._threads.values():
            thread.join(10)

    def _run(self) -> None:
        while not self._closing.wait(self._every):
            for topic, partitions in list(self._counts.items()):
                self._ask(topic, partitions())

    def _ask(self, topic: str, partitions: int) -> None:
        try:
            found = self._link.offsets.earliest([(topic, p) for p in range(partitions)], timeout=5.0)
        except KeyorderError:
            return  # what was heard before is still no higher than the truth
        self._known[topic] = {p: start for (_, p), start in found.items()}
