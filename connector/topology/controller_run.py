"""One life of a controller: from fencing the others to the end of its change, or to a result that is not known."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # not re-exported

from ...partitioner.changes import events
from ...partitioner.changes.change import ChangeMachine
from ...partitioner.changes.terms import ChangeTerms
from ...partitioner.epochs import Retirement, Slice
from ...partitioner.errors import (
    BrokerUnreachableError,
    ControllerFencedError,
    KafkaOperationError,
    PeerError,
    ReleasedTopicError,
    UnmanagedTopicError,
)
from ...partitioner.records.control_records import (
    WRITERS_TOPIC,
    Lease,
    Ready,
    encode_lease,
    lease_key,
    require_known_timeline,
    timeline_key,
)
from ...partitioner.stamps import Stamp
from ...partitioner.timeline import Timeline
from ...partitioner.writers.members import WriterSet
from .. import clock
from ..acting_user import acting_user
from ..config import connection_of
from ..control.control_reader import ControlMessage, ControlReader, Look
from ..control.control_topics import all_writer_slots, timeline_slot, writer_slot
from ..control.timeline_writer import DataRecord, TimelineWriter, UnknownResultError
from ..crash import crash_point
from ..kafka_errors import translate, translated
from ..log_offsets import LogOffsets
from ..metadata import take_id, wait_for_partitions
from .folding import with_folded
from .results import Change, StepLog

_LOG = logging.getLogger("keyorder.controller")

# How long a timeline that was written may take to show, in seconds: its transaction's end has yet to reach its partition.
_SHOWN_WITHIN = 15.0
# How long stamps are awaited, in seconds. They save a lease's wait; where none come that is waited for.
_STAMPS_TIMEOUT = 5.0


class Copier(Protocol):
    """Who knows what to copy. timeline: that by which it was worked out."""

    timeline: Timeline

    def records(self, deadline: float) -> list[DataRecord] | None:
        """The copies and tombstones of the slice at hand, from a look that begins now; None if that lasts too long."""


class ScanOutdatedError(PeerError):
    """The topic's layout has changed since the values to be re-homed were looked for. Nothing was written."""

    retriable = True

    def __str__(self) -> str:
        return "the layout changed while values were being re-homed: run the same command again"


class ControllerRun:
    """One life of a controller: from fencing the others to the end, or to an unknown result."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        admin: AdminClient,
        log: StepLog,
        count: int,
        terms: ChangeTerms,
        retirement: Retirement | None,
        copier: Copier | None = None,
        record_limit: int | None = None,
    ) -> None:
        self._topic, self._admin, self._log = topic, admin, log
        self._count, self._terms, self._retirement = count, terms, retirement
        self._copier = copier
        self._config, self._bootstrap = config, str(config.get("bootstrap.servers"))
        self._writer = TimelineWriter(self._config, topic)
        self._reader = ControlReader(self._config, fetch_wait_ms=50)
        self._offsets = LogOffsets(self._config)
        self._writers = WriterSet()
        self._machine = ChangeMachine(
            count, self._writers, terms, log.began, None, retirement, record_limit=record_limit
        )
        self._started = False
        self._actions: deque[events.Action] = deque()
        self._timeline: Timeline | None = None
        self._awaited: Timeline | None = None
        self._written = "", 0.0  # what that is, and when it was written
        self._stamp: Stamp | None = None
        self._look: Look | None = None
        self._clock_key = f"clock:{uuid.uuid4().hex}".encode()
        self._stamps: dict[int, Stamp] = {}
        self._stamps_awaited: tuple[frozenset[int], float] | None = None
        self._plain: Producer | None = None
        self._result: Change | None = None
        self._before = 0

    def drive(self, piece: Slice | None = None) -> Change:
        """Run a machine to its end. With slices it may be called again and again: it keeps the transactional writer."""
        if piece is not None:
            self._machine = ChangeMachine(
                self._count, self._writers, self._terms, self._log.began, None, self._retirement, piece
            )
            self._result = None
        if not self._started:
            self._start()
        if self._timeline is None:
            raise UnmanagedTopicError(self._topic)
        if self._timeline.released is not None:
            raise ReleasedTopicError(self._topic, self._timeline.released)
        if self._copier is not None and self._copier.timeline.epochs != self._timeline.epochs:
            raise ScanOutdatedError
        self._before = self._timeline.newest.count
        self._log.note("started")
        crash_point("controller-started")
        self._step(
            events.Started(with_folded(self._admin, self._bootstrap, self._offsets, self._timeline), self._stamp)
        )
        while self._result is None:
            if self._actions:
                self._carry_out(self._actions.popleft())
            self._listen(0.0 if self._actions else 0.02)
        return self._result

    @property
    def attempt_open(self) -> int | None:
        """The number of this life's attempt that may be open in the control topic; None when it has none."""
        if self._machine.phase in (events.Phase.BEGIN, events.Phase.CLEARING, events.Phase.DONE, events.Phase.FAILED):
            return None
        written = self._awaited or self._machine.timeline
        return None if written is None else written.last_number

    def _start(self) -> None:
        self._writer.start()
        # Only now: what is read before the others are fenced may still be overtaken by one of them.
        self._reader.add([timeline_slot(self._topic), *all_writer_slots()])
        for message in self._reader.read_to_end():
            self._take(message)
        self._started = True

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._offsets.close()

    def _step(self, event: events.Event) -> None:
        phase = self._machine.phase
        self._actions.extend(self._machine.step(event, clock.now()))
        if self._machine.phase is not phase:
            self._log.note(self._machine.phase.value.lower().replace("_", " "))
        if phase is events.Phase.COLLECTING and self._machine.phase is events.Phase.CUTTING:
            crash_point("all-ready")

    def _listen(self, timeout: float) -> None:
        if self._look is not None and self._reader.reached(self._look):
            timeout = 0.0  # nothing new has to come for it
        for message in self._reader.poll(timeout):
            self._take(message)
        if self._awaited is not None:
            if self._timeline == self._awaited:
                self._visible(self._awaited)
            else:
                self._still_hidden(self._awaited)
        if self._look is not None and self._reader.reached(self._look):
            look, self._look = self._look, None
            self._step(events.WritersLooked(look.began))
        self._stamps_read()
        if self._machine.phase not in (events.Phase.DONE, events.Phase.FAILED, events.Phase.BEGIN):
            self._step(events.WritersRead())
        self._log.waiting(self._machine.waits)

    def _still_hidden(self, timeline: Timeline) -> None:
        """A decided transaction shows when its coordinator has told the partition's leader, and either may be away.

        Whoever begins anew is given the transactional id only when that was done.
        """
        name, at = self._written
        topic, partition = timeline_slot(self._topic)
        what, seconds = f"{name.upper()} of epoch {timeline.last_number} in {topic}[{partition}]", clock.now() - at
        if seconds >= _SHOWN_WITHIN:
            raise UnknownResultError(f"{what} has not shown within {seconds:.0f} s")
        self._log.awaiting(f"{what} to show", seconds)

    def _visible(self, timeline: Timeline) -> None:
        self._awaited = None
        if self._machine.phase is events.Phase.COPYING:
            crash_point("rehome-written")
        if timeline.newest.number == timeline.last_number and timeline.change is None:
            crash_point("commit-written")
        elif timeline.change is not None:
            crash_point(f"{timeline.change.phase.value.lower()}-written")
        self._step(events.TimelineVisible(timeline, self._stamp))

    def _stamps_read(self) -> None:
        """What has come back, once all has, or once it has taken too long: then leases are waited for as ever."""
        if self._stamps_awaited is None:
            return
        wanted, until = self._stamps_awaited
        if wanted <= self._stamps.keys() or clock.now() >= until:
            self._stamps_awaited = None
            if self._machine.phase not in (events.Phase.DONE, events.Phase.FAILED):
                self._step(events.WritersStamped(dict(self._stamps), clock.wall_ms()))

    def _take(self, message: ControlMessage) -> None:
        if message.key == self._clock_key:
            if message.stamp is not None:
                self._stamps[message.slot[1]] = message.stamp
            return
        if message.slot[0] != WRITERS_TOPIC and message.key != timeline_key(self._topic):
            return
        record = message.record
        if isinstance(record, Lease | Ready):
            self._writers.apply(record, message.offset, clock.now(), message.stamp)
        elif isinstance(record, Timeline):
            require_known_timeline(message.value or b"")
            if self._awaited is None and self._machine.timeline is not None and record != self._timeline:
                raise ControllerFencedError(self._topic)
            self._timeline, self._stamp = record, message.stamp

    def _carry_out(self, action: events.Action) -> None:
        if isinstance(action, events.WriteTimeline):
            if self._machine.phase is events.Phase.PREPARING:
                self._reader.check_topics()  # not later: writers hold from PREPARE on, and would for as long as this takes
            self._write(action.timeline, self._name_of(action.timeline))
        elif isinstance(action, events.EnsurePartitions):
            self._ensure_partitions(action.count, action.asked)
            crash_point("partitions-created")
            self._step(events.PartitionsReady())
        elif isinstance(action, events.LookAtWriters):
            self._look = self._reader.look_at_ends(all_writer_slots())
        elif isinstance(action, events.StampWriters):
            self._stamp_writers(action.partitions)
        elif isinstance(action, events.Expel):
            self._expel(action.nonce, action.over_before)
        elif isinstance(action, events.ReadCuts):
            self._read_cuts(action)
        elif isinstance(action, events.CopySlice):
            self._copy(action)
        elif isinstance(action, events.Finish):
            self._finish(action)
        else:
            raise action.error

    def _copy(self, action: events.CopySlice) -> None:
        assert self._copier is not None
        records = self._copier.records(action.deadline)
        if records is None:
            self._step(events.CopyTooLate())
            return
        crash_point("rehome-read")
        # In one transaction with the release: a plain producer's late tombstone would erase a live value after a growth has
        # used the partition again.
        self._write(action.timeline, "rehome", records)

    def _write(self, timeline: Timeline, name: str, data: Iterable[DataRecord] = ()) -> None:
        self._awaited = timeline
        self._writer.write(timeline, name, data)
        self._written = name, clock.now()

    def _name_of(self, timeline: Timeline) -> str:
        if timeline.change is not None:
            return timeline.change.phase.value.lower()
        return "commit" if timeline.newest.number == timeline.last_number else "abort"

    def _finish(self, action: events.Finish) -> None:
        newest = action.timeline.newest
        if action.changed and action.timeline.layout.count != self._before:
            _LOG.info(
                "%s: %s took it from %d to %d partitions, epoch %d, in %.1f s, at attempt %d; writers held records for %s ms",
                self._topic, acting_user(), self._before, newest.count, newest.number, self._log.seconds(),
                self._machine.attempt, newest.held_ms,
            )  # fmt: skip
        self._result = Change(
            topic=self._topic,
            before=self._before,
            after=newest.count,
            epoch=newest.number,
            changed=action.changed,
            attempts=self._machine.attempt,
            steps=tuple(self._log.steps),
            waited_for=self._log.waited_for,
            ends=newest.ends if action.changed else {},
            begins=newest.begins if action.changed else {},
        )

    def _ensure_partitions(self, count: int, asked: tuple[int, ...]) -> None:
        topic, admin = self._topic, self._admin
        with translated("describe", f"topic {topic}", self._bootstrap):
            found = admin.list_topics(topic, timeout=10).topics[topic]
        if found.error is not None:
            raise translate(found.error, "describe", f"topic {topic}", self._bootstrap)
        if len(found.partitions) < count:
            future = admin.create_partitions([NewPartitions(topic, count)], operation_timeout=10)[topic]
            try:
                future.result(15)
            except FutureTimeout as raised:
                # The broker that was asked may have just died: the next life asks another one, and the count decides.
                raise BrokerUnreachableError(self._bootstrap, f"create the partitions of topic {topic}") from raised
            except KafkaException as raised:
                # Somebody was faster: the count is what matters, and it is looked at below.
                if raised.args[0].code() != KafkaError.INVALID_PARTITIONS:
                    raise translate(raised.args[0], "alter", f"topic {topic}", self._bootstrap) from raised
        wait_for_partitions(admin, topic, count, self._bootstrap)
        # A leader shows in the metadata long before it answers. PREPARE would stand, and writers hold, until it does.
        left = max(5.0, self._terms.timeout - self._log.seconds())
        self._offsets.high_watermarks([(topic, p) for p in asked], timeout=left)

    def _stamp_writers(self, partitions: tuple[int, ...]) -> None:
        """One erasing record of a key that nobody else uses, per partition: its stamp is that leader's clock now."""
        self._stamps.clear()
        producer = self._plain_producer()
        try:
            for partition in partitions:
                producer.produce(WRITERS_TOPIC, None, self._clock_key, partition)
        except (KafkaException, BufferError):
            pass  # no stamps, then
        producer.poll(0)
        self._stamps_awaited = frozenset(partitions), clock.now() + _STAMPS_TIMEOUT

    def _plain_producer(self) -> Producer:
        if self._plain is None:
            # Not an idempotent one, which is given its id half a second after it was made: what it writes may come twice.
            in_turn = {"acks": "all", "max.in.flight": 1, "linger.ms": 0}
            self._plain = Producer({**connection_of(self._config), **in_turn})
        return self._plain

    def _expel(self, nonce: str, over_before: bool) -> None:
        member = self._writers.get(nonce)
        if member is None:
            return
        lease = member.lease
        # To take the id from a successor that works with it would stop that one, and prove nothing new.
        if lease.transactional_id and not self._writers.is_fenced(nonce):
            fence = Producer({**connection_of(self._config), "transactional.id": lease.transactional_id})
            with translated("fence", f"transactional id {lease.transactional_id}", self._bootstrap):
                take_id(fence, WRITERS_TOPIC, 15)
            fence.close()
        plain = self._plain_producer()
        topic, partition = writer_slot(lease.writer, lease.transactional_id)
        plain.produce(topic, encode_lease(member.expelled()), lease_key(lease.writer, nonce), partition)
        if plain.flush(10):
            raise UnknownResultError(f"EXPEL of writer {lease.writer!r} was not acknowledged ({WRITERS_TOPIC})")
        _LOG.warning("%s: writer %s was expelled: its lease was over", self._topic, lease.writer)
        self._log.note(f"expelled {lease.writer}" + (", gone before the change" if over_before else ""))

    def _read_cuts(self, action: events.ReadCuts) -> None:
        """The leaders' high watermarks, not the last stable offsets: an open transaction's records lie below a cut too."""
        topic = self._topic
        try:
            marks = self._offsets.high_watermarks([(topic, p) for p in action.partitions], timeout=3.0)
        except (KafkaOperationError, BrokerUnreachableError):
            # A leader is away: ask again until the attempt's deadline ends it.
            self._actions.append(action) if self._machine.phase is events.Phase.CUTTING else None
            self._listen(0.05)
            return
        crash_point("cuts-read")
        if self._machine.phase is events.Phase.CUTTING:
            self._step(events.CutsRead({p: mark for (_, p), mark in marks.items()}, clock.wall_ms()))
