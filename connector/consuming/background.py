"""Threads of a consumer's: one that sleeps until it is woken, and what it has in common with one that comes and goes."""

from __future__ import annotations

import threading

from ..interruptible import Condition


class Background:
    """What a thread does that waits on `_wake`, and ends once `_stopping` is set."""

    def __init__(self) -> None:
        self._wake = Condition()
        self._stopping = False

    def retire(self) -> None:
        """Let the thread end, soon."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()

    def stop(self) -> None:
        """End the thread."""
        self.retire()
        thread = self._running()
        if thread is not None and thread.is_alive():
            thread.join(10)

    def _running(self) -> threading.Thread | None:
        """The thread; None for one that has come and gone."""
        raise NotImplementedError


class BackgroundThread(Background, threading.Thread):
    """Waits on `_wake` in `run`, and ends once `_stopping` is set."""

    def __init__(self, name: str) -> None:
        threading.Thread.__init__(self, name=name, daemon=True)
        Background.__init__(self)

    def _running(self) -> threading.Thread:
        return self

    def begin(self) -> None:
        """Start it when there is something to do for the first time. Called on any thread."""
        with self._wake:
            if self.ident is None and not self._stopping:
                self.start()
