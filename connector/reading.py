"""Taking in what the client library fetched: is the view new enough, does a record belong where it lies, may it go on.

Three lines keep a reader from judging by an old timeline: the hint header of a moved key's record, the key's hash
against the partition, and the age of the view.
"""

from __future__ import annotations

from collections import deque

from confluent_kafka import KafkaError, Message, TopicPartition

from ..partitioner.errors import GroupResetError, StaleViewError, TimelineRegressionError
from ..partitioner.routing import HINT_HEADER, parse_hint
from . import clock
from .config import ConsumerSettings
from .membership import Membership
from .messages import offset_of, place_of
from .owned import Owned
from .strays import Strays
from .view import View, ViewKeeper

_PATIENCE = 0.2


class Intake:
    """Sorts fetched records into `ready` and the hold queues of their partitions."""

    ready: deque[Message]

    def __init__(self, settings: ConsumerSettings, members: Membership, views: ViewKeeper, strays: Strays) -> None:
        self._settings, self._members, self._views, self._strays = settings, members, views, strays
        self.waiting: deque[Message] = deque()
        self._fetched_at = 0.0
        self._looked: set[str] = set()

    def take(self, messages: list[Message], fetched_at: float) -> None:
        """Sort these, and what an old view has kept waiting; the order within a partition is kept.

        Raises StaleViewError when the control topic stays unreadable, and what order demands.
        """
        try:
            self._take(messages, fetched_at)
        finally:
            self._strays.settle()

    def _take(self, messages: list[Message], fetched_at: float) -> None:
        if messages:
            self.waiting.extend(messages)
            self._fetched_at = fetched_at
            self._looked.clear()
        while self.waiting:
            message = self.waiting[0]
            if message.error() is None:
                owned = self._members.owned.get(place_of(message))
                # Records of a partition that was revoked in the meantime are another member's.
                if owned is not None and owned.fetching and not self._sort(message, owned):
                    self._check_silence(owned.topic)
                    return
            else:
                self._event(message)
            self.waiting.popleft()

    def _sort(self, message: Message, owned: Owned) -> bool:
        """Put one record where it belongs; False when a newer look at the control topic is needed first."""
        topic = owned.topic
        if not self._fresh(topic, self._fetched_at - self._views.view_age(topic)):
            return False
        view = self._members.view(topic)
        if self._doubtful(message, view):
            if topic not in self._looked:
                if not self._fresh(topic, self._fetched_at):
                    return False
                self._looked.add(topic)
                view = self._members.view(topic)
            if not view.managed and self._hint(message) is not None and self._settings.ordered:
                raise TimelineRegressionError(
                    f"{topic}[{owned.partition}]@{offset_of(message)} carries the header {HINT_HEADER}, but the topic has no "
                    "timeline here: its control topic was lost, or it is a copy from another cluster; adopt it, or set "
                    "enable.ordered.delivery=false to read it without gates"
                )
            if view.managed and self._is_move_tombstone(message, view):
                # It clears an earlier home for the cleaner; delivered, it would delete a live key.
                offset = offset_of(message)
                owned.fetched = max(owned.fetched, offset + 1)
                owned.eof = max(owned.eof, offset + 1)
                return True
            stray = view.managed and offset_of(message) >= owned.fetched and self._stray(message, view)
            if stray and not self._strays.found(message, *self._home(message, view)):
                # The position passes it with the next record, or with the end of the partition.
                owned.fetched = offset_of(message) + 1
                return True
        if not self._members.gates.current(topic):
            self._members.gates.open_what_may()
        offset = offset_of(message)
        if offset < owned.fetched:
            # Fetched twice: an eager member's assignment was replaced while these waited here.
            return True
        owned.fetched = offset + 1
        if owned.inherited is not None and owned.inherited.covers(offset):
            # An earlier owner was done with it, before others that waited. The next record's position passes it.
            return True
        free = offset < owned.limit and not owned.held
        if free or (self._settings.gate_keys and self._members.gates.key_may_go(message, owned)):
            owned.queued += 1
            self.ready.append(message)
        else:
            owned.hold(message)
            if len(owned.held) >= self._settings.hold_limit and not owned.paused_for_hold:
                owned.paused_for_hold = True
                self._members.raw.pause([TopicPartition(topic, owned.partition)])
        return True

    def _fresh(self, topic: str, since: float) -> bool:
        return self._views.as_of(topic) >= since or self._views.await_look(topic, since, _PATIENCE)

    def _doubtful(self, message: Message, view: View) -> bool:
        """Whether this record says that the view may be too old."""
        hint = self._hint(message)
        if hint is not None and hint > view.timeline.newest.number:
            return True
        return view.managed and self._stray(message, view)

    def _is_move_tombstone(self, message: Message, view: View) -> bool:
        key = message.key()
        if key is None or message.value() is not None:
            return False
        data = key.encode() if isinstance(key, str) else key
        return view.routing.is_move_tombstone(data, place_of(message)[1], self._hint(message))

    def _hint(self, message: Message) -> int | None:
        headers = message.headers()
        if not headers:
            return None
        return next((parse_hint(header[1]) for header in headers if header[0] == HINT_HEADER), None)

    def _stray(self, message: Message, view: View) -> bool:
        """Whether the record was written against the timeline. A topic that never changed is not looked at by key."""
        if len(view.timeline.epochs) == 1:
            return place_of(message)[1] >= view.timeline.newest.count
        key = message.key()
        if key is None:
            return False
        data = key.encode() if isinstance(key, str) else key
        return view.routing.is_stray(data, place_of(message)[1], offset_of(message))

    @staticmethod
    def _home(message: Message, view: View) -> tuple[int, int]:
        """(where the key lives, in which epoch); -1 for a record without a key."""
        key, newest = message.key(), view.timeline.newest.number
        if key is None:
            return -1, newest
        return view.routing.of(key.encode() if isinstance(key, str) else key).home, newest

    def _event(self, message: Message) -> None:
        """An end of partition moves the position over what no record shows; other events are the application's."""
        error = message.error()
        assert error is not None
        owned = self._members.owned.get(place_of(message))
        if error.code() == KafkaError._PARTITION_EOF:
            if owned is not None and owned.fetching:
                owned.eof = max(owned.eof, offset_of(message))
            if self._settings.partition_eof:
                self.ready.append(message)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) and owned is not None:
            self._out_of_range(owned)
        else:
            self.ready.append(message)

    def _out_of_range(self, owned: Owned) -> None:
        """Below the log start: what was fetched below it is dropped, the log start follows. Above the end: stop."""
        low, high = self._members.starter.log(owned.topic, owned.partition)
        if owned.fetched > high:
            raise GroupResetError(
                self._settings.group,
                owned.topic,
                f"partition {owned.partition} was read up to {owned.fetched}, its log ends at {high} now",
            )
        if owned.fetched < low:
            self._members.before_revoke({owned.place})
            self._members.restart_at(owned, low)

    def _check_silence(self, topic: str) -> None:
        silent = clock.now() - self._views.as_of(topic)
        if silent > self._settings.control_timeout:
            raise StaleViewError(topic, silent)
