"""A reader's view of timelines: one thread that follows `_keyorder` and knows how old its knowledge is.

A view is as new as the start of the last look at the leaders' end that was read up to. Records may be delivered only
while it is younger than the timeline's `view_age_s` at the moment they were fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException

from ...partitioner.epochs import Epoch
from ...partitioner.errors import KafkaOperationError, KeyorderError, OrderError, PeerError
from ...partitioner.errors.roots import is_passing
from ...partitioner.gates.gate import Gates
from ...partitioner.records.control_records import CONTROL_TOPIC, Waiver, topic_of_key, waiver_of_key
from ...partitioner.routing import Routing
from ...partitioner.timeline import DEFAULT_VIEW_AGE_S, Timeline, new_epoch
from .. import clock
from ..control.control_reader import ControlMessage, Look
from ..control.control_topics import timeline_slot
from ..guarded_logger import GuardedLogger
from ..kafka_errors import LOGIN_REFUSED, translate
from ..link import ClusterLink, ControlSubscription
from ..metadata import has_topic
from .background import BackgroundThread

_LOG = GuardedLogger("keyorder.consumer")
# Seconds: between two looks at what has arrived while an end is being read up to; after an error that passes; the longest sleep.
_PENDING, _AGAIN, _LONGEST = 0.005, 0.1, 1.0


class View:
    """What is known of one topic: its timeline and what follows from it. Replaced whole, never changed.

    stays: all keys' stays as arrays, worked out on first use by who judges columns.
    """

    __slots__ = ("_since", "gates", "managed", "routing", "stays", "timeline")

    def __init__(self, timeline: Timeline, managed: bool, known: View | None = None) -> None:
        self.timeline, self.managed = timeline, managed
        self.gates = Gates(timeline)
        self.stays: Any = None
        self._since: dict[int, dict[int, int]] | None = None
        self.routing: Routing = Routing(timeline, None if known is None else known.routing)

    def at_home_since(self, partition: int) -> Mapping[int, int]:
        """By slot of the keys that live in a partition, the offset from which on they do; 0 at -1, for no key at all."""
        if self._since is None:
            begins = {epoch.number: epoch.begins for epoch in self.timeline.epochs}
            self._since = {}
            for slot, route in enumerate(self.routing.all()):
                since = begins[route.hint][route.home] if route.moves else 0
                self._since.setdefault(route.home, {-1: 0})[slot] = since
        return self._since.get(partition, {-1: 0})


class ViewKeeper(BackgroundThread):
    """Follows the timelines of the topics that a consumer reads.

    changed: called on this thread after a timeline changed, with the topic.
    failure: what the thread ended with. failures: by topic, why its timeline cannot be gone by: its record cannot be read,
    or it is not the successor of what was known; or a waiver cannot be read.
    """

    def __init__(self, link: ClusterLink, group: str, changed: Callable[[str], None]) -> None:
        super().__init__("keyorder-view")
        self._link, self._group, self._changed = link, group, changed
        self._timelines: dict[str, Timeline] = {}
        self._views: dict[str, View] = {}
        self._pending: dict[
            str, ControlMessage
        ] = {}  # the newest of each topic that is not followed, or not taken in yet
        self._waivers: dict[str, dict[tuple[int, int], str]] = {}
        self._as_of: dict[str, float] = {}
        self._wanted: dict[str, float] = {}
        self._reader: ControlSubscription | None = None
        self._look: Look | None = None
        self._look_topics: frozenset[str] = frozenset()
        self.failure: KeyorderError | None = None
        self.failures: dict[str, KeyorderError] = {}
        # By topic: the newest of the records that were not gone by, and each waiver that cannot be read.
        self._refused: dict[str, ControlMessage] = {}
        self._unread: dict[str, dict[tuple[int, int], OrderError]] = {}
        self._anew: set[str] = set()

    def follow(self, topic: str, anew: bool = False) -> None:
        """Take the topic in; `as_of` tells when it is known. anew: also if its timeline could not be gone by before."""
        with self._wake:
            self._wanted.setdefault(topic, clock.now())
            if anew and topic in self.failures:
                unread = self._unread.get(topic)
                if unread:  # until its key is written again
                    self.failures[topic] = next(iter(unread.values()))
                else:
                    del self.failures[topic]
                    self._anew.add(topic)
            self._wake.notify_all()
        self._interrupt()

    def timeline(self, topic: str) -> Timeline | None:
        """The newest timeline read, or None for an unmanaged topic."""
        return self._timelines.get(topic)

    def view(self, topic: str, partitions: int) -> View:
        """What is known now. An unmanaged topic has one epoch, with as many partitions as it has physically."""
        known = self._views.get(topic)
        timeline = self._timelines.get(topic)
        if timeline is not None:
            if known is None or known.timeline is not timeline:
                known = self._views[topic] = View(timeline, True, known)
            return known
        if known is None or known.managed or known.timeline.newest.count < partitions:
            known = self._views[topic] = View(unmanaged(topic, partitions), managed=False)
        return known

    def waived(self, topic: str) -> set[tuple[int, int]]:
        """(partition, epoch) of the gates that an operator let go for this group, on this very topic."""
        timeline, waivers = self._timelines.get(topic), self._waivers.get(topic)
        if timeline is None or not waivers:
            return set()
        return {gate for gate, topic_id in waivers.items() if topic_id == timeline.topic_id}

    def as_of(self, topic: str) -> float:
        """The start of the last look that was read up to; minus infinity before the first."""
        return self._as_of.get(topic, float("-inf"))

    def view_age(self, topic: str) -> float:
        """T of the topic, in seconds."""
        timeline = self._timelines.get(topic)
        return DEFAULT_VIEW_AGE_S if timeline is None else timeline.view_age_s

    def await_look(self, topic: str, since: float, timeout: float) -> bool:
        """Wait until a look that began at `since` or later was read up to. False when it did not come in time.

        False also for a topic in `failures`. Raises what the thread stopped with.
        """
        return self._await(topic, since, timeout, lambda: False)

    def await_epoch(self, topic: str, epoch: int, since: float, timeout: float) -> bool:
        """Wait until this epoch is known, or a look that began at `since` or later has shown all there is.

        A record's hint says that the epoch exists, and its control record comes as fast as the record did. A look takes
        longer: the end of a control topic shows only when a fetch comes back empty. Returns and raises as `await_look`.
        """

        def known() -> bool:
            timeline = self._timelines.get(topic)
            return timeline is not None and timeline.newest.number >= epoch

        return self._await(topic, since, timeout, known)

    def _await(self, topic: str, since: float, timeout: float, enough: Callable[[], bool]) -> bool:
        deadline = clock.now() + timeout
        with self._wake:
            while topic not in self.failures:
                if self._as_of.get(topic, float("-inf")) >= since or enough():
                    return True
                if self.failure is not None:
                    raise self.failure
                if self._wanted.get(topic, float("-inf")) < since:
                    self._wanted[topic] = since
                    self._interrupt()
                left = deadline - clock.now()
                if left <= 0:
                    return False
                self._wake.wait(left)
        return False

    def run(self) -> None:
        """The thread."""
        try:
            while not self._stopping:
                try:
                    self._turn()
                except (PeerError, KafkaException) as error:
                    if not self._passes(error):
                        raise
                    # The age of the view shows it; records wait until the leaders answer again.
                    self._look = None
                    with self._wake:
                        if not self._stopping:
                            self._wake.wait(_AGAIN)
        except KeyorderError as error:
            self._fail(error)
        except KafkaException as raised:
            self._fail(translate(raised.args[0], "read", "the control topics", self._link.servers))
        except Exception as error:
            self._fail(KafkaOperationError("read the control topics", repr(error)))
            raise
        finally:
            if self._reader is not None:
                self._reader.close()

    def _passes(self, error: PeerError | KafkaException) -> bool:
        """Whether the same look may succeed later.

        A login that is refused, and a client that cannot be made, are told at once by the first look. After a look that was
        read up to they pass: a token has run out, or a certificate is being replaced.
        """
        looked = bool(self._as_of)
        if not isinstance(error, KeyorderError):
            return looked
        raised = error.__cause__
        refused = isinstance(raised, KafkaException) and raised.args[0].code() in LOGIN_REFUSED
        return is_passing(error) or (refused and looked)

    def retire(self) -> None:
        """Let the thread end, soon."""
        super().retire()
        self._interrupt()

    def _interrupt(self) -> None:
        """Let the thread see now what was asked of it."""
        reader = self._reader
        if reader is not None:
            reader.wake()

    def _fail(self, error: KeyorderError) -> None:
        with self._wake:
            self.failure = error
            self._wake.notify_all()

    def _turn(self) -> None:
        with self._wake:
            if not self._wanted:
                self._wake.wait(0.2)
                return
            topics = frozenset(self._wanted)
            self._begin_anew()
        if self._reader is None and not self._open_reader(topics):
            return
        assert self._reader is not None
        self._reader.add([timeline_slot(topic) for topic in topics])
        pending = self._look is not None or self._due(topics)
        read = self._reader.poll(_PENDING if pending else self._pause(topics))
        if self._look is not None and not read:
            read = self._reader.pass_markers(self._look)
        for message in read:
            topic = topic_of_key(message.key)
            if topic is None:
                self._take_waiver(message)
            else:
                self._pending[topic] = message
        for topic in topics & self._pending.keys():
            self._take_message(topic, self._pending.pop(topic))
        if self._look is None and self._due(topics):
            self._look = self._reader.look([timeline_slot(topic) for topic in topics], 5.0, self._since(topics))
            self._look_topics = topics
        if self._look is not None and self._reader.reached(self._look):
            self._seen(self._look_topics, self._look.began)
            self._look = None

    def _take_message(self, topic: str, message: ControlMessage) -> None:
        """One topic's record. What is wrong with it concerns that topic alone."""
        if topic in self._refused:
            self._refused[topic] = message
            return
        try:
            record = message.record
            if isinstance(record, Timeline):
                self._take(record)
        except OrderError as error:
            with self._wake:
                self._refused[topic] = message
                self.failures[topic] = error
                self._wake.notify_all()

    def _begin_anew(self) -> None:
        """Forget what was known of topics that are to be tried again, but for their newest record."""
        for topic in self._anew:
            refused = self._refused.pop(topic, None)
            if refused is not None:  # else the timeline is a good one, and nothing would bring it again
                self._timelines.pop(topic, None)
                self._as_of.pop(topic, None)
                self._pending.setdefault(topic, refused)
        self._anew.clear()

    def _since(self, topics: frozenset[str]) -> float:
        """How old an answer serves: no older than what somebody waits for, and else half of the time between two looks.

        With that all readers of a process come to look at the same time, once per interval, and no view gets older than if
        each looked alone: the next look is due an interval after the question whose answer was taken, whoever asked it.
        """
        now = clock.now()
        asked = [self._wanted[topic] for topic in topics if self.as_of(topic) < self._wanted[topic]]
        return max([now - min(self.view_age(topic) for topic in topics) / 4, *asked])

    def _pause(self, topics: frozenset[str]) -> float:
        """Seconds until the next look is due."""
        due = min(self.as_of(topic) + self.view_age(topic) / 2 for topic in topics)
        return min(max(due - clock.now(), _PENDING), _LONGEST)

    def _due(self, topics: frozenset[str]) -> bool:
        now = clock.now()
        for topic in topics:
            as_of = self._as_of.get(topic, float("-inf"))
            if as_of < self._wanted.get(topic, 0.0) or now - as_of >= self.view_age(topic) / 2:
                return True
        return False

    def _open_reader(self, topics: frozenset[str]) -> bool:
        """Without control topics nothing is managed; look again every T, since somebody may adopt."""
        began = clock.now()
        admin = self._link.admin.client
        # "May not see it" is an error and must not pass for "is not there": a managed topic would be read without gates.
        if has_topic(admin, CONTROL_TOPIC, self._link.servers, ended=lambda: self._stopping):
            self._reader = self._link.subscribe(_is_wanted)
            return True
        self._seen(topics, began)
        with self._wake:
            self._wake.wait(DEFAULT_VIEW_AGE_S / 4)
        return False

    def _seen(self, topics: frozenset[str], began: float) -> None:
        with self._wake:
            for topic in topics - self._anew:
                self._as_of[topic] = max(began, self._as_of.get(topic, float("-inf")))
            self._wake.notify_all()

    def _take_waiver(self, message: ControlMessage) -> None:
        named = waiver_of_key(message.key)
        if named is None or named[3] != self._group:
            return
        topic, epoch, partition, _ = named
        gate = partition, epoch
        try:
            record = message.record
        except OrderError as error:
            with self._wake:
                self._unread.setdefault(topic, {})[gate] = error
                self.failures.setdefault(topic, error)
                self._wake.notify_all()
            return
        with self._wake:
            self._unread.get(topic, {}).pop(gate, None)
        waivers = dict(self._waivers.get(topic, {}))  # the polling thread may be reading the old one
        if isinstance(record, Waiver):
            waivers[gate] = record.topic_id
        else:
            waivers.pop(gate, None)
        self._waivers[topic] = waivers

    def _take(self, timeline: Timeline) -> None:
        topic = timeline.topic
        known = self._timelines.get(topic)
        if known is not None and (known.topic_id == timeline.topic_id or topic in self._as_of):
            # Before the first look is read to its end, older records may be of a topic that was deleted since.
            known.check_successor(timeline)
        with self._wake:
            self._timelines[topic] = timeline
            self._wake.notify_all()
        if known is not None and known.newest.number != timeline.newest.number:
            _LOG.info("%s", new_epoch(timeline, known))
        if known != timeline:
            self._changed(topic)


def _is_wanted(key: bytes) -> bool:
    return key.startswith((b"timeline:", b"waiver:"))


def unmanaged(topic: str, partitions: int) -> Timeline:
    """A stand-in for a topic without a timeline: one epoch, no gates."""
    return Timeline(topic, "", "", max(partitions, 1), (Epoch(0, max(partitions, 1)),))
