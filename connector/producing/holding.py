"""What one producer holds, over all its topics: counted, bounded, timed. Used under the producer's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from ...partitioner.routing import Route
from ...partitioner.writers.sending import Held, Telling, TopicSending
from ..durations import Durations
from .held_record import Record

_TIMES = 100_000


class Holding:
    """Held records, each in its topic's queue.

    topics: those that were used. limit, limit_bytes: the most of them. seconds: how long one is held at most.
    durations: how long those waited that were sent.
    """

    def __init__(
        self, topics: Mapping[str, TopicSending[Record]], limit: int, limit_bytes: int, seconds: float
    ) -> None:
        self._topics, self._limit, self._limit_bytes, self._seconds = topics, limit, limit_bytes, seconds
        self._times: deque[float] = deque(maxlen=_TIMES)
        self.durations = Durations()

    @property
    def count(self) -> int:
        """How many there are. Counted where they are: no interruption can make a count of its own wrong."""
        return sum(len(sending.held) for sending in list(self._topics.values()))

    def room(self, size: int) -> bool:
        """Whether one more record of so many bytes may be held."""
        topics = self._topics.values()
        if sum(len(sending.held) for sending in topics) >= self._limit:
            return False
        held = sum(sending.held_bytes for sending in topics)
        return held + size <= self._limit_bytes

    def hold(self, key: bytes | None, record: Record, now: float, partition: int | None = None, size: int = 0) -> None:
        """Put a record behind all that are held. partition: where the application placed it itself. size: bytes."""
        record.sending.hold(key, record, now, partition, size)

    def drop_all(self, telling: Telling[Record]) -> None:
        """Take out everything (abort, purge)."""
        for sending in list(self._topics.values()):
            sending.drop_held(telling)

    def drop_expired(self, now: float, telling: Telling[Record]) -> None:
        """Take out what has been held too long, and what is held of the same keys behind it."""
        for sending in list(self._topics.values()):
            sending.drop_expired(now - self._seconds, telling)

    def release(self, sending: TopicSending[Record], send: Callable[[Held[Record], Route | None], bool]) -> None:
        """Offer what is held of a topic to `send`, as TopicSending.release."""
        sending.release(send)

    def waited(self, seconds: float) -> None:
        """A held record was sent."""
        self._times.append(seconds)
        self.durations.add(seconds)

    def times(self) -> list[float]:
        """Seconds that held records waited before they were sent, since the last call; the newest 100 000 of them."""
        times = list(self._times)
        self._times.clear()
        return times
