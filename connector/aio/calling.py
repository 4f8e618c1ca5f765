"""Blocking calls on threads, and a consumer's callbacks, which come back to the event loop while the call waits."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from contextvars import ContextVar
from itertools import count
from typing import Any

from confluent_kafka import cimpl

from ..consuming.callers import lent
from .events import CALLBACKS, wrapped

# From 2.16 on the client library lets one caller at a time into a client, and this is who is calling: a thread, or what
# this variable says. A callback's calls, on other threads, have to be the caller whose call has caused it.
_IDENTITY: ContextVar[int] | None = getattr(cimpl, "_reentry_identity_var", None)
_numbers = count(1)
_LOOK = 0.5


class InCallback:
    """One run of a callback: its caller holds the turn, so what the callback calls must not wait for it.

    over: it has returned; a task that it has made takes its turns like everybody else. lock: its own calls go one by one.
    """

    __slots__ = ("identity", "lent", "lock", "over")

    def __init__(self, lent_here: frozenset[int]) -> None:
        self.identity = 0 if _IDENTITY is None else _IDENTITY.get()
        self.lent = lent_here
        self.lock = asyncio.Lock()
        self.over = False


current: ContextVar[InCallback | None] = ContextVar("keyorder_in_callback", default=None)


def in_callback(turn: int) -> InCallback | None:
    """The callback that is running here, if it is one of the client with these turns."""
    callback = current.get()
    return None if callback is None or callback.over or turn not in callback.lent else callback


def in_any_callback() -> bool:
    """Whether a callback is running here whose client waits for it."""
    callback = current.get()
    return callback is not None and not callback.over


def start(
    executor: Executor | None,
    callback: InCallback | None,
    function: Callable[..., Any],
    *arguments: Any,
    **named: Any,
) -> asyncio.Future[Any]:
    """Run a blocking function on a thread. callback: on behalf of which; None: of its own.

    executor: None for a new thread. What a callback calls, of whatever client, always has a new one: all those of an
    executor may be waiting for callbacks.
    """
    identity = callback.identity if callback is not None else (next(_numbers) & 0xFFFFFFFF or 1)
    passed_on = frozenset[int]() if callback is None else callback.lent

    def run() -> Any:
        before = lent.set(passed_on)
        caller = None if _IDENTITY is None else _IDENTITY.set(identity)
        try:
            return function(*arguments, **named)
        finally:
            lent.reset(before)
            if _IDENTITY is not None and caller is not None:
                _IDENTITY.reset(caller)

    loop = asyncio.get_running_loop()
    if executor is not None and not in_any_callback():
        return loop.run_in_executor(executor, run)
    own = ThreadPoolExecutor(1, thread_name_prefix="keyorder-aio-call")
    try:
        return loop.run_in_executor(own, run)
    finally:
        own.shutdown(wait=False)  # its thread ends with the call


def on_loop(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], turn: Callable[[], int]
) -> Callable[..., Any]:
    """A function for the client's thread that runs `callback`, plain or a coroutine function, on the loop and waits.

    turn: whose turn the callback's own calls may use.
    """

    async def run(made: InCallback, arguments: Any) -> Any:
        current.set(made)
        try:
            result = callback(*arguments)
            return await result if inspect.isawaitable(result) else result
        finally:
            async with made.lock:  # a call of a task that it has made is not in the way of the client any more
                made.over = True

    def called(*arguments: Any) -> Any:
        waiting = asyncio.run_coroutine_threadsafe(run(InCallback(lent.get() | {turn()}), arguments), loop)
        while True:
            try:
                return waiting.result(_LOOK)
            except FutureTimeout:
                if waiting.done():
                    raise
                if loop.is_closed():
                    raise RuntimeError("the event loop of this client is closed") from None

    return called


def with_callbacks(
    config: Mapping[str, Any], loop: asyncio.AbstractEventLoop, turn: Callable[[], int]
) -> dict[str, Any]:
    """The settings with each callback run on the loop."""
    return wrapped(config, (*CALLBACKS, "on_commit"), lambda callback: on_loop(loop, callback, turn))
