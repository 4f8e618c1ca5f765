"""What a producer tells of itself, on the event loop: no thread of the client waits for a callback."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

CALLBACKS = ("error_cb", "throttle_cb", "stats_cb")


def wrapped(
    config: Mapping[str, Any], names: Collection[str], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> dict[str, Any]:
    """The settings with each callback of these names in its wrapping."""
    return {name: wrap(value) if name in names and callable(value) else value for name, value in config.items()}


class _Run:
    """One run of a callback. over: it has returned; a task that it has made is not part of it."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


_current: ContextVar[_Run | None] = ContextVar("keyorder_event_callback", default=None)


def in_event_callback() -> bool:
    """Whether an event callback, of whatever producer, is calling."""
    run = _current.get()
    return run is not None and not run.over


class EventCallbacks:
    """Runs a client's event callbacks, plain or coroutine functions, one by one in the order of the events.

    The client's threads go on meanwhile: a callback may await whatever the client does, the delivery of a record too. What
    one raises the event loop's exception handler hears.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._running: asyncio.Future[Any] | None = None

    def wrapped(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with each of the callbacks run here."""
        return wrapped(config, CALLBACKS, self._told)

    async def end(self) -> None:
        """Wait until all that the client has told has been heard."""
        while self._running is not None:
            await asyncio.wait({self._running})

    def _told(self, callback: Callable[..., Any]) -> Callable[..., None]:
        def told(*arguments: Any) -> None:
            try:
                self._loop.call_soon_threadsafe(self._add, callback, arguments)
            except RuntimeError:
                pass  # the loop is closed: nobody is left to hear of it

        return told

    def _add(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._waiting.append((callback, arguments))
        if self._running is None:
            self._next()

    def _next(self) -> None:
        """Run what waits, up to a callback that has to be awaited. Each has a context of its own, as a task has."""
        while self._waiting and self._running is None:
            callback, arguments = self._waiting.popleft()
            run, context = _Run(), copy_context()
            context.run(_current.set, run)
            try:
                result = context.run(callback, *arguments)
                if inspect.isawaitable(result):
                    self._running = context.run(asyncio.ensure_future, result)
                    self._running.add_done_callback(partial(self._ended, run))
                    continue
            except (Exception, asyncio.CancelledError) as raised:
                self._tell(raised)
            run.over = True

    def _ended(self, run: _Run, running: asyncio.Future[Any]) -> None:
        run.over, self._running = True, None
        raised = None if running.cancelled() else running.exception()
        if raised is not None:
            self._tell(raised)
        self._next()

    def _tell(self, raised: BaseException) -> None:
        told = {"message": "exception in a callback of a producer", "exception": raised}
        self._loop.call_exception_handler(told)
