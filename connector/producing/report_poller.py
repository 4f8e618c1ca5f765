"""Who serves delivery reports: the application's threads, or the session's for an application that does not poll just now.

What the session's thread takes is put aside for the application, which would hear of it only after its own wait in poll().
So the session leaves the reports to a thread that waits there, unless that has been so for long: a callback must be stuck.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer

from .. import clock
from ..interruptible import Event, raise_lost
from .reports import Reports

T = TypeVar("T")
_SLICE, _MOMENT = 0.05, 0.001


class DeliveryReportPoller:
    """Waits of one client. settle: does what a signal handler put off. reports: what the client calls with.

    broken_off: an exception, of a callback or of a signal, came out: a report may not have been counted.
    """

    def __init__(
        self, raw: Producer, reports: Reports, settle: Callable[[], None], broken_off: Callable[[], None]
    ) -> None:
        self._raw, self._reports, self._settle, self._broken_off = raw, reports, settle, broken_off
        self._waiting: dict[int, float] = {}
        self._left = Event()
        self._at_last: deque[Callable[[], object]] = deque()
        self._ended = False

    def poll(self, timeout: float | None) -> int:
        """See OrderedProducer.poll."""
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while True:
            served = self._wait(self._raw.poll, deadline)
            if served or self.inside or (deadline is not None and clock.now() >= deadline):
                return served

    def flush(self, deadline: float | None, held: bool = False) -> None:
        """Wait for deliveries, up to a moment: held records may have to be released in between.

        held: there are some. The client knows nothing of them: its own flush would return at once, again and again.
        """
        self._wait(self._raw.poll if held and not len(self._raw) else self._raw.flush, deadline)

    def for_session(self) -> None:
        """Serve on the session's thread, without waiting, if nobody else does."""
        now = clock.now()
        if any(now - since < 2 * _SLICE for since in list(self._waiting.values())):
            return
        self._reports.counting = threading.get_ident()
        try:
            self._raw.poll(0)
        except KafkaException:
            raise  # the client's own
        except BaseException as raised:
            # A handler of the application's logger, which the client calls itself: the application hears of it.
            self._reports.raise_later(raised)
        finally:
            self._reports.counting = None

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
        except BaseException as error:
            self._broken_off()
            if isinstance(error, SystemError):
                raise_lost(error)
            raise
        finally:
            # Not in a function of ours: a signal's exception at its entry could keep it from it.
            self._waiting.pop(me, None)
            self._wake_others()

    @property
    def inside(self) -> bool:
        """Whether this thread is in the client's poll() or flush(): a callback or a signal handler runs beneath it."""
        return threading.get_ident() in self._waiting

    def end(self, timeout: float) -> None:
        """Let no thread into the client any more, and wait until those that are there have left, or for `timeout` seconds."""
        self._ended = True
        me, deadline = threading.get_ident(), clock.now() + timeout
        while any(thread != me for thread in list(self._waiting)) and clock.now() < deadline:
            self._left.wait(_SLICE)
            self._left.clear()

    def release(self, release: Callable[[], object]) -> None:
        """After `end`: call it now, or, if a callback is stuck in the client, on the thread that leaves last."""
        self._at_last.append(release)
        self._release_at_last()

    def _wake_others(self) -> None:
        if self._ended:
            self._release_at_last()
        self._left.set()

    def _release_at_last(self) -> None:
        with suppress(IndexError):  # another thread was faster
            while self._at_last and not self._waiting:
                self._at_last.popleft()()

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
            count = self._run()
            most = _MOMENT if count or self._reports.counting is not None else _SLICE
            count += int(wait(most if deadline is None else clock.blocking(min(most, deadline - now))))
            return count + self._run()
        except BaseException as error:
            if not self._ended:
                self._broken_off()
            if isinstance(error, SystemError):
                raise_lost(error)
            raise
        finally:
            # Not in a function of ours: a signal's exception at its entry could keep it from it.
            self._waiting.pop(me, None)
            self._wake_others()

    def _run(self) -> int:
        """What was left by others, or when an exception broke a call off. Returns how many reports and events."""
        self._settle()
        return self._reports.run()
