"""A thread of a consumer's that sleeps until it is woken."""

from __future__ import annotations

import threading

from ..interruptible import Condition


class BackgroundThread(threading.Thread):
    """Waits on `_wake` in `run`, and ends once `_stopping` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._wake = Condition()
        self._stopping = False

    def begin(self) -> None:
        """Start it when there is something to do for the first time. Called on any thread."""
        with self._wake:
            if self.ident is None and not self._stopping:
                self.start()

    def retire(self) -> None:
        """Let the thread end, soon."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()

    def stop(self) -> None:
        """End the thread."""
        self.retire()
        if self.is_alive():
            self.join(10)
