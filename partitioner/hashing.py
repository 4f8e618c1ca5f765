"""The hashes by which producers place keys. Linear hashing works over any of them; a topic has one, for good.

- `murmur2`: `murmur2 & 0x7fffffff`, in [0, 2**31). Java, kafkajs, franz-go; librdkafka's `murmur2`, `murmur2_random`.
- `crc32`: zlib's, in [0, 2**32). librdkafka's `consistent` and `consistent_random`, the default of its clients for Python,
  Go, C#, PHP and Ruby.
- `fnv1a`: the absolute value of FNV-1a as a signed 32-bit number, in [0, 2**31]. Sarama; librdkafka's `fnv1a`,
  `fnv1a_random`.

A stock producer puts a key into partition `hash % partitions`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import consistent, fnv1a, murmur2

from .errors import KeyTypeError, LayoutError

MAX_HASH = 0x7FFFFFFF
DEFAULT_HASH = "murmur2"


def key_bytes(key: bytes | str) -> bytes:
    """The bytes that are hashed and sent. A str is UTF-8, as in confluent-kafka.

    Raises KeyTypeError for anything else.
    """
    if type(key) is bytes:
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return bytes(key)
    raise KeyTypeError(key)


def key_hash(key: bytes) -> int:
    """The positive murmur2 of `key`, in [0, 2**31). The empty key has a hash like any other."""
    h: int = murmur2(key, MAX_HASH)
    # The client library only hands out `h % n`. With n = 2**31 - 1 just h = n itself is ambiguous
    # (it shows as 0), and its parity tells it from a true 0.
    if h == 0 and murmur2(key, 2) == 1:
        return MAX_HASH
    return h


def _fnv1a(key: bytes) -> int:
    # As above. -2**31 has no positive counterpart in 32 bits: librdkafka takes it as unsigned, so 2**31 is a hash too,
    # and shows as 1. Parity tells 2**31 - 1 from 0, and 2**31 from 1.
    h: int = fnv1a(key, MAX_HASH)
    return h + MAX_HASH if h < 2 and fnv1a(key, 2) != h else h


@dataclass(frozen=True, slots=True)
class KeyHash:
    """One of the hashes.

    number: its name in compiled loops. of: the hash of a key's bytes, in [0, limit). slot: `of(key) % count`, by one call
    into the client library, for 1 <= count < 2**31.
    """

    name: str
    number: int
    limit: int
    of: Callable[[bytes], int]
    slot: Callable[[bytes, int], int]


HASHES: Mapping[str, KeyHash] = {
    each.name: each
    for each in (
        KeyHash("murmur2", 0, 2**31, key_hash, murmur2),
        KeyHash("crc32", 1, 2**32, zlib.crc32, consistent),
        KeyHash("fnv1a", 2, 2**31 + 1, _fnv1a, fnv1a),
    )
}


def hash_named(name: str) -> KeyHash:
    """The hash of that name. Raises LayoutError for a name that is none."""
    found = HASHES.get(name)
    if found is None:
        raise LayoutError(f"no hash is called {name!r}: use one of {', '.join(HASHES)}")
    return found
