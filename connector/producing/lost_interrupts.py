"""What a signal handler raised, where the client library's binding puts an error of its own in its place."""

from __future__ import annotations

import signal
import threading
from typing import Any

_OF_THE_BINDING = "expected header key"


def raise_lost_interrupt(error: BaseException, headers: Any) -> None:
    """Raise what a signal handler raised while the binding converted these headers; return if `error` is none of that.

    The conversion of a key runs signal handlers, and the binding takes every exception for a wrong key. Every record may have
    a header of keyorder's own, so an application that uses none would see it as well. The exception itself is gone: where
    Ctrl-C alone can raise, it was KeyboardInterrupt; else InterruptedError says what has happened.
    """
    if type(error) is not TypeError or not str(error).startswith(_OF_THE_BINDING):
        return
    if threading.current_thread() is not threading.main_thread() or not isinstance(headers, list | dict):
        return
    if not all(isinstance(pair if isinstance(headers, dict) else pair[0], str) for pair in headers):
        return
    handlers = [handler for handler in map(signal.getsignal, signal.valid_signals()) if callable(handler)]
    if handlers == [signal.default_int_handler]:
        raise KeyboardInterrupt from None
    raise InterruptedError(
        "a signal handler raised while the record's headers were converted, and the client library has lost what it raised: "
        "the record was not taken"
    ) from None
