"""Giving out: what may be returned, what one call has collected so far, and what the application was given last.

A call's records are the application's once the call has returned, and not before: an exception, a signal handler's
included, may end the call at any line. So a call leaves behind what it has collected, and its last act is to put a
receipt in its place. The next call of any kind books the receipt; what has none comes again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from ...messages import Place, place_of
from ..membership import Membership
from .parcels import Item, Parcel

_OF_A_POSITION = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a call has returned: the place and the last offset of each run, in order."""

    runs: tuple[tuple[Place, int], ...] = ()


NOTHING = Receipt()


class Outbox:
    """Between intake and application. Used by one thread at a time.

    ready: what may be returned, in order. last: what the last call has collected, or its receipt.
    """

    def __init__(self, members: Membership) -> None:
        self._members = members
        self.ready: deque[Item] = deque()
        self._paused: dict[Place, list[Item]] = {}
        self.last: list[Item] | Receipt = NOTHING
        self.count = 0

    def begin(self) -> None:
        """A new call. What the last one has collected and not returned comes first."""
        if isinstance(self.last, list):
            self.ready.extendleft(reversed(self.last))
        self.last = []
        self.count = 0

    def book(self, returned: set[Place]) -> None:
        """Note what the application was given last, and add its partitions to `returned`. May be called twice."""
        receipt = self.last
        if not isinstance(receipt, Receipt) or not receipt.runs:
            return
        for place, last in receipt.runs:
            owned = self._members.owned.get(place)
            if owned is not None:
                returned.add(place)
                owned.gave(last)
        self.last = NOTHING

    def collect(self, wanted: int, events: bool = True) -> Message | None:
        """Take up to `wanted` in all from what is ready.

        events: they are collected like records; otherwise the first one in the way is returned, once there are no
        records before it in this call.
        """
        assert isinstance(self.last, list)
        while self.ready and self.count < wanted:
            item = self.ready[0]
            owned = self._members.owned.get(_place(item))
            if owned is not None and owned.paused_by_user:
                self.ready.popleft()
                self._paused.setdefault(owned.place, []).append(item)
                continue
            if isinstance(item, Message):
                if not events:
                    return None if self.count else self._event()
                self.ready.popleft()
                self.last.append(item)
                self.count += 1
                continue
            self.ready.popleft()
            if owned is None:
                continue
            room = wanted - self.count
            if item.rows > room:
                self.ready.appendleft(item.cut(room, item.rows))
                item = item.cut(0, room)
            self.last.append(item)
            self.count += item.rows
        return None

    @property
    def stopped(self) -> bool:
        """Whether an event is next."""
        return bool(self.ready) and isinstance(self.ready[0], Message)

    def messages(self) -> list[Message]:
        """What was collected, record by record."""
        given = self.last
        assert isinstance(given, list)
        if len(given) == 1 and not isinstance(given[0], Message):
            return given[0].messages()
        messages: list[Message] = []
        for item in given:
            if isinstance(item, Message):
                messages.append(item)
            else:
                messages += item.messages()
        return messages

    def parcels(self) -> list[Parcel]:
        """What was collected, without events."""
        assert isinstance(self.last, list)
        return [item for item in self.last if not isinstance(item, Message)]

    def receipt(self) -> Receipt:
        """Of what was collected. The call's last act is to put it into `last`."""
        assert isinstance(self.last, list)
        return Receipt(tuple((item.place, item.last) for item in self.last if not isinstance(item, Message)))

    def resume(self, places: set[Place]) -> None:
        """What came of these while they were paused may be returned, before what comes now."""
        for place in places & self._paused.keys():
            self.ready.extendleft(reversed(self._paused.pop(place)))

    def drop(self, places: set[Place], waiting: deque[Item]) -> None:
        """Forget what the application has not seen: its new owner starts before it, or a seek left it behind."""
        for place in places & self._paused.keys():
            del self._paused[place]
        for unseen in (self.ready, self.last, waiting):
            if not isinstance(unseen, Receipt):
                kept = [item for item in unseen if not _concerns(item, places)]
                unseen.clear()
                unseen.extend(kept)
        if isinstance(self.last, list):
            self.count = sum(1 if isinstance(item, Message) else item.rows for item in self.last)

    def drop_all(self, waiting: deque[Item]) -> None:
        """Forget all records that the application has not seen; they will be fetched again."""
        self._paused.clear()
        events = [item for item in (*self.ready, *waiting) if isinstance(item, Message) and not _of_a_position(item)]
        self.ready.clear()
        waiting.clear()
        self.ready.extend(events)
        if isinstance(self.last, list):
            self.last, self.count = NOTHING, 0

    def drop_unjudged(self, places: set[Place], waiting: deque[Item]) -> None:
        """Forget records that were fetched and not judged yet; they will be fetched again."""
        kept = [item for item in waiting if not _concerns(item, places)]
        waiting.clear()
        waiting.extend(kept)

    def _event(self) -> Message:
        event = self.ready.popleft()
        assert isinstance(event, Message)
        return event


def _of_a_position(event: Message) -> bool:
    """Whether it says something of a position, which is wrong once the partition is read from another one."""
    error = event.error()
    return error is not None and error.code() in _OF_A_POSITION


def _concerns(item: Item, places: set[Place]) -> bool:
    return (not isinstance(item, Message) or _of_a_position(item)) and _place(item) in places


def _place(item: Item) -> Place:
    return place_of(item) if isinstance(item, Message) else item.place
