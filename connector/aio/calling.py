"""Blocking calls on threads, and callbacks that come back to the event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import ContextVar
from functools import partial
from typing import Any

# Inside a callback of the client: its caller holds the turn, so what the callback calls must not wait for it.
in_callback: ContextVar[bool] = ContextVar("keyorder_in_callback", default=False)
CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")


async def call(executor: Executor, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run a blocking function on a thread."""
    return await asyncio.get_running_loop().run_in_executor(executor, partial(function, *arguments, **named))


def on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any]) -> Callable[..., Any]:
    """A function for the client's thread that runs `callback`, plain or a coroutine function, on the loop and waits."""

    async def run(*arguments: Any) -> Any:
        in_callback.set(True)
        result = callback(*arguments)
        return await result if inspect.isawaitable(result) else result

    def called(*arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(run(*arguments), loop).result()

    return called


def with_callbacks(config: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """The settings with each callback run on the loop."""
    return {
        name: on_loop(loop, value) if name in CALLBACKS and callable(value) else value for name, value in config.items()
    }
