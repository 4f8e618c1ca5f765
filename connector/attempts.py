"""Trying again, by tenacity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tenacity import Retrying

T = TypeVar("T")


class Attempts(Retrying):
    """A Retrying that goes when it has returned, with all that it was given.

    Tenacity's own is in a circle with its notes of the last call. A client that one of its callbacks holds would then stay, with
    its threads and connections, until the garbage collector runs; and since the notes are a thread's own, a child that is
    forked meanwhile by another thread would free that client, and crash.
    """

    def __call__(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return super().__call__(fn, *args, **kwargs)
        finally:
            self.iter_state.reset()
