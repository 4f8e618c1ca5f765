"""The places of a batch of records in the total order of their keys' versions, by columns. Needs numba."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..connector.arrow.batches import stays_of
from ..connector.arrow.hashing import hash_column, key_buffers
from ..connector.consuming.view import View
from ..partitioner.hashing import DEFAULT_HASH
from ..partitioner.routing import HINT_HEADER, Routing
from . import column_kernels as kernels
from .column_lists import python_bytes, python_headers
from .strategy import Strategy, StrategyKind
from .versions import COPY_HEADER, copied_place

Column = np.ndarray[Any, Any]
_NO_BITS = np.zeros(0, np.uint8)
_HINT, _COPY = (np.frombuffer(name.encode(), np.uint8) for name in (HINT_HEADER, COPY_HEADER))


@dataclass(frozen=True, slots=True)
class Places:
    """Of each row of a batch. keep: whether it is a version at all; without a key, or as a move tombstone, it is none.

    hashes: of the key; murmur2, whatever the topic's hash is. known, version, epoch, offset: its rank; of a compactor's
    copy that of its original.
    at_epoch, at_offset: where it lies. malformed, stray, moved (a move tombstone), copies: what is counted of it.
    """

    keep: Column
    hashes: Column
    known: Column
    version: Column
    epoch: Column
    offset: Column
    at_epoch: Column
    at_offset: Column
    malformed: Column
    stray: Column
    moved: Column
    copies: int


class Placer:
    """Judges batches of `connector.arrow.schema.SCHEMA` by one topic's strategy and timeline."""

    def __init__(self, topic_id: str, strategy: Strategy) -> None:
        self._topic_id, self._strategy = topic_id, strategy
        self._name = np.frombuffer(strategy.header.encode(), np.uint8)
        self._routing: Routing | None = None
        self._stays: tuple[Any, ...] = ()

    def place(self, batch: pa.RecordBatch, view: View, look: Callable[[], View]) -> Places:
        """Where the rows stand.

        view: any that is known. look: gives one that is as new as the batch; asked where a row shows that it is newer.
        """
        rows, strategy = len(batch), self._strategy
        known, version = np.ones(rows, bool), np.zeros(rows, np.int64)
        flags, hint = np.zeros(rows, np.uint8), np.full(rows, -1, np.int64)
        if strategy.kind is StrategyKind.TIMESTAMP:
            version = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        elif strategy.kind is StrategyKind.HEADER:
            known[:] = False
        self._headers(batch.column("headers"), known, version, flags, hint)
        keys, partitions = batch.column("key"), batch.column("partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        hashes = hash_column(keys)
        epochs, stray = self._epochs(view.routing, keys, hashes, partitions, offsets)
        if self._shows_newer(view, hint, stray):
            view = look()
            epochs, stray = self._epochs(view.routing, keys, hashes, partitions, offsets)
        keep, moved = hashes >= 0, np.zeros(rows, bool)
        null = batch.column("value").is_null().to_numpy(zero_copy_only=False)
        doubtful = np.flatnonzero(keep & null & (hint >= 0))
        for row, key in zip(doubtful.tolist(), python_bytes(keys.take(pa.array(doubtful))), strict=True):
            moved[row] = view.routing.is_move_tombstone(key or b"", int(partitions[row]), int(hint[row]))
        keep &= ~moved
        epoch, offset, copies = epochs, offsets, 0
        # By offset the last record wins whatever it is, as it does for the broker.
        copied = np.flatnonzero(keep & (flags & kernels.COPY != 0))
        if len(copied) and strategy.kind is not StrategyKind.OFFSET:
            epoch, offset = epochs.copy(), offsets.copy()
            taken = batch.take(pa.array(copied))
            values, headers = python_bytes(taken.column("value")), python_headers(taken.column("headers"))
            for row, value, own in zip(copied.tolist(), values, headers, strict=True):
                original = copied_place(own or [], self._topic_id, value)
                if original is not None:
                    epoch[row], offset[row] = original
                    copies += 1
        malformed = flags & kernels.MALFORMED != 0
        return Places(keep, hashes, known, version, epoch, offset, epochs, offsets, malformed, stray, moved, copies)

    def _headers(self, headers: pa.Array, known: Column, version: Column, flags: Column, hint: Column) -> None:
        if headers.null_count == len(headers):
            return
        validity, ends = headers.buffers()[:2]
        bits = _NO_BITS if validity is None else np.frombuffer(validity, np.uint8)
        names, data = headers.values.field(0), headers.values.field(1)
        kernels.read_headers(
            np.frombuffer(ends, np.int32), bits, headers.offset, *key_buffers(names), *key_buffers(data),
            self._name.ctypes.data, len(self._name), self._strategy.positive_only, _HINT.ctypes.data, len(_HINT),
            _COPY.ctypes.data, len(_COPY), known, version, flags, hint,
        )  # fmt: skip

    def _epochs(
        self, routing: Routing, keys: pa.Array, hashes: Column, partitions: Column, offsets: Column
    ) -> tuple[Column, Column]:
        if routing is not self._routing:
            first = routing.timeline.epochs[0].number
            numbers = [n for route in routing.all() for n in (first, *(move.epoch for move in route.moves))]
            self._routing, self._stays = routing, (*stays_of(routing), np.array(numbers, np.int64))
        epochs, stray = np.zeros(len(hashes), np.int64), np.zeros(len(hashes), bool)
        if routing.hash.name != DEFAULT_HASH:
            hashes = hash_column(keys, routing.hash)
        kernels.place(hashes, partitions, offsets, routing.period, *self._stays, epochs, stray)
        return epochs, stray

    @staticmethod
    def _shows_newer(view: View, hint: Column, stray: Column) -> bool:
        if not view.managed:
            return bool((hint >= 0).any())
        return bool((hint > view.timeline.newest.number).any() or stray.any())
