"""Giving out: what may be returned, what one call has collected so far, and what the application was given last.

A call's records are the application's once the call has returned, and not before: an exception, a signal handler's
included, may end the call at any line. So a call leaves behind what it has collected, and its last act is to put a
receipt in its place. The next call of any kind books the receipt; what has none comes again.

poll() returns one record at a time, and most of its calls take it from a `Run`, which an earlier call has collected. There
the number of records that were returned is the receipt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from ...messages import Place, place_of
from ..partition_state import PartitionState
from .batches import Batch, Item

_OF_A_POSITION = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a call has returned: the place and the last offset of each run, in order."""

    runs: tuple[tuple[Place, int], ...] = ()


NOTHING = Receipt()


class Run:
    """Records that were judged and may be returned, for poll() to return one by one, from any thread and without the turn.

    messages: all of them, in order. next: how many were returned. end: how many may be; 0 once it is over.
    until: the time at which a poll has to do more than to return the next one. Seconds of the clock.
    gave, finished: how many are booked as returned, and as processed.
    """

    __slots__ = ("_at", "_base", "_items", "end", "finished", "gave", "messages", "next", "until")

    def __init__(self, items: list[Item], messages: list[Message], end: int, until: float) -> None:
        self._items, self.messages, self.end, self.until = items, messages, end, until
        self.next = self.gave = self.finished = 0
        self._at = self._base = 0  # the item in which row `gave` lies, and that item's first row

    def rows(self, start: int, stop: int) -> Iterator[tuple[Place, int]]:
        """The place and the last offset of each run of rows in [start, stop); events have none. start: `gave` or more."""
        at, base = self._at, self._base
        while base < stop:
            item = self._items[at]
            above = base + _rows(item)
            if above > start and not isinstance(item, Message):
                yield item.place, item.offset(min(stop, above) - base - 1)
            if above <= stop:
                at += 1
            else:
                break
            base = above
        self._at, self._base = at, base

    def rest(self) -> list[Item]:
        """What was not returned."""
        rest: list[Item] = []
        base = 0
        for item in self._items:
            above = base + _rows(item)
            if above > self.next:
                skipped = max(0, self.next - base)
                rest.append(item if isinstance(item, Message) else item.cut(skipped, item.rows))
            base = above
        return rest


class DeliveryBuffer:
    """Between intake and application. Used by one thread at a time, but for the records of a run.

    waiting: what was fetched and not judged yet. ready: what may be returned, in order. last: what the last call has
    collected, its receipt, or the run that it has left. run: the same run, for poll(); None once it is over.
    returned: the partitions of which the application was given something that does not count as processed yet.
    """

    def __init__(self, owned: Mapping[Place, PartitionState]) -> None:
        self._owned = owned
        self.waiting: deque[Item] = deque()
        self.ready: deque[Item] = deque()
        self.returned: set[Place] = set()
        self._paused: dict[Place, list[Item]] = {}
        self.last: list[Item] | Receipt | Run = NOTHING
        self.run: Run | None = None
        self.count = 0

    def begin(self) -> None:
        """A new call. What the last one has collected and not returned comes first."""
        if isinstance(self.last, list):
            self.ready.extendleft(reversed(self.last))
        self.last = []
        self.count = 0

    def offer(self, end: int, until: float) -> bool:
        """Leave what was collected to poll(), up to `end` records and until then. False when it is nothing."""
        assert isinstance(self.last, list)
        if not self.last:
            return False
        run = Run(self.last, self.messages(), min(end, self.count), until)
        self.last = run
        self.run = run
        return True

    def end(self) -> None:
        """Nothing more is returned of the run."""
        run = self.last
        if isinstance(run, Run):
            # A poll on another thread that has looked at `until` already looks at this too.
            run.end = 0
            self.run = None

    def take_back(self) -> None:
        """What the run has left comes with the next call. It is over, and booked."""
        if isinstance(self.last, Run):
            self.last = self.last.rest()

    def book(self, finished: Callable[[], None]) -> None:
        """Note what the application was given last, and add its partitions to `returned`. May be called twice.

        finished: called when `returned` is done with, since the application has come back for more after it.
        """
        receipt = self.last
        if isinstance(receipt, Run):
            self._book(receipt, finished)
        elif isinstance(receipt, Receipt) and receipt.runs:
            for place, last in receipt.runs:
                self._gave(place, last)
            self.last = NOTHING

    def _book(self, run: Run, finished: Callable[[], None]) -> None:
        """Whoever was given a record of a run had come back for it: with all before it the application is done."""
        upto = run.next  # read once: a poll may go on meanwhile
        if run.finished < upto - 1:
            for place, last in run.rows(run.gave, upto - 1):
                self._gave(place, last)
            run.gave = max(run.gave, upto - 1)
            finished()
            run.finished = upto - 1
        if run.gave < upto:
            for place, last in run.rows(run.gave, upto):
                self._gave(place, last)
            run.gave = upto

    def _gave(self, place: Place, last: int) -> None:
        owned = self._owned.get(place)
        if owned is not None:
            self.returned.add(place)
            owned.gave(last)

    def collect(self, wanted: int, events: bool = True) -> Message | None:
        """Take up to `wanted` in all from what is ready.

        events: they are collected like records; otherwise the first one in the way is returned, once there are no
        records before it in this call.
        """
        assert isinstance(self.last, list)
        while self.ready and self.count < wanted:
            item = self.ready[0]
            owned = self._owned.get(_place(item))
            if owned is not None and owned.fetch.paused_by_user:
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

    def event_first(self) -> bool:
        """Bring the first event that tells of no position before what else is ready. Whether there is one."""
        for at, item in enumerate(self.ready):
            if isinstance(item, Message) and not _of_a_position(item):
                del self.ready[at]
                self.ready.appendleft(item)
                return True
        return False

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

    def places(self) -> set[Place]:
        """The partitions of what was collected, events left out."""
        return {item.place for item in self.batches()}

    def batches(self) -> list[Batch]:
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

    def drop(self, places: set[Place]) -> None:
        """Forget what the application has not seen: its new owner starts before it, or a seek left it behind."""
        for place in places & self._paused.keys():
            del self._paused[place]
        for unseen in (self.ready, self.last, self.waiting):
            if not isinstance(unseen, Receipt | Run):
                kept = [item for item in unseen if not _concerns(item, places)]
                unseen.clear()
                unseen.extend(kept)
        if isinstance(self.last, list):
            self.count = sum(map(_rows, self.last))
        self.returned -= places

    def drop_all(self) -> None:
        """Forget all records that the application has not seen; they will be fetched again."""
        self._paused.clear()
        events = [
            item for item in (*self.ready, *self.waiting) if isinstance(item, Message) and not _of_a_position(item)
        ]
        self.ready.clear()
        self.waiting.clear()
        self.ready.extend(events)
        if isinstance(self.last, list):
            self.last, self.count = NOTHING, 0

    def drop_unjudged(self, places: set[Place]) -> None:
        """Forget records that were fetched and not judged yet; they will be fetched again."""
        kept = [item for item in self.waiting if not _concerns(item, places)]
        self.waiting.clear()
        self.waiting.extend(kept)

    def _event(self) -> Message:
        event = self.ready.popleft()
        assert isinstance(event, Message)
        return event


def tells_of_no_position(message: Message) -> bool:
    """Whether a message that was fetched is an event, and one of the client or a topic."""
    return message.error() is not None and not _of_a_position(message)


def _of_a_position(event: Message) -> bool:
    """Whether it says something of a position, which is wrong once the partition is read from another one."""
    error = event.error()
    return error is not None and error.code() in _OF_A_POSITION


def _concerns(item: Item, places: set[Place]) -> bool:
    return (not isinstance(item, Message) or _of_a_position(item)) and _place(item) in places


def _rows(item: Item) -> int:
    return 1 if isinstance(item, Message) else item.rows


def _place(item: Item) -> Place:
    return place_of(item) if isinstance(item, Message) else item.place
