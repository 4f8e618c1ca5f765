"""One OAuth token for all clients that one of ours is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import clock
from .library_calls import shielded


class SharedToken:
    """The application's `oauth_cb`, asked once for all: it may stand for a request to an identity provider.

    Called as the client library calls an `oauth_cb`; what the application's raises is raised, and it is asked again.
    """

    def __init__(self, oauth_cb: Callable[[str], Any]) -> None:
        self._oauth_cb = oauth_cb
        self._lock = threading.Lock()
        self._answer: Any = None
        self._asked_with: str | None = None
        self._shared_until = 0.0

    @shielded
    def __call__(self, oauth_config: str) -> Any:
        with self._lock:
            if oauth_config != self._asked_with or _wall() >= self._shared_until:
                self._shared_until = 0.0  # what comes next may raise
                answer = self._oauth_cb(oauth_config)
                self._answer, self._asked_with, self._shared_until = answer, oauth_config, _shared_until(answer)
            return self._answer


def _shared_until(answer: Any) -> float:
    """Until when others get this token too, as a time of the wall clock, by which tokens end.

    A client asks for its next one after four fifths of what was left of the last: who asks earlier is another client.
    """
    try:
        return _wall() + 0.75 * (float(answer[1]) - _wall())
    except (TypeError, ValueError, IndexError, KeyError):
        return 0.0  # no token: the client library refuses it


def _wall() -> float:
    return clock.wall_ms() / 1000
