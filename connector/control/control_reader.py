"""Reading the control topics: by `assign()`, read_committed, and to an end that the leader names.

The position counts transaction markers too: a record-less tail shows only in the offset of the end-of-partition event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from ...partitioner.errors import (
    BrokerUnreachableError,
    CorruptRecordError,
    KeyorderError,
    RecordVersionError,
    TimelineRegressionError,
)
from ...partitioner.records.control_records import ControlRecord, decode_record
from ...partitioner.stamps import Stamp
from .. import clock
from ..config import REFILL, at_leaders, connection_of
from ..interruptible import raise_lost
from ..kafka_errors import translate, translated
from ..log_offsets import LogOffsets
from ..messages import offset_of, place_of
from ..metadata import described, prefetch_metadata
from ..refusals import ClusterAdmin
from .control_topics import Slot

_BATCH = 500
#: Seconds for what the control topics hold already.
READ_WITHIN = 10.0
# Seconds: how long a new leader may be behind what was read from the old one, and between two questions meanwhile.
BEHIND_S, _ASK_AGAIN = 5.0, 0.2
# Seconds between two questions whether a control topic is still the same one, and how long an answer may take.
_IDENTITY_AGE, _IDENTITY_PATIENCE = 10.0, 2.0
# Seconds from a reader's beginning to the first of them, which keeps what the others compare with. Not at once: a client starts.
_FIRST_IDENTITY = 1.0


class ControlMessage:
    """One control record as it was read. Its value is decoded when it is asked for.

    A partition holds the records of many topics and writers: one that is damaged stops those whom it concerns.
    at_ms: when it was written, by the clock of the broker or of whoever wrote it; for people, never for decisions.
    stamp: when it was appended, None where the topic does not have its brokers say.
    """

    __slots__ = ("_decoded", "_record", "at_ms", "key", "offset", "slot", "stamp", "value")

    def __init__(
        self,
        slot: Slot,
        offset: int,
        key: bytes,
        value: bytes | None,
        at_ms: int | None = None,
        stamp: Stamp | None = None,
    ) -> None:
        self.slot, self.offset, self.key, self.value, self.at_ms, self.stamp = slot, offset, key, value, at_ms, stamp
        self._record: ControlRecord | None = None
        self._decoded = False

    @property
    def record(self) -> ControlRecord | None:
        """The record; None for tombstones and kinds that are not ours.

        Raises CorruptRecordError, RecordVersionError, which say where it stands and what to do.
        """
        if not self._decoded:
            try:
                self._record = decode_record(self.key, self.value)
            except CorruptRecordError as error:
                raise CorruptRecordError(error.detail, self._place) from error
            except RecordVersionError as error:
                raise RecordVersionError(error.kind, error.found, error.supported, self._place) from error
            self._decoded = True
        return self._record

    @property
    def _place(self) -> str:
        return f"{self.slot[0]}[{self.slot[1]}]@{self.offset} (key {self.key!r})"


@dataclass(frozen=True, slots=True)
class Look:
    """The leaders' ends of some slots, asked for at `began`. Reading up to them makes a view as new as `began`."""

    began: float
    ends: Mapping[Slot, int]


@dataclass(slots=True)
class _Past:
    """What a slot held below `end` when it was added: of each key the last record, in the order of their offsets."""

    end: int
    last: dict[bytes, ControlMessage] = field(default_factory=dict)

    def take(self, message: ControlMessage) -> None:
        """A record in the place of an older one of its key."""
        self.last.pop(message.key, None)
        self.last[message.key] = message


class ControlTopics:
    """Which control topics were read until now: one that was made again and has grown past that shows by its id alone.

    Used by one thread at a time.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = bootstrap_servers
        self._ids: dict[str, str] = {}
        self._asked = clock.now() - _IDENTITY_AGE + _FIRST_IDENTITY

    def due(self, now: float) -> bool:
        """Whether it is time to ask."""
        return now >= self._asked + _IDENTITY_AGE

    def check(self, admin: AdminClient, topics: Iterable[str], now: float) -> None:
        """Raise TimelineRegressionError for a control topic that is not the one of before. No answer: asked the next time."""
        for topic in topics:
            try:
                found = str(described(admin, topic, self._bootstrap, _IDENTITY_PATIENCE).topic_id)
            except KeyorderError:
                continue
            if self._ids.setdefault(topic, found) != found:
                raise TimelineRegressionError(
                    f"control topic {topic} was deleted and made again (its id was {self._ids[topic]} and is {found} "
                    "now); stop all clients, restore it or adopt its topics anew, and start them again"
                )
        self._asked = now


def control_consumer(config: Mapping[str, Any], fetch_wait_ms: int) -> Consumer:
    """A consumer of the client library for control topics: committed records, from their beginning; it makes no topic.

    fetch_wait_ms: how long an idle fetch waits at the broker.
    """
    return Consumer(
        {
            **at_leaders(config),
            **REFILL,
            "allow.auto.create.topics": False,
            "group.id": "keyorder-control-reader",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 50,
            "fetch.wait.max.ms": fetch_wait_ms,
        }
    )


class ControlReader:
    """One consumer over control partitions. Not thread-safe: one thread owns it.

    What a slot held when it was added is read as the log cleaner would leave it: of each key the last record, once all
    is there. So a start costs what is true now and not what ever was, and a bad record that was superseded stops nobody.

    interested: when set, only records whose key it accepts are handed out; a partition holds the records of many.
    fetch_wait_ms: how long an idle fetch waits at the broker. A transaction marker behind the last record is noticed
    only when a fetch comes back empty, so this bounds how long reading to the end takes; an idle reader asks that often.
    """

    def __init__(self, config: Mapping[str, Any], fetch_wait_ms: int = 500) -> None:
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._config = connection_of(config)
        self._topics = ControlTopics(self._bootstrap)
        self._consumer = control_consumer(config, fetch_wait_ms)
        self._offsets = LogOffsets(config)
        self._next: dict[Slot, int] = {}
        self._past: dict[Slot, _Past] = {}
        self.interested: Any = None

    def add(self, slots: Iterable[Slot]) -> None:
        """Read these slots too, from their beginning. Raises BrokerUnreachableError and its kin."""
        new = [slot for slot in slots if slot not in self._next]
        if new:
            self._past.update((slot, _Past(end)) for slot, end in self._offsets.stable_ends(new).items() if end > 0)
            for topic in sorted({topic for topic, _ in new} - {topic for topic, _ in self._next}):
                prefetch_metadata(self._consumer, topic)
            self._next.update((slot, 0) for slot in new)
            places = [TopicPartition(t, p, offset) for (t, p), offset in self._next.items()]
            with translated("read", "the control topics", self._bootstrap):
                self._consumer.assign(places)

    def poll(self, timeout: float) -> list[ControlMessage]:
        """What has arrived, in order per slot; waits up to `timeout` seconds for the first."""
        try:
            first = self._consumer.poll(timeout)
        except SystemError as error:
            raise_lost(error)
        if first is None:
            return []
        read: list[ControlMessage] = []
        self._take(first, read)
        batch = self._consumer.consume(_BATCH, 0)
        while batch:
            for message in batch:
                self._take(message, read)
            # A long past is fetched at once, and not batch by batch between its reader's other duties.
            batch = self._consumer.consume(_BATCH, 0) if self._past and not read else []
        return read

    def look(self, slots: Iterable[Slot] | None = None, timeout: float = 10.0) -> Look:
        """Ask the leaders for the ends now, and from time to time whether the topics are still the same ones.

        Raises as `look_at_ends` and `check_topics`.
        """
        look = self.look_at_ends(slots, timeout)
        self.check_topics()
        return look

    def look_at_ends(self, slots: Iterable[Slot] | None = None, timeout: float = 10.0) -> Look:
        """Ask the leaders for the ends now. Raises BrokerUnreachableError and its kin.

        Raises TimelineRegressionError where a slot ends below what was read of it, and goes on doing so: a new leader's
        watermark is behind for a moment only, but a control topic that was made again has lost what everybody goes by.
        """
        asked = list(self._next if slots is None else slots)
        given_up_at = clock.now() + BEHIND_S
        while True:
            began = clock.now()
            ends = self._offsets.stable_ends(asked, timeout)
            behind = [slot for slot, end in ends.items() if end < self._next.get(slot, 0)]
            if not behind:
                return Look(began, ends)
            if began >= given_up_at:
                raise went_back(behind[0], self._next[behind[0]], ends[behind[0]])
            time.sleep(_ASK_AGAIN)

    def check_topics(self) -> None:
        """Ask for the ids of the topics, if it is time to: every ten seconds. It takes a client that is opened for it.

        A control topic that was made again and has grown past what was read shows by its id alone. Raises
        TimelineRegressionError.
        """
        now = clock.now()
        if self._topics.due(now):
            self._topics.check(ClusterAdmin(self._config), sorted({topic for topic, _ in self._next}), now)

    def reached(self, look: Look) -> bool:
        """Whether everything below the look's ends has been returned by `poll`."""
        return all(self._next.get(slot, 0) >= end and slot not in self._past for slot, end in look.ends.items())

    def pass_markers(self, look: Look) -> list[ControlMessage]:
        """Take what is left below the look's ends for read, where that is transaction markers alone.

        The reader's own fetch shows that only when it comes back empty, `fetch_wait_ms` after the last record. Returns
        what `poll` would have returned then.
        """
        read: list[ControlMessage] = []
        for slot, end in look.ends.items():
            at = self._next.get(slot, 0)
            if at < end:
                self._next[slot] = max(at, self._offsets.passed(slot, at) or 0)
                self._catch_up(slot, read)
        return read

    def read_to_end(self, slots: Iterable[Slot] | None = None, timeout: float = READ_WITHIN) -> list[ControlMessage]:
        """All records up to an end that is asked for now. Raises BrokerUnreachableError after `timeout` seconds."""
        return list(reading_to_end(self, slots, timeout, self._bootstrap))

    def close(self) -> None:
        """Leave nothing behind."""
        self._consumer.close()
        self._offsets.close()

    def _take(self, message: Message, read: list[ControlMessage]) -> None:
        slot, offset = place_of(message), offset_of(message)
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._next[slot] = max(self._next.get(slot, 0), offset)
                self._catch_up(slot, read)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise translate(error, "read", f"control topic {slot[0]}", self._bootstrap)
            # Anything else passes: the client library goes on trying, and the age of the view shows if it cannot.
            return
        if offset < self._next.get(slot, 0):
            raise went_back(slot, self._next[slot], offset)
        self._next[slot] = offset + 1
        taken = control_message(message)
        past = self._past.get(slot)
        if self.interested is None or self.interested(taken.key):
            if past is None:
                read.append(taken)
            else:
                past.take(taken)
        self._catch_up(slot, read)

    def _catch_up(self, slot: Slot, read: list[ControlMessage]) -> None:
        """Hand out what is left of a slot's past when its end is there."""
        past = self._past.get(slot)
        if past is not None and self._next[slot] >= past.end:
            del self._past[slot]
            read.extend(past.last.values())


class Reading(Protocol):
    """What reads slots; see ControlReader and ControlSubscription."""

    def look(self, slots: Iterable[Slot] | None = None, timeout: float = 10.0) -> Look:
        """Ask the leaders for the ends now."""

    def reached(self, look: Look) -> bool:
        """Whether everything below the look's ends has been returned by `poll`."""

    def poll(self, timeout: float) -> list[ControlMessage]:
        """What has arrived."""

    def pass_markers(self, look: Look) -> list[ControlMessage]:
        """What is left below the look's ends, without waiting for transaction markers."""


def reading_to_end(
    reader: Reading, slots: Iterable[Slot] | None, timeout: float, bootstrap_servers: str
) -> Iterator[ControlMessage]:
    """As ControlReader.read_to_end, each record as it comes."""
    deadline = clock.now() + timeout
    look = reader.look(slots, timeout)
    yield from reader.poll(0)  # what is there already needs no waiting
    while not reader.reached(look):
        if clock.now() >= deadline:
            raise BrokerUnreachableError(bootstrap_servers, "the control topics could not be read to their end")
        yield from reader.poll(0.02) or reader.pass_markers(look)


def await_message(
    reader: Reading, wanted: Callable[[ControlMessage], bool], timeout: float, bootstrap_servers: str
) -> ControlMessage:
    """Read on until such a message shows. Raises BrokerUnreachableError after `timeout` seconds."""
    deadline = clock.now() + timeout
    while clock.now() < deadline:
        for message in reader.poll(0.1):
            if wanted(message):
                return message
    raise BrokerUnreachableError(bootstrap_servers, f"a record just written did not show within {timeout:.0f} s")


def readable(config: Mapping[str, Any], slots: Iterable[Slot], timeout: float) -> list[ControlMessage]:
    """One look through a reader of its own: all records of `slots` now."""
    reader = ControlReader(config, fetch_wait_ms=50)
    try:
        reader.add(slots)
        return reader.read_to_end(timeout=timeout)
    except KafkaException as raised:
        raise translate(raised.args[0], "read", "the control topics", str(config.get("bootstrap.servers"))) from raised
    finally:
        reader.close()


def control_message(message: Message) -> ControlMessage:
    """A fetched record of a control topic."""
    slot = place_of(message)
    kind, at = message.timestamp()
    at_ms = None if kind == TIMESTAMP_NOT_AVAILABLE else at
    key, value = _bytes(message.key()) or b"", _bytes(message.value())
    return ControlMessage(slot, offset_of(message), key, value, at_ms, _stamp(message, slot))


def went_back(slot: Slot, read: int, to: int) -> TimelineRegressionError:
    """The error for a slot that was read up to an offset and ends, or goes on, below it."""
    return TimelineRegressionError(
        f"control topic {slot[0]}[{slot[1]}] was read up to {read} and is at {to} now: it was deleted and "
        "made again, or has lost records; stop all clients, restore it or adopt its topics anew, and start them again"
    )


def _stamp(message: Message, slot: Slot) -> Stamp | None:
    kind, at_ms = message.timestamp()
    leader_epoch = message.leader_epoch()
    if kind != TIMESTAMP_LOG_APPEND_TIME or leader_epoch is None or leader_epoch < 0:
        return None
    return Stamp(slot[1], leader_epoch, at_ms)


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
