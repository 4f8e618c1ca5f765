"""Who is inside a consumer: one thread at a time, in the order in which they came.

confluent_kafka's consumer may be called from any thread, and from inside its own callbacks and signal handlers. So a
thread that is inside may enter again, and a long poll lets the others in between two of its turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Serial")

# The consumers whose callback has passed its turn on to this thread: with asyncio a callback runs on the event loop, and
# what it calls on yet another thread.
lent: ContextVar[frozenset[int]] = ContextVar("keyorder_lent", default=frozenset())


class Callers:
    """A lock that is fair, and that its holder may enter again.

    Whoever waits keeps the door shut: who leaves the room for a moment gets back behind him.
    owner: the thread that is inside; 0 for none. release: end the turn; RuntimeError when it was none.
    """

    def __init__(self) -> None:
        self._door, self._room = threading.RLock(), threading.RLock()
        self.release = self._room.release
        self.owner = 0

    @property
    def inside(self) -> bool:
        """Whether the calling thread is inside already."""
        return self.owner == threading.get_ident() or id(self) in lent.get()

    def enter(self, timeout: float = -1) -> bool:
        """Wait for the turn. False when it has not come in `timeout` seconds (-1: wait)."""
        try:
            if not (self._door.acquire(timeout=timeout) and self._room.acquire(timeout=timeout)):
                return False
        finally:
            try:
                self._door.release()
            except RuntimeError:
                pass  # an exception came before it was acquired
        self.owner = threading.get_ident()
        return True

    def let_others_in(self) -> None:
        """Let those in who wait, and come back behind them. Nothing happens inside a callback of the turn."""
        if self.owner == threading.get_ident():
            self.owner = 0
            self.release()
            self.enter()


class Serial:
    """What one thread at a time is inside of. `_left` is called when the outermost call has ended."""

    _callers: Callers

    def _left(self) -> None:
        raise NotImplementedError


def alone(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that one thread at a time runs."""

    @wraps(method)
    def called(self: S, *arguments: P.args, **named: P.kwargs) -> R:
        callers = self._callers
        if callers.inside:
            return method(self, *arguments, **named)
        me = threading.get_ident()
        try:
            callers.enter()
            return method(self, *arguments, **named)
        finally:
            # Nothing is called before `release`: a signal's exception would leave others waiting for ever.
            if callers.owner == me:
                callers.owner = 0
            try:
                callers.release()
            except RuntimeError:
                pass  # an exception came before the turn
            self._left()

    return cast(Callable[Concatenate[S, P], R], called)
