"""What ends a command from outside: Ctrl-C, SIGTERM, and SIGHUP when its terminal is closed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# SIGHUP comes twice, from the terminal and from its shell; Windows has none.
_HANG_UP: signal.Signals | None = getattr(signal, "SIGHUP", None)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGINT or SIGHUP sets. A second SIGTERM or SIGINT does what it would do outside the block."""
    stop = threading.Event()

    def set_stop(number: int) -> None:
        stop.set()
        if number != _HANG_UP:
            restore()

    restore = _handled(set_stop, (signal.SIGTERM, signal.SIGINT))
    try:
        yield stop
    finally:
        restore()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt here, as SIGINT does: what is open is given up, closed or deleted."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are none of its business
        return
    hung_up = False

    def interrupt(number: int) -> None:
        nonlocal hung_up
        again, hung_up = hung_up, hung_up or number == _HANG_UP
        if number != _HANG_UP or not again:
            raise KeyboardInterrupt

    restore = _handled(interrupt, (signal.SIGTERM,))
    try:
        yield
    finally:
        restore()


def _handled(handle: Callable[[int], None], numbers: tuple[signal.Signals, ...]) -> Callable[[], None]:
    """Let it handle these signals and SIGHUP, unless that is ignored, as beneath nohup. Returns what undoes this."""
    if _HANG_UP is not None and signal.getsignal(_HANG_UP) is not signal.SIG_IGN:
        numbers = (*numbers, _HANG_UP)

    def called(number: int, frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.signal(number, called) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
