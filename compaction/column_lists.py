"""Columns of binaries and of headers as Python lists, many times as fast as `to_pylist()`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..connector.messages import Headers


def python_bytes(column: pa.Array) -> list[bytes | None]:
    """A column of binary or string as a list: ten times as fast as to_pylist()."""
    _, ends, data = column.buffers()
    if not len(column):
        return []
    raw = b"" if data is None else data.to_pybytes()
    places = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    found: list[bytes | None] = [raw[start:stop] for start, stop in pairwise(places)]
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            found[row] = None
    return found


def python_headers(column: pa.Array) -> list[Headers | None]:
    """A column of headers as the client library gives them, None for none."""
    if column.null_count == len(column):
        return [None] * len(column)
    flat = column.flatten()
    texts: dict[bytes | None, str] = {}
    names = [
        texts.get(name) or texts.setdefault(name, (name or b"").decode())
        for name in python_bytes(pc.struct_field(flat, [0]))
    ]
    pairs = list(zip(names, python_bytes(pc.struct_field(flat, [1])), strict=True))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    stops = np.cumsum(lengths)
    null = column.is_null().to_numpy(zero_copy_only=False).tolist()
    starts = (stops - lengths).tolist()
    return [None if none else pairs[start:stop] for none, start, stop in zip(null, starts, stops.tolist(), strict=True)]
