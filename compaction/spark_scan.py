"""The batch job's own scan: each task reads one partition and gives only what may be a winner, so that little is shuffled."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from ..connector.config import JUST_MADE, connection_of
from ..connector.consuming.view import View
from ..connector.kafka_errors import translate
from ..connector.log_offsets import LogOffsets
from ..connector.metadata import identify
from ..connector.refusals import ClusterAdmin
from ..partitioner.timeline import Timeline
from .errors import TopicReplacedError
from .silence import Silence
from .strategy import Strategy

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka.admin import AdminClient

    from ..connector.arrow.reader import ArrowReader
    from .columns import VersionColumns

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
RANK = "known boolean, version bigint, epoch int, place bigint"
_BATCH_ROWS = 100_000
_TASK_BYTES = 256 * 1024 * 1024
_OVERTAKEN = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}


def committed_ends(config: Mapping[str, Any], topic: str, partitions: int) -> list[tuple[int, int]]:
    """(partition, offset) up to where everything is decided now."""
    offsets = LogOffsets({**connection_of(config)})
    try:
        return sorted(
            (p, end) for (_, p), end in offsets.stable_ends([(topic, p) for p in range(partitions)], 30.0).items()
        )
    finally:
        offsets.close()


class Scan:
    """Goes to the executors: row `i` of its input stands for `ranges[i]`, a partition up to an offset.

    timeline: read after the ends were taken, so that it knows every epoch below them. managed: whether the topic has one.
    memory: bytes above which a task gives what it has so far, and forgets it.
    topic_id: of the topic whose ends they are, known before they were taken.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, timeline: Timeline, managed: bool, strategy: Strategy,
        ranges: Sequence[tuple[int, int]], topic_id: str, memory: int = _TASK_BYTES,
    ) -> None:  # fmt: skip
        self._config, self._topic, self._strategy, self._ranges = dict(config), topic, strategy, list(ranges)
        self._topic_id, self._servers = topic_id, str(config.get("bootstrap.servers"))
        self._timeline, self._managed, self._memory = timeline, managed, memory

    def __call__(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of the source's columns and of `RANK`; more than one row of a key where memory has run out in between.

        Raises TopicReplacedError, LogShorterError, TopicNotFoundError, BrokerUnreachableError and its kin.
        """
        for batch in tasks:
            for number in batch.column(0).to_pylist():
                yield from self._reduced(*self._ranges[number])

    def _reduced(self, partition: int, end: int) -> Iterator[pa.RecordBatch]:
        from ..connector.arrow.schema import SCHEMA
        from .columns import VersionColumns
        from .placing import Placer

        placer, view = Placer(self._timeline.topic_id, self._strategy), View(self._timeline, self._managed)
        table = VersionColumns(SCHEMA.names)
        for batch in self._read(partition, end):
            table.fold(batch, placer.place(batch, view, lambda: view))
            if table.size > self._memory:
                yield from _winners(table)
                table = VersionColumns(SCHEMA.names)
        yield from _winners(table)

    def _read(self, partition: int, end: int) -> Iterator[pa.RecordBatch]:
        from ..connector.arrow.reader import ArrowReader

        place, admin = (self._topic, partition), ClusterAdmin(self._config)
        self._check_topic(admin)
        offsets = LogOffsets(self._config)
        try:
            start = offsets.earliest([place])[place]
            if start < end:
                settings = {"isolation.level": "read_committed", "fetch.wait.max.ms": 100}
                with ArrowReader({**self._config, **settings}) as reader:
                    reader.assign({self._topic: [(partition, start, end)]})
                    yield from self._batches(reader, offsets, admin, partition, end)
        finally:
            offsets.close()
        # One that was made again meanwhile has been read as if it were the same.
        self._check_topic(admin)

    def _batches(
        self, reader: ArrowReader, offsets: LogOffsets, admin: AdminClient, partition: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        place = self._topic, partition
        position = reader.position(*place)

        def look() -> dict[int, int]:
            self._check_topic(admin)
            return {partition: offsets.high_watermarks([place])[place]}

        silence = Silence(self._topic, {partition: end}, look)
        while not reader.done:
            try:
                batch = reader.read(_BATCH_ROWS, 0.5)
            except KafkaException as raised:
                if raised.args[0].code() not in _OVERTAKEN:
                    raise translate(raised.args[0], "read", f"topic {self._topic}", self._servers) from raised
                # What retention has taken meanwhile is gone for every reader. Not from the reader's own position: it may
                # have passed rows that the error kept from being returned.
                start = max(position, offsets.earliest([place])[place])
                if start >= end:
                    return
                if start == position:
                    threading.Event().wait(0.1)
                reader.assign({})
                reader.assign({self._topic: [(partition, start, end)]})
            else:
                if len(batch):
                    yield batch
            position = reader.position(*place)
            silence.seen({partition: position})  # behind the yield: how long others work on a batch is no silence

    def _check_topic(self, admin: AdminClient) -> None:
        """Raises TopicReplacedError, TopicNotFoundError, BrokerUnreachableError and its kin."""
        # A task may ask a broker that hears late of a topic that was made just before.
        found = identify(admin, self._topic, self._servers, just_made=JUST_MADE, ask_controller=True)
        if found.topic_id != self._topic_id:
            raise TopicReplacedError(self._topic)


def _winners(table: VersionColumns) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    for batch, rows in table.batches():
        rank = [
            pa.array(rows["known"].astype(bool)),
            pa.array(rows["version"]),
            pa.array(rows["epoch"].astype(np.int32)),
            pa.array(rows["offset"]),
        ]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *rank], [*batch.schema.names, "known", "version", "epoch", "place"]
        )
