"""Batches: runs of fetched records of one partition, which are judged, held and given out as a whole.

A batch is a list of messages or, in `arrow/batches.py`, a slice of columns. What happens between fetching and giving
out costs little per record that way, and both ways keep the same order by the same code.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from math import inf
from typing import Any, Protocol

from confluent_kafka import Message

from ....partitioner.hashing import key_bytes
from ....partitioner.routing import HINT_HEADER, parse_hint
from ...messages import Place, offset_of, place_of
from ..view import View


@dataclass(frozen=True, slots=True)
class Judged:
    """What a view says of a batch. hint: the highest hint header, -1 without one; hinted: the first row that has one.

    strays: rows that were written against the timeline, in order.
    """

    hint: int
    hinted: int
    strays: Sequence[int]


class Batch(Protocol):
    """Records of one partition with growing offsets; never empty. Replaced, never changed."""

    place: Place
    rows: int
    last: int

    def offset(self, row: int) -> int:
        """The offset of a row."""

    def rows_below(self, offset: float) -> int:
        """How many rows lie below an offset: they are the first ones."""

    def cut(self, start: int, stop: int) -> Batch:
        """Rows [start, stop), at least one."""

    def judge(self, view: View, hints: bool = True) -> Judged:
        """Compare keys with a view, and `hints` where they may tell something: headers cost far more than all the rest.

        A topic that never changed is not looked at by key.
        """

    def message(self, row: int) -> Message:
        """One record."""

    def messages(self) -> list[Message]:
        """All records."""


Item = Batch | Message  # a Message in a queue of items is an event: an error, or the end of a partition
NOTHING = Judged(-1, -1, ())


class MessageBatch:
    """Messages of the Python client."""

    __slots__ = ("_messages", "last", "place", "rows")

    def __init__(self, place: Place, messages: list[Message]) -> None:
        self.place, self._messages = place, messages
        self.rows = len(messages)
        self.last = offset_of(messages[-1])

    def offset(self, row: int) -> int:
        """See Batch."""
        return offset_of(self._messages[row])

    def rows_below(self, offset: float) -> int:
        """See Batch."""
        if self.last < offset:
            return self.rows
        return bisect_left(self._messages, offset, key=offset_of)

    def cut(self, start: int, stop: int) -> MessageBatch:
        """See Batch."""
        return self if stop - start == self.rows else MessageBatch(self.place, self._messages[start:stop])

    def judge(self, view: View, hints: bool = True) -> Judged:
        """See Batch."""
        hint = hinted = -1
        if hints:
            headers: list[Any] = list(map(Message.headers, self._messages))
            hint, hinted = hints_in(headers)
        return Judged(hint, hinted, self._strays(view) if view.managed else ())

    def _strays(self, view: View) -> Sequence[int]:
        partition, period, slot_of = self.place[1], view.routing.period, view.routing.slot
        if len(view.timeline.epochs) == 1 and partition >= view.timeline.newest.count:
            return range(self.rows)
        keys: list[Any] = list(map(Message.key, self._messages))
        try:
            slots = list(map(slot_of, keys, repeat(period)))
        except TypeError:
            slots = [-1 if key is None else slot_of(key_bytes(key), period) for key in keys]
        since = view.at_home_since(partition)
        # The usual case, asked without a line of Python per record: the run lies in the last stay of all its keys.
        distinct = set(slots)
        if distinct <= since.keys() and max(map(since.__getitem__, distinct)) <= self.offset(0):
            return ()
        offsets = map(offset_of, self._messages)
        return [
            row
            for row, (key, slot, offset) in enumerate(zip(keys, slots, offsets, strict=True))
            if offset < since.get(slot, inf) and view.routing.is_stray(key_bytes(key), partition, offset)
        ]

    def message(self, row: int) -> Message:
        """See Batch."""
        return self._messages[row]

    def messages(self) -> list[Message]:
        """See Batch."""
        return self._messages


class Backlog:
    """Batches of one partition in their order. Its length is the number of records."""

    __slots__ = ("_batches", "_rows")

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def first(self) -> int:
        """The offset of the first record; there has to be one."""
        return self._batches[0].offset(0)

    def offsets(self) -> Iterator[int]:
        """The offset of every record."""
        return (batch.offset(row) for batch in self._batches for row in range(batch.rows))

    def append(self, batch: Batch) -> None:
        """Put it behind the others."""
        self._batches.append(batch)
        self._rows += batch.rows

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def first_below(self, offset: float) -> Batch | None:
        """The first records as far as they lie below an offset; None where none does. They stay until `drop`."""
        if not self._batches:
            return None
        first = self._batches[0]
        rows = first.rows_below(offset)
        return first.cut(0, rows) if rows else None

    def drop(self, taken: Batch) -> None:
        """Take out what `first_below` has returned."""
        first = self._batches.popleft()
        if taken.rows < first.rows:
            self._batches.appendleft(first.cut(taken.rows, first.rows))
        self._rows -= taken.rows

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()
        self._rows = 0


def items_of(messages: Sequence[Message]) -> list[Item]:
    """What the client library returned, as batches and events in the same order."""
    if not any(map(Message.error, messages)):
        return [batch for group in _by_place(messages) for batch in _growing(*group)]
    items: list[Item] = []
    for failed, group in groupby(messages, lambda message: message.error() is not None):
        run = list(group)
        items += run if failed else items_of(run)
    return items


def _by_place(messages: Sequence[Message]) -> Iterable[tuple[Place, list[Message]]]:
    """Runs of messages of one partition. Asked without a line of Python per message."""
    if not messages:
        return []
    topics: list[Any] = list(map(Message.topic, messages))
    places: list[Any] = list(map(Message.partition, messages))
    if len(set(topics)) > 1:
        places = list(zip(topics, places, strict=True))
    elif len(set(places)) == 1:
        return [(place_of(messages[0]), messages if isinstance(messages, list) else list(messages))]
    runs: list[tuple[Place, list[Message]]] = []
    start = 0
    for _, run in groupby(places):
        stop = start + len(list(run))
        runs.append((place_of(messages[start]), list(messages[start:stop])))
        start = stop
    return runs


def _growing(place: Place, messages: list[Message]) -> Iterable[Batch]:
    """A batch, or several where offsets go back: what was fetched anew.

    One call of the client library returns a partition's records in their order, so its ends tell.
    """
    if offset_of(messages[-1]) - offset_of(messages[0]) >= len(messages) - 1:
        return [MessageBatch(place, messages)]
    batches, start = [], 0
    for row in range(1, len(messages)):
        if offset_of(messages[row]) <= offset_of(messages[row - 1]):
            batches.append(MessageBatch(place, messages[start:row]))
            start = row
    return [*batches, MessageBatch(place, messages[start:])]


def hint_of(message: Message) -> int | None:
    """The epoch in a record's hint header, or None."""
    headers = message.headers()
    return hint_in(headers) if headers else None


def hint_in(headers: Iterable[Any]) -> int | None:
    """The epoch in the first hint header, or None."""
    for name, value in headers:
        if name == HINT_HEADER:
            return parse_hint(value)
    return None


def hints_in(headers: Sequence[list[tuple[str, Any]] | None]) -> tuple[int, int]:
    """(highest hint, first row that has one) of a run of records' headers, -1 where there is none.

    Most often all hints of a run are the same header, or there is none: parsed once, and not record by record.
    """
    present = list(filter(None, headers))
    values = {value for name, value in set(chain.from_iterable(present)) if name == HINT_HEADER}
    parsed = {value: hint for value in values if (hint := parse_hint(value)) is not None}
    if not parsed:
        return -1, -1
    if len(values) == 1 or max(map(len, present)) == 1:
        hinted = next(row for row, own in enumerate(headers) if own and hint_in(own) is not None)
        return max(parsed.values()), hinted
    hints = [(hint, row) for row, own in enumerate(headers) if own and (hint := hint_in(own)) is not None]
    return (max(hints)[0], hints[0][1]) if hints else (-1, -1)
