"""Giving out: what may be returned, what one call has collected so far, and what the application was given last."""

from __future__ import annotations

from collections import deque

from confluent_kafka import Message

from ...messages import Place, place_of
from ..membership import Membership
from .parcels import Item, Parcel, items_of


class Outbox:
    """Between intake and application. Used by the polling thread alone.

    ready: what may be returned, in order. touched: the partitions of what was returned last. unseen: what was returned
    and put back by the application, to come again before all else.
    """

    def __init__(self, members: Membership) -> None:
        self._members = members
        self.ready: deque[Item] = deque()
        self.touched: set[Place] = set()
        self._given: list[Item] = []
        self.unseen: deque[Message] = deque()
        self.count = 0

    def begin(self) -> None:
        """A new call."""
        self._given = []
        self.count = 0

    def again(self, wanted: int) -> None:
        """Take what was put back."""
        messages = [self.unseen.popleft() for _ in range(min(wanted, len(self.unseen)))]
        self._given = list(items_of(messages))
        self.count = len(messages)

    def collect(self, wanted: int, events: bool = True) -> Message | None:
        """Take up to `wanted` in all from what is ready.

        events: they are collected like records; otherwise the first one in the way is returned, once there are no
        records before it in this call.
        """
        while self.ready and self.count < wanted:
            item = self.ready[0]
            if isinstance(item, Message):
                if not events:
                    return None if self.count else self._event()
                self.ready.popleft()
                self._given.append(item)
                self.count += 1
                continue
            owned = self._members.owned.get(item.place)
            self.ready.popleft()
            if owned is None:
                continue
            room = wanted - self.count
            if item.rows > room:
                self.ready.appendleft(item.cut(room, item.rows))
                item = item.cut(0, room)
            owned.gave(item.rows, item.last)
            self.touched.add(item.place)
            self._given.append(item)
            self.count += item.rows
        return None

    @property
    def stopped(self) -> bool:
        """Whether an event is next."""
        return bool(self.ready) and isinstance(self.ready[0], Message)

    def messages(self) -> list[Message]:
        """End the call: what was collected, record by record."""
        given, self._given = self._given, []
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
        """End the call: what was collected, without events."""
        given, self._given = self._given, []
        return [item for item in given if not isinstance(item, Message)]

    def drop(self, places: set[Place], waiting: deque[Item]) -> None:
        """Forget what the application has not seen: its new owner starts before it, or a seek left it behind."""
        for unseen in (self.ready, self._given, waiting):
            kept = [item for item in unseen if _is_event(item) or _place(item) not in places]
            unseen.clear()
            unseen.extend(kept)
        self.unseen = deque(m for m in self.unseen if m.error() is not None or place_of(m) not in places)
        self.count = sum(1 if isinstance(item, Message) else item.rows for item in self._given)

    def drop_unjudged(self, waiting: deque[Item]) -> None:
        """Forget records that were fetched and not judged yet; they will be fetched again."""
        events = [item for item in waiting if _is_event(item)]
        waiting.clear()
        waiting.extend(events)

    def _event(self) -> Message:
        event = self.ready.popleft()
        assert isinstance(event, Message)
        return event


def _is_event(item: Item) -> bool:
    return isinstance(item, Message)


def _place(item: Item) -> Place:
    return place_of(item) if isinstance(item, Message) else item.place
