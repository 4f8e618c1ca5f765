"""The topology controller: carries a `ChangeMachine`'s actions out on a real cluster, in order.

It can be killed at any step. Whoever starts next takes its transactional id over, finds an open change in the timeline
or none, and goes on from there; so the same command given again resumes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # not re-exported

from ...partitioner.changes import change as machine
from ...partitioner.changes.change import ChangeMachine, ChangeTerms
from ...partitioner.errors import (
    BrokerUnreachableError,
    ControllerFencedError,
    KafkaOperationError,
    PeerError,
    RecordVersionError,
    UnmanagedTopicError,
    WriterLateError,
)
from ...partitioner.records import codec
from ...partitioner.records.control_records import (
    TIMELINE,
    WRITERS_TOPIC,
    Lease,
    LeaseState,
    Ready,
    encode_lease,
    lease_key,
    timeline_key,
)
from ...partitioner.timeline import Retirement, Slice, Timeline
from ...partitioner.writers.members import WriterSet
from .. import clock
from ..config import connection_of
from ..control.control_reader import ControlMessage, ControlReader, Look
from ..control.control_topics import all_writer_slots, ensure, timeline_slot, writer_slot
from ..control.timeline_writer import DataRecord, TimelineWriter, UnknownResultError
from ..crash import crash_point
from ..kafka_errors import translate, translated
from ..log_offsets import LogOffsets
from ..metadata import wait_for_partitions
from ..operations.notices import Notice

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A step that a change took. seconds: since the change began."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a change did. `changed` is False when the topic already had the count.

    warnings: what should have been known before it.
    """

    topic: str
    before: int
    after: int
    epoch: int
    changed: bool
    attempts: int
    steps: tuple[ChangeStep, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()


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


class TopologyController:
    """Changes the layout of one topic. Not thread-safe; `close` it."""

    def __init__(self, config: Mapping[str, Any], topic: str, progress: Progress | None = None) -> None:
        self.topic = topic
        self._config, self._progress = dict(config), progress or (lambda _: None)
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._admin = AdminClient(connection_of(config))
        self._slot = timeline_slot(topic)
        self._steps: list[ChangeStep] = []
        self._began = clock.now()

    def change(self, count: int, terms: ChangeTerms | None = None, retirement: Retirement | None = None) -> Change:
        """Bring the topic to `count` partitions; resumes or gives up what a killed controller left.

        Raises CountError, UnmanagedTopicError, WriterLateError, TruncationError, ControllerFencedError,
        NotAuthorizedError, BrokerUnreachableError.
        """
        terms = terms or ChangeTerms()
        self._steps, self._began = [], clock.now()
        ensure(self._admin, self._bootstrap)
        while True:
            run = _Run(self, count, terms, retirement)
            try:
                return run.drive()
            except (UnknownResultError, BrokerUnreachableError, KafkaOperationError) as error:
                # Only a fresh look tells what happened to the last transaction; it also gives an open attempt up.
                if not error.retriable:
                    raise
                self._note(f"start over: {error}")
                if clock.now() - self._began > terms.timeout:
                    raise WriterLateError(self.topic, ("(control topic)",), clock.now() - self._began) from error
            finally:
                run.close()

    def rehome(
        self, pieces: Iterable[Slice], copier: Copier, terms: ChangeTerms | None = None
    ) -> Generator[bool, None, None]:
        """Re-home one slice after another, each in an attempt of its own; yields for each whether its values were looked at.

        False: the partition is no longer retired, or emptied already. All slices are written with one pen, so a growth that
        takes it over in between ends this. Raises ScanOutdatedError, and as `change`.
        """
        terms = terms or ChangeTerms()
        ensure(self._admin, self._bootstrap)
        run: _Run | None = None
        try:
            for piece in pieces:
                self._steps, self._began = [], clock.now()
                while True:
                    run = run or _Run(self, copier.timeline.newest.count, terms, None, copier)
                    try:
                        looked_at = run.drive(piece).changed
                        break
                    except (UnknownResultError, BrokerUnreachableError, KafkaOperationError) as error:
                        if not error.retriable:
                            raise
                        self._note(f"start over: {error}")
                        if clock.now() - self._began > terms.timeout:
                            raise WriterLateError(
                                self.topic, ("(control topic)",), clock.now() - self._began
                            ) from error
                        run.close()
                        run = None
                yield looked_at
        finally:
            if run is not None:
                run.close()

    def _note(self, name: str) -> None:
        self._steps.append(ChangeStep(name, clock.now() - self._began))
        self._progress(name)


class _Run:
    """One life of a controller: from fencing the others to the end, or to an unknown result."""

    def __init__(
        self,
        owner: TopologyController,
        count: int,
        terms: ChangeTerms,
        retirement: Retirement | None,
        copier: Copier | None = None,
    ) -> None:
        self._owner, self._count, self._terms, self._retirement = owner, count, terms, retirement
        self._copier = copier
        self._config, self._bootstrap = owner._config, owner._bootstrap
        self._writer = TimelineWriter(self._config, owner.topic)
        self._reader = ControlReader(self._config, fetch_wait_ms=50)
        self._offsets = LogOffsets(self._config)
        self._writers = WriterSet()
        self._machine = ChangeMachine(count, self._writers, terms, owner._began, None, retirement)
        self._started = False
        self._actions: deque[machine.Action] = deque()
        self._timeline: Timeline | None = None
        self._awaited: Timeline | None = None
        self._look: Look | None = None
        self._plain: Producer | None = None
        self._result: Change | None = None
        self._before = 0

    def drive(self, piece: Slice | None = None) -> Change:
        """Run a machine to its end. With slices it may be called again and again: the pen stays in this hand."""
        if piece is not None:
            self._machine = ChangeMachine(
                self._count, self._writers, self._terms, self._owner._began, None, self._retirement, piece
            )
            self._result = None
        if not self._started:
            self._start()
        if self._timeline is None:
            raise UnmanagedTopicError(self._owner.topic)
        if self._copier is not None and self._copier.timeline.epochs != self._timeline.epochs:
            raise ScanOutdatedError
        self._before = self._timeline.newest.count
        self._owner._note("started")
        crash_point("controller-started")
        self._step(machine.Started(self._timeline))
        while self._result is None:
            if self._actions:
                self._carry_out(self._actions.popleft())
            self._listen(0.0 if self._actions else 0.02)
        return self._result

    def _start(self) -> None:
        self._writer.start()
        # Only now: what is read before the others are fenced may still be overtaken by one of them.
        self._reader.add([self._owner._slot, *all_writer_slots()])
        for message in self._reader.read_to_end():
            self._take(message)
        self._started = True

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._offsets.close()

    def _step(self, event: machine.Event) -> None:
        phase = self._machine.phase
        self._actions.extend(self._machine.step(event, clock.now()))
        if self._machine.phase is not phase:
            self._owner._note(self._machine.phase.value.lower().replace("_", " "))
        if phase is machine.Phase.COLLECTING and self._machine.phase is machine.Phase.CUTTING:
            crash_point("all-ready")

    def _listen(self, timeout: float) -> None:
        for message in self._reader.poll(timeout):
            self._take(message)
        if self._awaited is not None and self._timeline == self._awaited:
            self._visible(self._awaited)
        if self._look is not None and self._reader.reached(self._look):
            look, self._look = self._look, None
            self._step(machine.WritersLooked(look.began))
        if self._machine.phase not in (machine.Phase.DONE, machine.Phase.FAILED, machine.Phase.BEGIN):
            self._step(machine.WritersRead())

    def _visible(self, timeline: Timeline) -> None:
        self._awaited = None
        if self._machine.phase is machine.Phase.COPYING:
            crash_point("rehome-written")
        if timeline.newest.number == timeline.last_number and timeline.change is None:
            crash_point("commit-written")
        elif timeline.change is not None:
            crash_point(f"{timeline.change.phase.value.lower()}-written")
        self._step(machine.TimelineVisible(timeline))

    def _take(self, message: ControlMessage) -> None:
        if message.slot[0] != WRITERS_TOPIC and message.key != timeline_key(self._owner.topic):
            return
        record = message.record
        if isinstance(record, Lease | Ready):
            self._writers.apply(record, message.offset, clock.now())
        elif isinstance(record, Timeline):
            minor = codec.decode(TIMELINE, message.value or b"").minor
            if minor > TIMELINE.minor:
                # Rewriting it would drop the fields that this version cannot see.
                raise RecordVersionError("timeline", (codec.MAJOR, minor), codec.MAJOR)
            if self._awaited is None and self._machine.timeline is not None and record != self._timeline:
                raise ControllerFencedError(self._owner.topic)
            self._timeline = record

    def _carry_out(self, action: machine.Action) -> None:
        if isinstance(action, machine.WriteTimeline):
            self._awaited = action.timeline
            self._writer.write(action.timeline, self._name_of(action.timeline))
        elif isinstance(action, machine.EnsurePartitions):
            self._ensure_partitions(action.count)
            crash_point("partitions-created")
            self._step(machine.PartitionsReady())
        elif isinstance(action, machine.LookAtWriters):
            self._look = self._reader.look(all_writer_slots())
        elif isinstance(action, machine.Expel):
            self._expel(action.nonce)
        elif isinstance(action, machine.ReadCuts):
            self._read_cuts(action)
        elif isinstance(action, machine.CopySlice):
            self._copy(action)
        elif isinstance(action, machine.Finish):
            self._finish(action)
        else:
            raise action.error

    def _copy(self, action: machine.CopySlice) -> None:
        assert self._copier is not None
        records = self._copier.records(action.deadline)
        if records is None:
            self._step(machine.CopyTooLate())
            return
        crash_point("rehome-read")
        self._awaited = action.timeline
        self._writer.write(action.timeline, "rehome", records)

    def _name_of(self, timeline: Timeline) -> str:
        if timeline.change is not None:
            return timeline.change.phase.value.lower()
        return "commit" if timeline.newest.number == timeline.last_number else "abort"

    def _finish(self, action: machine.Finish) -> None:
        newest = action.timeline.newest
        self._result = Change(
            topic=self._owner.topic,
            before=self._before,
            after=newest.count,
            epoch=newest.number,
            changed=action.changed,
            attempts=self._machine.attempt,
            steps=tuple(self._owner._steps),
            ends=newest.ends if action.changed else {},
            begins=newest.begins if action.changed else {},
        )

    def _ensure_partitions(self, count: int) -> None:
        topic, admin = self._owner.topic, self._owner._admin
        with translated("describe", f"topic {topic}", self._bootstrap):
            found = admin.list_topics(topic, timeout=10).topics[topic]
        if found.error is not None:
            raise translate(found.error, "describe", f"topic {topic}", self._bootstrap)
        if len(found.partitions) < count:
            future = admin.create_partitions([NewPartitions(topic, count)], operation_timeout=10)[topic]
            try:
                future.result(15)
            except KafkaException as raised:
                # Somebody was faster: the count is what matters, and it is looked at below.
                if raised.args[0].code() != KafkaError.INVALID_PARTITIONS:
                    raise translate(raised.args[0], "alter", f"topic {topic}", self._bootstrap) from raised
        wait_for_partitions(admin, topic, count, self._bootstrap)

    def _expel(self, nonce: str) -> None:
        member = self._writers.get(nonce)
        if member is None:
            return
        lease = member.lease
        if lease.transactional_id:
            fence = Producer({**connection_of(self._config), "transactional.id": lease.transactional_id})
            with translated("fence", f"transactional id {lease.transactional_id}", self._bootstrap):
                fence.init_transactions(15)
            fence.close()
        gone = Lease(
            lease.writer,
            nonce,
            LeaseState.EXPELLED,
            member.incarnation,
            lease.lease_ms,
            lease.sequence + 1,
            lease.topics,
            lease.transactional_id,
            lease.transaction_timeout_ms,
        )
        if self._plain is None:
            self._plain = Producer({**connection_of(self._config), "enable.idempotence": True, "linger.ms": 0})
        topic, partition = writer_slot(lease.writer)
        self._plain.produce(topic, encode_lease(gone), lease_key(lease.writer, nonce), partition)
        if self._plain.flush(10):
            raise UnknownResultError(f"EXPEL of writer {lease.writer!r} was not acknowledged ({WRITERS_TOPIC})")
        self._owner._note(f"expelled {lease.writer}")

    def _read_cuts(self, action: machine.ReadCuts) -> None:
        """The leaders' high watermarks, not the last stable offsets: an open transaction's records lie below a cut too."""
        topic = self._owner.topic
        try:
            marks = self._offsets.high_watermarks([(topic, p) for p in action.partitions], timeout=3.0)
        except (KafkaOperationError, BrokerUnreachableError):
            # A leader is away: ask again until the attempt's deadline ends it.
            self._actions.append(action) if self._machine.phase is machine.Phase.CUTTING else None
            self._listen(0.05)
            return
        crash_point("cuts-read")
        if self._machine.phase is machine.Phase.CUTTING:
            self._step(machine.CutsRead({p: mark for (_, p), mark in marks.items()}, clock.wall_ms()))
