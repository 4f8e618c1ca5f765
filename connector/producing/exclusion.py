"""The producer's lock, also for those who come in the middle of a section that it guards.

A signal handler, or an object's finalizer, runs between two steps of the thread that it interrupts. If that thread holds the
lock, whoever waits for it there waits for ever, and whoever enters again finds a state that is half changed. So what needs
the lock is put off until the interrupted call has let go of it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Exclusion:
    """lock: guards the state that the application's threads and the session's share."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        self._late: deque[Callable[[], object]] = deque()

    @property
    def interrupted(self) -> bool:
        """Whether this thread holds the lock already: it has been interrupted in the middle."""
        return bool(self.lock._is_owned())

    def run(self, call: Callable[[], object]) -> None:
        """Call it under the lock, or later, and perhaps again, if this thread was interrupted while it held the lock."""
        if self.interrupted:
            self._late.append(call)
        else:
            with self.lock:
                call()

    def settle(self) -> None:
        """Do what was put off. Costs nothing when there is nothing.

        What an exception breaks off is done again with the next call: whatever is given to run() has to bear that.
        """
        while self._late and not self.interrupted:
            with self.lock:
                if self._late:
                    self._late[0]()
                    self._late.popleft()
