"""ArrowReader: ranges of offsets as Arrow batches, without a group. Stays warm from one assignment to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .. import clock
from ..config import REFILL, flat
from ..kafka_errors import translate
from ..metadata import prefetch_metadata
from .columns import Event, Taken
from .fetch_source import NativeSource, concat, fetch_source
from .library import OPTION, native
from .schema import SCHEMA, empty_batch

Place = tuple[str, int]
_OFFSET = SCHEMA.get_field_index("offset")
# Rows fetched beyond their range are kept for the next one; a partition with more of them is paused.
_SURPLUS_ROWS = 100_000


class _Range:
    """One partition that is fetched.

    end: exclusive. floor: what lies below it has been returned. queue: fetched, not returned. fetched: the library's
    next offset.
    """

    __slots__ = ("end", "fetched", "floor", "paused", "queue", "queued")

    def __init__(self, start: int, end: int) -> None:
        self.floor = self.fetched = start
        self.end = end
        self.queue: deque[pa.RecordBatch] = deque()
        self.queued = 0
        self.paused = False

    @property
    def next(self) -> int:
        """The first offset that may still come: nothing between `floor` and it has a record."""
        return offset_at(self.queue[0], 0) if self.queue else self.fetched

    @property
    def done(self) -> bool:
        """Whether everything below `end` was returned."""
        return self.next >= self.end


class ArrowReader:
    """Reads ranges of offsets into `pyarrow.RecordBatch`es of `schema.SCHEMA`. Used by one thread.

    config: as a confluent_kafka.Consumer's. No group is joined, nothing is committed; `isolation.level` counts.
    `keyorder.arrow.native=false` reads through consume() instead of the C calls.

    Raises KeyorderError types for refused or unreachable brokers, KafkaException for what else goes wrong.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        library = native(config)
        theirs = {**REFILL, **{k: v for k, v in flat(config).items() if k != OPTION}}
        theirs.setdefault("group.id", "keyorder-arrow-reader")
        theirs["enable.auto.commit"] = False
        theirs["enable.auto.offset.store"] = False
        theirs["enable.partition.eof"] = True
        theirs["auto.offset.reset"] = "error"
        self._error_callback = theirs.get("error_cb")
        self._errors: deque[KafkaError] = deque()
        theirs["error_cb"] = self._told
        self._servers = str(theirs.get("bootstrap.servers"))
        self._raw = Consumer(theirs)
        self._source = fetch_source(self._raw, library)
        self._ranges: dict[Place, _Range] = {}
        self._wanted: set[Place] = set()
        self._known: set[str] = set()
        self._closed = False

    @property
    def native(self) -> bool:
        """Whether the C calls are used."""
        return isinstance(self._source, NativeSource)

    @property
    def done(self) -> bool:
        """Whether every range has been read to its end."""
        return all(self._ranges[place].done for place in self._wanted)

    def position(self, topic: str, partition: int) -> int:
        """The offset up to which a range was returned: records below it were, or never show. Raises KeyError."""
        known = self._ranges[topic, partition]
        return min(known.next, known.end)

    def assign(self, ranges: Mapping[str, Iterable[tuple[int, int, int]]]) -> None:
        """Read these from now on: {topic: [(partition, start, end)]}, `end` exclusive; what was assigned before is dropped.

        A range that begins where the last one of its partition ended goes on with what has been fetched already.
        """
        wanted = {(t, p): (start, end) for t, parts in ranges.items() for p, start, end in parts if end > start}
        gone = [place for place in self._ranges if place not in wanted]
        moved: list[Place] = []
        new: list[Place] = []
        for place, (start, end) in wanted.items():
            known = self._ranges.get(place)
            if known is None:
                new.append(place)
            elif not known.floor <= start <= known.next:
                moved.append(place)
            else:
                known.end = end
        if gone:
            self._raw.incremental_unassign([TopicPartition(*place) for place in gone])
            for place in gone:
                del self._ranges[place]
        resumed = [place for place in wanted if place in self._ranges and self._ranges[place].paused]
        if resumed:
            self._raw.resume([TopicPartition(*place) for place in resumed])
            for place in resumed:
                self._ranges[place].paused = False
        for place in moved:
            start, end = wanted[place]
            self._ranges[place] = _Range(start, end)
            self._raw.seek(TopicPartition(*place, start))
        if new:
            for topic in sorted({topic for topic, _ in new} - self._known):
                prefetch_metadata(self._raw, topic)
                self._known.add(topic)
            self._source.route(new)
            for place in new:
                self._ranges[place] = _Range(*wanted[place])
            self._raw.incremental_assign([TopicPartition(*place, wanted[place][0]) for place in new])
        self._wanted = set(wanted)

    def read(self, max_rows: int = 50_000, timeout: float = 1.0) -> pa.RecordBatch:
        """What has come, up to `max_rows` records, each partition in its order; waits up to `timeout` seconds for the first.

        Empty when nothing came in time, or all ranges are done (see `done`). Raises as the class says; an offset that
        the log does not hold any more raises KafkaException with OFFSET_OUT_OF_RANGE or _AUTO_OFFSET_RESET.
        """
        if self._closed:
            raise RuntimeError("the reader is closed")
        deadline = clock.now() + timeout
        found: list[pa.RecordBatch] = []
        self._from_queues(found, max_rows)
        while not found and not self.done:
            left = deadline - clock.now()
            for taken in self._source.take(max_rows, max(0.0, min(left, 0.1))):
                self._sort(taken, found)
            while self._errors:
                error = self._errors.popleft()
                self._event(Event(0, error.code(), error.str(), None, -1, -1))
            if left <= 0:
                break
        return concat(found) if found else empty_batch()

    def close(self) -> None:
        """Release everything."""
        if not self._closed:
            self._closed = True
            self._source.close()
            self._raw.close()

    def __enter__(self) -> ArrowReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _from_queues(self, found: list[pa.RecordBatch], room: int) -> None:
        """Take what was fetched before it was wanted."""
        for place in self._wanted:
            known = self._ranges[place]
            while room > 0 and known.queue and not known.done:
                batch = known.queue.popleft()
                rows = min(rows_below(batch, 0, len(batch), known.end), room)
                known.queued -= rows
                if rows < len(batch):
                    known.queue.appendleft(batch.slice(rows))
                found.append(batch.slice(0, rows))
                known.floor = offset_at(batch, rows - 1) + 1
                room -= rows

    def _sort(self, taken: Taken, found: list[pa.RecordBatch]) -> None:
        """Keep the rows that a range wants; adjacent ones stay one slice."""
        batch, events = taken.batch, deque(taken.events)
        start = stop = 0
        for run in taken.runs:
            while events and events[0].row <= run.start:
                self._event(events.popleft())
            known = self._ranges.get((run.topic, run.partition))
            if known is None or offset_at(batch, run.start) < known.fetched:
                continue
            known.fetched = offset_at(batch, run.stop - 1) + 1
            rows = 0 if known.queue else rows_below(batch, run.start, run.stop, known.end)
            if rows:
                known.floor = offset_at(batch, run.start + rows - 1) + 1
                if run.start != stop:
                    found += [batch.slice(start, stop - start)] if stop > start else []
                    start = run.start
                stop = run.start + rows
            if rows < run.stop - run.start:
                self._keep(
                    (run.topic, run.partition), known, batch.slice(run.start + rows, run.stop - run.start - rows)
                )
        if stop > start:
            found.append(batch.slice(start, stop - start))
        while events:
            self._event(events.popleft())

    def _keep(self, place: Place, known: _Range, surplus: pa.RecordBatch) -> None:
        known.queue.append(surplus)
        known.queued += len(surplus)
        if known.queued > _SURPLUS_ROWS and not known.paused:
            known.paused = True
            self._raw.pause([TopicPartition(*place)])

    def _told(self, error: KafkaError) -> None:
        """The binding's error callback, inside poll(): what only the caller can fix is raised after it."""
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self._errors.append(error)
        if self._error_callback is not None:
            self._error_callback(error)

    def _event(self, event: Event) -> None:
        known = self._ranges.get((event.topic or "", event.partition))
        if event.code == KafkaError._PARTITION_EOF:
            if known is not None:
                known.fetched = max(known.fetched, event.offset)
            return
        if known is None and event.partition >= 0:
            return  # of a partition that was dropped meanwhile: what is read now has no part in it
        error = KafkaError(event.code, event.text)
        if event.code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise KafkaException(error)
        typed = translate(
            error, "read", f"topic {event.topic or '/'.join(sorted({t for t, _ in self._wanted}))}", self._servers
        )
        if not typed.retriable:
            raise typed


def offset_at(batch: pa.RecordBatch, row: int) -> int:
    """The offset of one row."""
    offset: int = batch.column(_OFFSET)[row].as_py()
    return offset


def rows_below(batch: pa.RecordBatch, start: int, stop: int, end: int) -> int:
    """How many of the rows [start, stop), of one partition, lie below offset `end`."""
    if offset_at(batch, stop - 1) < end:
        return stop - start
    offsets = batch.column(_OFFSET).slice(start, stop - start).to_numpy()
    return int(offsets.searchsorted(end))
