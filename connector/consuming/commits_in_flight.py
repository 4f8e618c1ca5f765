"""Commits that nobody waits for: which of them the broker has not answered yet."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from confluent_kafka import TopicPartition

from ..messages import Place

T = TypeVar("T")


class CommitsInFlight(Generic[T]):
    """The asynchronous commits of one member. T: a partition's state, of one ownership.

    The broker takes commits of one member in their order, so an answer of a partition answers all that were sent before.
    """

    def __init__(self) -> None:
        # In the order in which they were sent. Without a state: settled, and kept to be known again when its answer comes.
        self._sent: dict[Place, deque[tuple[T | None, TopicPartition]]] = {}

    def add(self, owned: T, place: TopicPartition) -> None:
        """A commit of the partition was sent. place: as it was sent."""
        self._sent.setdefault((place.topic, place.partition), deque()).append((owned, place))

    def answered(self, result: TopicPartition) -> tuple[T, TopicPartition] | None:
        """An answer has come. Returns the commit that it answers; None where that was settled, or nobody waits for it."""
        # A commit that named no offset is answered at once, before those on their way.
        sent = self._sent.get((result.topic, result.partition)) if result.offset >= 0 else None
        if not sent or all(place.offset != result.offset for _, place in sent):
            return None  # those that are waited for come later
        while True:
            owned, place = sent.popleft()
            if place.offset == result.offset:  # else of an earlier commit whose answer said nothing of this partition
                return None if owned is None else (owned, place)

    def settle(self, place: Place) -> None:
        """The commits of the partition were answered. The library tells of that in a later poll."""
        sent = self._sent.get(place)
        if sent:
            self._sent[place] = deque((None, each) for _, each in sent)

    def last(self, place: Place, owned: T) -> TopicPartition | None:
        """The newest commit of the partition whose answer is awaited, of this ownership alone."""
        sent = self._sent.get(place)
        return sent[-1][1] if sent and sent[-1][0] is owned else None

    def awaits(self, place: Place, sent: TopicPartition) -> bool:
        """Whether the answer to this very commit is awaited."""
        return any(each is sent and owned is not None for owned, each in self._sent.get(place, ()))

    def places(self) -> list[Place]:
        """The partitions of which the library has an answer to tell yet."""
        return [place for place, sent in self._sent.items() if sent]
