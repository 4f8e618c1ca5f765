"""Who serves delivery reports: the application's threads, or the session's for an application that does not poll just now.

What the session's thread takes is put aside for the application, which would hear of it only after its own wait in poll().
So the session leaves the reports to a thread that waits there, unless that has been so for long: a callback must be stuck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Producer

from .. import clock

_SLICE, _MOMENT = 0.05, 0.001


class Serving:
    """Waits of one client. run_deferred: runs what was put aside, on the application's thread, and returns how many."""

    def __init__(self, raw: Producer, run_deferred: Callable[[], int]) -> None:
        self._raw, self._run_deferred = raw, run_deferred
        self._waiting: dict[int, float] = {}
        self.by_session = False

    def poll(self, timeout: float | None) -> int:
        """See OrderedProducer.poll."""
        if timeout == 0:
            return self._run_deferred() + int(self._raw.poll(0)) + self._run_deferred()
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            served = self._wait(self._raw.poll, deadline)
            if served or (deadline is not None and clock.now() >= deadline):
                return served

    def flush(self, deadline: float | None) -> None:
        """Wait for deliveries, up to a moment: held records may have to be released in between."""
        self._wait(self._raw.flush, deadline)

    def for_session(self) -> None:
        """Serve on the session's thread, without waiting, if nobody else does."""
        now = clock.now()
        if any(now - since < 2 * _SLICE for since in list(self._waiting.values())):
            return
        self.by_session = True
        try:
            self._raw.poll(0)
        finally:
            self.by_session = False

    def _wait(self, wait: Callable[[float], int], deadline: float | None) -> int:
        me, now = threading.get_ident(), clock.now()
        # First seen to wait, then what was put aside: the session puts nothing aside in between, but for one that it is at.
        self._waiting[me] = now
        try:
            count = self._run_deferred()
            most = _MOMENT if count or self.by_session else _SLICE
            count += int(wait(most if deadline is None else max(0.0, min(most, deadline - now))))
        finally:
            self._waiting.pop(me, None)
        return count + self._run_deferred()
