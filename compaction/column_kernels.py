"""The compiled loops of compaction: over the headers of a batch, over places of records, and the table of keys.

The table is an open hash index over rows of `ROW`: a slot holds a row's number plus one in its lower half, and bits of the
key's hash in its upper half, so that a key is compared only where those bits agree. A row is one piece of memory, since
one look at a key wants all of it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..connector.arrow.kernels import same_bytes, valid
from ..connector.arrow.machine import copy_bytes, load_u8

MALFORMED, COPY = np.uint8(1), np.uint8(2)
ROW = np.dtype(
    [
        ("hash", np.int64), ("key_at", np.int64), ("key_size", np.int64),
        ("version", np.int64), ("epoch", np.int64), ("offset", np.int64),
        ("last_epoch", np.int64), ("last_offset", np.int64), ("of_epoch", np.int64), ("of_offset", np.int64),
        ("segment", np.int32), ("row", np.int32), ("known", np.int32), ("live", np.int32),
    ]
)  # fmt: skip
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)
_AHEAD = 64
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def _named(names, ends, at, name, size):
    start = np.int64(ends[at])
    return np.int64(ends[at + 1]) - start == size and same_bytes(names + start, name, size)


@njit(cache=True, nogil=True)
def read_headers(
    list_ends, list_bits, list_first, names, name_ends, name_bits, name_first, data, data_ends, data_bits, data_first,
    wanted, wanted_size, positive_only, hint_name, hint_size, copy_name, copy_size, known, version, flags, hint,
):  # fmt: skip
    """Fill version (0 and not known without one), flags and hint (-1 without one) of each row; the last of a name counts.

    wanted_size: 0 where no header is a version: `known` and `version` stay as they are. As `strategy.header_version` and
    `routing.parse_hint` read them.
    """
    for row in range(len(flags)):
        if not valid(list_bits, list_first + row):
            continue
        for j in range(list_ends[list_first + row], list_ends[list_first + row + 1]):
            at = data_first + j
            start = np.int64(data_ends[at])
            size = np.int64(data_ends[at + 1]) - start
            there = valid(data_bits, at)
            if wanted_size and _named(names, name_ends, name_first + j, wanted, wanted_size):
                good = there and size == 8
                number = np.uint64(0)
                if good:
                    for k in range(8):
                        number = (number << np.uint64(8)) | np.uint64(load_u8(data + start + k))
                signed = np.int64(number)
                counts = good and (signed > 0 or not positive_only)
                known[row] = counts
                version[row] = signed if counts else 0
                flags[row] = (flags[row] & ~MALFORMED) if good else (flags[row] | MALFORMED)
            if _named(names, name_ends, name_first + j, hint_name, hint_size):
                found = np.int64(0)
                if not there or size == 0 or size > 10:
                    found = np.int64(-1)
                else:
                    for k in range(size):
                        digit = np.int64(load_u8(data + start + k)) - 48
                        if digit < 0 or digit > 9:
                            found = np.int64(-1)
                            break
                        found = found * 10 + digit
                hint[row] = found
            if _named(names, name_ends, name_first + j, copy_name, copy_size):
                flags[row] |= COPY


@njit(cache=True, nogil=True)
def place(hashes, partitions, offsets, period, stay_first, stay_partition, since, until, numbers, epochs, stray):
    """The epoch with which each row's place competes, as `versions.place_epoch`; and which rows are strays."""
    for i in range(len(hashes)):
        if hashes[i] < 0:
            continue
        p, o = np.int64(partitions[i]), offsets[i]
        slot = hashes[i] % period
        first = stay_first[slot]
        epoch, at_home = -1 - p, False
        for j in range(first, stay_first[slot + 1]):
            if stay_partition[j] == p:
                if j == first or since[j] <= o:
                    epoch = numbers[j]
                if since[j] <= o < until[j]:
                    at_home = True
        epochs[i] = epoch
        stray[i] = not at_home


@njit(cache=True, nogil=True)
def _spread(h):
    return np.uint64(h) * _SPREAD


@njit(cache=True, nogil=True)
def index(rows, count, slots):
    """Enter the first `count` rows into empty slots."""
    mask = np.uint64(len(slots) - 1)
    for r in range(count):
        spread = _spread(rows[r].hash)
        at = (spread >> np.uint64(20)) & mask
        while slots[at] != np.uint64(0):
            at = (at + np.uint64(1)) & mask
        slots[at] = ((spread >> _HIGH) << _HIGH) | np.uint64(r + 1)


@njit(cache=True, nogil=True)
def _look(rows, slots, arena, h, key, size):
    """(the row of a key, or -1; the slot where it is, or belongs)."""
    mask = np.uint64(len(slots) - 1)
    spread = _spread(h)
    tag = spread >> _HIGH
    at = (spread >> np.uint64(20)) & mask
    while slots[at] != np.uint64(0):
        if slots[at] >> _HIGH == tag:
            r = np.int64(slots[at] & _LOW) - 1
            if rows[r].hash == h and rows[r].key_size == size and same_bytes(arena + rows[r].key_at, key, size):
                return r, at
        at = (at + np.uint64(1)) & mask
    return np.int64(-1), at


@njit(cache=True, nogil=True)
def _touch(rows, slots, arena, hashes, start, stop):
    """Bring what a few keys need into the cache: these loads overlap, which those of the merging do not.

    Returns a number, so that they are not left out.
    """
    mask = np.uint64(len(slots) - 1)
    seen = np.int64(0)
    for i in range(start, stop):
        slot = slots[(_spread(hashes[i]) >> np.uint64(20)) & mask]
        if slot != np.uint64(0):
            row = rows[np.int64(slot & _LOW) - 1]
            seen ^= row.version ^ row.row ^ load_u8(arena + row.key_at)
    return seen


@njit(cache=True, nogil=True)
def find(rows, slots, arena, h, key, size):
    """The row of a key, -1 for none. arena, key: addresses."""
    return _look(rows, slots, arena, h, key, size)[0]


@njit(cache=True, nogil=True)
def fold(
    keys, key_ends, key_bits, key_first, keep, hashes, live, known, version, epoch, offset, at_epoch, at_offset,
    of_epoch, of_offset, rows, count, slots, arena, arena_used, segment, dead, row_of, kept,
):  # fmt: skip
    """Merge the rows of a batch that `keep` names into the table; there is room for all of them.

    live: whether a row has a value. at_, of_: the parts of `versions.Last`. dead: of each segment, how many of its rows have
    been superseded. row_of: scratch. kept: filled with the rows of the batch that are winners now; they become the new `segment`.
    Returns (rows of the table, bytes used of the arena, how many are kept, a number that means nothing).
    """
    tops = seen = 0
    for i in range(len(hashes)):
        if i % _AHEAD == 0:
            seen ^= _touch(rows, slots, arena, hashes, i, min(i + _AHEAD, len(hashes)))
        row_of[i] = -1
        if not keep[i]:
            continue
        h = hashes[i]
        start = np.int64(key_ends[key_first + i])
        size = np.int64(key_ends[key_first + i + 1]) - start
        r, slot = _look(rows, slots, arena, h, keys + start, size)
        if r < 0:
            r = count
            count += 1
            slots[slot] = ((_spread(h) >> _HIGH) << _HIGH) | np.uint64(r + 1)
            row = rows[r]
            row.hash, row.key_at, row.key_size = h, arena_used, size
            copy_bytes(arena + arena_used, keys + start, size)
            arena_used += size
            row.last_epoch, row.last_offset = at_epoch[i], at_offset[i]
            row.of_epoch, row.of_offset = of_epoch[i], of_offset[i]
        else:
            row = rows[r]
            if at_epoch[i] > row.last_epoch or (at_epoch[i] == row.last_epoch and at_offset[i] > row.last_offset):
                row.last_epoch, row.last_offset = at_epoch[i], at_offset[i]
                row.of_epoch, row.of_offset = of_epoch[i], of_offset[i]
            has = np.int32(known[i])
            if has != row.known:
                higher = has > row.known
            elif version[i] != row.version:
                higher = version[i] > row.version
            elif epoch[i] != row.epoch:
                higher = epoch[i] > row.epoch
            else:
                higher = offset[i] > row.offset
            if not higher:
                continue
            if row.segment == segment:
                row_of[row.row] = -1
            else:
                dead[row.segment] += 1
        row.known, row.version, row.epoch, row.offset = known[i], version[i], epoch[i], offset[i]
        row.live, row.segment, row.row = live[i], segment, i
        row_of[i] = r
    for i in range(len(hashes)):
        if row_of[i] >= 0:
            rows[row_of[i]].row = tops
            kept[tops] = i
            tops += 1
    return count, arena_used, tops, seen
