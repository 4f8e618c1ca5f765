"""Where an admin client ends: on no thread of the client library, which aborts the whole process there.

Its answers come on a thread of its own. Python may collect garbage on any thread, on that one too, and a client that an
exception's traceback leads to is garbage in a cycle. Such a client is put aside, and ends on a thread of Python's.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

#: Clients that have to end, and nobody uses any more.
WAITING: deque[Any] = deque()
# Python's own threads by ident. threading.current_thread() would take a lock for another thread, which a finalizer must not:
# it may have come while the lock is held.
_OF_PYTHON: Mapping[int, object] = vars(threading).get("_active", {})


def put_aside(client: Any) -> None:
    """For a client's finalizer: keep it alive for now, where this is not one of Python's threads."""
    if threading.get_ident() not in _OF_PYTHON:
        WAITING.append(client)


def end_waiting() -> None:
    """End the clients that were put aside. On a thread of Python's: it waits for their threads."""
    while WAITING:
        try:
            WAITING.popleft()
        except IndexError:
            return  # another thread was faster


atexit.register(end_waiting)
