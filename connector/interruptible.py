"""Conditions and events that a signal handler which raises, or comes back, does not leave locked.

`threading.Condition` is entered and left by Python code. A signal between its lock and the body that it guards leaves the lock
taken for ever, and every thread that needs it then waits for ever; in `Event.set()` a handler that sets the event again waits
for its own thread. Whatever the application's thread enters is one of these.
"""

from __future__ import annotations

import threading
from operator import attrgetter


class Condition(threading.Condition):
    """A condition over a lock that its holder may take again. `with` takes and frees the lock itself: no code runs between."""

    # Looked up on the type and then bound, so that the statement calls the lock's own methods.
    __enter__ = property(attrgetter("_take"))
    __exit__ = property(attrgetter("_free"))

    def __init__(self) -> None:
        lock = threading.RLock()
        super().__init__(lock)
        self._take, self._free = lock.__enter__, lock.__exit__


class Event:
    """As threading.Event."""

    def __init__(self) -> None:
        self._condition, self._is_set = Condition(), False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Wake all who wait."""
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def clear(self) -> None:
        """Who waits from now on waits for the next set()."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for `timeout` seconds at most. Whether it is."""
        with self._condition:
            return self._is_set or self._condition.wait(timeout)
