"""Topics of which nothing is given out any more: one topic's error concerns that topic, and the others go on."""

from __future__ import annotations

from collections.abc import Set

from confluent_kafka import KafkaError, Message

from ...partitioner.errors import IdentityMismatchError, KeyorderError, NoOffsetError
from .assignment import Assignment
from .callbacks import Callbacks


class StoppedTopics:
    """The stopped topics of one member, each with its error. Used by the polling thread alone.

    A topic that was stopped is tried again when partitions of it are assigned anew; one that could not be
    started is tried on.
    """

    def __init__(
        self,
        assignment: Assignment,
        callbacks: Callbacks,
    ) -> None:
        self._assignment, self._callbacks = assignment, callbacks
        self._errors: dict[str, KeyorderError] = {}

    def look(self) -> None:
        """Stop the topics whose timelines cannot be gone by: fetch, give out and commit nothing more of them."""
        for topic, error in list(self._assignment.views.failures.items()):
            places = {place for place in self._assignment.owned if place[0] == topic}
            if not places or self._errors.get(topic) is error or self.begins_anew(topic):
                continue
            self.failed(topic, error)
            self._assignment.out.drop(places)
            for place in places:
                self._assignment.owned[place].started = False
            self._assignment.fetching.stop(self._assignment.owned[place] for place in places)

    def begins_anew(self, topic: str) -> bool:
        """Whether the topic was made again before anything of it was started: nothing of the old one is in use here."""
        error = self._assignment.views.failures.get(topic)
        started = any(owned.started for place, owned in self._assignment.owned.items() if place[0] == topic)
        return isinstance(error, IdentityMismatchError) and self._errors.get(topic) is not error and not started

    def failed(self, topic: str, error: KeyorderError) -> None:
        """A topic cannot go on. The application is told once, and not of the same trouble again."""
        known = self._errors.get(topic)
        self._errors[topic] = error
        if type(known) is type(error):
            return
        if isinstance(error, NoOffsetError):
            cause: KafkaError = error.args[0]
            owned = (p for p in error.partitions if (topic, p) in self._assignment.owned)
            self._assignment.out.ready.extend(Message(topic=topic, partition=p, error=cause) for p in owned)
        else:
            self._callbacks.raises(error)

    def goes_on(self, topic: str) -> None:
        """It was started."""
        self._errors.pop(topic, None)

    def keep(self, topics: Set[str]) -> None:
        """Forget all other topics: nothing of them is owned any more."""
        for topic in self._errors.keys() - topics:
            del self._errors[topic]

    def raise_if_all(self) -> None:
        """Raise where no topic goes on: a reader that has nothing else to do would seem idle, and well.

        Not for a missing offset, of which the application was told as the client library does, once.
        """
        topics = {topic for topic, _ in self._assignment.owned} if self._errors else set()
        if topics and topics <= self._errors.keys():
            for topic in sorted(topics):
                if not isinstance(self._errors[topic], NoOffsetError):
                    raise self._errors[topic].with_traceback(None)
