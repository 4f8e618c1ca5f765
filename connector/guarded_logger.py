"""Logging on threads that others depend on, and within the client library's calls, which are in the middle of something."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .library_calls import taken


class PassingLogger:
    """An application's `logger` as a client's setting: what the client library has raised goes on when a line is logged."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def log(self, *arguments: object) -> None:
        """Called from within the client's `poll()`. Raises what the logger does: the application's call ends with it."""
        raised = taken()
        try:
            self._logger.log(*arguments)
        finally:
            if raised is not None:
                raise raised


def passing(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with the application's `logger`, if it has given one, as a PassingLogger."""
    logger = config.get("logger")
    return dict(config) if logger is None else {**config, "logger": PassingLogger(logger)}


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
        """As Logger.log. Raises what the client library has raised before it called, and nothing else."""
        raised = taken()
        try:
            self._logger.log(level, text, *args, stacklevel=stacklevel)
        except Exception:
            with suppress(Exception):  # there may be no standard error
                logging.Handler().handleError(logging.makeLogRecord({"msg": text, "args": args}))
        if raised is not None:
            raise raised
