"""Calls of librdkafka's own partitioner from a compiled loop. Needs the extra `keyorder[arrow]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from confluent_kafka import cimpl
from keyorder.connector.arrow.hashing import key_buffers
from numba import njit


def partition_each(partitions: int) -> Callable[[Any], Any]:
    """A function of a key column that asks `rd_kafka_msg_partitioner_murmur2` for each key."""
    import ctypes

    function = ctypes.CDLL(cimpl.__file__).rd_kafka_msg_partitioner_murmur2
    function.restype = ctypes.c_int32
    function.argtypes = [ctypes.c_size_t] * 3 + [ctypes.c_int32] + [ctypes.c_size_t] * 2

    @njit
    def loop(data, ends, bits, first, out):  # type: ignore[no-untyped-def]
        for i in range(len(out)):
            start = ends[first + i]
            out[i] = function(0, data + start, ends[first + i + 1] - start, partitions, 0, 0)

    def each(keys: Any) -> Any:
        out = np.empty(len(keys), np.int32)
        loop(*key_buffers(keys), out)
        return out

    return each
