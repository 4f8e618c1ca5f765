"""Where a key's hash comes from: Kafka's own murmur2, as Java's default partitioner and `murmur2_random` use it.

`h = murmur2(key) & 0x7fffffff`, an integer in [0, 2**31).
"""

from __future__ import annotations

from confluent_kafka import murmur2

from .errors import KeyTypeError

MAX_HASH = 0x7FFFFFFF


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
