"""VersionColumns: a table of versions without a Python object per key; folds whole batches. Needs numba.

Keys and ranks lie in two NumPy arrays behind a hash index; values and headers stay in slices ("segments") of the batches
that they came in, of which only the winning rows are kept. When most of the kept rows have been superseded since, the
segments are written together anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..connector.arrow.hashing import hash_column, key_buffers
from ..connector.arrow.schema import HEADERS, TIMESTAMP, TOO_EARLY, TOO_LATE
from ..partitioner.hashing import key_hash
from . import column_kernels as kernels
from .column_lists import python_bytes, python_headers
from .strategy import ABSENT
from .versions import Entry, Last, Version

if TYPE_CHECKING:
    from .placing import Places

Column = np.ndarray[Any, Any]
_KEPT = ("value", "headers", "timestamp", "partition")
_PAGE = 10_000
_MOST_DEAD, _MOST_SEGMENTS = 100_000, 2_000
_SEGMENT_BYTES = 64 * 1024 * 1024


class VersionColumns:
    """Merges versions by key, as `store.VersionStore` does. Not thread-safe.

    columns: of a batch, those that are kept of a winner; what is read back as a `Version` needs the default ones.
    """

    def __init__(self, columns: Sequence[str] = _KEPT) -> None:
        self._columns = list(columns)
        self._count, self._arena_used = 0, 0
        self._rows = np.empty(1024, kernels.ROW)
        self._slots = np.zeros(4096, np.uint64)
        self._arena = np.empty(16 * 1024, np.uint8)
        self._segments: list[pa.RecordBatch] = []
        self._segment_bytes = 0
        self._dead: Column = np.zeros(64, np.int64)

    def __len__(self) -> int:
        """How many keys there are, deleted ones included."""
        return self._count

    @property
    def size(self) -> int:
        """What it takes."""
        return self._count * kernels.ROW.itemsize + self._slots.nbytes + self._arena_used + self._segment_bytes

    def fold(self, batch: pa.RecordBatch, places: Places) -> None:
        """Take the rows of a batch in that `places` keeps."""
        live = batch.column("value").is_valid().to_numpy(zero_copy_only=False)
        rank = (places.known, places.version, places.epoch, places.offset)
        last = (places.at_epoch, places.at_offset, places.epoch, places.offset)
        self._fold(batch.column("key"), batch.select(self._columns), places.keep, places.hashes, live, (*rank, *last))

    def put(self, entries: Sequence[tuple[bytes, Entry]]) -> None:
        """Take entries in."""
        best = [entry.best for _, entry in entries]
        times = [min(max(version.timestamp * 1000, TOO_EARLY), TOO_LATE) for version in best]
        headers = [None if v.headers is None else [{"key": n, "value": d} for n, d in v.headers] for v in best]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([version.value for version in best], pa.binary()),
                pa.array(headers, HEADERS),
                pa.array(times, pa.int64()).cast(TIMESTAMP),
                pa.array([version.partition for version in best], pa.int32()),
            ],
            list(_KEPT),
        )
        keys = pa.array([key for key, _ in entries], pa.binary())
        known = np.array([version.versioned for version in best], bool)
        ranks = [
            (version.version if version.versioned else 0, version.epoch, version.offset, *entry.last)
            for version, (_, entry) in zip(best, entries, strict=True)
        ]
        columns = (known, *np.array(ranks, np.int64).reshape(-1, 7).T.copy())
        live = batch.column("value").is_valid().to_numpy(zero_copy_only=False)
        self._fold(keys, batch, np.ones(len(entries), bool), hash_column(keys), live, columns)

    def get(self, key: bytes) -> Entry | None:
        """What is known of a key, None for nothing."""
        data = np.frombuffer(key or b"\0", np.uint8)
        row = kernels.find(self._rows, self._slots, self._arena.ctypes.data, key_hash(key), data.ctypes.data, len(key))
        return None if row < 0 else next(iter(self._page(np.array([row]))))[1]

    def entries(self) -> Iterator[tuple[bytes, Entry]]:
        """All keys, page by page; what is folded in meanwhile may or may not appear."""
        source = self._frozen()
        for start in range(0, source._count, _PAGE):
            yield from source._page(np.arange(start, min(start + _PAGE, source._count)))

    def displaced(self, after: bytes | None, limit: int) -> list[tuple[bytes, Entry]]:
        """As `VersionStore.displaced`."""
        found = self._displaced()
        keys = ((key, row) for key, row in zip(self._keys(found), found.tolist(), strict=True))
        least = heapq.nsmallest(limit, (pair for pair in keys if after is None or pair[0] > after))
        return sorted(self._page(np.array([row for _, row in least], np.int64)))

    def tombstones(self) -> list[tuple[bytes, Entry]]:
        """The keys whose highest version is a tombstone."""
        return self._page(np.flatnonzero(self._rows["live"][: self._count] == 0))

    def count_displaced(self) -> int:
        """How many such keys there are."""
        return len(self._displaced())

    def count(self) -> tuple[int, int]:
        """(keys with a value, keys whose highest version is a tombstone)."""
        live = int(self._rows["live"][: self._count].sum())
        return live, self._count - live

    def batches(self) -> Iterator[tuple[pa.RecordBatch, Column]]:
        """All that is kept of the winners, with their rows (`ROW`), in no order."""
        for number, order in self._by_segment():
            rows = self._rows[order]
            yield self._segments[number].take(pa.array(rows["row"])), rows

    def tidy(self) -> None:
        """Give up the room of what has been superseded: `size` is then what the winners take."""
        if self._dead.any():
            self._rewrite()

    def _fold(
        self, keys: pa.Array, kept: pa.RecordBatch, keep: Column, hashes: Column, live: Column,
        ranks: Sequence[Column],
    ) -> None:  # fmt: skip
        """ranks: of each row whether it has a version, the version, epoch, offset, and the four parts of `Last`."""
        address, ends, bits, first = key_buffers(keys)
        self._make_room(len(keys), int(ends[first + len(keys)]) - int(ends[first]))
        number = len(self._segments)
        row_of, winners = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
        self._count, self._arena_used, count, _ = kernels.fold(
            address, ends, bits, first, keep, hashes, live, *ranks, self._rows, self._count, self._slots,
            self._arena.ctypes.data, self._arena_used, number, self._dead, row_of, winners,
        )  # fmt: skip
        segment = kept.take(pa.array(winners[:count]))
        self._segments.append(segment)
        self._segment_bytes += segment.nbytes
        dead = int(self._dead[: number + 1].sum())
        if (dead > _MOST_DEAD and dead > self._count) or len(self._segments) > _MOST_SEGMENTS:
            self._rewrite()

    def _make_room(self, rows: int, key_bytes: int) -> None:
        if self._count + rows > len(self._rows):
            grown = np.empty(max(2 * len(self._rows), self._count + rows), kernels.ROW)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        if self._arena_used + key_bytes > len(self._arena):
            arena = np.empty(max(2 * len(self._arena), self._arena_used + key_bytes), np.uint8)
            arena[: self._arena_used] = self._arena[: self._arena_used]
            self._arena = arena
        if 2 * (self._count + rows) > len(self._slots):
            self._slots = np.zeros(1 << (2 * (self._count + rows)).bit_length(), np.uint64)
            kernels.index(self._rows, self._count, self._slots)
        if len(self._segments) >= len(self._dead):
            self._dead = np.append(self._dead, np.zeros(len(self._dead), np.int64))

    def _by_segment(self) -> Iterator[tuple[int, Column]]:
        """(segment, the rows whose winners lie in it, in its order)."""
        order = np.lexsort((self._rows["row"][: self._count], self._rows["segment"][: self._count]))
        segments = self._rows["segment"][order]
        for start, stop in _runs(segments):
            yield int(segments[start]), order[start:stop]

    def _rewrite(self) -> None:
        """Drop what has been superseded. Whoever reads page by page goes on with the rows and segments as they were."""
        rows, segments = self._rows.copy(), self._segments
        written: list[pa.RecordBatch] = []
        held: list[pa.RecordBatch] = []
        size = at = 0
        for number, order in self._by_segment():
            taken = segments[number].take(pa.array(self._rows["row"][order]))
            if held and size + taken.nbytes > _SEGMENT_BYTES:
                written.append(pa.concat_batches(held))
                held, size, at = [], 0, 0
            rows["segment"][order] = len(written)
            rows["row"][order] = np.arange(at, at + len(order))
            held.append(taken)
            size, at = size + taken.nbytes, at + len(order)
        if held:
            written.append(pa.concat_batches(held))
        self._rows, self._segments = rows, written
        self._segment_bytes = sum(segment.nbytes for segment in written)
        self._dead[:] = 0

    def _frozen(self) -> VersionColumns:
        """The same table, whose count stays as it is: rows are changed in place, but none goes."""
        found = object.__new__(VersionColumns)
        found.__dict__.update(self.__dict__)
        return found

    def _displaced(self) -> Column:
        rows = self._rows[: self._count]
        return np.flatnonzero((rows["of_offset"] != rows["offset"]) | (rows["of_epoch"] != rows["epoch"]))

    def _keys(self, order: Column) -> list[bytes]:
        raw = self._arena
        starts, sizes = self._rows["key_at"][order].tolist(), self._rows["key_size"][order].tolist()
        return [raw[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True)]

    def _page(self, order: Column) -> list[tuple[bytes, Entry]]:
        """These rows as entries, in no order."""
        found: list[tuple[bytes, Entry]] = []
        order = order[np.lexsort((self._rows["row"][order], self._rows["segment"][order]))]
        rows = self._rows[order]
        for start, stop in _runs(rows["segment"]):
            own = rows[start:stop]
            kept = self._segments[int(own["segment"][0])].take(pa.array(own["row"]))
            value, headers, time, partition = (kept.column(name) for name in _KEPT)
            fields = [own[name].tolist() for name in ("known", "version", "epoch", "offset")]
            last = [own[name].tolist() for name in ("last_epoch", "last_offset", "of_epoch", "of_offset")]
            times = (time.cast(pa.int64()).to_numpy() // 1000).tolist()
            columns = zip(
                self._keys(order[start:stop]), *fields, partition.to_pylist(), times, python_headers(headers),
                python_bytes(value), zip(*last, strict=True), strict=True,
            )  # fmt: skip
            for key, known, version, epoch, offset, home, ms, own_headers, data, newest in columns:
                best = Version(version if known else ABSENT, epoch, offset, home, ms, own_headers, data)
                found.append((key, Entry(best, Last(*newest))))
        return found


def _runs(numbers: Column) -> list[tuple[int, int]]:
    """(start, stop) of each run of equal numbers."""
    ends = np.flatnonzero(np.diff(numbers)) + 1
    return list(pairwise([0, *ends.tolist(), len(numbers)])) if len(numbers) else []
