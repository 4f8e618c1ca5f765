"""What a task was given, in a few bytes: enough to tell whether a replay brings the same rows.

A shuffle fetches its blocks in any order, so a replay may bring the same rows in another one. Nothing is written then, so that
the order does not matter: the fingerprint is that of a set with repetitions. Markers of format 1 hold one that depends on the
order; it is still computed where such a marker is met.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
_TWO, _THREE = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
# What is left of a word of eight bytes of which only the first n count.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(8)], np.uint64)
# Bytes. Longer values are hashed one by one: the loop over words would run long for a few of them.
_LONG = 128


class Digest(Protocol):
    """Takes rows in, and gives their fingerprint. `rows`: how many they are."""

    rows: int

    def add(self, batch: pa.RecordBatch, version: pa.Array | None = None, versioned: pa.Array | None = None) -> None:
        """Take the batch's rows in. version: one more column, which those rows have that the column `versioned` names."""

    def digest(self) -> str:
        """As text."""


@dataclass
class Fingerprint:
    """Row count and sum of the rows' hashes; independent of the order of the rows, and of how they are batched.

    A null adds nothing to its row, as if the column were not there: both become the same record.
    """

    rows: int = 0
    _sum: int = 0

    def add(self, batch: pa.RecordBatch, version: pa.Array | None = None, versioned: pa.Array | None = None) -> None:
        """As Digest.add."""
        self.rows += batch.num_rows
        of_rows = np.zeros(batch.num_rows, np.uint64)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            of_rows += _hashes(column, name.lower())
        if version is not None:
            of_rows += _hashes(version if versioned is None else pc.if_else(versioned, version, None), "version")
        self._sum = (self._sum + int(_mix(of_rows).sum(dtype=np.uint64))) % (1 << 64)

    def digest(self) -> str:
        """Equal for equal rows, in whatever order."""
        return f"{self.rows}:{self._sum:016x}"


def _hashes(column: pa.Array, name: str) -> Hashes:
    """A hash for each of the column's values, 0 for null. name: equal values of two columns have different hashes."""
    kind = column.type
    if pa.types.is_list(kind):
        found = _of_lists(column, name)
    elif pa.types.is_struct(kind):
        found = np.ones(len(column), np.uint64)
        for index in range(kind.num_fields):
            found += _hashes(pc.struct_field(column, index), f"{name}.{kind.field(index).name}")
    elif pa.types.is_integer(kind):
        found = pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    else:
        found = _of_bytes(column.cast(pa.large_binary()))
    found = _mix(found ^ np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")))
    if column.null_count:
        found *= column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _of_lists(column: pa.Array, name: str) -> Hashes:
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    place = (np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)).astype(np.uint64)
    elements = _mix(_hashes(column.flatten(), f"{name}[]") + place * _GOLDEN)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(elements, dtype=np.uint64)))
    found: Hashes = sums[ends[1:]] - sums[ends[:-1]] + lengths.astype(np.uint64)
    return found


def _of_bytes(column: pa.Array) -> Hashes:
    """Of a large_binary column: eight bytes of all values at a time. The values of null rows mean nothing."""
    _, ends, data = column.buffers()
    if not len(column) or data is None:
        return np.zeros(len(column), np.uint64)
    place = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    starts, lengths = place[:-1] - place[0], np.diff(place)
    hashes = _mix(lengths.astype(np.uint64))
    long = lengths > _LONG
    content = memoryview(data)
    for row in np.flatnonzero(long).tolist():
        value = content[place[row] : place[row + 1]]
        hashes[row] ^= np.uint64(zlib.crc32(value) << 32 | zlib.adler32(value))
    if long.all():
        return hashes
    padded = np.zeros(int(place[-1] - place[0]) + 8, np.uint8)
    padded[:-8] = np.frombuffer(data, np.uint8)[place[0] : place[-1]]
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))  # one begins at each byte
    # The longest first, so that those with a word at some place are the first ones.
    sizes = np.where(long, 0, lengths).astype(np.uint16)
    order = np.argsort(_LONG - sizes, kind="stable")
    sizes, starts_of = sizes[order], starts[order]
    found = hashes[order]
    for at in range(0, int(sizes[0]), 8):
        some, whole = np.searchsorted(-sizes.astype(np.int32), [-at, -at - 7])
        word = words[starts_of[:some] + at]
        word[whole:] &= _MASKS[sizes[whole:some] - at]
        # Mixed by itself, too: else a difference in two words' sign bits alone, as of packed floats, cancels out.
        word ^= word >> _SHIFTS[3]
        word *= _THREE
        part = found[:some]
        part ^= word
        part *= _TWO
        part ^= part >> _SHIFTS[3]
    hashes[order] = found
    return hashes


def _mix(numbers: Hashes) -> Hashes:
    """Each bit of a number has its part in each bit of the result (splitmix64)."""
    mixed = numbers + _GOLDEN
    mixed ^= mixed >> _SHIFTS[0]
    mixed *= _TWO
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _THREE
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


@dataclass
class OrderedFingerprint:
    """Row count and running CRC-32s of every column's bytes and lengths: of markers of format 1."""

    rows: int = 0
    _sums: dict[str, int] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, version: pa.Array | None = None, versioned: pa.Array | None = None) -> None:
        """As Digest.add."""
        self.rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._column(name.lower(), column)
        if version is not None:
            self._column("version", version if versioned is None else version.filter(versioned))

    def digest(self) -> str:
        """Rows and sums as text, equal for equal rows in equal order."""
        return f"{self.rows}:" + ",".join(f"{name}={value:08x}" for name, value in sorted(self._sums.items()))

    def _column(self, name: str, column: pa.Array) -> None:
        kind = column.type
        if pa.types.is_list(kind):
            self._lengths(name, column.value_lengths())
            self._column(f"{name}[]", column.flatten())
        elif pa.types.is_struct(kind):
            self._lengths(name, pc.cast(column.is_valid(), pa.int32()))
            for index in range(kind.num_fields):
                self._column(f"{name}.{kind.field(index).name}", pc.struct_field(column, index))
        elif pa.types.is_integer(kind):
            numbers = pc.cast(column, pa.int64())
            self._lengths(name, pc.cast(column.is_valid(), pa.int32()))
            self._bytes(name, numbers.fill_null(0).to_numpy(zero_copy_only=False).tobytes())
        else:
            column = column.cast(pa.large_binary())
            self._lengths(name, pc.binary_length(column))
            self._bytes(name, _content(column.drop_null()))

    def _lengths(self, name: str, lengths: pa.Array) -> None:
        numbers = pc.cast(lengths, pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        self._bytes(f"{name}#", np.ascontiguousarray(numbers).tobytes())

    def _bytes(self, name: str, data: bytes | pa.Buffer) -> None:
        self._sums[name] = zlib.crc32(data, self._sums.get(name, 0))


def _content(column: pa.Array) -> bytes | pa.Buffer:
    """The bytes of a large_binary column without nulls, end to end."""
    _, ends, data = column.buffers()
    if not len(column) or data is None:
        return b""
    place = np.frombuffer(ends, np.int64)
    first, last = int(place[column.offset]), int(place[column.offset + len(column)])
    return data.slice(first, last - first)
