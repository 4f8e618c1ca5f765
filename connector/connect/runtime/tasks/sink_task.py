"""A running sink task: an OrderedConsumer in front of a SinkTask.

Order across layout changes comes from the consumer's gates. Its part here: when the last record before a cut was put,
`on_partition_key_maybe_revoked` flushes the task and commits at once, which opens the gate for whoever waits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import ExitStack, closing
from typing import Any

from confluent_kafka import KafkaException, Message, TopicPartition

from .....partitioner.errors import PeerError, TopicNotFoundError
from .... import clock
from ....consuming.consumer import OrderedConsumer
from ....kafka_errors import translate
from ....messages import offset_of, place_of
from ...api.errors import ConnectError, RetriableError
from ...api.java_regex import topics_pattern
from ...api.records import SinkRecord
from ...api.task import Place, SinkTask
from ..clients import consumer_config
from ..pipeline import Chain, Converters
from ..plugins import Plugins
from ..settings import seconds
from .sink_context import Callbacks, SinkContext
from .sink_errors import ErrorRouting, error_routing
from .sink_records import Entry, SinkReader
from .standstill import Standstill
from .task_base import State, TaskSpec, WorkerTask
from .tolerance import StoppedError

_LOG = logging.getLogger("keyorder.connect.task")
_BATCH = 500
_POLL = 0.1
_RELEASE_CHECK = 0.5
_REVOKE_PATIENCE = 3.0
_MIN_BACKOFF = 0.05
_ASK = 10.0


class WorkerSinkTask(WorkerTask):
    """One sink task on its thread. All its methods run there, the consumer's callbacks included."""

    def __init__(self, spec: TaskSpec, plugins: Plugins, parking_topic: str, listener: Any, redact: Any) -> None:
        super().__init__(spec, listener, redact)
        self._plugins, self._parking_topic = plugins, parking_topic
        self._interval = seconds(spec.parsed, "offset.flush.interval.ms")
        self.paused_by_task: set[Place] = set()
        self.holding = False
        self._pending: deque[Entry] = deque()
        self._partitions: set[Place] = set()
        self._delivered: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._retry_at: float | None = None
        self._next_release_check = 0.0

    def execute(self, opened: ExitStack) -> None:
        spec = self.spec
        stopped = opened.enter_context(ExitStack())  # the task itself, when all around it has ended
        chain = opened.enter_context(closing(Chain(self._plugins, spec.connector)))
        converters = Converters(self._plugins, spec.worker, spec.connector)
        routing = error_routing(spec, self.tolerance, self._parking_topic, self._redact)
        self.routing: ErrorRouting = opened.enter_context(closing(routing))
        config = consumer_config(spec.worker, spec.connector, spec.id.connector, spec.id.number)
        self.consumer = opened.enter_context(closing(OrderedConsumer(config)))
        try:
            self._standstill = Standstill(config)
            self._reader = SinkReader(converters, chain, self.tolerance, self.consumer.key_epoch)
            self.task: SinkTask = spec.task_class()
            self.context = SinkContext(self)
            self.task.initialize(self.context)
            self.task.start(dict(spec.config))
            stopped.callback(self.task.stop)
            self.holding = self._told is State.PAUSED  # `run` has told it; partitions are yet to come: see `assigned`
            self.consumer.subscribe(self._topics(), listener=Callbacks(self))
            self._loop()
            self._finish()
        except BaseException:
            self.failed = True  # nothing is committed while the consumer closes
            raise

    def _topics(self) -> list[str]:
        topics: list[str] = self.spec.parsed["topics"]
        return topics or [topics_pattern(self.spec.parsed["topics.regex"])]

    def _loop(self) -> None:
        next_commit = clock.now() + self._interval
        while not self.stopping.is_set():
            self._standstill.turn()
            self._follow_pause()
            if self.holding and not self._pending and not self.wanted_paused:
                self._hold(False)  # what was to be put again has gone to another task
            self._rewind()
            now = clock.now()
            if now >= next_commit or self.context.commit_requested:
                self.context.commit_requested = False
                next_commit = now + self._interval
                self._commit()
            idle = not self._pending and not self.wanted_paused
            if idle and now >= self._next_release_check and self.routing.parking is not None:
                self._next_release_check = now + _RELEASE_CHECK
                self._release()
            busy = bool(self._pending) and not self.wanted_paused
            wait = self._retry_wait(now) if busy else _POLL
            for message in self.consumer.consume(_BATCH if wait else 1, wait):
                try:
                    self._take(message)
                except StoppedError:
                    break  # this one and those behind it were not judged: no position passes them, and they come again
            self.metrics.gauge("active_count", len(self._pending))
            if not self.wanted_paused and (self._retry_at is None or clock.now() >= self._retry_at):
                self._deliver()

    def _retry_wait(self, now: float) -> float:
        return max(_MIN_BACKOFF, min(_POLL, (self._retry_at or now) - now))

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            failure = translate(error, "read", f"topic {message.topic()}")
            if isinstance(failure, TopicNotFoundError):
                # As in Kafka Connect: the task waits for a topic that is to come, and reads those that are there.
                _LOG.warning("task %s waits for topic %s, which does not exist", self.where, failure.topic)
            elif not failure.retriable:
                raise failure
            return
        self.metrics.add("sink_record_read_total")
        self.metrics.set("stray_records_total", self.consumer.strays)
        self.topics.add(place_of(message)[0])
        self._pending.append(self._reader.entry(message))

    # -- delivering ----------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Put what is pending. After a RetriableError the same records are put again when their time has come."""
        while True:
            self._rewind()  # first: what lies behind in its partition would be put before what the task goes on from
            if not self._pending or (self.stopping.is_set() and self._retry_at is not None):
                return
            if not self._still_a_member():
                return
            batch = self.routing.next_batch(self._pending)
            records = [entry.record for entry in batch if entry.record is not None]
            if records and not self._put(records):
                return
            self._hold(False)
            self.routing.settle(batch)
            for entry in batch:
                place = place_of(entry.message)
                if entry.owned:
                    self._delivered[place] = offset_of(entry.message) + 1
            for _ in batch:
                self._pending.popleft()

    def _put(self, records: list[SinkRecord]) -> bool:
        self.context.backoff = 1.0
        try:
            with self.metrics.timed("put_batch"):
                self.task.put(records)
        except RetriableError as error:
            _LOG.warning("task %s will put %d records again: %s", self.where, len(records), self._redact(str(error)))
            self.metrics.add("total_retries")
            self.routing.forget_reports()
            self._retry_at = clock.now() + self.context.backoff
            self._hold(True)
            return False
        self._retry_at = None
        self.metrics.add("sink_record_send_total", len(records))
        self.metrics.measure("batch_size", len(records))
        return True

    def _hold(self, wanted: bool) -> None:
        """Fetch nothing more while the same records are tried again, but stay in the group."""
        if wanted != self.holding:
            self.holding = wanted
            places = [p for p in self.consumer.assignment() if (p.topic, p.partition) not in self.paused_by_task]
            (self.consumer.pause if wanted else self.consumer.resume)(places)

    def _follow_pause(self) -> None:
        if self.wanted_paused != (self._told is State.PAUSED):
            self.tell(State.PAUSED if self.wanted_paused else State.RUNNING)
            self._hold(self.wanted_paused)

    def _rewind(self) -> None:
        """Go on from where the task wants to, if it has said so."""
        if not self.context.rewinds:
            return
        owned = {(p.topic, p.partition) for p in self.consumer.assignment()}
        for place, offset in self.context.rewinds.items():
            if place in owned:
                self.consumer.seek(TopicPartition(*place, offset))
                self._pending = deque(e for e in self._pending if place_of(e.message) != place)
                self._delivered[place] = offset
        self.context.rewinds.clear()
        self.routing.drop_batch()

    def _release(self) -> None:
        """Deliver what was parked, where somebody asked for it and the key is ours now."""
        for entry, mode in self.routing.due_releases(self.consumer.may_have):
            if not self._still_a_member() or not self._commit():
                return
            try:
                count = self.routing.release(entry, mode, self._reader, self.task, self._delivered)
            except RetriableError as error:
                _LOG.warning("task %s will release a key later: %s", self.where, self._redact(str(error)))
                self.routing.forget_reports()
                return
            except StoppedError:
                return  # the key stays parked, and the next run is asked to release it
            finally:
                self.routing.drop_batch()
            self.metrics.add("released_records_total", count)

    # -- committing ----------------------------------------------------------------------------------------------

    def _commit(self, places: set[Place] | None = None) -> bool:
        """Flush the task and commit what it allows. False when passing trouble prevented it; a later call tries again."""
        due = {
            place: offset
            for place, offset in self._delivered.items()
            if (places is None or place in places) and offset != self._committed.get(place)
        }
        if not due:
            return True
        if not self._still_a_member():  # before the flush: a new owner may have written in the same place
            self.metrics.add("offset_commit_failed_total")
            return False
        since = clock.now()
        try:
            self.routing.flush()
            allowed = self.task.pre_commit(due)
            self.routing.flush()  # what the task has reported in it
            for place, offset in allowed.items():
                if place not in due or offset > due[place]:
                    raise ConnectError(
                        f"pre_commit allows {place}@{offset}, which was never put: it may allow {due} at most"
                    )
            if allowed:
                self.consumer.commit(offsets=[TopicPartition(*p, o) for p, o in allowed.items()], asynchronous=False)
            self._committed.update(allowed)
        except RetriableError as error:
            _LOG.warning("task %s could not flush: %s", self.where, self._redact(str(error)))
        except KafkaException as raised:
            failure = translate(raised.args[0], "commit the offsets of", f"connector {self.spec.id.connector}")
            if not isinstance(failure, PeerError):
                raise failure from raised
            _LOG.warning("task %s could not commit: %s", self.where, failure)
        else:
            self.metrics.add("offset_commit_completed_total")
            self.metrics.measure("offset_commit", clock.now() - since)
            return True
        self.metrics.add("offset_commit_failed_total")
        return False

    def _still_a_member(self) -> bool:
        """After a standstill ask the group, by the last commit once more: it takes commits from its present members alone.

        True without asking where nothing stood still. False: not now. The next turn hears from the group what has become of
        its partitions.
        """
        if not self._standstill.doubtful:
            return True
        since = clock.now()
        places = self.consumer.assignment()
        try:
            found = self.consumer.committed(places, _ASK) if places else []
            known = [place for place in found if place.error is None and place.offset >= 0]
            if not known:
                return False
            self.consumer.commit(offsets=known[:1], asynchronous=False)
        except KafkaException as raised:
            failure = translate(raised.args[0], "ask after the membership in", f"group of {self.spec.id.connector}")
            if not isinstance(failure, PeerError):
                raise failure from raised
            _LOG.warning(
                "task %s stood still, and puts and flushes nothing before its group answers: %s", self.where, failure
            )
            return False
        self._standstill.passed(since)
        return True

    def _finish(self) -> None:
        """A graceful end: what was put is flushed and committed."""
        self._rewind()  # the next run goes on where the task wants to
        if not self._commit():
            self._commit()
        self.routing.flush()  # what the task has reported of records that were committed before

    # -- the consumer's callbacks --------------------------------------------------------------------------------

    def assigned(self, places: list[Place]) -> None:
        """Partitions have come."""
        self.routing.refresh()
        self._partitions |= set(places)
        self.metrics.set("partition_count", len(self._partitions))
        # A pause outlives the assignment: one from before a partition went would last, since nothing resumes what is away.
        (self.consumer.pause if self.holding else self.consumer.resume)([TopicPartition(*place) for place in places])
        self.task.open(places)

    def revoked(self, places: list[Place], lost: bool) -> None:
        """Partitions are going: flush and commit them unless they are lost already."""
        if not self.failed and not lost:
            deadline = clock.now() + _REVOKE_PATIENCE
            while not self._commit(set(places)) and clock.now() < deadline:
                time.sleep(0.1)
        gone = set(places)
        self._partitions -= gone
        self.metrics.set("partition_count", len(self._partitions))
        self.paused_by_task -= gone
        self._pending = deque(e for e in self._pending if place_of(e.message) not in gone)
        self.routing.drop_batch()
        if not self._pending:
            self._retry_at = None
        for place in places:
            self._delivered.pop(place, None)
            self._committed.pop(place, None)
        self.task.close(places)

    def keys_leave(self, places: list[Place]) -> None:
        """The last record before a cut was put: prove it at once."""
        self._commit(set(places))

    def keys_come(self, places: list[Place]) -> None:
        """A gate has opened."""
        self.routing.refresh()
        self.task.keys_assigned(places)
