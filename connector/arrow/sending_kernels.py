"""The compiled loops of sending: rows to the library's messages, one by one or in one call.

`rd_kafka_message_t` as in `kernels`; `rd_kafka_vu_t` (public): vtype 0, the value from 8 on, 72 bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .kernels import valid
from .machine import call_i32_1, call_i32_5, call_i64_1, call_i64_3, call_void_1, load_u8

RKT, PARTITION, VALUE, KEY, OPAQUE, MSGFLAGS, TIMESTAMP, HEADERS = 2, 3, 4, 5, 6, 7, 8, 10
COPY = 0x2


@njit(cache=True, nogil=True)
def pointer(data, ends, bits, row, nothing):
    """(address, length) of one value; address 0 for null. An empty value lies somewhere, too: at `nothing`."""
    if not valid(bits, row):
        return np.int64(0), np.int64(0)
    start = np.int64(ends[row])
    length = np.int64(ends[row + 1]) - start
    return (data + start if length else nothing), length


@njit(cache=True, nogil=True)
def group(hashes, rows, alone, slots, unkeyed, places, counts, order):
    """Rows by where they go: `order` gets them group by group, each group in their order; counts[g]: how many.

    slots: the group of each slot of hashes. unkeyed: that of hash -1. alone: for each of `rows`, whether it goes into the
    last group whatever its hash; empty for none. places: room for a number per row.
    """
    last = len(counts) - 1
    period = np.uint32(len(slots))
    counts[:] = 0
    for i in range(len(rows)):
        h = hashes[rows[i]]
        if len(alone) and alone[i]:
            place = last
        elif h < 0:
            place = unkeyed
        else:
            place = np.int64(slots[np.uint32(h) % period])
        places[i] = place
        counts[place] += 1
    at = np.zeros(len(counts), np.int64)
    for g in range(last):
        at[g + 1] = at[g] + counts[g]
    for i in range(len(rows)):
        order[at[places[i]]] = rows[i]
        at[places[i]] += 1


@njit(cache=True, nogil=True)
def fill(
    messages, rkt, opaque, index, first, count, keys, key_ends, key_bits, key_first, values, value_ends, value_bits,
    value_first, nothing,
):  # fmt: skip
    """Rows index[first : first + count] as an array of rd_kafka_message_t."""
    for i in range(count):
        row = index[first + i]
        value, value_size = pointer(values, value_ends, value_bits, value_first + row, nothing)
        key, key_size = pointer(keys, key_ends, key_bits, key_first + row, nothing)
        messages[i, 0] = 0
        messages[i, 1] = rkt
        messages[i, 2] = 0
        messages[i, 3] = value
        messages[i, 4] = value_size
        messages[i, 5] = key
        messages[i, 6] = key_size
        messages[i, 7] = 0
        messages[i, 8] = opaque


@njit(cache=True, nogil=True)
def taken(messages, count, codes):
    """How many messages from the first on were queued; codes[0] becomes the error of the next one."""
    for i in range(count):
        code = np.int32(messages[i, 0] & 0xFFFFFFFF)
        if code != 0:
            codes[0] = code
            return i
    codes[0] = 0
    return count


@njit(cache=True, nogil=True)
def send_one_by_one(
    calls, client, rkt, partition, opaque, index, first, count, keys, key_ends, key_bits, key_first, values, value_ends,
    value_bits, value_first, times, list_ends, list_bits, list_first, names, name_ends, name_bits, name_first, data,
    data_ends, data_bits, data_first,
    hints, hint_name, hint_size, hint_texts, hint_sizes, nothing, vus, at, codes,
):  # fmt: skip
    """Rows index[first : first + count], which have headers or times, by rd_kafka_produceva.

    Returns how many were queued; codes[0]: why no more.

    calls: headers_new, header_add, produceva, error_code, error_destroy, headers_destroy. times: milliseconds, 0 for
    now, empty for none. hints: for each row sent, index + 1 into hint_texts, 0 for none; empty for none at all.
    vus: 8 x 9 words, lying at address `at`.
    """
    codes[0] = 0
    for i in range(count):
        row = index[first + i]
        value, value_size = pointer(values, value_ends, value_bits, value_first + row, nothing)
        key, key_size = pointer(keys, key_ends, key_bits, key_first + row, nothing)
        own = 0
        start = np.int64(0)
        if len(list_ends) and valid(list_bits, list_first + row):
            start = np.int64(list_ends[list_first + row])
            own = np.int64(list_ends[list_first + row + 1]) - start
        hint = hints[i] if len(hints) else 0
        headers = np.int64(0)
        if own or hint:
            headers = call_i64_1(calls[0], np.int64(own + 1))
            for j in range(own):
                name, name_size = pointer(names, name_ends, name_bits, name_first + start + j, nothing)
                if hint and name_size == hint_size:
                    same = True
                    for k in range(name_size):
                        same = same and load_u8(name + k) == load_u8(hint_name + k)
                    if same:
                        continue  # a header of the hint's name from the application gives way
                text, size = pointer(data, data_ends, data_bits, data_first + start + j, nothing)
                call_i32_5(calls[1], headers, name, name_size, text, size)
            if hint:
                call_i32_5(calls[1], headers, hint_name, hint_size, hint_texts[hint - 1], hint_sizes[hint - 1])
        vus[0, 0], vus[0, 1] = RKT, rkt
        vus[1, 0], vus[1, 1] = PARTITION, partition
        vus[2, 0], vus[2, 1], vus[2, 2] = VALUE, value, value_size
        vus[3, 0], vus[3, 1], vus[3, 2] = KEY, key, key_size
        vus[4, 0], vus[4, 1] = MSGFLAGS, COPY
        vus[5, 0], vus[5, 1] = TIMESTAMP, (times[row] if len(times) else 0)
        vus[6, 0], vus[6, 1] = OPAQUE, opaque
        vus[7, 0], vus[7, 1] = HEADERS, headers
        error = call_i64_3(calls[2], client, at, 8 if headers else 7)
        if error != 0:
            codes[0] = call_i32_1(calls[3], error)
            call_void_1(calls[4], error)
            if headers:
                call_void_1(calls[5], headers)
            return i
    return count
