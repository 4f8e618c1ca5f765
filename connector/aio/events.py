"""What a producer tells of itself, on the event loop: no thread of the client waits for a callback."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

CALLBACKS = ("error_cb", "throttle_cb", "stats_cb")


class _Run:
    """One run of a callback. over: it has returned; a task that it has made is not part of it."""

    __slots__ = ("events", "over")

    def __init__(self, events: EventCallbacks) -> None:
        self.events, self.over = events, False


_current: ContextVar[_Run | None] = ContextVar("keyorder_event_callback", default=None)


class EventCallbacks:
    """Runs a client's event callbacks, plain or coroutine functions, one by one in the order of the events.

    The client's threads go on meanwhile: a callback may await whatever the client does, the delivery of a record too. What
    one raises the event loop's exception handler hears.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def inside(self) -> bool:
        """Whether one of these callbacks is calling."""
        run = _current.get()
        return run is not None and run.events is self and not run.over

    def wrapped(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with each of the callbacks run here."""
        return {
            name: self._told(value) if name in CALLBACKS and callable(value) else value
            for name, value in config.items()
        }

    async def end(self) -> None:
        """Wait until all that the client has told has been heard."""
        while self._task is not None:
            await asyncio.wait({self._task})

    def _told(self, callback: Callable[..., Any]) -> Callable[..., None]:
        def told(*arguments: Any) -> None:
            try:
                self._loop.call_soon_threadsafe(self._add, callback, arguments)
            except RuntimeError:
                pass  # the loop is closed: nobody is left to hear of it

        return told

    def _add(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._waiting.append((callback, arguments))
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                callback, arguments = self._waiting.popleft()
                run = _Run(self)
                _current.set(run)
                try:
                    result = callback(*arguments)
                    if inspect.isawaitable(result):
                        # A task of its own: what is cancelled in a callback does not cancel those behind it.
                        running = asyncio.ensure_future(result)
                        await asyncio.wait({running})
                        if not running.cancelled():
                            running.result()
                except Exception as raised:
                    told = {"message": "exception in a callback of a producer", "exception": raised}
                    self._loop.call_exception_handler(told)
                finally:
                    run.over = True
        finally:
            self._task = None
