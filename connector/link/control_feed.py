"""One reader of the control topics for all clients of a process that reach the same cluster as the same user.

Each client has a subscription with an inbox of its own, so that it takes records in on its own thread, at its own pace. One
fetch waits at the broker for all of them; a record wakes it at once. What a slot held before is read by a client whose
fetches do not wait: a new slot would otherwise wait for the answer to the fetch that is on its way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...partitioner.errors import KeyorderError, PeerError, TimelineRegressionError
from ...partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from .. import clock
from ..admin_link import AdminLink
from ..control.control_reader import (
    BEHIND_S,
    ControlMessage,
    ControlTopics,
    Look,
    control_consumer,
    control_message,
    went_back,
)
from ..control.control_topics import Slot
from ..interruptible import Condition
from ..kafka_errors import translate, translated
from ..log_offsets import LogOffsets
from ..messages import offset_of, place_of
from ..metadata import prefetch_metadata
from .known_ends import Ends, KnownEnd, KnownEnds

# How many records at once, and how long an idle fetch waits at a broker. A record ends the wait, a marker or a slot that is
# new to the fetch does not: those are seen to by `catch_up` and `attend`.
_BATCH, _FETCH_WAIT_MS = 500, 1_000
# Seconds: between two questions while a new leader is behind what was read; how long one question for the ends of all
# slots may take, and how long each asks for its own alone after one that was not answered.
_ASK_AGAIN, _TOGETHER, _APART = 0.2, 1.0, 5.0
# Seconds: between two looks at slots that are new to the fetch; how long such a look, or one at markers, may take.
_ATTEND, _AT_ONCE = 0.02, 0.5
# Seconds until a subscription tries again to go over to clients with new credentials.
_TRY_AGAIN = 5.0
# What somebody may want to know who comes later. Other records, such as READY, are for those who follow them now.
_KEPT = (b"timeline:", b"waiver:", b"lease:")

Interested = Callable[[bytes], bool]


@dataclass(slots=True)
class _Followed:
    """One slot. next: everything below was handed out. newest: the last record of each key, in the order of offsets.

    fetched: what the waiting fetch has to bring next, at the lowest. covered: it has brought something, so it knows the slot.
    failure: why it is not followed any more.
    """

    next: int
    fetched: int
    newest: dict[bytes, ControlMessage]
    readers: list[ControlSubscription] = field(default_factory=list)
    failure: KeyorderError | None = None
    covered: bool = False

    def take(self, message: ControlMessage) -> None:
        """Hand out a record that nobody has yet."""
        self.next = message.offset + 1
        self.keep(message)
        for subscription in self.readers:
            subscription.put(message)

    def keep(self, message: ControlMessage) -> None:
        """The record takes the place of an older one of its key, as the log cleaner would have it."""
        self.newest.pop(message.key, None)
        if message.value is not None and message.key.startswith(_KEPT):
            self.newest[message.key] = message


class ControlFeed:
    """Reads slots and hands their records to subscriptions. `turn` is called by one thread, all else by any.

    A slot is followed for as long as the feed lives: there are only some, and taking one back could bring records of the
    earlier time.
    """

    def __init__(self, config: Mapping[str, Any], offsets: LogOffsets, admin: AdminLink) -> None:
        self.servers = str(config.get("bootstrap.servers"))
        self._config, self._offsets, self._admin = dict(config), offsets, admin
        self._topics = ControlTopics(self.servers)
        self._changed = Condition()
        self._slots: dict[Slot, _Followed] = {}
        self._known = KnownEnds()
        self._subscriptions: list[ControlSubscription] = []
        self._new: list[Slot] = []  # followed, and not assigned yet
        self._consumer: Consumer | None = None  # the reading thread's
        self._looking = threading.Lock()
        self._apart_until = self._attended = float("-inf")
        self.failure: KeyorderError | None = None

    @property
    def spoiled(self) -> bool:
        """Whether something here cannot go on, which a new feed may be able to."""
        with self._changed:
            return self.failure is not None or any(followed.failure is not None for followed in self._slots.values())

    def subscribe(
        self, interested: Interested, closed: Callable[[ControlSubscription], object] = lambda _: None
    ) -> ControlSubscription:
        """A reader of its own. interested: which keys it wants; called on any thread, without waiting for anything.

        closed: called after its `close`.
        """
        return ControlSubscription(self, interested, closed)

    def welcome(self, subscription: ControlSubscription) -> Condition:
        """Let a subscription hear what happens to the feed. Returns what is notified when something was put into it."""
        with self._changed:
            self._subscriptions.append(subscription)
        return Condition(self._changed)

    def turn(self, timeout: float) -> None:
        """Hand out what has arrived; waits up to `timeout` seconds for the first."""
        consumer = self._assigned(timeout)
        first = None if consumer is None else consumer.poll(timeout)
        if consumer is None or first is None:
            return
        messages = [first, *consumer.consume(_BATCH, 0)]
        with self._changed:
            for message in messages:
                self._take(message)

    def follow(self, slots: Collection[Slot]) -> None:
        """Read these slots too. Raises BrokerUnreachableError, NotAuthorizedError: to whom it concerns, and no one else."""
        with self._changed:
            new = [slot for slot in slots if slot not in self._slots]
        if not new:
            return
        ends = self._offsets.stable_ends(new)
        past = self._offsets.read({slot: (OFFSET_BEGINNING, end) for slot, end in ends.items() if end > 0})
        with self._changed:
            for slot in new:
                if slot not in self._slots:
                    followed = self._slots[slot] = _Followed(ends[slot], ends[slot], {})
                    for message in past.get(slot, ()):
                        followed.keep(control_message(message))
                    self._new.append(slot)
            self._changed.notify_all()

    def hand_over(self, subscription: ControlSubscription, slots: Mapping[Slot, int]) -> None:
        """From now on the records of these slots go to the subscription, after the newest of each key until now.

        slots: with the offset up to which it has them.
        """
        with self._changed:
            for slot, had in slots.items():
                followed = self._slots[slot]
                followed.readers.append(subscription)
                for message in followed.newest.values():
                    if message.offset >= had:
                        subscription.put(message)

    def position(self, slot: Slot) -> int:
        """Everything below was handed out. Raises what the slot has failed with."""
        followed = self._slots.get(slot)
        if followed is None:
            return 0
        if followed.failure is not None:
            raise followed.failure
        return followed.next

    def ends(self, slots: Collection[Slot], since: float, timeout: float) -> Ends:
        """The leaders' ends as asked for at `since` or later. Raises as LogOffsets.stable_ends, and what a slot has failed with.

        One question, for all that is followed, serves all who ask at about the same time: a reader's look is a writer's too.
        It goes through the admin client, which is open anyway, so that those which list offsets can close while nothing
        happens. Where not every leader answers it, each asks for its own, through those: they know how to find a new leader.
        """
        alone = self._looking.acquire(timeout=_ASK_AGAIN)
        try:
            asked, read = clock.now(), self._read(slots)
            with self._changed:
                known = self._known.serving(slots, since)
            if known is not None:
                return known
            together = alone and asked >= self._apart_until
            found = self._admin.stable_ends(read, _TOGETHER) if together else None
            if found is None:
                if together:
                    self._apart_until = clock.now() + _APART
                asked, read = clock.now(), self._read(slots)
                found = self._offsets.stable_ends(slots, timeout)
            if alone and self._topics.due(asked):
                self._check_topics(asked)
            with self._changed:
                self._known.keep(asked, found, read)
            return Ends(asked, {slot: KnownEnd(asked, found[slot], read[slot]) for slot in slots})
        finally:
            if alone:
                self._looking.release()

    def _read(self, slots: Iterable[Slot]) -> dict[Slot, int]:
        """How far these slots and all others that are followed were handed out. Raises what one of these has failed with."""
        with self._changed:
            read = {slot: followed.next for slot, followed in self._slots.items() if followed.failure is None}
        return {**read, **{slot: self.position(slot) for slot in slots}}

    def _check_topics(self, now: float) -> None:
        """Stop all slots of a control topic that was made again. Raises TimelineRegressionError."""
        with self._changed:
            topics = sorted({topic for topic, _ in self._slots})
        for topic in topics:
            try:
                self._topics.check(self._admin.client, [topic], now)
            except TimelineRegressionError as error:
                with self._changed:
                    for slot, each in self._slots.items():
                        if slot[0] == topic:
                            each.failure = each.failure or error
                raise

    def catch_up(self, ends: Mapping[Slot, int]) -> None:
        """Hand out what is left below these ends without waiting for the fetch, which shows markers only when it is empty.

        Nothing happens where that fails for a moment: the fetch brings it later. Raises NotAuthorizedError.
        """
        with self._changed:
            known = {slot: self._slots[slot].next for slot in ends if slot in self._slots}
        ranges = {slot: (at, ends[slot]) for slot, at in known.items() if at < ends[slot]}
        if not ranges:
            return
        try:
            read = self._offsets.read(ranges, _AT_ONCE)
        except PeerError as error:
            if not error.retriable:
                raise
            return
        with self._changed:
            for slot, messages in read.items():
                each = self._slots[slot]
                for message in messages:
                    if offset_of(message) >= each.next:
                        each.take(control_message(message))
                each.next = max(each.next, ends[slot])

    def attend(self, slots: Collection[Slot]) -> bool:
        """Look after slots that the waiting fetch does not know yet: it may wait for a second before it is sent anew.

        False where there are none.
        """
        with self._changed:
            new = [slot for slot in slots if slot in self._slots and not self._slots[slot].covered]
            if not new:
                return False
            now = clock.now()
            mine = now - self._attended >= _ATTEND
            if mine:
                self._attended = now
                new = [slot for slot, each in self._slots.items() if not each.covered and each.failure is None]
        if mine and new:
            self.catch_up(self._offsets.stable_ends_at_once(new, _AT_ONCE) or {})
        return True

    def leave(self, subscription: ControlSubscription) -> None:
        """Nothing goes to this subscription any more."""
        with self._changed:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
            for followed in self._slots.values():
                if subscription in followed.readers:
                    followed.readers.remove(subscription)

    def fail(self, failure: KeyorderError) -> None:
        """Nothing can be read any more: every subscription hears of it."""
        with self._changed:
            self.failure = failure
            for subscription in self._subscriptions:
                subscription.wake()

    def wake(self) -> None:
        """Let `turn` return soon, where nothing is read yet."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Leave nothing behind. After the last `turn`."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _assigned(self, timeout: float) -> Consumer | None:
        """The consumer, with all that is followed assigned; None where there is nothing, after `timeout` seconds.

        It is touched by the reading thread alone: a call of another one would wait until that thread stops polling.
        """
        with self._changed:
            if self._consumer is None and not self._new:
                self._changed.wait(timeout)
            if self._consumer is None and not self._new:
                return None
            new = [(slot, self._slots[slot].fetched) for slot in self._new]
        if self._consumer is None:
            try:
                self._consumer = self._open()
            except KafkaException:
                # The login is good: the logs were read with it. There is no token now, or a file of certificates is being
                # replaced. The age of what was read shows it if that lasts.
                with self._changed:
                    self._changed.wait(timeout)
                return None
        if new:
            with translated("read", "the control topics", self.servers):
                self._consumer.incremental_assign([TopicPartition(*slot, at) for slot, at in new])
            with self._changed:
                del self._new[: len(new)]
        return self._consumer

    def _open(self) -> Consumer:
        consumer = control_consumer(self._config, _FETCH_WAIT_MS)
        for topic in (CONTROL_TOPIC, WRITERS_TOPIC):
            prefetch_metadata(consumer, topic)
        return consumer

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            refused = translate(error, "read", f"control topic {message.topic()}", self.servers)
            for (topic, _), followed in self._slots.items():
                for subscription in followed.readers if topic == message.topic() else ():
                    subscription.put_error(refused)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            return  # the client library goes on trying, and the age of what was read shows if it cannot
        slot, offset = place_of(message), offset_of(message)
        each = self._slots.get(slot)
        if each is None or each.failure is not None:
            return
        each.covered = True
        if error is not None:
            each.next = max(each.next, offset)
        elif offset < each.fetched:
            each.failure = went_back(slot, each.next, offset)
        else:
            each.fetched = offset + 1
            if offset >= each.next:
                each.take(control_message(message))
        for subscription in each.readers:
            subscription.wake()


class ControlSubscription:
    """What one client follows of the control topics. One thread uses it, but for `wake`.

    What a slot held is handed out as the log cleaner would leave it: of each key the last record. So a start costs what is
    true now and not what ever was, and a bad record that was superseded stops nobody.
    """

    def __init__(
        self, feed: ControlFeed, interested: Interested, closed: Callable[[ControlSubscription], object]
    ) -> None:
        self.feed, self._interested, self._closed = feed, interested, closed
        self._to: tuple[ControlFeed, Callable[[], object]] | None = None
        self._not_before = float("-inf")
        self._inbox: deque[ControlMessage] = deque()
        self._errors: deque[KeyorderError] = deque()
        self._next: dict[Slot, int] = {}
        self._floor: dict[Slot, int] = {}  # what was handed out by an earlier feed
        self._woken = False
        self._changed = feed.welcome(self)

    def add(self, slots: Iterable[Slot]) -> None:
        """Read these slots too, from their beginning. Raises BrokerUnreachableError and its kin."""
        new = {slot: -1 for slot in slots if slot not in self._next}  # nothing of it was taken yet
        if new:
            self.feed.follow(new)
            self._next.update(new)
            self.feed.hand_over(self, new)

    def poll(self, timeout: float) -> list[ControlMessage]:
        """What has arrived, in order per slot; waits up to `timeout` seconds for the first, or for `wake`."""
        if self._to is not None:
            self._go_over()
        if timeout > 0 and self.feed.attend(self._next):
            timeout = min(timeout, _ATTEND)
        with self._changed:
            if not self._inbox and not self._errors and not self._woken and timeout > 0:
                self._changed.wait(timeout)
            self._woken = False
            if self._errors:
                raise self._errors.popleft()
            if self.feed.failure is not None:
                raise self.feed.failure
            read = list(self._inbox)
            self._inbox.clear()
            self._next = {slot: self.feed.position(slot) for slot in self._next}
        return read

    def look(self, slots: Iterable[Slot] | None = None, timeout: float = 10.0, since: float | None = None) -> Look:
        """The leaders' ends, asked for at `since` or later; now by default. Raises BrokerUnreachableError and its kin.

        Raises TimelineRegressionError where a slot ends below what was read of it, as ControlReader.look.
        """
        asked = list(self._next if slots is None else slots)
        given_up_at = clock.now() + BEHIND_S
        while True:
            now = clock.now()
            found = self.feed.ends(asked, now if since is None else since, timeout)
            behind = found.behind
            if behind is None:
                return Look(found.asked, {slot: known.end for slot, known in found.known.items()})
            if now >= given_up_at:
                raise went_back(*behind)
            since = None
            time.sleep(_ASK_AGAIN)

    def reached(self, look: Look) -> bool:
        """Whether everything below the look's ends has been returned by `poll`."""
        return all(self._next.get(slot, -1) >= end for slot, end in look.ends.items())

    def pass_markers(self, look: Look) -> list[ControlMessage]:
        """What is left below the look's ends, without waiting for the feed's own fetch."""
        if not self.reached(look):
            self.feed.catch_up(look.ends)
        return self.poll(0)

    def wake(self) -> None:
        """Let `poll` return now. Any thread."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def move(self, feed: ControlFeed, gone: Callable[[], object]) -> None:
        """Read by another feed of the same cluster, as soon as that is able to. gone: called then. Any thread."""
        self._not_before = float("-inf")
        self._to = feed, gone
        self.wake()

    def close(self) -> None:
        """Nothing more comes."""
        self.feed.leave(self)
        self._closed(self)

    def _go_over(self) -> None:
        """Change feeds, once the new one can read all that is read here. Each record is handed out once."""
        to = self._to
        if to is None or clock.now() < self._not_before:
            return
        feed, gone = to
        if feed is not self.feed:
            try:
                feed.follow(self._next)
            except PeerError:
                self._not_before = clock.now() + _TRY_AGAIN
                return
            with self._changed:
                self._floor = {slot: self.feed.position(slot) for slot in self._next}
                self.feed.leave(self)
            self.feed = feed
            self._changed = feed.welcome(self)
            feed.hand_over(self, self._floor)
        if self._to is to:
            self._to = None
        gone()

    def put(self, message: ControlMessage) -> None:
        """A record that was read. By the feed, which holds the lock."""
        if message.offset >= self._floor.get(message.slot, 0) and self._interested(message.key):
            self._inbox.append(message)
            self._changed.notify_all()

    def put_error(self, error: KeyorderError) -> None:
        """What `poll` is to raise next. By the feed, which holds the lock."""
        if not self._errors:
            self._errors.append(error)
        self._changed.notify_all()
