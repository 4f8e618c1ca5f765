"""Noticing partitions that the group's leader has overlooked, as a static member does that comes back and leads.

A static member that comes back within its session is no rebalance for the broker: it is given what it had. If it leads and
the topic grew meanwhile, nobody notices: its new client has never seen the smaller count, and where another member joins
again because it saw the growth, the broker answers with the assignment that stands. The new partitions would be nobody's
until something else makes the group rebalance. The client library alone stands still there as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from ..link import ClusterLink
from .background import BackgroundThread

_TIMEOUT = 5.0
_EVERY = 1.0
# A leader that sees the growth by itself has the time of so many looks in a row to assign the new partitions.
_LOOKS = 3
_REFUSED = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Overlooked(BackgroundThread):
    """Looks for partitions that no member owns, from an assignment on until there is an answer.

    found: {topic: its count} where there are some, a reason to join the group anew. A leader's joining is a rebalance,
    another member's changes nothing.
    """

    def __init__(self, link: ClusterLink, group: str) -> None:
        super().__init__("keyorder-overlooked")
        self._link, self._group = link, group
        self._topics: frozenset[str] = frozenset()
        self._joined_for: dict[str, int] = {}
        self.found: Mapping[str, int] = {}

    def look(self, topics: Iterable[str]) -> None:
        """This member was assigned its partitions: see whether all of these topics' are somebody's. None: stop looking."""
        with self._wake:
            self._topics, self.found = frozenset(topics), {}
            self._wake.notify_all()
        if self._topics:
            self.begin()

    def joining(self) -> None:
        """The group is joined anew for what was found: once for each count, since it may be left to nobody on purpose."""
        self._joined_for |= self.found
        self.found = {}

    def run(self) -> None:
        """The thread."""
        looked_for: frozenset[str] = frozenset()
        looks = 0
        while True:
            with self._wake:
                if not self._stopping:
                    self._wake.wait(_EVERY if self._topics else None)
                if self._stopping:
                    return
                topics = self._topics
            if topics is not looked_for:
                looked_for, looks = topics, 0
            missing = self._missing(topics) if topics else {}
            looks = looks + 1 if missing else 0
            if missing is not None and looks in (0, _LOOKS):
                with self._wake:
                    if self._topics is topics:
                        self._topics, self.found = frozenset(), missing

    def _missing(self, topics: frozenset[str]) -> dict[str, int] | None:
        """{topic: its count} where partitions are nobody's; None where nobody can say now."""
        try:
            owned = self._link.admin.owned_at_rest(self._group, _TIMEOUT)
            if owned is None:
                return None
            asked = self._link.admin.client.describe_topics(TopicCollection(list(topics)), request_timeout=_TIMEOUT)
            counts = {topic: len(answer.result(_TIMEOUT + 1).partitions) for topic, answer in asked.items()}
        except FutureTimeout:
            return None
        except KafkaException as raised:
            return {} if raised.args[0].code() in _REFUSED else None
        return {
            topic: count
            for topic, count in counts.items()
            if count != self._joined_for.get(topic) and any((topic, p) not in owned for p in range(count))
        }
