"""Topics without a timeline, to which the application places its records itself: they take them as from confluent_kafka.

A topic is followed from its first such record on, so that nobody is asked again, and the first record after somebody has
adopted it is refused. One that is on its way at that moment is like one of a stock producer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from ...partitioner.errors import PartitionRefusedError, ReleasedTopicError, UnmanagedTopicError
from .. import clock
from ..config import ProducerSettings
from ..control.control_reader import ControlMessage, reading_to_end
from ..control.control_topics import existing, timeline_slot
from ..control.timelines import Timelines
from ..link import ClusterLink, ControlSubscription
from ..metadata import patiently
from ..weakly import weakly

# Seconds: how long one question may take; how long "there are no control topics" counts, which nothing would tell.
_PATIENCE, _ABSENT = 5.0, 5.0


class UnmanagedTopics:
    """What one producer knows of topics to which its application places records. Thread-safe."""

    def __init__(self, link: ClusterLink, settings: ProducerSettings) -> None:
        self._link, self._settings = link, settings
        self._lock: Any = threading.RLock()  # a signal handler may come back here
        self._reader: ControlSubscription | None = None
        self._timelines = Timelines()
        self._known: set[str] = set()
        self._news = False
        self._absent_until = float("-inf")

    def check(self, topic: str, partition: int) -> None:
        """Return if a record may be placed at this partition: the topic is not managed, as far as is known here.

        Raises PartitionRefusedError, UnmanagedTopicError (`keyorder.adopt` is false), ReleasedTopicError, and what is wrong
        with the topic's timeline; BrokerUnreachableError and NotAuthorizedError when that cannot be read.
        """
        with self._lock:
            if topic not in self._known:
                if clock.now() >= self._absent_until:
                    patiently(lambda: self._look(topic), self._settings.control_timeout)
            elif self._news and self._reader is not None:
                self._news = False
                self._take(self._reader.poll(0))
            if topic in self._timelines.unreadable:
                raise self._timelines.unreadable[topic]
            timeline = self._timelines.by_topic.get(topic)
            if timeline is None:
                if not self._settings.adopt:
                    raise UnmanagedTopicError(topic)
                return
        if timeline.released is not None:
            raise ReleasedTopicError(topic, timeline.released)
        raise PartitionRefusedError(topic, partition)

    def _look(self, topic: str) -> None:
        """Read the topic's timeline as it is now, and follow it from here on."""
        patience = min(_PATIENCE, self._settings.control_timeout)
        if self._reader is None:
            if not existing(self._link.admin.client, self._link.servers, patience):
                self._absent_until = clock.now() + _ABSENT
                return
            noted = weakly(self._noted)
            self._reader = self._link.subscribe(lambda key: bool(noted(key)))
        reader, slot = self._reader, timeline_slot(topic)
        reader.add([slot])
        self._take(reading_to_end(reader, [slot], patience, self._link.servers))
        self._known.add(topic)

    def _noted(self, key: bytes) -> bool:
        """On the thread that reads: whether a control record is wanted here."""
        wanted = key.startswith(b"timeline:")
        self._news = self._news or wanted
        return wanted

    def _take(self, messages: Iterable[ControlMessage]) -> None:
        for message in messages:
            self._timelines.take(message)
