"""A producer's side of the control topics: one thread that keeps the lease, follows timelines and answers PREPARE.

The thread owns its clients. What it shares with the producer (routes, held records, counts of records on the way) is
touched under the producer's lock alone, and never while the client library may call back.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from ...partitioner.errors import (
    BrokerUnreachableError,
    IneligibleWriterError,
    KafkaOperationError,
    KeyorderError,
    NotAuthorizedError,
    OrderError,
    PeerError,
    ReleasedTopicError,
    UnmanagedTopicError,
)
from ...partitioner.records.control_records import (
    WRITERS_TOPIC,
    Lease,
    encode_lease,
    lease_key,
    topic_of_key,
)
from ...partitioner.timeline import Timeline, new_epoch
from ...partitioner.writers.lease import LeaseKeeper, Standing
from ...partitioner.writers.sending import TopicSending
from .. import clock
from ..config import ProducerSettings
from ..control.control_reader import ControlMessage, Look
from ..control.control_topics import Slot, timeline_slot, writer_slot
from ..interruptible import Event
from ..kafka_errors import translate, translated
from ..log_offsets import LogOffsets
from .proof import Proof
from .ready_responder import ReadyResponder

_UNPRINTABLE, _NAME_LENGTH = re.compile(r"[^A-Za-z0-9._]+"), 40
_LOG = logging.getLogger("keyorder.producer")
_IDLE, _SOON, _NOW = 0.1, 0.01, 0.003
# What a producer that was dropped without close() may take to deliver; how long the last callbacks are kept at hand.
_LET_GO_SECONDS, _CALLBACKS_SECONDS = 5.0, 1.0
_LOG_END_SECONDS = _WRITTEN_SECONDS = 5.0
# How long a look may take that only shows whether the control topics are still those of before. Seconds.
_LOOK_AGAIN_SECONDS = 1.0


class ControlRecords(Protocol):
    """Where a writer reads control records; see ControlSubscription."""

    def add(self, slots: Iterable[Slot]) -> None:
        """Read these slots too."""

    def poll(self, timeout: float) -> list[ControlMessage]:
        """What has arrived."""

    def look(self, slots: Iterable[Slot], timeout: float = 10.0) -> Look:
        """Ask for the ends now."""

    def pass_markers(self, look: Look) -> list[ControlMessage]:
        """Do not wait for transaction markers."""

    def reached(self, look: Look) -> bool:
        """Whether everything below the look's ends was taken."""

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


class WriterSession(threading.Thread):
    """The background half of an OrderedProducer.

    lock: guards `topics` and everything inside. data: the client that sends the user's records.
    harvest: under the lock, takes in what is counted elsewhere of records on the way, before that is judged.
    serve: serves delivery reports, without waiting.
    initialized: `init_transactions()` was called; a writer may not join before.
    failure: what stopped this writer. failures: what stopped it for single topics; the others go on.
    topic_failed: under the lock, told of these.
    pump: sends what may be sent of the held records; called without the lock.
    link: closed by the thread when it ends.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        settings: ProducerSettings,
        data: Producer,
        lock: Any,
        link: Connected,
        pump: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="keyorder-writer", daemon=True)
        self.settings, self._lock, self._data, self.pump = settings, lock, data, pump
        # Not `_bootstrap`: threading.Thread has a method of that name, and an attribute would break start().
        self._link, self._servers = link, link.servers
        self.writer_id = settings.writer_id or default_writer_id(str(config.get("client.id", "writer")))
        self.lease = LeaseKeeper(
            self.writer_id, settings.terms, settings.transactional_id, settings.transaction_timeout_ms
        )
        self.initialized = not settings.transactional_id
        self._proof = Proof(self.lease)
        self.topics: dict[str, TopicSending[Any]] = {}
        self.send_until = float("-inf")
        self.harvest: Callable[[], None] = lambda: None
        self.serve: Callable[[], object] = lambda: data.poll(0)
        self.topic_failed: Callable[[str, KeyorderError], None] = lambda topic, error: None
        self.failure: KeyorderError | None = None
        self.failures: dict[str, KeyorderError] = {}
        self._reader = link.subscribe(self._is_ours)
        # Of records of its own: the error, and what to do where there is one. Filled by whichever thread serves the client.
        self._reports: deque[tuple[Any, Callable[[], object]]] = deque()
        self._unwritten = 0
        self._wanted: dict[str, Event] = {}
        self._refused: dict[str, KeyorderError] = {}
        self._timelines: dict[str, Timeline] = {}
        self._pending: dict[str, ControlMessage] = {}
        self._responder = ReadyResponder(self.writer_id, self.lease, data, lock, self._send)
        self._look: Look | None = None
        self._looking_for: tuple[str, frozenset[str]] | None = None
        self._looked_for: tuple[str, frozenset[str]] | None = None
        self._look_due = False
        self._roll_called: dict[str, int] = {}
        self._stopping = Event()
        self._let_go = False
        self._callbacks_kept_until = clock.now()
        self._slot = writer_slot(self.writer_id, settings.transactional_id)
        self._lease_prefix = b":" + self.writer_id.encode()

    def admit(self, topic: str) -> TopicSending[Any]:
        """Make the topic part of this writer's lease and wait until it may be written (on the caller's thread).

        Raises UnmanagedTopicError, ReleasedTopicError, NotAuthorizedError, BrokerUnreachableError (control.timeout passed),
        KafkaException for a transactional producer without init_transactions().
        """
        if not self.initialized:
            raise KafkaException(KafkaError(KafkaError._STATE, "call init_transactions() before produce()"))
        event = self._wanted.get(topic)
        if event is None or event.is_set():
            self._refused.pop(topic, None)
            event = self._wanted[topic] = Event()
        if not event.wait(self.settings.control_timeout):
            raise self.failure or BrokerUnreachableError(
                self._servers, f"no lease on {topic!r} within {self.settings.control_timeout:g} s"
            )
        if topic in self._refused:
            raise self._refused[topic]
        if self.failure is not None or topic in self.failures:
            raise self.failure or self.failures[topic]
        if topic not in self.topics:
            raise RuntimeError("Producer has been closed")  # meanwhile
        return self.topics[topic]

    def log_end(self) -> int:
        """Where the log of this writer's leases ends now; -1 if that cannot be had: there may be no control topics yet."""
        try:
            return self._link.offsets.stable_ends([self._slot], timeout=_LOG_END_SECONDS)[self._slot]
        except KeyorderError:
            return -1

    def took_id(self, log_end: int) -> None:
        """The writer holds its transactional id. log_end: from before it took it.

        From now on it has a lease, whatever it writes or not: by that a change knows that it need not take the id from it to
        be sure of those who had it before.
        """
        self.lease.took_id_after = log_end
        self.initialized = True

    def stop(self, timeout: float) -> None:
        """End the lease. To be called with nothing in flight. Returns after `timeout` seconds at most."""
        self._stopping.set()
        for event in list(self._wanted.values()):
            event.set()
        if threading.current_thread() is not self:
            self.join(timeout)

    def let_go(self) -> None:
        """Nobody uses this writer any more: deliver what the client library has, for a moment, and end. Does not wait."""
        self._let_go = True
        self._stopping.set()

    def run(self) -> None:
        """The thread. An error that order cannot survive stops the producer, and every waiter hears of it."""
        try:
            while not self._stopping.is_set():
                try:
                    self._turn()
                except PeerError as error:
                    if not error.retriable:
                        raise
                    # A leader is away: the lease goes on by its own rules, and what cannot be proven is not sent.
                    self._look = None
            if self._let_go:
                self._deliver_rest()
            if self._leave():
                self._await_reports()
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
            self.send_until = float("-inf")
            self._reader.close()
            self._link.close()

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

    def _leave(self) -> bool:
        """Write the end of the lease. False when there is none, or when a record may still reach the brokers.

        A change counts a writer that has left as one with nothing on its way; here the lease runs out by itself.
        """
        now = clock.now()
        with self._lock:
            self.harvest()
            clear = all(sending.settled(now) for sending in self.topics.values())
        leaving = self.lease.leave(now)
        if leaving is not None and not clear:
            return False
        if leaving is not None:
            self._write_lease(leaving)
        return leaving is not None

    def _fail(self, error: KeyorderError) -> None:
        self.failure = error
        self.send_until = float("-inf")
        for event in list(self._wanted.values()):
            event.set()

    def _turn(self) -> None:
        if not self._wanted and self.lease.took_id_after < 0:
            self._stopping.wait(_IDLE)
            return
        slots = [self._slot, *(timeline_slot(topic) for topic in list(self._wanted))]
        self._reader.add(slots)
        for message in self._reader.poll(self._patience()):
            self._take(message)
        for topic in list(self._wanted):
            self._take_pending(topic)
        self._take_reports()
        now = clock.now()
        self._keep_lease(now)
        self._admit_topics()
        self._responder.answer(self._working_topics(), self.serve, self.harvest, now)
        if not self._stopping.is_set():
            self.pump()
        if now >= self._callbacks_kept_until:
            self._callbacks_kept_until = now + _CALLBACKS_SECONDS
            with self._lock:
                for sending in self.topics.values():
                    sending.forget_callbacks()

    def _patience(self) -> float:
        """How long to wait for the next control record, given what else is to do."""
        if self.lease.standing in (Standing.OUT, Standing.LAPSED):
            return _SOON
        with self._lock:
            draining = any(s.preparing and not s.answered for s in self.topics.values())
            held = any(s.held and not s.preparing for s in self.topics.values())
        if draining:
            return _NOW
        waiting = any(not event.is_set() for event in list(self._wanted.values()))
        return _SOON if held or waiting or self._look is not None else _IDLE

    def _is_ours(self, key: bytes) -> bool:
        return key.startswith(b"timeline:") or (key.startswith(b"lease:") and key.endswith(self._lease_prefix))

    def _take(self, message: ControlMessage) -> None:
        topic = topic_of_key(message.key)
        if topic is not None:
            self._take_timeline(topic, message)
            return
        record = message.record
        if isinstance(record, Lease) and record.identity == (self.writer_id, self.settings.transactional_id):
            self.lease.read(record, message.offset, clock.now())
            if self.lease.standing is Standing.SUPERSEDED:
                raise IneligibleWriterError(self.writer_id, "a newer process joined under this id")

    def _take_timeline(self, topic: str, message: ControlMessage) -> None:
        """One topic's trouble is that topic's: the others go on."""
        if topic not in self._wanted:
            self._pending[topic] = message  # somebody else's, and not looked into; it may be wanted later
            return
        self._take_pending(topic)  # an older one, if it became wanted only now
        if topic in self.failures:
            return
        try:
            record = message.record
            if isinstance(record, Timeline):
                with self._lock:
                    sending = self.topics.get(topic)
                    if sending is not None:
                        sending.apply(record, clock.now())
                known, self._timelines[topic] = self._timelines.get(topic), record
                if known is not None and known.newest.number != record.newest.number:
                    _LOG.info("%s", new_epoch(record, known))
        except OrderError as error:
            self._fail_topic(topic, error)

    def _take_pending(self, topic: str) -> None:
        message = self._pending.pop(topic, None)
        if message is not None:
            self._take_timeline(topic, message)

    def _fail_topic(self, topic: str, error: KeyorderError) -> None:
        with self._lock:
            self.failures[topic] = error
            sending = self.topics.get(topic)
            if sending is not None:
                sending.shut_fast_path()
            self.topic_failed(topic, error)
        event = self._wanted.get(topic)
        if event is not None:
            event.set()

    def _working_topics(self) -> dict[str, TopicSending[Any]]:
        return {topic: sending for topic, sending in list(self.topics.items()) if topic not in self.failures}

    def _leased_topics(self, now: float) -> list[str]:
        """What the lease names: changes of these wait for this writer. Under the lock."""
        return [
            topic
            for topic in list(self._wanted)
            if topic not in self.failures or (topic in self.topics and not self.topics[topic].settled(now))
        ]

    def _keep_lease(self, now: float) -> None:
        self.lease.tick(now)
        standing = self.lease.standing
        if standing is Standing.LAPSED or standing is Standing.OUT:
            if standing is Standing.LAPSED and self.send_until > float("-inf"):
                _LOG.warning(
                    "the lease of %s has lapsed: no keyed record goes out until it has joined again", self.writer_id
                )
            self.send_until = float("-inf")
            self._look, self._looked_for = None, None
            self.serve()
            with self._lock:
                self.harvest()
                clear = all(sending.settled(now) for sending in self.topics.values())
                self._proof.joining(self.topics)
                topics = self._leased_topics(now)
                if clear:
                    for sending in self.topics.values():
                        sending.forget_ready()  # what was said under another join is no answer of this one
            if clear:
                self._write_lease(self.lease.join(uuid.uuid4().hex, topics, now))
        elif standing is Standing.LIVE:
            called = self._roll_call()
            if self.settings.transactional_id and not self.lease.proven:
                with self._lock:
                    self.harvest()
                    self._proof.look(self.topics)
            with self._lock:
                topics = self._leased_topics(now)
            renewal = self.lease.renew(now, topics, due=called)
            if renewal is not None:
                self._write_lease(renewal)
                self._look_due = True
            self._look_after_join()

    def _roll_call(self) -> bool:
        """Whether a new PLAN asks the writers of one of our topics to show that they live."""
        called = False
        for topic, timeline in list(self._timelines.items()):
            change = timeline.change
            if change is not None and topic in self._wanted and self._roll_called.get(topic) != change.epoch:
                self._roll_called[topic] = change.epoch
                called = True
        return called

    def _look_after_join(self) -> None:
        """After its JOIN (or a longer topic list) was read back, a writer reads `_keyorder` to its end before it sends.

        The controller looks at the writers after it has read its PREPARE back; so one of the two sees the other.
        Raises TimelineRegressionError where a control topic was made again (see ControlReader.look).
        """
        confirmed = (self.lease.nonce, self.lease.confirmed)
        if self._look is None and self._looked_for != confirmed:
            self._look = self._reader.look(self._followed())
            self._looking_for = confirmed
        elif self._look is None and self._look_due:
            # With each renewal: a control topic that was made again has no record that would tell. Nothing waits for it.
            self._look_due = False
            self._reader.look(self._followed(), _LOOK_AGAIN_SECONDS)
        if self._look is not None:
            for message in self._reader.pass_markers(self._look):
                self._take(message)
        if self._look is not None and self._reader.reached(self._look):
            self._look = None
            self._looked_for = self._looking_for
        if self._looked_for is not None and self._looked_for[0] == self.lease.nonce:
            self.send_until = self.lease.send_until

    def _followed(self) -> set[Slot]:
        """Where this writer's leases and the timelines of its topics are."""
        return {self._slot, *(timeline_slot(topic) for topic in self.lease.confirmed)}

    def _admit_topics(self) -> None:
        """Let the callers of `admit` go whose topic is in the lease and was looked at since."""
        looked = self._looked_for
        if looked is None or looked[0] != self.lease.nonce:
            return
        for topic, event in list(self._wanted.items()):
            if event.is_set() or topic not in looked[1]:
                continue
            timeline = self._timelines.get(topic)
            if topic in self.failures:
                pass
            elif timeline is None:
                self._refused[topic] = UnmanagedTopicError(topic)
                del self._wanted[topic]
            elif timeline.released is not None:
                self._refused[topic] = ReleasedTopicError(topic, timeline.released)
                del self._wanted[topic]
            elif topic not in self.topics:
                with self._lock:
                    self.topics[topic] = TopicSending(timeline)
            event.set()

    def _write_lease(self, lease: Lease) -> None:
        # A lost JOIN is given up for a new one, a lost renewal is followed by the next.
        self._send(lease_key(self.writer_id, lease.nonce), encode_lease(lease), self.lease.lost_join)

    def _send(self, key: bytes, value: bytes, lost: Callable[[], object]) -> None:
        """Write a record of this writer's own. lost: called in a later turn if it could not be delivered."""

        def told(error: Any, _: Any) -> None:
            self._reports.append((error, lost))

        with translated("write", f"control topic {WRITERS_TOPIC}", self._servers):
            self._link.writer.produce(WRITERS_TOPIC, value, key, self._slot[1], on_delivery=told)
        self._unwritten += 1

    def _await_reports(self) -> None:
        """Return when the broker has all that was written, or after a while."""
        deadline = clock.now() + _WRITTEN_SECONDS
        while self._unwritten and clock.now() < deadline:
            self._link.writer.poll(_SOON)
            self._take_reports()

    def _take_reports(self) -> None:
        """What was lost is seen to by those who wrote it; a refusal ends the writer."""
        self._link.writer.poll(0)
        while self._reports:
            error, lost = self._reports.popleft()
            self._unwritten -= 1
            if error is None:
                continue
            typed = translate(error, "write", f"control topic {WRITERS_TOPIC}", self._servers)
            if isinstance(typed, NotAuthorizedError):
                self._fail(typed)
                self._stopping.set()
            else:
                lost()
