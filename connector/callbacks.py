"""The application's callbacks among the settings: what they raise, and on which thread they run.

An exception inside one would make the client library throw away what it has fetched; it is kept and raised afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_EVENTS = ("error_cb", "throttle_cb", "stats_cb")


def wrapped(config: Mapping[str, Any], run: Callable[[Callable[[], object]], object]) -> dict[str, Any]:
    """The settings with each event callback handed to `run`, which calls it now or later."""

    def wrap(callback: Callable[..., object]) -> Callable[..., None]:
        def called(*arguments: Any) -> None:
            run(lambda: callback(*arguments))

        return called

    return {name: wrap(value) if name in _EVENTS and callable(value) else value for name, value in dict(config).items()}
