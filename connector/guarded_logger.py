"""Logging on threads that others depend on: what the application's handlers and filters raise ends none of them."""

from __future__ import annotations

import logging
from contextlib import suppress


class GuardedLogger:
    """Passes on to the logger of this name. An exception is told as `logging` tells of one within `emit()`: on standard error.

    A `logger` among a client's settings has just `log()` called, from within the client's `poll()`.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, text: str, *args: object) -> None:
        """As Logger.info."""
        self.log(logging.INFO, text, *args, stacklevel=3)

    def warning(self, text: str, *args: object) -> None:
        """As Logger.warning."""
        self.log(logging.WARNING, text, *args, stacklevel=3)

    def log(self, level: int, text: str, *args: object, stacklevel: int = 2) -> None:
        """As Logger.log."""
        try:
            self._logger.log(level, text, *args, stacklevel=stacklevel)
        except Exception:
            with suppress(Exception):  # there may be no standard error
                logging.Handler().handleError(logging.makeLogRecord({"msg": text, "args": args}))
