"""Levels of keyorder's loggers, shown and set while a worker runs, under Java's words (KIP-495, KIP-976)."""

from __future__ import annotations

import logging
from typing import Any

from ... import clock
from ..api.errors import NotFoundError

# Java's words for levels, and Python's.
LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_ROOT = "keyorder"
# What tools call them, and what they are here.
_JAVA = {"root": _ROOT, "org.apache.kafka.connect": "keyorder.connect"}


class Loggers:
    """The loggers of one process; those of other libraries in it are not the REST's to touch.

    A name that no logger here has is some Java library's (`org.reflections`): tools set levels for a list of them. Its level is
    kept and shown, and changes nothing.
    """

    def __init__(self) -> None:
        self._modified: dict[str, int] = {}
        self._nobodys: dict[str, str] = {}

    def all(self) -> dict[str, dict[str, Any]]:
        """Every logger with its level, and when it was set here, in milliseconds since 1970."""
        names = [name for name in list(logging.Logger.manager.loggerDict) if _is_ours(name)]
        found = {name: self._shown(name) for name in {_ROOT, *names}}
        found |= {java: self._shown(ours) for java, ours in _JAVA.items()}
        found |= {name: self._shown(name) for name in self._nobodys}
        return dict(sorted(found.items()))

    def one(self, name: str) -> dict[str, Any]:
        """One of them. Raises NotFoundError."""
        full = known(name)
        if full not in (_ROOT, *self._nobodys, *logging.Logger.manager.loggerDict):
            raise NotFoundError(f"Logger {name} not found.")
        return self._shown(full)

    def set(self, name: str, level: str) -> list[str]:
        """Set a level, one of LEVELS, for a logger and those below it. Returns their names. Raises NotFoundError."""
        full, now = known(name), clock.wall_ms()
        if not _is_ours(full):
            self._nobodys[full], self._modified[full] = level, now
            return [full]
        logging.getLogger(full).setLevel(LEVELS[level])
        below = [n for n in self.all() if n not in _JAVA and (n == full or n.startswith(f"{full}."))]
        for each in below:
            if each != full:
                logging.getLogger(each).setLevel(logging.NOTSET)
            self._modified[each] = now
        return below if name == full else [name, *below]

    def _shown(self, name: str) -> dict[str, Any]:
        if name in self._nobodys:
            return {"level": self._nobodys[name], "last_modified": self._modified[name]}
        number = logging.getLogger(name).getEffectiveLevel()
        word = min(LEVELS, key=lambda w: abs(LEVELS[w] - number))
        return {"level": word, "last_modified": self._modified.get(name)}


def known(name: str) -> str:
    """The name here: `root` is the logger above all of ours, and Java's `org.apache.kafka.connect` with all below it is
    `keyorder.connect`. Raises NotFoundError for the loggers of other libraries in this process.
    """
    full = _JAVA.get(name, name)
    if full.startswith("org.apache.kafka.connect."):
        full = _JAVA["org.apache.kafka.connect"]
    if not _is_ours(full) and full in logging.Logger.manager.loggerDict:
        raise NotFoundError(f"Logger {name} not found.")
    return full


def _is_ours(name: str) -> bool:
    return name == _ROOT or name.startswith(f"{_ROOT}.")
