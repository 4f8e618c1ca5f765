"""Batches of columns: slices of Arrow batches, judged by compiled loops over their buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, Message

from ...partitioner.routing import HINT_HEADER, Routing
from ..consuming.records.batches import Batch, Item, Judged
from ..consuming.view import View
from ..messages import Place
from . import kernels
from .columns import Event, Run, Taken
from .hashing import key_buffers
from .schema import SCHEMA, batch_of, empty_batch, messages_of

_OFFSET, _KEY, _HEADERS = (SCHEMA.get_field_index(name) for name in ("offset", "key", "headers"))
_NAME = np.frombuffer(HINT_HEADER.encode(), np.uint8)
_NONE = np.zeros(0, np.int64)
_ENDLESS = np.iinfo(np.int64).max


class ColumnBatch:
    """Rows [start, stop) of an Arrow batch."""

    __slots__ = ("_offsets", "batch", "last", "place", "rows", "start", "stop")

    def __init__(self, batch: pa.RecordBatch, start: int, stop: int, place: Place, offsets: Any) -> None:
        self.batch, self.start, self.stop, self.place = batch, start, stop, place
        self._offsets = offsets
        self.rows = stop - start
        self.last = int(offsets[stop - 1])

    def offset(self, row: int) -> int:
        """See Batch."""
        return int(self._offsets[self.start + row])

    def rows_below(self, offset: float) -> int:
        """See Batch."""
        if self.last < offset:
            return self.rows
        return int(self._offsets[self.start : self.stop].searchsorted(offset))

    def cut(self, start: int, stop: int) -> ColumnBatch:
        """See Batch."""
        if stop - start == self.rows:
            return self
        return ColumnBatch(self.batch, self.start + start, self.start + stop, self.place, self._offsets)

    def judge(self, view: View, hints: bool = True) -> Judged:
        """See Batch."""
        highest = hinted = -1
        headers = self.batch.column(_HEADERS)
        if hints and headers.null_count < len(headers):
            highest, hinted = self._hints(headers.slice(self.start, self.rows))
        return Judged(highest, hinted, self._strays(view) if view.managed else ())

    def message(self, row: int) -> Message:
        """See Batch."""
        return messages_of(self.batch.slice(self.start + row, 1))[0]

    def messages(self) -> list[Message]:
        """See Batch."""
        return messages_of(self.batch.slice(self.start, self.rows))

    def _hints(self, headers: pa.Array) -> tuple[int, int]:
        if headers.null_count == len(headers):
            return -1, -1
        validity, ends = headers.buffers()[:2]
        bits = np.frombuffer(validity, np.uint8) if validity is not None else np.zeros(0, np.uint8)
        names, data = key_buffers(headers.values.field(0)), key_buffers(headers.values.field(1))
        highest, hinted = kernels.hints(
            np.frombuffer(ends, np.int32),
            bits,
            headers.offset,
            len(headers),
            *names,
            *data,
            _NAME.ctypes.data,
            len(_NAME),
        )
        return int(highest), int(hinted)

    def _strays(self, view: View) -> Sequence[int]:
        partition = self.place[1]
        if len(view.timeline.epochs) == 1 and partition >= view.timeline.newest.count:
            return range(self.rows)
        if view.stays is None:
            view.stays = stays_of(view.routing)
        keys = self.batch.column(_KEY).slice(self.start, self.rows)
        offsets = self._offsets[self.start : self.stop]
        period, number = view.routing.period, view.routing.hash.number
        count = kernels.strays(number, *key_buffers(keys), offsets, partition, period, *view.stays, _NONE)
        if not count:
            return ()
        found = np.empty(count, np.int64)
        kernels.strays(number, *key_buffers(keys), offsets, partition, period, *view.stays, found)
        strays: list[int] = found.tolist()
        return strays


def stays_of(routing: Routing) -> tuple[Any, Any, Any, Any]:
    """(first, partition, since, until): the stays of slot i are rows first[i] to first[i + 1] of the other three."""
    stays = [routing.stays(route) for route in routing.all()]
    first = np.cumsum([0, *map(len, stays)]).astype(np.int64)
    flat = [stay for one in stays for stay in one]
    ends = [_ENDLESS if until == float("inf") else int(until) for _, _, until in flat]
    return (
        first,
        np.array([stay[0] for stay in flat], np.int64),
        np.array([stay[1] for stay in flat], np.int64),
        np.array(ends, np.int64),
    )


def items_of(taken: Taken) -> list[Item]:
    """The runs of an Arrow batch as batches, and the events between them."""
    items: list[Item] = []
    events = iter(sorted(taken.events, key=lambda event: event.row))
    event = next(events, None)
    offsets = taken.batch.column(_OFFSET).to_numpy()
    for run in taken.runs:
        while event is not None and event.row <= run.start:
            items.append(_message(event))
            event = next(events, None)
        items.append(_batch(taken.batch, run, offsets))
    while event is not None:
        items.append(_message(event))
        event = next(events, None)
    return items


def arrow_batch_of(batches: Sequence[Batch]) -> pa.RecordBatch:
    """Batches as one Arrow batch, in their order; neighbours of one Arrow batch stay one slice, a single slice is not copied."""
    slices: list[tuple[pa.RecordBatch, int, int]] = []
    for batch in batches:
        if isinstance(batch, ColumnBatch):
            arrow, start, stop = batch.batch, batch.start, batch.stop
        else:
            arrow, start, stop = batch_of(batch.messages()), 0, batch.rows
        if slices and slices[-1][0] is arrow and slices[-1][2] == start:
            slices[-1] = (arrow, slices[-1][1], stop)
        else:
            slices.append((arrow, start, stop))
    cut = [arrow.slice(start, stop - start) for arrow, start, stop in slices]
    if not cut:
        return empty_batch()
    return cut[0] if len(cut) == 1 else pa.concat_batches(cut)


def _batch(arrow: pa.RecordBatch, run: Run, offsets: Any) -> Batch:
    return ColumnBatch(arrow, run.start, run.stop, (run.topic, run.partition), offsets)


def _message(event: Event) -> Message:
    return Message(
        topic=event.topic, partition=event.partition, offset=event.offset, error=KafkaError(event.code, event.text)
    )
