"""From an array of `rd_kafka_message_t*` to Arrow columns: two compiled passes, one to measure and one to copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from . import kernels
from .library import Library
from .schema import SCHEMA, TIMESTAMP

# Binary columns have 32-bit offsets: a batch ends before one of them is full.
MOST_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Event:
    """An error or the end of a partition. row: how many records of the batch came before it."""

    row: int
    code: int
    text: str
    topic: str | None
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Run:
    """Rows [start, stop) of a batch: of one partition, with growing offsets."""

    start: int
    stop: int
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch, its runs in order, and the events between them."""

    batch: pa.RecordBatch
    runs: list[Run]
    events: list[Event]


class ColumnBuilder:
    """Turns arrays of message pointers into batches. Not thread-safe."""

    def __init__(self, library: Library, most_bytes: int = MOST_BYTES) -> None:
        self._library, self._most = library, most_bytes
        self._calls = np.array(
            [library.address(n) for n in ("message_timestamp", "message_headers", "header_cnt", "header_get_all")],
            np.int64,
        )
        self._destroy = library.address("message_destroy")
        self._scratch = np.zeros(4, np.int64)
        self._topics: dict[int, str] = {}

    def build(self, pointers: np.ndarray[Any, Any], count: int) -> list[Taken]:
        """All `count` messages as batches, more than one only if a column would be too long. Destroys the messages."""
        found = []
        first = 0
        try:
            while first < count:
                taken, first = self._one(pointers, first, count)
                found.append(taken)
        finally:
            self.give_back(pointers, count)
            # A topic's handle may be used again for another topic once its last message is gone.
            self._topics.clear()
        return found

    def give_back(self, pointers: np.ndarray[Any, Any], count: int) -> None:
        """Destroy the first `count` messages; their pointers become 0."""
        kernels.destroy(pointers, 0, count, self._destroy)

    def _one(self, pointers: np.ndarray[Any, Any], first: int, count: int) -> tuple[Taken, int]:
        n = count - first
        at = self._scratch.ctypes.data
        partition, kind = np.empty(n, np.int32), np.empty(n, np.int32)
        offset, time = np.empty(n, np.int64), np.empty(n, np.int64)
        ends = [np.empty(n + 1, np.int32) for _ in range(3)]
        runs, run_topics = np.empty(n, np.int64), np.empty(n, np.int64)
        events, event_rows = np.empty(n, np.int64), np.empty(n, np.int64)
        totals = np.zeros(12, np.int64)
        kernels.measure(
            pointers, first, count, self._most, self._calls, self._scratch, at, partition, offset, time, kind, *ends, runs,
            run_topics, events, event_rows, totals,
        )  # fmt: skip
        rows, stop, headers = int(totals[kernels.ROWS]), int(totals[kernels.STOP]), int(totals[kernels.HEADERS])
        keys, values = np.empty(totals[kernels.KEY_BYTES], np.uint8), np.empty(totals[kernels.VALUE_BYTES], np.uint8)
        names, data = np.empty(totals[kernels.NAME_BYTES], np.uint8), np.empty(totals[kernels.HEADER_BYTES], np.uint8)
        name_ends, data_ends = np.zeros(headers + 1, np.int32), np.zeros(headers + 1, np.int32)
        key_valid, value_valid = _bits(rows, totals[kernels.KEY_NULLS]), _bits(rows, totals[kernels.VALUE_NULLS])
        list_valid, data_valid = _bits(rows, totals[kernels.BARE]), _bits(headers, headers)
        if not len(list_valid):
            list_valid = _bits(rows, 1)
        kernels.copy(
            pointers, first, stop, self._calls, self._scratch, at, keys.ctypes.data, ends[0], key_valid,
            values.ctypes.data, ends[1], value_valid, ends[2], list_valid, names.ctypes.data, name_ends,
            data.ctypes.data, data_ends, data_valid,
        )  # fmt: skip
        found = self._runs(runs, run_topics, partition, totals)
        columns = [
            _binary(pa.binary(), rows, ends[0], keys, key_valid),
            _binary(pa.binary(), rows, ends[1], values, value_valid),
            _topics(found, rows),
            pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(partition)]),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(offset)]),
            pa.Array.from_buffers(TIMESTAMP, rows, [None, pa.py_buffer(time)]),
            pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(kind)]),
            _headers(rows, headers, ends[2], list_valid, names, name_ends, data, data_ends, data_valid),
        ]
        told = [self._event(int(pointers[events[k]]), int(event_rows[k])) for k in range(int(totals[kernels.EVENTS]))]
        return Taken(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), found, told), stop

    def _runs(self, runs: Any, topics: Any, partition: Any, totals: Any) -> list[Run]:
        n = int(totals[kernels.RUNS])
        starts = runs[:n].tolist()
        stops = [*starts[1:], *([int(totals[kernels.ROWS])] if n else [])]
        return [
            Run(start, stop, self._topic(int(topics[k])) or "", int(partition[start]))
            for k, (start, stop) in enumerate(zip(starts, stops, strict=True))
        ]

    def _event(self, message: int, row: int) -> Event:
        topic, p, o = kernels.load_words(message)
        code = kernels.load_code(message)
        text = self._library.message_errstr(message)
        return Event(row, code, (text or b"").decode("utf-8", "replace"), self._topic(topic), p, o)

    def _topic(self, handle: int) -> str | None:
        if not handle:
            return None
        known = self._topics.get(handle)
        if known is None:
            known = self._topics[handle] = self._library.topic_name(handle).decode()
        return known


def _bits(length: int, nulls: int) -> np.ndarray[Any, Any]:
    """An empty validity map, or none where nothing is null."""
    return np.zeros((length + 7) // 8 if nulls else 0, np.uint8)


def _binary(kind: pa.DataType, rows: int, ends: Any, data: Any, valid: Any) -> pa.Array:
    bitmap = pa.py_buffer(valid) if len(valid) else None
    return pa.Array.from_buffers(kind, rows, [bitmap, pa.py_buffer(ends), pa.py_buffer(data)])


def _topics(runs: list[Run], rows: int) -> pa.Array:
    names = [run.topic.encode() for run in runs]
    sizes = [run.stop - run.start for run in runs]
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(np.repeat([len(name) for name in names], sizes), out=ends[1:])
    data = b"".join(name * size for name, size in zip(names, sizes, strict=True))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _headers(
    rows: int,
    headers: int,
    ends: Any,
    valid: Any,
    names: Any,
    name_ends: Any,
    data: Any,
    data_ends: Any,
    data_valid: Any,
) -> pa.Array:
    kind = SCHEMA.field("headers").type
    pairs = pa.StructArray.from_arrays(
        [
            _binary(pa.string(), headers, name_ends, names, _bits(0, 0)),
            _binary(pa.binary(), headers, data_ends, data, data_valid),
        ],
        fields=list(kind.value_type),
    )
    return pa.Array.from_buffers(kind, rows, [pa.py_buffer(valid), pa.py_buffer(ends)], children=[pairs])
