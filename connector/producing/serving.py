"""Who serves delivery reports: the application's threads, or the session's for an application that does not poll just now.

What the session's thread takes is put aside for the application, which would hear of it only after its own wait in poll().
So the session leaves the reports to a thread that waits there, unless that has been so for long: a callback must be stuck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer

from .. import clock
from ..interruptible import Event

T = TypeVar("T")
_SLICE, _MOMENT = 0.05, 0.001


class Serving:
    """Waits of one client. run_deferred: runs what was put aside, on the application's thread, and returns how many.

    broken_off: an exception, of a callback or of a signal, came out of the client: a report may not have been counted.
    """

    def __init__(self, raw: Producer, run_deferred: Callable[[], int], broken_off: Callable[[], None]) -> None:
        self._raw, self._run_deferred, self._broken_off = raw, run_deferred, broken_off
        self._waiting: dict[int, float] = {}
        self._left = Event()
        self._ended = False
        self.by_session = False

    def poll(self, timeout: float | None) -> int:
        """See OrderedProducer.poll."""
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            served = self._wait(self._raw.poll, deadline)
            if served or self.inside or (deadline is not None and clock.now() >= deadline):
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

    def beneath(self, call: Callable[..., T], *arguments: Any) -> T:
        """Any other call of the client that lasts: a signal handler may come in it, and must not close the client there."""
        me = threading.get_ident()
        if me in self._waiting:
            return call(*arguments)
        self._waiting[me] = clock.now()
        try:
            return call(*arguments)
        except KafkaException:
            raise  # the client's own: no report was broken off
        except BaseException:
            self._broken_off()
            raise
        finally:
            self._waiting.pop(me, None)
            if self._ended:
                self._left.set()

    @property
    def inside(self) -> bool:
        """Whether this thread is in the client's poll() or flush(): a callback or a signal handler runs beneath it."""
        return threading.get_ident() in self._waiting

    def end(self, timeout: float) -> bool:
        """Let no thread into the client any more, and wait until those that are there have left.

        False after `timeout` seconds: a callback may be stuck there.
        """
        self._ended = True
        me, deadline = threading.get_ident(), clock.now() + timeout
        while any(thread != me for thread in list(self._waiting)):
            if clock.now() >= deadline:
                return False
            self._left.wait(_SLICE)
            self._left.clear()
        return True

    def _wait(self, wait: Callable[[float], int], deadline: float | None) -> int:
        me, now = threading.get_ident(), clock.now()
        if me in self._waiting:
            # Beneath a callback or a signal handler: the binding's state of the outer call would not survive another one.
            return 0
        # First seen to wait, then what was put aside: the session puts nothing aside in between, but for one that it is at.
        self._waiting[me] = now
        try:
            if self._ended:
                raise RuntimeError("Producer has been closed")
            count = self._run_deferred()
            most = _MOMENT if count or self.by_session else _SLICE
            count += int(wait(most if deadline is None else max(0.0, min(most, deadline - now))))
        except BaseException:
            if not self._ended:
                self._broken_off()
            raise
        finally:
            self._waiting.pop(me, None)
            self._left.set()
        return count + self._run_deferred()
