"""What a task was given, in a few bytes: enough to tell whether a replay brings the same rows in the same order."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass
class Fingerprint:
    """Row count and running CRC-32s of every column's bytes and lengths; independent of how rows are batched."""

    rows: int = 0
    _sums: dict[str, int] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the batch's rows in."""
        self.rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._column(name.lower(), column)

    def add_column(self, name: str, column: pa.Array) -> None:
        """Take one more column in, of those rows that have it."""
        self._column(name, column)

    def digest(self) -> str:
        """Rows and sums as text, equal for equal rows in equal order."""
        return f"{self.rows}:" + ",".join(f"{name}={value:08x}" for name, value in sorted(self._sums.items()))

    def _column(self, name: str, column: pa.Array) -> None:
        kind = column.type
        if pa.types.is_list(kind):
            self._lengths(name, column, column.value_lengths())
            self._column(f"{name}[]", column.flatten())
        elif pa.types.is_struct(kind):
            self._lengths(name, column, pc.cast(column.is_valid(), pa.int32()))
            for index in range(kind.num_fields):
                self._column(f"{name}.{kind.field(index).name}", pc.struct_field(column, index))
        elif pa.types.is_integer(kind):
            numbers = pc.cast(column, pa.int64())
            self._lengths(name, column, pc.cast(column.is_valid(), pa.int32()))
            self._bytes(name, numbers.fill_null(0).to_numpy(zero_copy_only=False).tobytes())
        else:
            column = column.cast(pa.large_binary())
            self._lengths(name, column, pc.binary_length(column))
            self._bytes(name, _content(column.drop_null()))

    def _lengths(self, name: str, column: pa.Array, lengths: pa.Array) -> None:
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
