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
        """Call it under the lock, or later if this thread was interrupted while it held the lock."""
        if self.interrupted:
            self._late.append(call)
        else:
            with self.lock:
                call()

    def settle(self) -> None:
        """Do what was put off. Costs nothing when there is nothing."""
        while self._late and not self.interrupted:
            with self.lock:
                taken: list[Callable[[], object]] = []
                begun = False
                try:
                    taken.extend(
                        map(deque.popleft, [self._late] if self._late else [])
                    )  # one step: no signal comes in the middle
                    for call in taken:
                        begun = True
                        call()
                except BaseException:
                    if not begun:
                        self._late.extendleft(taken)
                    raise
