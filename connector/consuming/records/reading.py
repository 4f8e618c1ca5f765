"""Taking in what the client library fetched: is the view new enough, does a record belong where it lies, may it go on.

Three lines keep a reader from judging by an old timeline: the hint header of a moved key's record, the key's hash
against the partition, and the age of the view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from confluent_kafka import KafkaError, Message

from ....partitioner.errors import GroupResetError, StaleViewError, TimelineRegressionError
from ....partitioner.routing import HINT_HEADER
from ... import clock
from ...config import ConsumerSettings
from ...messages import key_of, offset_of, place_of
from ..gates.gating import Gatekeeper
from ..membership import Membership
from ..owned import Owned
from ..view import View, ViewKeeper
from .parcels import Item, MessageParcel, Parcel, hint_of
from .strays import Strays

_PATIENCE = 0.2


class Intake:
    """Sorts fetched records into `ready` and the hold queues of their partitions."""

    ready: deque[Item]

    def __init__(
        self, settings: ConsumerSettings, members: Membership, views: ViewKeeper, gates: Gatekeeper, strays: Strays
    ) -> None:
        self._settings, self._members, self._views, self._strays = settings, members, views, strays
        self._gates = gates
        self.waiting: deque[Item] = deque()
        self._fetched_at = 0.0
        self._looked: set[str] = set()

    def take(self, items: Sequence[Item], fetched_at: float) -> None:
        """Sort these, and what an old view has kept waiting; the order within a partition is kept.

        Raises StaleViewError when the control topic stays unreadable, and what order demands.
        """
        try:
            self._take(items, fetched_at)
        finally:
            self._strays.settle()

    def _take(self, items: Sequence[Item], fetched_at: float) -> None:
        if items:
            self.waiting.extend(items)
            self._fetched_at = fetched_at
            self._looked.clear()
        while self.waiting:
            item = self.waiting[0]
            if not isinstance(item, Message):
                owned = self._members.owned.get(item.place)
                # Records of a partition that was revoked in the meantime are another member's.
                if owned is not None and owned.fetching and not self._sort(item, owned):
                    self._check_silence(owned.topic)
                    return
            else:
                self._event(item)
            self.waiting.popleft()

    def _sort(self, parcel: Parcel, owned: Owned) -> bool:
        """Put records where they belong; False when a newer look at the control topic is needed first."""
        topic = owned.topic
        if not self._fresh(topic, self._fetched_at - self._views.view_age(topic)):
            return False
        view = self._members.view(topic)
        judged = parcel.judge(view)
        if judged.hint > view.timeline.newest.number and topic not in self._looked:
            if not self._views.await_epoch(topic, judged.hint, self._fetched_at, _PATIENCE):
                return False
            view = self._members.view(topic)
            judged = parcel.judge(view)
        if judged.strays or judged.hint > view.timeline.newest.number:
            if topic not in self._looked:
                if not self._fresh(topic, self._fetched_at):
                    return False
                self._looked.add(topic)
                view = self._members.view(topic)
                judged = parcel.judge(view)
            if not view.managed and judged.hinted >= 0 and self._settings.ordered:
                self._accept(parcel, 0, judged.hinted, owned)
                raise TimelineRegressionError(
                    f"{topic}[{owned.partition}]@{parcel.offset(judged.hinted)} carries the header {HINT_HEADER}, but the "
                    "topic has no timeline here: its control topic was lost, or it is a copy from another cluster; adopt "
                    "it, or set enable.ordered.delivery=false to read it without gates"
                )
        if not self._gates.current(topic):
            self._gates.open_what_may()
        done = 0
        for row in judged.strays:
            message = parcel.message(row)
            if self._is_move_tombstone(message, view):
                # It clears an earlier home for the cleaner; delivered, it would delete a live key.
                self._accept(parcel, done, row, owned)
                done = row + 1
                owned.fetched = max(owned.fetched, parcel.offset(row) + 1)
                owned.eof = max(owned.eof, parcel.offset(row) + 1)
            elif parcel.offset(row) >= owned.fetched:
                if self._strays.stop:
                    self._accept(parcel, done, row, owned)
                if not self._strays.found(message, *self._home(message, view)):
                    # The position passes it with the next record, or with the end of the partition.
                    self._accept(parcel, done, row, owned)
                    done = row + 1
                    owned.fetched = parcel.offset(row) + 1
        self._accept(parcel, done, parcel.rows, owned)
        return True

    def _accept(self, parcel: Parcel, start: int, stop: int, owned: Owned) -> None:
        """Rows [start, stop): those below the first closed gate may be given out, the others are held."""
        # Fetched twice are those below `fetched`: an eager member's assignment was replaced while these waited here.
        start = max(start, parcel.rows_below(owned.fetched))
        if start >= stop:
            return
        owned.fetched = parcel.offset(stop - 1) + 1
        if owned.inherited is not None:
            known = min(stop, max(start, parcel.rows_below(owned.inherited.upto)))
            for row in range(start, known):
                # An earlier owner was done with the others, before these that waited. The next position passes them.
                if not owned.inherited.covers(parcel.offset(row)):
                    self._place(parcel, row, row + 1, owned)
            start = known
        if start < stop:
            self._place(parcel, start, stop, owned)

    def _place(self, parcel: Parcel, start: int, stop: int, owned: Owned) -> None:
        free = start if owned.held else min(stop, max(start, parcel.rows_below(owned.limit)))
        if free > start:
            owned.queued += free - start
            self.ready.append(parcel.cut(start, free))
        if free >= stop:
            return
        rest = parcel.cut(free, stop)
        if not self._settings.gate_keys:
            owned.held.append(rest)
            self._pause_when_full(owned)
            return
        for message in rest.messages():
            record = MessageParcel(parcel.place, [message])
            if self._gates.key_may_go(message, owned):
                owned.queued += 1
                self.ready.append(record)
            else:
                owned.hold_alone(record)
                self._pause_when_full(owned)

    def _pause_when_full(self, owned: Owned) -> None:
        if len(owned.held) >= self._settings.hold_limit and not owned.paused_for_hold:
            self._members.fetching.hold(owned)

    def _fresh(self, topic: str, since: float) -> bool:
        return self._views.as_of(topic) >= since or self._views.await_look(topic, since, _PATIENCE)

    @staticmethod
    def _is_move_tombstone(message: Message, view: View) -> bool:
        key = key_of(message)
        if key is None or message.value() is not None:
            return False
        return view.routing.is_move_tombstone(key, place_of(message)[1], hint_of(message))

    @staticmethod
    def _home(message: Message, view: View) -> tuple[int, int]:
        """(where the key lives, in which epoch); -1 for a record without a key."""
        key, newest = key_of(message), view.timeline.newest.number
        return -1 if key is None else view.routing.of(key).home, newest

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
            self._members.restart_at(owned, low)

    def _check_silence(self, topic: str) -> None:
        silent = clock.now() - self._views.as_of(topic)
        if silent > self._settings.control_timeout:
            raise StaleViewError(topic, silent)
