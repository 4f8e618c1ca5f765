"""The compiled loops: over the library's messages, and over keys to be hashed. Nothing here calls Arrow.

The layout of `rd_kafka_message_t` (public, the same throughout librdkafka 2, 64-bit):
err 0, rkt 8, partition 16, payload 24, len 32, key 40, key_len 48, offset 56, _private 64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .machine import (
    call_i32_2,
    call_i32_5,
    call_i64_1,
    call_i64_2,
    call_void_1,
    copy_bytes,
    load_i32,
    load_i64,
    load_u8,
    load_u32_unaligned,
)
from .schema import TOO_EARLY, TOO_LATE

ROWS, EVENTS, RUNS, KEY_BYTES, VALUE_BYTES, HEADERS, NAME_BYTES, HEADER_BYTES, KEY_NULLS, VALUE_NULLS, BARE, STOP = (
    range(12)
)
MOST_MILLISECONDS = (2**63 - 1) // 1000


@njit(cache=True, nogil=True)
def _length(text):
    n = 0
    while load_u8(text + n) != 0:
        n += 1
    return n


@njit(cache=True, nogil=True)
def measure(
    pointers, first, count, most, calls, scratch, at, partition, offset, time, kind, key_ends, value_ends, list_ends, runs,
    run_topics, events, event_rows, totals,
):  # fmt: skip
    """Fill the fixed-width columns and the offsets of the others; stop before `most` bytes in any of them.

    scratch: four words, lying at address `at`, into which the library writes.
    """
    rows = n_events = n_runs = 0
    keys = values = headers = names = header_bytes = 0
    key_nulls = value_nulls = bare = 0
    last_topic, last_partition, last_offset = 0, -1, -1
    i = first
    while i < count:
        message = pointers[i]
        topic, p, o = load_i64(message + 8), load_i32(message + 16), load_i64(message + 56)
        if load_i32(message) != 0:
            events[n_events] = i
            event_rows[n_events] = rows
            n_events += 1
            last_partition = -1
            i += 1
            continue
        key_size = load_i64(message + 48) if load_i64(message + 40) != 0 else 0
        value_size = load_i64(message + 32) if load_i64(message + 24) != 0 else 0
        own = own_names = own_bytes = 0
        if call_i32_2(calls[1], message, at) == 0:
            found = load_i64(at)
            own = call_i64_1(calls[2], found)
            for j in range(own):
                call_i32_5(calls[3], found, j, at + 8, at + 16, at + 24)
                own_names += _length(scratch[1])
                own_bytes += scratch[3] if scratch[2] != 0 else 0
        full = max(keys + key_size, values + value_size, names + own_names, header_bytes + own_bytes) > most
        if full and rows > 0:
            break
        if key_size == 0 and load_i64(message + 40) == 0:
            key_nulls += 1
        if load_i64(message + 24) == 0:
            value_nulls += 1
        if own == 0:
            bare += 1
        keys += key_size
        values += value_size
        headers += own
        names += own_names
        header_bytes += own_bytes
        if topic != last_topic or p != last_partition or o <= last_offset:
            runs[n_runs] = rows
            run_topics[n_runs] = topic
            n_runs += 1
        last_topic, last_partition, last_offset = topic, p, o
        partition[rows] = p
        offset[rows] = o
        milliseconds = call_i64_2(calls[0], message, at)
        if milliseconds > MOST_MILLISECONDS:
            time[rows] = TOO_LATE
        elif milliseconds < -MOST_MILLISECONDS:
            time[rows] = TOO_EARLY
        else:
            time[rows] = milliseconds * 1000
        kind[rows] = load_i32(at) - 1
        key_ends[rows + 1] = keys
        value_ends[rows + 1] = values
        list_ends[rows + 1] = headers
        rows += 1
        i += 1
    key_ends[0] = value_ends[0] = list_ends[0] = 0
    totals[ROWS], totals[EVENTS], totals[RUNS], totals[KEY_BYTES], totals[VALUE_BYTES] = (
        rows,
        n_events,
        n_runs,
        keys,
        values,
    )
    totals[HEADERS], totals[NAME_BYTES], totals[HEADER_BYTES] = headers, names, header_bytes
    totals[KEY_NULLS], totals[VALUE_NULLS], totals[BARE], totals[STOP] = key_nulls, value_nulls, bare, i


@njit(cache=True, nogil=True)
def copy(
    pointers, first, stop, calls, scratch, at, keys, key_ends, key_valid, values, value_ends, value_valid,
    list_ends, list_valid, names, name_ends, data, data_ends, data_valid,
):  # fmt: skip
    """Copy the variable-width columns. A validity map of length 0 is not wanted: nothing is null there."""
    row = header = 0
    name_at = data_at = 0
    for i in range(first, stop):
        message = pointers[i]
        if load_i32(message) != 0:
            continue
        key, value = load_i64(message + 40), load_i64(message + 24)
        bit = np.uint8(1 << (row & 7))
        if key != 0:
            copy_bytes(keys + key_ends[row], key, np.int64(key_ends[row + 1] - key_ends[row]))
            if len(key_valid):
                key_valid[row >> 3] |= bit
        if value != 0:
            copy_bytes(values + value_ends[row], value, np.int64(value_ends[row + 1] - value_ends[row]))
            if len(value_valid):
                value_valid[row >> 3] |= bit
        own = list_ends[row + 1] - list_ends[row]
        if own:
            list_valid[row >> 3] |= bit
            call_i32_2(calls[1], message, at)
            found = load_i64(at)
            for j in range(own):
                call_i32_5(calls[3], found, j, at + 8, at + 16, at + 24)
                size = _length(scratch[1])
                copy_bytes(names + name_at, scratch[1], np.int64(size))
                name_at += size
                if scratch[2] != 0:
                    copy_bytes(data + data_at, scratch[2], scratch[3])
                    data_at += scratch[3]
                    data_valid[header >> 3] |= np.uint8(1 << (header & 7))
                header += 1
                name_ends[header] = name_at
                data_ends[header] = data_at
        row += 1


@njit(cache=True, nogil=True)
def destroy(pointers, first, stop, function):
    """Give messages back to the library, each once: its pointer becomes 0."""
    for i in range(first, stop):
        message = pointers[i]
        if message != 0:
            pointers[i] = 0
            call_void_1(function, message)


@njit(cache=True)
def load_words(message):
    """(topic handle, partition, offset) of a message."""
    return load_i64(message + 8), load_i32(message + 16), load_i64(message + 56)


@njit(cache=True)
def load_code(message):
    """The error code of a message."""
    return load_i32(message)


@njit(cache=True, nogil=True, inline="always")
def murmur2(at, length):
    """`murmur2(bytes) & 0x7fffffff` of the `length` bytes at an address, as Java's Utils.murmur2 has it."""
    m = np.uint32(0x5BD1E995)
    h = np.uint32(np.uint32(0x9747B28C) ^ np.uint32(length))
    for _ in range(length >> 2):
        k = np.uint32(load_u32_unaligned(at) * m)
        k = np.uint32(k ^ (k >> np.uint32(24)))
        h = np.uint32(np.uint32(h * m) ^ np.uint32(k * m))
        at += 4
    left = length & 3
    if left == 3:
        h = np.uint32(h ^ (np.uint32(load_u8(at + 2)) << np.uint32(16)))
    if left >= 2:
        h = np.uint32(h ^ (np.uint32(load_u8(at + 1)) << np.uint32(8)))
    if left >= 1:
        h = np.uint32(np.uint32(h ^ np.uint32(load_u8(at))) * m)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * m)
    h = np.uint32(h ^ (h >> np.uint32(15)))
    return np.int64(h & np.uint32(0x7FFFFFFF))


def _crc_tables():
    """Eight tables of 256: the first for a byte, each further one for a byte that lies one place further ahead."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        c = byte
        for _ in range(8):
            c = (c >> 1) ^ (0xEDB88320 if c & 1 else 0)
        tables[0, byte] = c
    for further in range(1, 8):
        before = tables[further - 1]
        tables[further] = (before >> np.uint32(8)) ^ tables[0, before & np.uint32(0xFF)]
    return tables.ravel()


_CRC = _crc_tables()


@njit(cache=True, nogil=True, inline="always")
def crc32(at, length):
    """zlib's CRC-32 of the `length` bytes at an address, in [0, 2**32). Eight bytes a step, as zlib has it."""
    byte = np.uint32(0xFF)
    c = np.uint32(0xFFFFFFFF)
    while length >= 8:
        one = np.uint32(load_u32_unaligned(at) ^ c)
        two = np.uint32(load_u32_unaligned(at + 4))
        c = (
            _CRC[1792 + np.int64(one & byte)]
            ^ _CRC[1536 + np.int64((one >> np.uint32(8)) & byte)]
            ^ _CRC[1280 + np.int64((one >> np.uint32(16)) & byte)]
            ^ _CRC[1024 + np.int64(one >> np.uint32(24))]
            ^ _CRC[768 + np.int64(two & byte)]
            ^ _CRC[512 + np.int64((two >> np.uint32(8)) & byte)]
            ^ _CRC[256 + np.int64((two >> np.uint32(16)) & byte)]
            ^ _CRC[np.int64(two >> np.uint32(24))]
        )
        at += 8
        length -= 8
    if length >= 4:
        one = np.uint32(load_u32_unaligned(at) ^ c)
        c = (
            _CRC[768 + np.int64(one & byte)]
            ^ _CRC[512 + np.int64((one >> np.uint32(8)) & byte)]
            ^ _CRC[256 + np.int64((one >> np.uint32(16)) & byte)]
            ^ _CRC[np.int64(one >> np.uint32(24))]
        )
        at += 4
        length -= 4
    for i in range(length):
        c = np.uint32((c >> np.uint32(8)) ^ _CRC[np.int64((c ^ np.uint32(load_u8(at + i))) & byte)])
    return np.int64(c ^ np.uint32(0xFFFFFFFF))


@njit(cache=True, nogil=True, inline="always")
def fnv1a(at, length):
    """|FNV-1a| of the `length` bytes at an address as a signed 32-bit number, in [0, 2**31]."""
    return _absolute(_fnv1a_on(np.uint32(0x811C9DC5), at, length))


@njit(cache=True, nogil=True, inline="always")
def _fnv1a_on(h, at, length):
    for i in range(length):
        h = np.uint32(np.uint32(h ^ np.uint32(load_u8(at + i))) * np.uint32(0x01000193))
    return h


@njit(cache=True, nogil=True, inline="always")
def _absolute(h):
    return np.int64(h) if h <= np.uint32(0x80000000) else np.int64(0x100000000) - np.int64(h)


@njit(cache=True, nogil=True)
def _fnv1a_of_four(data, ends, row, found):
    """FNV-1a takes a byte at a time, each step waiting for the one before: four keys side by side take the time of one."""
    a, b, c, d, e = (
        np.int64(ends[row]), np.int64(ends[row + 1]), np.int64(ends[row + 2]), np.int64(ends[row + 3]), np.int64(ends[row + 4])
    )  # fmt: skip
    together = min(min(b - a, c - b), min(d - c, e - d))
    prime = np.uint32(0x01000193)
    h0 = h1 = h2 = h3 = np.uint32(0x811C9DC5)
    for i in range(data, data + together):
        h0 = np.uint32(np.uint32(h0 ^ np.uint32(load_u8(i + a))) * prime)
        h1 = np.uint32(np.uint32(h1 ^ np.uint32(load_u8(i + b))) * prime)
        h2 = np.uint32(np.uint32(h2 ^ np.uint32(load_u8(i + c))) * prime)
        h3 = np.uint32(np.uint32(h3 ^ np.uint32(load_u8(i + d))) * prime)
    found[0] = _absolute(_fnv1a_on(h0, data + a + together, b - a - together))
    found[1] = _absolute(_fnv1a_on(h1, data + b + together, c - b - together))
    found[2] = _absolute(_fnv1a_on(h2, data + c + together, d - c - together))
    found[3] = _absolute(_fnv1a_on(h3, data + d + together, e - d - together))


@njit(cache=True, nogil=True, inline="always")
def hash_of(number, at, length):
    """A key's hash, by the number that `partitioner.hashing.KeyHash` has."""
    if number == 0:
        return murmur2(at, length)
    return crc32(at, length) if number == 1 else fnv1a(at, length)


@njit(cache=True, nogil=True)
def valid(bits, row):
    return len(bits) == 0 or (bits[row >> 3] >> np.uint8(row & 7)) & np.uint8(1) != 0


@njit(cache=True, nogil=True)
def hashes(number, data, ends, bits, first, out):
    done = 0
    if number == 2 and len(bits) == 0:
        done = len(out) & ~3
        for i in range(0, done, 4):
            _fnv1a_of_four(data, ends, first + i, out[i : i + 4])
    for i in range(done, len(out)):
        row = first + i
        start = np.int64(ends[row])
        out[i] = hash_of(number, data + start, np.int64(ends[row + 1]) - start) if valid(bits, row) else -1


@njit(cache=True, nogil=True, inline="always")
def home_of(h, low, split, mask):
    """Linear hashing. mask: low - 1 where low is a power of two, else 0: a modulus is a division, the dearest step."""
    home = h & mask if mask else h % low
    if home < split:
        home = h & (2 * mask + 1) if mask else h % (2 * low)
    return home


@njit(cache=True, nogil=True)
def homes(number, data, ends, bits, first, low, split, out):
    """The home of every key by a layout; -1 for null."""
    mask = low - 1 if low & (low - 1) == 0 else 0
    if len(bits) == 0 and number == 0:
        # A loop of its own: with the choice of the hash in it, it takes a twentieth more.
        end = np.int64(ends[first])
        for i in range(len(out)):
            start, end = end, np.int64(ends[first + i + 1])
            out[i] = home_of(murmur2(data + start, end - start), low, split, mask)
        return
    done = 0
    if len(bits) == 0 and number == 2:
        done = len(out) & ~3
        four = np.empty(4, np.int64)
        for i in range(0, done, 4):
            _fnv1a_of_four(data, ends, first + i, four)
            for j in range(4):
                out[i + j] = home_of(four[j], low, split, mask)
    for i in range(done, len(out)):
        row = first + i
        start = np.int64(ends[row])
        out[i] = (
            home_of(hash_of(number, data + start, np.int64(ends[row + 1]) - start), low, split, mask)
            if valid(bits, row)
            else -1
        )


@njit(cache=True, nogil=True)
def same_bytes(a, b, length):
    """Whether two ranges hold the same bytes."""
    different = 0
    for i in range(length):
        different |= load_u8(a + i) ^ load_u8(b + i)
    return different == 0


@njit(cache=True, nogil=True)
def hints(
    list_ends, list_bits, list_first, rows, names, name_ends, name_bits, name_first, data, data_ends, data_bits, data_first,
    name, name_size,
):  # fmt: skip
    """(the highest hint of all rows, the first row with one), each -1 without any. As `routing.parse_hint` reads them."""
    highest, hinted = np.int64(-1), np.int64(-1)
    for row in range(rows):
        if not valid(list_bits, list_first + row):
            continue
        for j in range(list_ends[list_first + row], list_ends[list_first + row + 1]):
            at = name_first + j
            if name_ends[at + 1] - name_ends[at] != name_size:
                continue
            if not same_bytes(names + np.int64(name_ends[at]), name, name_size):
                continue
            # The first header of the name counts, also if it is not one of ours.
            at = data_first + j
            size = data_ends[at + 1] - data_ends[at]
            hint = np.int64(0)
            good = valid(data_bits, at) and 0 < size <= 10
            if good:
                for k in range(size):
                    digit = np.int64(load_u8(data + np.int64(data_ends[at]) + k)) - 48
                    if digit < 0 or digit > 9:
                        good = False
                        break
                    hint = hint * 10 + digit
            if good:
                highest = max(highest, hint)
                if hinted < 0:
                    hinted = np.int64(row)
            break
    return highest, hinted


@njit(cache=True, nogil=True)
def strays(
    number, data, ends, bits, first, offsets, partition, period, stay_first, stay_partition, since, until, found
):
    """How many rows are no part of any stay of their key in this partition; the first len(found) of them are named."""
    count = 0
    for i in range(len(offsets)):
        row = first + i
        if not valid(bits, row):
            continue
        start = np.int64(ends[row])
        slot = hash_of(number, data + start, np.int64(ends[row + 1]) - start) % period
        at_home = False
        for j in range(stay_first[slot], stay_first[slot + 1]):
            if stay_partition[j] == partition and since[j] <= offsets[i] < until[j]:
                at_home = True
                break
        if not at_home:
            if count < len(found):
                found[count] = i
            count += 1
    return count
