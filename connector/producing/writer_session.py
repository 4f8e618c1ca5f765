"""A producer's side of the control topics: one thread that drives the producer's `Writer`.

The thread reads control records, tells the writer of them and carries out what it asks for: it writes leases and READY, looks
at the ends of logs, answers callers. It decides nothing. The writer is shared with the threads that send, under the
producer's lock; the lock is never held while the client library may call back.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from ...partitioner.errors import (
    BrokerUnreachableError,
    KafkaOperationError,
    KeyorderError,
    NotAuthorizedError,
    PeerError,
)
from ...partitioner.records.control_records import (
    WRITERS_TOPIC,
    Lease,
    encode_lease,
    encode_ready,
    lease_key,
    ready_key,
    topic_of_key,
)
from ...partitioner.timeline import new_epoch
from ...partitioner.writers import events
from ...partitioner.writers.sending import TopicSending
from ...partitioner.writers.writer import Writer
from .. import clock
from ..config import ProducerSettings
from ..control.control_reader import ControlMessage, Look
from ..control.control_topics import Slot, timeline_slot, writer_slot
from ..guarded_logger import GuardedLogger
from ..interruptible import Event
from ..kafka_errors import translate, translated
from ..log_offsets import LogOffsets

_UNPRINTABLE, _NAME_LENGTH = re.compile(r"[^A-Za-z0-9._]+"), 40
_LOG = GuardedLogger("keyorder.producer")
# How long the thread waits where there is nothing to follow yet, and for delivery reports of its own. Seconds.
_IDLE, _SOON = 0.1, 0.01
# What a producer that was dropped without close() may take to deliver.
_LET_GO_SECONDS = 5.0
_LOG_END_SECONDS = _WRITTEN_SECONDS = 5.0
# How long a look may take that only shows whether the control topics are still those of before; one for new partitions.
_LOOK_AGAIN_SECONDS = _PARTITIONS_SECONDS = 1.0


class ControlRecords(Protocol):
    """Where a writer reads control records; see ControlSubscription."""

    def add(self, slots: Iterable[Slot]) -> None:
        """Read these slots too."""

    def poll(self, timeout: float) -> list[ControlMessage]:
        """What has arrived."""

    def look(self, slots: Iterable[Slot], timeout: float = 10.0, since: float | None = None) -> Look:
        """The ends, as asked for now, or at `since` or later."""

    def pass_markers(self, look: Look) -> list[ControlMessage]:
        """Do not wait for transaction markers."""

    def reached(self, look: Look) -> bool:
        """Whether everything below the look's ends was taken."""

    def wake(self) -> None:
        """Let `poll` return now. Any thread."""

    def close(self) -> None:
        """Nothing more comes."""


class ControlWriting(Protocol):
    """Where a writer's own records go; see ControlWriter."""

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Callable[[Any, Any], None]
    ) -> None:
        """Queue a record."""

    def poll(self, timeout: float) -> int:
        """Serve delivery reports."""


class Connected(Protocol):
    """What a session shares with the other clients of its process; see ClusterLink."""

    servers: str

    @property
    def offsets(self) -> LogOffsets:
        """Lists offsets."""

    @property
    def writer(self) -> ControlWriting:
        """Writes control records."""

    def subscribe(self, interested: Callable[[bytes], bool]) -> ControlRecords:
        """Reads them."""

    def close(self) -> None:
        """One user less."""


def default_writer_id(client: str) -> str:
    """Names the client, the machine and the process, for whoever waits for this writer; and no two writers alike."""
    names = [_UNPRINTABLE.sub("_", name)[:_NAME_LENGTH] for name in (client, socket.gethostname())]
    return "-".join([*names, str(os.getpid()), uuid.uuid4().hex[:8]])


def new_writer(client: str, settings: ProducerSettings) -> Writer[Any]:
    """The writer of one producer, not joined yet. client: its name, for whoever waits for it."""
    return Writer(
        settings.writer_id or default_writer_id(client),
        settings.terms,
        lambda: uuid.uuid4().hex,
        settings.transactional_id,
        settings.transaction_timeout_ms,
    )


@dataclass(frozen=True)
class Sending:
    """The other half of a producer, which hands records to the client library, as its session calls it.

    serve: serves delivery reports, without waiting. harvest: under the lock, takes in what is counted elsewhere of records on
    the way. pump: without the lock, sends what may be sent of the held records. fail_topic: under the lock, gives up what is
    held of a topic.
    """

    serve: Callable[[], object] = bool
    harvest: Callable[[], None] = lambda: None
    pump: Callable[[], None] = lambda: None
    fail_topic: Callable[[str, KeyorderError], None] = lambda topic, error: None


class WriterSession(threading.Thread):
    """The background half of an OrderedProducer.

    writer: what it drives; every step is made under `lock`, which guards all that the writer has. data: the client that sends
    the user's records. link: closed by the thread when it ends.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        writer: Writer[Any],
        data: Producer,
        lock: Any,
        link: Connected,
        sending: Sending,
    ) -> None:
        super().__init__(name="keyorder-writer", daemon=True)
        self.settings, self.writer, self._lock, self._data, self._sending = settings, writer, lock, data, sending
        # Not `_bootstrap`: threading.Thread has a method of that name, and an attribute would break start().
        self._link, self._servers = link, link.servers
        self._may_join = not settings.transactional_id
        self._reader = link.subscribe(self._is_ours)
        # What other threads tell the writer: taken by this one. The lock may be held by the very thread that tells.
        self._told: deque[events.Event] = deque()
        # Of records of its own: the error, and the action that wrote them. Filled by whichever thread serves the client.
        self._reports: deque[tuple[Any, events.WriteLease | events.WriteReady]] = deque()
        self._unwritten = 0
        self._waiting: dict[str, Event] = {}
        self._refused: dict[str, KeyorderError] = {}
        self._look: tuple[Look, int] | None = None
        self._checked: Look | None = None
        self._stopping, self._stirred = Event(), Event()
        self._let_go = False
        self._slot = writer_slot(writer.writer_id, settings.transactional_id)
        self._lease_prefix = b":" + writer.writer_id.encode()

    def want(self, topic: str) -> Event:
        """Make the topic part of this writer's lease. Returns what is set when it may be written, or cannot be."""
        answered = self._waiting.get(topic)
        if answered is None or answered.is_set():
            self._refused.pop(topic, None)
            answered = self._waiting[topic] = Event()
            self._tell(events.Wanted(topic))
            if self._stopping.is_set() or self.writer.failure is not None:
                answered.set()  # the thread ends, and has let go of all that waited before
        return answered

    def admit(self, topic: str) -> TopicSending[Any]:
        """Make the topic part of this writer's lease and wait until it may be written (on the caller's thread).

        Raises UnmanagedTopicError, ReleasedTopicError, NotAuthorizedError, BrokerUnreachableError (control.timeout passed),
        KafkaException for a transactional producer without init_transactions().
        """
        if not self._may_join:
            raise KafkaException(KafkaError(KafkaError._STATE, "call init_transactions() before produce()"))
        writer = self.writer
        if not self.want(topic).wait(self.settings.control_timeout):
            raise writer.failure or BrokerUnreachableError(
                self._servers, f"no lease on {topic!r} within {self.settings.control_timeout:g} s"
            )
        if topic in self._refused:
            raise self._refused[topic]
        writer.check(topic)
        if topic not in writer.topics:
            raise RuntimeError("Producer has been closed")  # meanwhile
        return writer.topics[topic]

    def log_end(self) -> int:
        """Where the log of this writer's leases ends now; -1 if that cannot be had: there may be no control topics yet."""
        try:
            return self._link.offsets.stable_ends([self._slot], timeout=_LOG_END_SECONDS)[self._slot]
        except KeyorderError:
            return -1

    def took_id(self, log_end: int) -> None:
        """The writer holds its transactional id. log_end: from before it took it."""
        self._tell(events.TookId(log_end))
        self._may_join = True

    def _tell(self, event: events.Event) -> None:
        """Have the thread tell the writer, and not only when it looks the next time."""
        self._told.append(event)
        self._stirred.set()
        self._reader.wake()

    def stop(self, timeout: float) -> None:
        """End the lease. To be called with nothing in flight. Returns after `timeout` seconds at most."""
        self._stopping.set()
        self._stirred.set()
        for answered in list(self._waiting.values()):
            answered.set()
        if threading.current_thread() is not self:
            self.join(timeout)

    def let_go(self) -> None:
        """Nobody uses this writer any more: deliver what the client library has, for a moment, and end. Does not wait."""
        self._let_go = True
        self._stopping.set()
        self._stirred.set()

    def run(self) -> None:
        """The thread. An error that order cannot survive stops the producer, and every waiter hears of it."""
        try:
            while not self._stopping.is_set():
                try:
                    self.turn()
                except PeerError as error:
                    if not error.retriable:
                        raise
                    self._look = None
                    self._step(events.Unreachable())
            if self._let_go:
                self._deliver_rest()
            if self.leave():
                self.await_reports()
        except KeyorderError as error:
            self._fail(error)
        except KafkaException as raised:
            self._fail(translate(raised.args[0], "use", "the control topics", self._servers))
        except Exception as error:
            # Whoever closed the producer did not wait for this thread. Anything else must be known to who sends.
            if not self._stopping.is_set():
                self._fail(KafkaOperationError("keep the writer's lease", repr(error)))
                raise
        finally:
            self._step(events.Ended())
            self._reader.close()
            self._link.close()

    def turn(self, wait: bool = True) -> None:
        """Take in what has arrived, let the writer act on it, and send what need not wait any more.

        wait: for the next control record, as long as the writer has the patience. Raises what the writer cannot go on after.
        """
        told = bool(self._told)
        while self._told:
            self._step(self._told.popleft())
        writer = self.writer
        with self._lock:
            idle, topics, patience = writer.idle, writer.wanted, writer.patience
        if idle:
            self._stirred.wait(_IDLE if wait else 0.0)
            self._stirred.clear()
            return
        self._reader.add([self._slot, *(timeline_slot(topic) for topic in topics)])
        # Whoever has told something waits for what the writer makes of it, which the Tick below brings.
        for message in self._reader.poll(patience if wait and not told else 0.0):
            self._take(message)
        self._take_reports()
        self._read_to_look()
        with self._lock:
            settling = writer.settling
        if settling:
            self._sending.serve()
        self._step(events.Tick())
        self._read_to_look()  # one that was asked for just now may be reached already
        if not self._stopping.is_set():
            self._sending.pump()

    def leave(self) -> bool:
        """Write the end of the lease. False when there is none, or when a record may still reach the brokers."""
        return self._step(events.Leaving())

    def await_reports(self) -> None:
        """Return when the broker has all that was written, or after a while."""
        deadline = clock.now() + _WRITTEN_SECONDS
        while self._unwritten and clock.now() < deadline:
            self._link.writer.poll(_SOON)
            self._take_reports()

    def _deliver_rest(self) -> None:
        deadline = clock.now() + _LET_GO_SECONDS
        while (left := deadline - clock.now()) > 0:
            try:
                self._data.flush(left)
                return
            except KafkaException:
                return
            except BaseException:
                continue  # of a handler of the application's logger: nobody is there to hear it

    def _fail(self, error: KeyorderError) -> None:
        self._step(events.Failed(error))
        for answered in list(self._waiting.values()):
            answered.set()

    # -- events ----------------------------------------------------------------------------------------------------

    def _step(self, event: events.Event) -> bool:
        """Tell the writer, and do what it asks for. Returns whether that was anything.

        All of it is tried, for the writer counts it as done; then the first error is raised.
        """
        with self._lock:
            if isinstance(event, events.Tick | events.Leaving):  # the others do not ask what is on its way
                self._sending.harvest()
            actions = self.writer.step(event, clock.now())
            for action in actions:
                if isinstance(action, events.FailTopic):
                    self._sending.fail_topic(action.topic, action.error)
        failed: KeyorderError | None = None
        for action in actions:
            try:
                self._perform(action)
            except KeyorderError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return bool(actions)

    def _is_ours(self, key: bytes) -> bool:
        return key.startswith(b"timeline:") or (key.startswith(b"lease:") and key.endswith(self._lease_prefix))

    def _take(self, message: ControlMessage) -> None:
        topic = topic_of_key(message.key)
        if topic is not None:
            self._step(events.TimelineRead(topic, message))
        elif isinstance(record := message.record, Lease):
            self._step(events.LeaseRead(record, message.offset))

    def _read_to_look(self) -> None:
        """Read up to where the logs ended when the writer wanted to look."""
        if self._look is None:
            return
        look, number = self._look
        for message in self._reader.pass_markers(look):
            self._take(message)
        if self._reader.reached(look):
            self._look = None
            self._step(events.Looked(number))

    def _take_reports(self) -> None:
        """What was lost the writer hears of; a refusal ends it."""
        self._link.writer.poll(0)
        while self._reports:
            error, action = self._reports.popleft()
            self._unwritten -= 1
            if error is None:
                continue
            typed = translate(error, "write", f"control topic {WRITERS_TOPIC}", self._servers)
            if isinstance(typed, NotAuthorizedError):
                self._fail(typed)
                self._stopping.set()
            else:
                self._step(events.NotWritten(action))

    # -- actions ---------------------------------------------------------------------------------------------------

    def _perform(self, action: events.Action) -> None:
        match action:
            case events.WriteLease(lease):
                self._write(action, lease_key(lease.writer, lease.nonce), encode_lease(lease))
            case events.WriteReady(ready):
                self._write(action, ready_key(ready.topic, ready.writer, ready.nonce), encode_ready(ready))
            case events.Look(number, topics):
                self._look = self._reader.look(self._followed(topics)), number
            case events.CheckLogs(topics, since):
                self._check_logs(self._followed(topics), since)
            case events.FindPartitions(topic):
                self._find_partitions(topic)
            case events.Refused(topic, error):
                self._refused[topic] = error
                self._waiting[topic].set()
            case events.Admitted(topic):
                self._waiting[topic].set()
            case events.FailTopic(topic) if topic in self._waiting:
                self._waiting[topic].set()
            case events.Fail(error):
                raise error
            case events.EpochSeen(new, old):
                _LOG.info("%s", new_epoch(new, old))
            case events.LeaseLapsed():
                _LOG.warning(
                    "the lease of %s has lapsed: no keyed record goes out until it has joined again",
                    self.writer.writer_id,
                )

    def _followed(self, topics: Iterable[str]) -> set[Slot]:
        """Where this writer's leases and the timelines of these topics are."""
        return {self._slot, *(timeline_slot(topic) for topic in topics)}

    def _check_logs(self, slots: set[Slot], since: float) -> None:
        """See that the logs are those of before, and that what they had the last time has been read since.

        A fetch whose answer does not come is given up by the client library after a minute or more. A change would wait
        for a writer that has not heard of it, and goes on sending.
        """
        before, self._checked = self._checked, None
        if before is not None:
            for message in self._reader.pass_markers(before):
                self._take(message)
        self._checked = self._reader.look(slots, _LOOK_AGAIN_SECONDS, since)

    def _find_partitions(self, topic: str) -> None:
        try:
            found = self._data.list_topics(topic, timeout=_PARTITIONS_SECONDS).topics.get(topic)
        except KafkaException:
            return  # the writer asks again
        if found is not None and found.error is None:
            self._step(events.PartitionsFound(topic, len(found.partitions)))

    def _write(self, action: events.WriteLease | events.WriteReady, key: bytes, value: bytes) -> None:
        """Write a record of this writer's own."""

        def told(error: Any, _: Any) -> None:
            self._reports.append((error, action))

        try:
            with translated("write", f"control topic {WRITERS_TOPIC}", self._servers):
                self._link.writer.produce(WRITERS_TOPIC, value, key, self._slot[1], on_delivery=told)
        except KeyorderError:
            self._step(events.NotWritten(action))
            raise
        self._unwritten += 1
