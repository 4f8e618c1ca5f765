"""ArrowWriter: batches of records to given partitions, without callbacks. Order across layouts is OrderedProducer's."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from ...partitioner.errors import UsageError
from .. import clock
from .library import OPTION, native
from .sender import NativeSender, Rows, most_bytes, sender
from .tally import Block, Failure


class ArrowWriter:
    """Writes batches with a partition for each row. config: as a confluent_kafka.Producer's. Used by one thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        library = native(config)
        theirs = {k: v for k, v in config.items() if k != OPTION}
        self._most_bytes = most_bytes(theirs)
        self._raw = Producer(theirs)
        self._sender = sender(self._raw, library)
        self._blocks: dict[tuple[str, int], Block] = {}
        self._closed = False

    @property
    def native(self) -> bool:
        """Whether the C calls are used."""
        return isinstance(self._sender, NativeSender)

    @property
    def raw(self) -> Producer:
        """The producer behind it, for transactions."""
        return self._raw

    def write(self, topic: str, batch: pa.RecordBatch, partitions: Any) -> int:
        """Queue all rows, waiting for room in the library's queue. partitions: one per row, any sequence of int.

        Columns: key, value (binary or string), headers, timestamp; others are ignored. Returns the rows queued: fewer
        than given only when the next one cannot be sent; called again with the rest, that raises KafkaException.
        Raises UsageError for columns of another type.
        """
        if self._closed:
            raise RuntimeError("the writer is closed")
        rows = Rows(batch)
        places = np.ascontiguousarray(np.asarray(partitions), np.int32)
        if len(places) != rows.count or (rows.count and int(places.min()) < 0):
            raise UsageError(f"{len(places)} partitions for {rows.count} rows, the lowest {places.min(initial=0)}")
        too_large = np.nonzero(rows.sizes() > self._most_bytes)[0]
        last = int(too_large[0]) if len(too_large) else rows.count
        if rows.count and last == 0:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        opaques = self._opaques(topic, places)
        queued = 0
        while queued < last:
            try:
                n = self._sender.send(topic, rows, places, opaques, None, queued, last - queued)
            except KafkaException:
                if queued:
                    break
                raise
            queued += n
            self._raw.poll(0 if n else 0.01)
        return queued

    def flush(self, timeout: float = -1) -> int:
        """Wait until every row is acknowledged or has failed. Returns how many are neither; see `failures`."""
        deadline = None if timeout < 0 else clock.now() + timeout
        while True:
            left: int = self._raw.flush(0.2 if deadline is None else max(0.0, min(0.2, deadline - clock.now())))
            if not left or (deadline is not None and clock.now() >= deadline):
                return left

    def failures(self) -> list[Failure]:
        """Rows that were not delivered, since the last call. More than 4096 at a time are cut short."""
        found, _ = self._sender.tally.failures()
        return found

    def acknowledged(self, topic: str, partition: int) -> int:
        """The offset behind the last acknowledged row of a partition, 0 before the first. Raises KeyError."""
        return self._blocks[topic, partition].acknowledged

    def _opaques(self, topic: str, places: Any) -> Any:
        """What each row carries: its partition's block."""
        known = np.zeros(int(places.max(initial=0)) + 1, np.int64)
        for p in np.unique(places).tolist():
            if (topic, p) not in self._blocks:
                self._blocks[topic, p] = self._sender.tally.block(topic, p)
            known[p] = self._blocks[topic, p].opaque
        return known[places]

    def __len__(self) -> int:
        return len(self._raw)

    def close(self, timeout: float = -1) -> int:
        """Flush and release everything. Returns how many rows were left."""
        if self._closed:
            return 0
        self._closed = True
        try:
            return self.flush(timeout)
        finally:
            self._sender.close()
            self._raw.close()

    def __enter__(self) -> ArrowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
