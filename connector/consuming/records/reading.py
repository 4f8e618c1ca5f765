"""Taking in what the client library fetched: is the view new enough, does a record belong where it lies, may it go on.

Three lines keep a reader from judging by an old timeline: the hint header of a moved key's record, the key's hash
against the partition, and the age of the view.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, Message

from ....partitioner.errors import GroupResetError, KeyorderError, StaleViewError, TimelineRegressionError
from ....partitioner.gates.starts import is_gone
from ....partitioner.routing import HINT_HEADER
from ... import clock
from ...config import ConsumerSettings
from ...messages import key_of, offset_of, place_of
from ..assignment import Assignment
from ..gates.gating import Gatekeeper
from ..membership import Membership
from ..partition_state import PartitionState
from ..progress import Phase, Progress
from ..starting import Starter
from ..view import View
from .batches import Batch, Item, Judged, MessageBatch, hint_of
from .strays import Strays

_PATIENCE = 0.2
# How long it counts that records with a foreign header come. Seconds.
_REMEMBERED = 60.0


class Intake:
    """Sorts fetched records into what is `ready` and the hold queues of their partitions.

    foreign_until: until then records may come whose header names an epoch that there is not. Each batch of them costs a
    look at the control topic, so batches should be large.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        assignment: Assignment,
        members: Membership,
        starter: Starter,
        gates: Gatekeeper,
        strays: Strays,
        progress: Progress,
    ) -> None:
        self._progress = progress
        self._settings, self._assignment, self._members, self._starter = settings, assignment, members, starter
        self._views, self._out, self._gates, self._strays = assignment.views, assignment.out, gates, strays
        self._fetched_at = 0.0
        self._looked: set[str] = set()
        self.foreign_until = 0.0
        self._ended = False

    def take(self, items: Sequence[Item], fetched_at: float) -> None:
        """Take over what was fetched, one item at least; `sort` looks at it."""
        self._out.waiting.extend(items)
        self._looked.clear()
        self._fetched_at = fetched_at
        self._assignment.fetching.handed_over(items)

    def saw_end(self) -> bool:
        """Whether the end of a partition has come since this was asked last."""
        ended, self._ended = self._ended, False
        return ended

    def sort(self) -> None:
        """Sort what was taken, and what an old view has kept waiting; the order within a partition is kept.

        Raises StaleViewError when the control topic stays unreadable, and what order demands.
        """
        try:
            self._sort_all()
        finally:
            self._strays.settle()

    def _sort_all(self) -> None:
        while self._out.waiting:
            item = self._out.waiting[0]
            if not isinstance(item, Message):
                owned = self._assignment.owned.get(item.place)
                # Records of a partition that was revoked in the meantime are another member's.
                if owned is not None and owned.fetch.running and not self._sort(item, owned):
                    self._check_silence(owned.topic)
                    return
            else:
                self._progress.phase = Phase.MOVING
                self._event(item)
            # What is done for an item may drop it: a partition that begins elsewhere loses all that waits.
            if self._out.waiting and self._out.waiting[0] is item:
                self._out.waiting.popleft()
            self._progress.phase = Phase.REST

    def _sort(self, batch: Batch, owned: PartitionState) -> bool:
        """Put records where they belong; False when a newer look at the control topic is needed first."""
        topic = owned.topic
        if not self._fresh(topic, self._fetched_at - self._views.view_age(topic)):
            return False
        view = self._assignment.view(topic)
        judged = batch.judge(view, self._hints(batch, owned, view))
        if judged.hint > view.timeline.newest.number and topic not in self._looked:
            if not self._views.await_epoch(topic, judged.hint, self._fetched_at, _PATIENCE):
                return False
            view = self._assignment.view(topic)
            judged = batch.judge(view)
        if (judged.strays or judged.hint > view.timeline.newest.number) and topic not in self._looked:
            if not self._fresh(topic, self._fetched_at):
                return False
            self._looked.add(topic)
            view = self._assignment.view(topic)
            judged = batch.judge(view)
            if judged.hint > view.timeline.newest.number:
                self.foreign_until = clock.now() + _REMEMBERED
        self._progress.phase = Phase.MOVING
        try:
            self._admit(batch, judged, view, owned)
        except KeyorderError:
            self._progress.phase = Phase.REST  # what was found stays where it is, and is found again
            raise
        return True

    def _hints(self, batch: Batch, owned: PartitionState, view: View) -> bool:
        """Whether hints have to be looked at: they only tell of epochs that the view may not know yet.

        What was in the log when a look at the control topic began was written by no epoch that the look did not show:
        writers have read an epoch before they write by it. So once a look has followed, all below the end that the client
        library knew before is settled. On a topic without a timeline a hint also tells that it has lost it.
        """
        topic = owned.topic
        as_of = self._views.as_of(topic)
        if owned.seen.end_at <= as_of:
            owned.seen.settled_end = owned.seen.end
            owned.seen.end = self._assignment.fetching.known_end(owned)
            owned.seen.end_at = clock.now()
        if batch.last >= owned.seen.settled_end:
            return True
        return not view.managed and self._settings.ordered

    def _admit(self, batch: Batch, judged: Judged, view: View, owned: PartitionState) -> None:
        foreign = bool(judged.strays) or judged.hint > view.timeline.newest.number
        if foreign and judged.hinted >= 0 and not view.managed and self._settings.ordered:
            self._accept(batch, 0, judged.hinted, owned)
            raise TimelineRegressionError(
                f"{owned.topic}[{owned.partition}]@{batch.offset(judged.hinted)} carries the header {HINT_HEADER}, but the "
                "topic has no timeline here: its control topic was lost, or it is a copy of a managed topic. Restore _keyorder "
                "from a backup, copy the records into a managed topic with Connect's MirrorConnector, or "
                "set enable.ordered.delivery=false to read it without gates"
            )
        if not self._gates.current(owned.topic):
            self._gates.open_what_may()
            if not (self._out.waiting and self._out.waiting[0] is batch):
                return  # a listener has moved the position
        done = 0
        for row in judged.strays:
            message = batch.message(row)
            if self._is_move_tombstone(message, view):
                # It clears an earlier home for the cleaner; delivered, it would delete a live key.
                self._accept(batch, done, row, owned)
                done = row + 1
                owned.fetched = max(owned.fetched, batch.offset(row) + 1)
                owned.seen.passed(batch.offset(row) + 1)
            elif batch.offset(row) >= owned.fetched:
                if self._strays.stop:
                    self._accept(batch, done, row, owned)
                if batch.offset(row) >= owned.seen.strays_up_to:
                    self._strays.found(message, *self._home(message, view))
                    owned.seen.strays_up_to = batch.offset(row) + 1
                if not self._strays.delivers:
                    # The position passes it with the next record, or with the end of the partition.
                    self._accept(batch, done, row, owned)
                    done = row + 1
                    owned.fetched = batch.offset(row) + 1
        self._accept(batch, done, batch.rows, owned)

    def _accept(self, batch: Batch, start: int, stop: int, owned: PartitionState) -> None:
        """Rows [start, stop): those below the first closed gate may be given out, the others are held."""
        # Fetched twice are those below `fetched`: an eager member's assignment was replaced while these waited here.
        start = max(start, batch.rows_below(owned.fetched))
        if start >= stop:
            return
        owned.fetched = batch.offset(stop - 1) + 1
        earlier = owned.earlier
        if earlier.inherited is not None or earlier.given is not None:
            known = min(stop, max(start, batch.rows_below(earlier.upto)))
            for row in range(start, known):
                # An earlier owner was done with the others, before these that waited. The next position passes them.
                if not earlier.covers(batch.offset(row)):
                    self._place(batch, row, row + 1, owned)
            start = known
        if start < stop:
            self._place(batch, start, stop, owned)

    def _place(self, batch: Batch, start: int, stop: int, owned: PartitionState) -> None:
        free = start if owned.held else min(stop, max(start, batch.rows_below(owned.gates.limit)))
        if free > start:
            free_rows = batch.cut(start, free)
            owned.released = max(owned.released, free_rows.last + 1)
            self._out.ready.append(free_rows)
        if free >= stop:
            return
        rest = batch.cut(free, stop)
        if not self._settings.gate_keys:
            owned.held.append(rest)
            self._pause_when_full(owned)
            return
        for message in rest.messages():
            record = MessageBatch(batch.place, [message])
            if self._gates.key_may_go(owned, key_of(message), offset_of(message)):
                owned.released = max(owned.released, record.last + 1)
                self._out.ready.append(record)
            else:
                owned.hold_alone(record)
                self._pause_when_full(owned)

    def _pause_when_full(self, owned: PartitionState) -> None:
        if len(owned.held) >= self._settings.hold_limit and not owned.fetch.paused_for_hold:
            self._assignment.fetching.hold(owned)

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
        owned = self._assignment.owned.get(place_of(message))
        if error.code() == KafkaError._PARTITION_EOF:
            if owned is not None and owned.fetch.running:
                owned.seen.passed(offset_of(message))
                self._ended = True
            if self._settings.partition_eof and owned is not None and owned.held:
                owned.seen.untold = message
            elif self._settings.partition_eof:
                self._out.ready.append(message)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) and owned is not None:
            self._out_of_range(owned, message)
        elif error.code() == KafkaError._FATAL:
            self._out.ready.append(message)
            self._members.failed()
        else:
            self._out.ready.append(message)

    def _out_of_range(self, owned: PartitionState, message: Message) -> None:
        """Below the log start: what was fetched below it is dropped, the log start follows. Above the end: stop.

        With `auto.offset.reset=error` the application hears of what is gone from a partition that is still read.

        In between there is nothing wrong with the position: it is fetched again from there.
        """
        low, high = self._starter.log(owned.topic, owned.partition)
        if owned.fetched > high:
            raise GroupResetError(
                self._settings.group,
                owned.topic,
                f"partition {owned.partition} was read up to {owned.fetched}, its log ends at {high} now",
            )
        timeline = self._assignment.view(owned.topic).timeline
        if owned.fetched >= low:
            # The log was asked when its end, or its start, lay elsewhere. The library has stopped the partition.
            self._assignment.fetching.begin_anew()
        elif self._settings.start_at_latest is None and is_gone(timeline, owned.partition, owned.fetched, low):
            self._out.ready.append(message)
        else:
            self._assignment.restart_at(owned, low)

    def _check_silence(self, topic: str) -> None:
        silent = clock.now() - self._views.as_of(topic)
        if silent > self._settings.control_timeout:
            raise StaleViewError(topic, silent)
