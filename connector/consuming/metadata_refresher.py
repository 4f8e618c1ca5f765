"""Letting a consumer see new partitions at once, on a thread of its own; not that of a classic group, see `growth_watch`.

It finds new partitions at its next metadata refresh, minutes later by default; a look at *all* topics wakes it.
That call has been seen not to return while the group rebalances, whatever its time-out, so nothing may wait for it: a wake
that comes long after it began goes to a new thread, and a rare refresh is set as the second line (`connector.config`).

A look makes an object of each partition of the cluster, so wakes that come during one have one more look in common: a member
that starts with hundreds of topics is woken for each of them.
"""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaException

from .. import clock

# Seconds: what a look is given, and after how long nobody counts on it any more.
_TIMEOUT, _OVERDUE = 5.0, 10.0


class MetadataRefresher:
    """Wakes one consumer."""

    def __init__(self, raw: Consumer) -> None:
        self._raw = raw
        self._lock = threading.Lock()
        self._again = self._looking = False
        self._began = 0.0
        self._number = 0  # of the thread that looks; what an earlier one finds out in the end counts no more

    def wake(self) -> None:
        """Have the client library look at all topics soon. Returns at once. Not for the application's thread."""
        with self._lock:
            self._again = True
            if self._looking and clock.now() - self._began < _OVERDUE:
                return
            self._looking, self._began = True, clock.now()
            self._number += 1
            number = self._number
        threading.Thread(target=self._look, args=(number,), name="keyorder-refresher", daemon=True).start()

    def _look(self, number: int) -> None:
        try:
            while self._take(number):
                self._raw.list_topics(timeout=_TIMEOUT)
        except (KafkaException, RuntimeError):
            self._end(number)  # no broker, or closed: the client's own refresh follows

    def _take(self, number: int) -> bool:
        """Whether there is to be a look, by this thread."""
        with self._lock:
            if number != self._number:
                return False
            self._looking, self._again = self._again, False
            self._began = clock.now()
            return self._looking

    def _end(self, number: int) -> None:
        with self._lock:
            if number == self._number:
                self._looking = False
