"""A growing version per row, as a header: it makes replayed rows recognisable, and compaction by version keep the right one.

Eight bytes, big-endian, as KIP-280 wants a version header: 28 bits of batch, 12 of task, 23 of row. A replayed row of a
deterministic query has the version it had before. Only a stream's batches have numbers that grow, and they start anew with
each checkpoint; a batch write is batch 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...partitioner.errors import ConfigError
from .columns import HEADER_TYPE
from .options import VERSION_HEADER

_BITS = {"batch": 28, "task": 12, "row": 23}


class VersionRangeError(ConfigError):
    """A batch, task or row number that the version's bits cannot hold."""

    def __init__(self, part: str, number: int) -> None:
        super().__init__(
            VERSION_HEADER,
            f"{part} {number} does not fit the {_BITS[part]} bits that a version has for it",
            "write smaller batches or fewer tasks, or leave the option out",
        )


def versions(batch: int, task: int, first_row: int, count: int) -> np.ndarray[Any, Any]:
    """Versions of `count` rows from `first_row` on, as int64, shape (count,). Raises VersionRangeError."""
    for part, number in (("batch", batch), ("task", task), ("row", first_row + max(count, 1) - 1)):
        if not 0 <= number < 1 << _BITS[part]:
            raise VersionRangeError(part, number)
    base = (batch << (_BITS["task"] + _BITS["row"])) | (task << _BITS["row"])
    return np.int64(base) + np.arange(first_row, first_row + count, dtype=np.int64)


def with_versions(
    headers: pa.Array | None, name: str, numbers: np.ndarray[Any, Any], present: np.ndarray[Any, Any] | None = None
) -> pa.Array:
    """`headers` with one more at the end of each row: `name`, and the row's number as eight bytes.

    headers: list<struct<key, value>> or None. present: which rows get one, bool; None for all. The last header of a name
    counts (KIP-280), so ours does.
    """
    rows = len(numbers)
    given_one = np.ones(rows, bool) if present is None else present
    count = int(given_one.sum())
    data = pa.py_buffer(numbers[given_one].astype(">i8").tobytes())
    ends = pa.py_buffer(np.arange(0, 8 * (count + 1), 8, dtype=np.int32).tobytes())
    values = pa.Array.from_buffers(pa.binary(), count, [None, ends, data])
    names = pa.array([name], pa.string()).take(pa.array(np.zeros(count, np.int64)))
    added = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE.value_type))
    headers = pa.nulls(rows, HEADER_TYPE) if headers is None else headers.cast(HEADER_TYPE)
    lengths = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends_of = np.concatenate(([0], np.cumsum(lengths + given_one)))
    given = headers.flatten()
    picks = np.empty(int(ends_of[-1]), np.int64)
    own = np.zeros(len(picks), bool)
    own[ends_of[1:][given_one] - 1] = True
    picks[own] = len(given) + np.arange(count)
    picks[~own] = np.arange(len(given))
    both = pa.concat_arrays([given.cast(HEADER_TYPE.value_type), added])
    return pa.ListArray.from_arrays(pa.array(ends_of.astype(np.int32)), both.take(pa.array(picks)))
