"""New partitions for a member of a classic group, without the client library's own look at them.

The library compares the counts in each metadata answer for the group, and joins again at once where one has changed, whatever
the member is doing. If it has just been asked to revoke partitions, and the application was not told of it yet, they are
another member's before `on_revoke` was called. What was to be assigned after the revocation stays noted, the member takes
itself for one that rebalances for ever, and skips every rebalance that a heartbeat tells of: the group stands still.

An eager member then joins without having revoked anything: all that it has is dealt out anew, while it works on.

So the library's own refresh is turned off, and nothing asks it for *all* topics. A thread here asks another client for the
counts, and the polling thread subscribes to the same topics again: that waits in the library until no rebalance is going on.

- A cooperative member does so where a count has changed, behind a refresh of the library's metadata of these topics, which does
  not touch the group. It joins then if the counts are new to the library.
- An eager member gives up all it has and joins in any case. So it does so only where the group's members, all of them together,
  do not own every partition; some times for each count, since partitions may be left to nobody on purpose. While the group
  rebalances nobody can say: to join then as well let groups rebalance without an end.

A pattern is matched by the library alone, from all topics, and so is a topic that comes or goes: there the danger remains.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from contextlib import suppress
from math import inf
from typing import Any

from confluent_kafka import KafkaException

from ...partitioner.errors import KeyorderError
from .. import clock
from ..messages import Place
from .background import Background
from .starting import Starter

_TIMEOUT = 5.0
# The polling thread waits no longer for its own client. Seconds.
_PATIENCE = 1.0
# How long an eager member waits for its group to come to rest, at first and at most.
_SOON, _LATE = 0.2, 5.0
# Seconds until it joins again for the same count; then no more.
_JOINS = 1.0, 10.0, inf
# {topic: its count}, None for a topic that is not there.
Counts = dict[str, int | None]


class GrowthWatch(Background):
    """Looks at the subscribed topics when it is woken, and every `interval` seconds (None: never by itself).

    A thread looks, and ends with its answer. eager: of a member that gives up all it has to join. found: the polling thread has
    to `refresh`.
    """

    def __init__(self, starter: Starter, group: str, interval: float | None, eager: bool) -> None:
        self._starter, self._group, self._interval, self._eager = starter, group, interval, eager
        super().__init__()
        self._thread: threading.Thread | None = None
        self._topics: frozenset[str] = frozenset()
        self._known: Counts = {}
        self._gone: frozenset[str] = frozenset()
        self._nobodys: dict[str, int] = {}
        # The counts when all partitions were somebody's, and whether the group has dealt them out like this since.
        self._complete: Counts | None = None
        self._dealt = False
        self._joined_for: dict[tuple[str, int], tuple[int, float]] = {}  # how often, and from when on once more
        self._next_at = self._dealt_at = inf
        self._due = self.found = False

    def follow(self, topics: Collection[str]) -> None:
        """What is subscribed to now."""
        with self._wake:
            self._topics, self._known, self.found = frozenset(topics), {}, False
            self._complete, self._dealt = None, False
            self._rest()

    def wake(self) -> None:
        """A topic may have grown: look soon. Returns at once."""
        with self._wake:
            if self._stopping or not self._topics:
                return
            self._due = True
            self._wake.notify_all()
            if self._thread is None or not self._thread.is_alive():  # not begun, if an exception came in between
                self._thread = threading.Thread(target=self._run, name="keyorder-growth", daemon=True)
                self._thread.start()

    def tick(self, now: float) -> None:
        """Wake it when that is due."""
        if now >= min(self._next_at, self._dealt_at):
            self._next_at = self._dealt_at = inf  # until the thread has its answer
            self.wake()

    def assigned(self) -> None:
        """The group has dealt out its partitions anew: an eager member sees whether all are somebody's now.

        Soon: while partitions start their answers are awaited, and a description of the group takes as long to read as theirs.
        """
        if self._eager:
            self.revoked()
            self._dealt = False
            self._dealt_at = clock.now() + _SOON

    def revoked(self) -> None:
        """An eager member joins by itself now."""
        if self._eager:
            self.found = False

    def _running(self) -> threading.Thread | None:
        return self._thread

    def _rest(self) -> None:
        self._next_at = inf if self._interval is None else clock.now() + self._interval

    def _run(self) -> None:
        """The thread."""
        soon = _SOON
        while True:
            with self._wake:
                if self._stopping or not self._due:
                    self._thread = None  # under the lock: a wake from here on begins another one
                    self._rest()
                    return
                self._due = False
                topics = self._topics
            found = self._look(topics) if topics else False
            with self._wake:
                if found and topics is self._topics:
                    self.found = True
                if found is None and self._eager and not self._stopping:
                    self._wake.wait(soon)
                    self._due, soon = True, min(2 * soon, _LATE)

    def _look(self, topics: frozenset[str]) -> bool | None:
        """Whether the polling thread has something to do; None where nobody can say now."""
        counts = self._ask(topics)
        if counts is None:
            return None
        if not self._eager or _whole(topics):
            return counts != self._known
        if self._dealt and counts == self._complete:
            return False  # a group's description is as long as the group is large
        self._dealt = True  # unless it is dealt out anew meanwhile
        owned = self._owned()
        found = None if owned is None else self._to_do(counts, owned)
        if found is False:
            self._complete = counts
        else:
            self._dealt = False
        return found

    def _to_do(self, counts: Counts, owned: set[Place]) -> bool | None:
        """Of an eager member, see `_look`. owned: what the group's members own."""
        self._gone = frozenset(topic for topic, _ in owned if topic in counts and counts[topic] is None)
        nobodys = {
            topic: count
            for topic, count in counts.items()
            if count is not None and any((topic, partition) not in owned for partition in range(count))
        }
        if not nobodys:
            self._joined_for.clear()  # a topic that is made again may have the same count
        at = {topic: self._joined_for.get((topic, count), (0, 0.0))[1] for topic, count in nobodys.items()}
        self._nobodys = {topic: count for topic, count in nobodys.items() if at[topic] <= clock.now()}
        if self._gone or self._nobodys:
            return True
        return None if any(at[topic] < inf for topic in nobodys) else False

    def _owned(self) -> set[Place] | None:
        """What the group's members own; None where nobody can say now."""
        try:
            return self._starter.link.admin.owned_at_rest(self._group, _TIMEOUT)
        except (KafkaException, KeyorderError, FutureTimeout):
            return None

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
        if self._eager and not _whole(topics):
            self._refresh_eager(look, subscribe)
            return
        try:
            counts = _refreshed(look, topics)
        except KafkaException:
            return  # no answer now: the next look finds it again
        if None not in counts.values() and not self._eager:
            if subscribe is not None:
                subscribe()
        elif not _whole(topics):
            # Of topics that come and go the library finds out by itself alone, from all topics.
            with suppress(KafkaException):
                look(timeout=_PATIENCE)
        self._known = counts

    def _refresh_eager(self, look: Callable[..., Any], subscribe: Callable[[], None] | None) -> None:
        nobodys, self._nobodys, gone, self._gone = self._nobodys, {}, self._gone, frozenset()
        if gone:
            with suppress(KafkaException):
                _refreshed(look, gone)  # or what the library knows of them stays valid
                look(timeout=_PATIENCE)  # as in `refresh`
        if nobodys:
            with suppress(KafkaException):
                _refreshed(look, nobodys)  # of what it knows to be absent the library would not ask as it joins
        for named in nobodys.items():
            times, _ = self._joined_for.get(named, (0, 0.0))
            self._joined_for[named] = times + 1, clock.now() + _JOINS[min(times, len(_JOINS) - 1)]
        if nobodys and subscribe is not None:
            subscribe()


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
