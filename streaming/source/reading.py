"""A task: its ranges become Arrow batches, in an executor's Python worker. Nothing of it needs a Spark import.

Readers stay warm between tasks of one worker process: a start costs more than a small batch.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException

from ...connector import clock
from ...connector.arrow.reader import ArrowReader
from ...connector.arrow.schema import TOO_EARLY, TOO_LATE
from ...connector.log_offsets import LogOffsets
from ..errors import DataLossError, FetchTimeoutError, RecordTimeError
from ..process import spare_loaded_objects
from .offsets import Place, Range
from .options import SourceOptions

_LOG = logging.getLogger("keyorder.streaming")
_ROWS = 50_000
# Seconds without a record after which a task looks whether the rest of its range is there at all.
_SILENCE = 5.0
_DEFAULTS = {
    # Java's default, which Spark's own source has: librdkafka's is read_committed.
    "isolation.level": "read_uncommitted",
    # An idle fetch must not hold back the end of a small batch.
    "fetch.wait.max.ms": 10,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 5,
    # The client library has one fetch at a time on its way to a broker: bigger ones mean fewer turns.
    "max.partition.fetch.bytes": 4_194_304,
}


class _Warm:
    """Readers that no task uses now, by their configuration. A worker process runs one task at a time, mostly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Any, tuple[ArrowReader, dict[str, str]]] = {}
        atexit.register(self.close)

    def take(self, config: dict[str, Any], topic_ids: Mapping[str, str]) -> ArrowReader:
        """A warm reader, or a new one: also when a topic was made again, of which it may hold old records."""
        with self._lock:
            reader, known = self._idle.pop(_key(config), (None, {}))
        if reader is not None and any(known.get(topic, id_) != id_ for topic, id_ in topic_ids.items()):
            reader.close()
            reader = None
        return reader or ArrowReader(config)

    def give_back(self, config: dict[str, Any], topic_ids: Mapping[str, str], reader: ArrowReader) -> None:
        with self._lock:
            if _key(config) not in self._idle:
                self._idle[_key(config)] = reader, dict(topic_ids)
                return
        reader.close()

    def close(self) -> None:
        with self._lock:
            readers, self._idle = list(self._idle.values()), {}
        for reader, _ in readers:
            reader.close()


_WARM = _Warm()


def read_ranges(
    options: SourceOptions, ranges: tuple[Range, ...], topic_ids: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Every record of the ranges, each partition in its order; columns as `schema.source_schema`.

    Raises DataLossError, FetchTimeoutError, RecordTimeError, and what the client library reports, translated.
    """
    config = {**_DEFAULTS, "group.id": f"{options.group_prefix}-executor", **options.client}
    config["keyorder.arrow.native"] = options.native
    reader = _WARM.take(config, topic_ids)
    whole = False
    try:
        yield from _read(reader, options, ranges)
        whole = True
    finally:
        # A task that was given up may have left the reader anywhere.
        if whole:
            _WARM.give_back(config, topic_ids, reader)
            spare_loaded_objects()
        else:
            reader.close()


def _read(reader: ArrowReader, options: SourceOptions, ranges: tuple[Range, ...]) -> Iterator[pa.RecordBatch]:
    left = {(r.topic, r.partition): r for r in ranges}
    # Pieces of one partition (keyorder.allow.split) share a task only one after the other.
    rounds: list[dict[Place, Range]] = (
        [left] if len(left) == len(ranges) else [{(r.topic, r.partition): r} for r in ranges]
    )
    for each in rounds:
        _assign(reader, each)
        # What was given out. The reader's own positions may have passed rows that an error kept from being returned.
        given = {place: r.start for place, r in each.items()}
        last = looked = clock.now()
        while True:
            if clock.now() - last > options.poll_timeout:
                (topic, partition), at = next((p, at) for p, at in given.items() if at < each[p].end)
                raise FetchTimeoutError(f"record for offset {at} of {topic}-{partition}", options.poll_timeout)
            try:
                batch = reader.read(_ROWS, 1.0)
            except KafkaException as raised:
                each = _after_loss(options, each, given, raised)
                reader.assign({})  # a partition whose fetch has failed cannot be moved, only begun again
                _assign(reader, each)
                continue
            given = {place: reader.position(*place) if r.size else r.end for place, r in each.items()}
            if not options.fail_on_data_loss and clock.now() - max(last, looked) > _SILENCE:
                looked = clock.now()
                left = _still_there(options, each, given)
                if left != each:
                    # The log ends below the range: a topic that was made again since the batch was planned.
                    each = left
                    reader.assign({})
                    _assign(reader, each)
                    continue
            if batch.num_rows:
                _check_times(batch)
                yield batch if options.headers else batch.select(batch.schema.names[:-1])
                last = clock.now()  # behind the yield: how long the query works on a batch is no silence of the log
            if reader.done:
                break


def _check_times(batch: pa.RecordBatch) -> None:
    """Raises RecordTimeError: a time that a timestamp cannot hold would be another one, not none."""
    times = batch.column("timestamp").cast(pa.int64())
    edges = pc.min_max(times)
    if edges["min"].as_py() == TOO_EARLY or edges["max"].as_py() == TOO_LATE:
        row = next(i for i, time in enumerate(times.to_pylist()) if time in (TOO_EARLY, TOO_LATE))
        raise RecordTimeError(*(batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")))


def _assign(reader: ArrowReader, ranges: dict[Place, Range]) -> None:
    by_topic: dict[str, list[tuple[int, int, int]]] = {}
    for r in ranges.values():
        by_topic.setdefault(r.topic, []).append((r.partition, r.start, r.end))
    reader.assign(by_topic)


def _after_loss(
    options: SourceOptions, ranges: dict[Place, Range], given: Mapping[Place, int], raised: KafkaException
) -> dict[Place, Range]:
    """What is left to read when the log does not hold an offset any more. Raises DataLossError unless that is allowed.

    Loss is what the leader's log start and end say, nothing else: the error may be of a partition that the warm reader had
    for an earlier task, and would make a whole batch empty.
    """
    found, lost = _left(options, ranges, given)
    if lost and options.fail_on_data_loss:
        raise DataLossError("; ".join(lost)) from raised
    # With nothing lost it was passing trouble: what is left is asked for again.
    _LOG.warning("reading again after %s; lost: %s", raised, "; ".join(lost) or "nothing")
    return found


def _still_there(options: SourceOptions, ranges: dict[Place, Range], given: Mapping[Place, int]) -> dict[Place, Range]:
    """The ranges as far as the logs have them. Only where data may be lost: a leader that is new may know less for a moment."""
    found, lost = _left(options, ranges, given)
    if not lost:
        return ranges
    _LOG.warning("going on without lost data, as failOnDataLoss=false says: %s", "; ".join(lost))
    return found


def _left(
    options: SourceOptions, ranges: dict[Place, Range], given: Mapping[Place, int]
) -> tuple[dict[Place, Range], list[str]]:
    """What of the ranges can still be read, and what not, in words."""
    asking = LogOffsets(options.client)
    try:
        starts, ends = asking.earliest(list(ranges)), asking.high_watermarks(list(ranges))
    finally:
        asking.close()
    found: dict[Place, Range] = {}
    lost: list[str] = []
    for place, r in ranges.items():
        start = min(max(given[place], starts[place]), r.end)
        end = max(start, min(r.end, ends[place]))
        if start > given[place]:
            lost.append(f"offsets {given[place]} to {start} of {r.topic}-{r.partition} are not in the log any more")
        if end < r.end:
            lost.append(f"{r.topic}-{r.partition} ends at {ends[place]}, before offset {r.end}")
        found[place] = Range(r.topic, r.partition, start, end)
    return found, lost


def _key(config: dict[str, Any]) -> Any:
    return tuple(sorted((name, str(value)) for name, value in config.items()))
