"""Options as they were given, read as numbers, durations and the like. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...partitioner.errors import ConfigError
from ...partitioner.numbers import LARGEST

_DURATION = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_SHOWN = 40  # characters of a value in an error
_UNITS = {"": 0.001, "us": 0.000001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Given:
    """Names are taken in any case, as Spark takes them. Each reader raises ConfigError with the name of its option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def names(self) -> Iterable[str]:
        return self._options

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def boolean(self, name: str, default: bool) -> bool:
        text = (str(default) if (given := self.text(name)) is None else given).strip().lower()
        if text not in ("true", "false"):
            raise ConfigError(name, f"{self.text(name)!r} is neither true nor false", "write true or false")
        return text == "true"

    def count(self, name: str, least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        match = re.fullmatch(r"\s*(-?\d+)\s*", text)
        number = least - 1 if match is None else _whole(match[1])
        if number < least:
            word = "positive" if least else "a number from 0 up"
            raise ConfigError(name, f"{name} must be {word}, not {_shown(text)}", "correct it")
        if number > LARGEST:
            raise ConfigError(name, f"{name} must be at most {LARGEST}, not {_shown(text)}", "lower it")
        return number

    def count_or(self, name: str, default: int, least: int = 0) -> int:
        found = self.count(name, least)
        return default if found is None else found

    def duration(self, name: str, default: float) -> float:
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text)
        if match is None or _whole(match[1]) > LARGEST:
            raise ConfigError(
                name, f"{_shown(text)} is not a duration", "write a number with us, ms, s, m, h or d, such as 15m"
            )
        return _whole(match[1]) * _UNITS[(match[2] or "").lower()]


def _whole(digits: str) -> int:
    """A number, with a sign or without. `int()` refuses thousands of digits: what has so many is only beyond `LARGEST`."""
    bare = digits.lstrip("-").lstrip("0") or "0"
    sign = -1 if digits.startswith("-") else 1
    return sign * (int(bare) if len(bare) <= len(str(LARGEST)) else LARGEST + 1)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."
