"""Real signals inside public calls, whose handler raises or closes: at a chosen line of the library, or after a chosen time.

By line the place is nearly the same each time the same lines run: a trace function counts the lines that keyorder executes in
one call, and sets a timer of a microsecond at one of them. An exception out of the trace function itself would come where no
signal can (before a `with` lets its lock go, for one). In the client library itself there are no lines: there it is a timer.

The handler acts only while the call runs. A result that was already returned is the application's, and an application that loses
it itself proves nothing. Nor does it act inside the application's own callbacks.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import keyorder

HERE = str(Path(__file__).parent)
THIS = str(Path(__file__))
PACKAGE = tuple(
    str(Path(keyorder.__file__ or "").parent / name) for name in ("connector", "partitioner", "compaction", "aio.py")
)


# A program whose handler closes its clients ends, as a rule: some times are enough.
MOST_CLOSES = 6


class Fault(Exception):
    """What a callback raises."""


class Interrupted(BaseException):
    """What a signal handler raises: no Exception, as a KeyboardInterrupt is none."""


FAULTS: dict[str, type[BaseException]] = {
    "Fault": Fault,
    "Interrupted": Interrupted,
    "KeyboardInterrupt": KeyboardInterrupt,
}


class Interrupts:
    """Decides before each public call whether a signal comes in it. Of the main thread alone.

    close: what the handler calls where the plan says that it closes the client.
    """

    def __init__(
        self,
        how: dict[str, Any] | None,
        rng: random.Random,
        ours: bool,
        close: Callable[[], None],
        did: Callable[[str], None],
    ) -> None:
        self._how, self._rng, self._ours, self._close, self._did = how, rng, ours, close, did
        self.armed = how is not None
        self._lines: dict[str, int] = {}
        self._count = self._at = 0
        self._name = ""
        self._frame: FrameType | None = None
        self._calls = self._closed = 0
        if how is not None:
            signal.signal(signal.SIGALRM, self._handle)

    def call(
        self, name: str, function: Callable[..., Any], *arguments: Any, **named: Any
    ) -> tuple[Any, BaseException | None]:
        """(result, None) of a call that completed, (None, what it raised) of any other."""
        result: Any = None
        try:
            try:
                self._arm(name)
                result = function(*arguments, **named)
                self._frame = None
            finally:
                self._frame = None
                self._disarm()
        except BaseException as raised:
            if result is None:
                return None, raised
        return result, None

    def _arm(self, name: str) -> None:
        how = self._how
        if not self.armed or how is None or name not in how["calls"] or self._closed >= MOST_CLOSES:
            return
        self._calls += 1
        if self._calls % how["every"]:
            return
        self._name, self._frame = name, sys._getframe(1)
        if how["by"] == "line" and self._ours:
            self._count, self._at = 0, self._rng.randint(1, max(40, self._lines.get(name, 0)))
            sys.settrace(self._trace)
        else:
            signal.setitimer(
                signal.ITIMER_REAL, self._rng.choice((0.0001, 0.0005, 0.002, 0.01, 0.05)) * self._rng.random() + 1e-6
            )

    def _disarm(self) -> None:
        if self._name:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._lines[self._name] = max(self._count, self._lines.get(self._name, 0) // 2)
            self._name = ""

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._count += 1
            if self._count == self._at:
                sys.settrace(None)
                signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-4)
        return self._line

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._frame is None or self._how is None:
            return
        if self._ours and frame is not None and frame.f_code.co_filename == THIS and frame is not self._frame:
            return  # the trace function has not returned yet: the timer comes again
        inside = None
        while frame is not None and frame is not self._frame:
            name = frame.f_code.co_filename
            if name != THIS:
                if name.startswith(HERE):
                    return  # in a callback of the application
                inside = inside or frame
            frame = frame.f_back
        if frame is None or (inside is None and self._ours):
            return
        self._frame = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        action = self._how["action"]
        self._did(f"interrupt {self._name}: {action}")
        if action.startswith("close"):
            self._closed += 1
            self._close()
        if action != "close":
            raise FAULTS.get(action, Interrupted)
