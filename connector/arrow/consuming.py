"""The Arrow half of an OrderedConsumer: its records as columns from the first consume_arrow() on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError

from ..consuming.records.batches import Item
from ..messages import Place
from .batches import items_of
from .columns import Event
from .fetch_source import NativeSource, fetch_source
from .library import Library


class ColumnSource:
    """Takes the place of the raw consumer's poll() and consume(). on_error: the application's error callback."""

    def __init__(self, made: NativeSource, on_error: Callable[[KafkaError], Any] | None) -> None:
        self._source, self._on_error = made, on_error

    @classmethod
    def of(
        cls, raw: Consumer, library: Library | None, on_error: Callable[[KafkaError], Any] | None
    ) -> ColumnSource | None:
        """The source of columns of this consumer, or None where messages have to be turned into columns."""
        made = fetch_source(raw, library) if library is not None else None
        return cls(made, on_error) if isinstance(made, NativeSource) else None

    def route(self, places: Iterable[Place]) -> None:
        """To be called before partitions are assigned to the client library."""
        self._source.route(places)

    def take(self, most: int, wait: float) -> list[Item]:
        """Up to `most` records and what happened between them."""
        items: list[Item] = []
        for taken in self._source.take(most, wait):
            here = [event for event in taken.events if not _of_the_client(event)]
            for event in taken.events:
                if _of_the_client(event) and self._on_error is not None:
                    self._on_error(KafkaError(event.code, event.text))
            taken.events[:] = here
            items += items_of(taken)
        return items

    @property
    def in_hand(self) -> bool:
        """Whether the last call of `take` has had records, whatever became of them."""
        return self._source.in_hand

    def close(self) -> None:
        """Release what was opened, before the consumer is closed."""
        self._source.close()


def _of_the_client(event: Event) -> bool:
    """Whether it is for the error callback. A fatal error, which ends the consumer, is for whoever polls."""
    return event.topic is None and event.code != KafkaError._FATAL
