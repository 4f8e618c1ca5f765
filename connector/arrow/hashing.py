"""The hashes of a whole Arrow column of keys, and what follows from them: homes, one per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...partitioner.errors import KeyTypeError
from ...partitioner.hashing import DEFAULT_HASH, HASHES, KeyHash
from ...partitioner.layout import Layout
from . import kernels

_NO_BITS = np.zeros(0, np.uint8)


def key_buffers(keys: pa.Array) -> tuple[int, Any, Any, int]:
    """(address of the bytes, ends, validity bits, first row) of a column of binary or string keys, without a copy.

    The address is good for as long as `keys` lives.

    Raises KeyTypeError for another type.
    """
    large = pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type)
    if not (large or pa.types.is_binary(keys.type) or pa.types.is_string(keys.type)):
        raise KeyTypeError(keys.type)
    validity, ends, data = keys.buffers()
    bits = _NO_BITS if validity is None or not keys.null_count else np.frombuffer(validity, np.uint8)
    return (
        data.address if data is not None else 0,
        np.frombuffer(ends, np.int64 if large else np.int32)
        if ends is not None and ends.size
        else np.zeros(1, np.int32),
        bits,
        keys.offset,
    )


def hash_column(keys: pa.Array, hash: KeyHash = HASHES[DEFAULT_HASH]) -> np.ndarray[Any, Any]:
    """The hash of every key, int64; -1 for null. Equal to `hash.of` row by row.

    Raises KeyTypeError unless the column holds binary or string.
    """
    out = np.empty(len(keys), np.int64)
    kernels.hashes(hash.number, *key_buffers(keys), out)
    return out


def home_column(layout: Layout, keys: pa.Array) -> np.ndarray[Any, Any]:
    """`layout.home` of every key, int32; -1 for null. Raises KeyTypeError unless the column holds binary or string."""
    out = np.empty(len(keys), np.int32)
    kernels.homes(HASHES[layout.hash].number, *key_buffers(keys), layout.low, layout.split, out)
    return out


def homes_of_hashes(layout: Layout, hashes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`layout.home_of_hash` of every hash, int32; -1 stays -1."""
    homes = hashes % layout.low
    homes = np.where(homes < layout.split, hashes % (2 * layout.low), homes)
    return np.where(hashes < 0, -1, homes).astype(np.int32)
