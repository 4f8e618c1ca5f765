"""Letting a member of an eager group see new partitions at once, on a thread of its own.

A member finds new partitions at its next metadata refresh, minutes later by default; a look at *all* topics wakes it.
That call has been seen not to return while the group rebalances, whatever its time-out, so nothing may wait for it: a
later wake goes to a new thread, and a rare refresh is set as the second line (`connector.config`).
"""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaException

from ..interruptible import Event

_TIMEOUT = 5.0


class MetadataRefresher:
    """Wakes one consumer. Calls that overlap are made one after another."""

    def __init__(self, raw: Consumer) -> None:
        self._raw = raw
        self._again = Event()
        self._running: threading.Thread | None = None

    def wake(self) -> None:
        """Have the client library look at all topics soon. Returns at once."""
        overdue = self._again.is_set()
        self._again.set()
        if overdue or self._running is None or not self._running.is_alive():
            self._start()

    def _start(self) -> None:
        self._running = threading.Thread(target=self._look, name="keyorder-refresher", daemon=True)
        self._running.start()

    def _look(self) -> None:
        while self._again.is_set():
            self._again.clear()
            try:
                self._raw.list_topics(timeout=_TIMEOUT)
            except (KafkaException, RuntimeError):
                return  # no broker, or closed: the client's own refresh follows
