"""What was shown to anybody, looked through for secrets."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaException
from keyorder.partitioner.errors import KeyorderError


class Sink:
    """All that anybody could have seen. marks: what nobody may see."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = marks
        self.texts: list[tuple[str, str]] = []

    def saw(self, where: str, text: object) -> None:
        """One text, as str and as repr."""
        self.texts += [(where, str(text)), (where, repr(text))]

    def attempt(self, where: str, call: Callable[[], Any]) -> BaseException | None:
        """What a call gives, or the whole traceback of what it raises, causes and contexts included."""
        try:
            self.saw(where, call())
        except (KeyorderError, KafkaException) as error:
            self.saw(where, error)
            self.texts.append((where, "".join(traceback.format_exception(error))))
            return error
        return None

    def leaks(self) -> list[tuple[str, str]]:
        """Where a mark shows."""
        return [(where, text[:500]) for where, text in self.texts if any(mark in text for mark in self._marks)]
