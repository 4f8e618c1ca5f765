"""Conditions and events that a signal handler which raises, or comes back, does not leave locked; steps that are all taken.

`threading.Condition` is entered and left by Python code. A signal between its lock and the body that it guards leaves the lock
taken for ever, and every thread that needs it then waits for ever; in `Event.set()` a handler that sets the event again waits
for its own thread. Whatever the application's thread enters is one of these.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn


class Condition(threading.Condition):
    """A condition over a lock that its holder may take again. `with` takes and frees the lock itself: no code runs between."""

    # Looked up on the type and then bound, so that the statement calls the lock's own methods.
    __enter__ = property(attrgetter("_take"))
    __exit__ = property(attrgetter("_free"))

    lock: Any

    def __init__(self, of: Condition | None = None) -> None:
        """of: a condition whose lock this one shares."""
        self.lock = lock = threading.RLock() if of is None else of.lock
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


def take_each(steps: list[Callable[[], object]]) -> None:
    """Take each step. What breaks one off, such as a signal's exception, goes out when the others have been taken."""
    try:
        while steps:
            steps[0]()
            del steps[0]
    finally:
        if steps:
            del steps[0]
            take_each(steps)


def raise_lost(error: SystemError) -> NoReturn:
    """Raise the exception that a call of the client library has lost, if this error stands for one, else the error itself.

    Before Python 3.12 the library keeps of a callback's exception the value alone. Python's own handler of Ctrl-C raises one
    without, a bare type: the call fails with nothing to raise. As a SystemError an `except Exception` would swallow Ctrl-C.
    """
    if error.__cause__ is not None:
        raise error.__cause__
    # "... returned NULL without setting an exception", "error return without exception set"
    nothing = "without" in str(error) and threading.current_thread() is threading.main_thread()
    if nothing and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise KeyboardInterrupt from None
    raise error
