"""What one producer holds, over all its topics: counted, bounded, timed. Used under the producer's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ...partitioner.routing import Route
from ...partitioner.writers.sending import Held, TopicSending
from .held_record import Record

_TIMES = 100_000


class Holding:
    """Held records, each in its topic's queue. limit: the most of them. count: how many there are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._times: deque[float] = deque(maxlen=_TIMES)
        self.count = 0

    @property
    def full(self) -> bool:
        """Whether no more may be held."""
        return self.count >= self._limit

    def hold(self, key: bytes | None, record: Record, now: float, partition: int | None = None) -> None:
        """Put a record behind all that are held. partition: where the application placed it itself."""
        record.sending.hold(key, record, now, partition)
        self.count += 1

    def drop_key(self, sending: TopicSending[Record], key: bytes | None) -> list[Held[Record]]:
        """Take out the held records of one key, whose earlier record failed."""
        dropped = sending.drop_key(key)
        self.count -= len(dropped)
        return dropped

    def drop_all(self, topics: Iterable[TopicSending[Record]]) -> list[Held[Record]]:
        """Take out everything (abort, purge)."""
        dropped = [held for sending in topics for held in sending.drop_held()]
        self.count -= len(dropped)
        return dropped

    def release(self, sending: TopicSending[Record], send: Callable[[Held[Record], Route | None], bool]) -> None:
        """Offer what is held of a topic to `send`, as TopicSending.release."""
        self.count -= sending.release(send)

    def waited(self, seconds: float) -> None:
        """A held record was sent."""
        self._times.append(seconds)

    def times(self) -> list[float]:
        """Seconds that held records waited before they were sent, since the last call; the newest 100 000 of them."""
        times = list(self._times)
        self._times.clear()
        return times
