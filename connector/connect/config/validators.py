"""Kafka's validators of settings. Each raises ConfigError and describes itself for the documents."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.java import BLANKS
from ..api.java_regex import compiled, topics_pattern


class Validator(ABC):
    """Checks one parsed value."""

    @abstractmethod
    def ensure(self, name: str, value: Any) -> None:
        """Raise ConfigError if the value will not do."""

    @abstractmethod
    def __str__(self) -> str:
        """The valid values, for a table."""


class Range(Validator):
    """Numbers from `low` to `high`, both allowed."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low, self.high = low, high

    @classmethod
    def at_least(cls, low: float) -> Range:
        """From `low` on."""
        return cls(low)

    @classmethod
    def between(cls, low: float, high: float) -> Range:
        """From `low` to `high`."""
        return cls(low, high)

    def ensure(self, name: str, value: Any) -> None:
        if value is None:
            raise ConfigError(name, "null", "it must not be null")
        if self.low is not None and value < self.low:
            raise ConfigError(name, repr(value), f"it must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise ConfigError(name, repr(value), f"it must be no more than {self.high}")

    def __str__(self) -> str:
        low = "..." if self.low is None else self.low
        return f"[{low},...]" if self.high is None else f"[{low},...,{self.high}]"


class ValidString(Validator):
    """One of some words."""

    def __init__(self, *words: str, ignore_case: bool = False) -> None:
        self.words, self.ignore_case = words, ignore_case

    def ensure(self, name: str, value: Any) -> None:
        words = [w.lower() for w in self.words] if self.ignore_case else self.words
        if value is not None and (value.lower() if self.ignore_case else value) not in words:
            raise ConfigError(name, repr(value), f"it must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]" + (" (case insensitive)" if self.ignore_case else "")


class ValidList(Validator):
    """A list of some words only."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def ensure(self, name: str, value: Any) -> None:
        for word in value or []:
            if word not in self.words:
                raise ConfigError(name, repr(word), f"it must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class ListSize(Validator):
    """At most so many elements."""

    def __init__(self, most: int) -> None:
        self.most = most

    def ensure(self, name: str, value: Any) -> None:
        if value is not None and len(value) > self.most:
            raise ConfigError(name, repr(value), f"it may have {self.most} elements at most")

    def __str__(self) -> str:
        return f"List containing maximum of {self.most} elements"


class NonEmptyList(Validator):
    """A list that is not empty."""

    def ensure(self, name: str, value: Any) -> None:
        if not value:
            raise ConfigError(name, "an empty list", "it must not be empty")

    def __str__(self) -> str:
        return "non-empty list"


class NonEmptyString(Validator):
    """Text that is not empty."""

    def ensure(self, name: str, value: Any) -> None:
        if value is not None and not str(value).strip(BLANKS):
            raise ConfigError(name, repr(value), "it must not be empty")

    def __str__(self) -> str:
        return "non-empty string"


class NonEmptyStringWithoutControlChars(NonEmptyString):
    """Text that is not empty and has no control characters."""

    def ensure(self, name: str, value: Any) -> None:
        super().ensure(name, value)
        if value is not None and re.search(r"[\x00-\x1f\x7f]", str(value)):
            raise ConfigError(name, repr(value), "it must not contain control characters")

    def __str__(self) -> str:
        return "non-empty string without ISO control characters"


class NonNull(Validator):
    """Anything but null."""

    def ensure(self, name: str, value: Any) -> None:
        if value is None:
            raise ConfigError(name, "null", "it must not be null")

    def __str__(self) -> str:
        return "non-null"


class Regex(Validator):
    """A Java pattern of names. subscribed: of topics that a consumer subscribes to, whose matcher knows less."""

    def __init__(self, subscribed: bool = False) -> None:
        self._subscribed = subscribed

    def ensure(self, name: str, value: Any) -> None:
        try:
            (topics_pattern if self._subscribed else compiled)(value or "")
        except ValueError as error:
            raise ConfigError(name, repr(value), f"it is no regular expression that can be used: {error}") from None

    def __str__(self) -> str:
        return "valid regex"


class Lambda(Validator):
    """A function of (name, value) that raises ConfigError, with a text for the documents."""

    def __init__(self, check: Callable[[str, Any], None], text: str) -> None:
        self._check, self._text = check, text

    def ensure(self, name: str, value: Any) -> None:
        self._check(name, value)

    def __str__(self) -> str:
        return self._text


class Composite(Validator):
    """Several at once."""

    def __init__(self, *validators: Validator) -> None:
        self._validators = validators

    def ensure(self, name: str, value: Any) -> None:
        for validator in self._validators:
            validator.ensure(name, value)

    def __str__(self) -> str:
        return ",".join(str(validator) for validator in self._validators)
