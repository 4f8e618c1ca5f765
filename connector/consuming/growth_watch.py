"""New partitions for a cooperative member, without the client library's own look at them.

The library compares the counts in each metadata answer for the group, and joins again at once where one has changed, whatever
the member is doing. If it has just been asked to revoke partitions, and the application was not told of it yet, they are
another member's before `on_revoke` was called. What was to be assigned after the revocation stays noted, the member takes
itself for one that rebalances for ever, and skips every rebalance that a heartbeat tells of: the group stands still.

So the library's own refresh is turned off, and nothing asks it for *all* topics. A thread here asks another client for the
counts. Where one has changed, the polling thread refreshes the library's metadata of these topics, which does not touch the
group, and subscribes to the same topics again: that waits in the library until no rebalance is going on, and joins then, if
the counts are new to it.

A pattern is matched by the library alone, from all topics, and so is a topic that comes or goes: there the danger remains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException

from ...partitioner.errors import KeyorderError
from .background import BackgroundThread
from .starting import Starter

_TIMEOUT = 5.0
# The polling thread waits no longer for its own client. Seconds.
_PATIENCE = 1.0
# {topic: its count}, None for a topic that is not there.
Counts = dict[str, int | None]


class GrowthWatch(BackgroundThread):
    """Looks at the subscribed topics when it is woken, and every `interval` seconds (None: never by itself).

    found: the polling thread has to `refresh`.
    """

    def __init__(self, starter: Starter, interval: float | None) -> None:
        super().__init__("keyorder-growth")
        self._starter, self._interval = starter, interval
        self._topics: frozenset[str] = frozenset()
        self._known: Counts = {}
        self._due = self.found = False

    def follow(self, topics: Collection[str]) -> None:
        """What is subscribed to now."""
        with self._wake:
            self._topics, self._known, self.found = frozenset(topics), {}, False
        if self._topics:
            self.begin()

    def wake(self) -> None:
        """A topic may have grown: look soon. Returns at once."""
        with self._wake:
            self._due = True
            self._wake.notify_all()

    def run(self) -> None:
        """The thread."""
        while True:
            with self._wake:
                if not self._stopping and not self._due:
                    self._wake.wait(self._interval)
                if self._stopping:
                    return
                self._due = False
                topics = self._topics
            counts = self._ask(topics) if topics else None
            with self._wake:
                if counts is not None and topics is self._topics and counts != self._known:
                    self.found = True

    def _ask(self, topics: frozenset[str]) -> Counts | None:
        """What another client sees: the counts of these topics, of all if one is a pattern; None where nobody can say now."""
        try:
            if _whole(topics):
                return _all_of(self._starter.link.admin.client.list_topics(timeout=_TIMEOUT))
            found = self._starter.identities(topics, _TIMEOUT)
        except (KafkaException, KeyorderError):
            return None
        return {topic: found[topic].partitions if topic in found else None for topic in topics}

    def refresh(self, look: Callable[..., Any], subscribe: Callable[[], None] | None) -> None:
        """On the polling thread: let the client library see what was found.

        look: its list_topics(). subscribe: subscribes to the same topics again; None where it has not joined yet.
        """
        topics = self._topics
        self.found = False
        try:
            counts = _refreshed(look, topics)
        except KafkaException:
            return  # no answer now: the next look finds it again
        if None not in counts.values():
            if subscribe is not None:
                subscribe()
        elif not _whole(topics):
            # Of topics that come and go the library finds out by itself alone, from all topics.
            with suppress(KafkaException):
                look(timeout=_PATIENCE)
        self._known = counts


def _refreshed(look: Callable[..., Any], topics: Collection[str]) -> Counts:
    """The counts that the client library sees from now on. One topic after the other: a look at all touches the group."""
    if _whole(topics):
        return _all_of(look(timeout=_PATIENCE))
    answers = {topic: look(topic, _PATIENCE).topics.get(topic) for topic in topics}
    return {
        topic: None if answer is None or answer.error is not None else len(answer.partitions)
        for topic, answer in answers.items()
    }


def _all_of(cluster: Any) -> Counts:
    return {name: len(topic.partitions) for name, topic in cluster.topics.items()}


def _whole(topics: Collection[str]) -> bool:
    return any(topic.startswith("^") for topic in topics)
