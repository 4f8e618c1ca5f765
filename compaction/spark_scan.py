"""The batch job's own scan: each task reads one partition and gives only what may be a winner, so that little is shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from ..connector.config import connection_of
from ..connector.consuming.view import View
from ..connector.kafka_errors import translate
from ..connector.log_offsets import LogOffsets
from ..partitioner.timeline import Timeline
from .strategy import Strategy

if TYPE_CHECKING:
    import pyarrow as pa

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
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, timeline: Timeline, managed: bool, strategy: Strategy,
        ranges: Sequence[tuple[int, int]], memory: int = _TASK_BYTES,
    ) -> None:  # fmt: skip
        self._config, self._topic, self._strategy, self._ranges = dict(config), topic, strategy, list(ranges)
        self._timeline, self._managed, self._memory = timeline, managed, memory

    def __call__(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of the source's columns and of `RANK`; more than one row of a key where memory has run out in between."""
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

        place = self._topic, partition
        offsets = LogOffsets(self._config)
        try:
            start = offsets.earliest([place])[place]
            with ArrowReader({**self._config, "isolation.level": "read_committed", "fetch.wait.max.ms": 100}) as reader:
                while True:
                    reader.assign({self._topic: [(partition, start, end)]} if start < end else {})
                    try:
                        while not reader.done:
                            batch = reader.read(_BATCH_ROWS, 0.5)
                            if len(batch):
                                yield batch
                        return
                    except KafkaException as raised:
                        if raised.args[0].code() not in _OVERTAKEN:
                            servers = str(self._config.get("bootstrap.servers"))
                            raise translate(raised.args[0], "read", f"topic {self._topic}", servers) from raised
                        # What retention has taken meanwhile is gone for every reader.
                        start = max(reader.position(*place), offsets.earliest([place])[place])
                        reader.assign({})
        finally:
            offsets.close()


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
