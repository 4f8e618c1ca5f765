"""What a group has processed beyond its committed offset: where single keys wait at a gate, others overtake them.

The position stays at the oldest record that waits. Everything from there up to `upto` is processed, but for what is
pending; that travels in the commit's metadata, so that the next owner returns no record again.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass

from ..numbers import LARGEST, number_of

# Brokers refuse metadata above offset.metadata.max.bytes, 4 096 by default; the application's own note has to fit too.
_LIMIT = 3_000


@dataclass(frozen=True, slots=True)
class Ahead:
    """Offsets below `upto` are processed, except for `pending`. Both are counted in offsets of the partition."""

    upto: int
    pending: frozenset[int]

    def first_open(self, offset: int) -> int:
        """The first offset from `offset` on that is not processed."""
        return min(
            (pending for pending in self.pending if offset <= pending < self.upto), default=max(offset, self.upto)
        )

    def covers(self, offset: int) -> bool:
        """Whether the record at `offset` was processed already."""
        return offset < self.upto and offset not in self.pending


def encode_ahead(ahead: Ahead, committed: int, limit: int = _LIMIT) -> str:
    """As text of at most `limit` characters; '' where nothing lies ahead.

    What does not fit is left out from the highest offset down: it would be returned again, never skipped.
    """
    upto = ahead.upto
    data = bytearray()
    before = committed
    for offset in sorted(o for o in ahead.pending if committed <= o < ahead.upto):
        step = _varint(offset - before)
        if (len(data) + len(step) + 2) // 3 * 4 + 24 > limit:
            upto = offset
            break
        data += step
        before = offset
    if upto <= committed:
        return ""
    return f"{upto - committed}.{urlsafe_b64encode(bytes(data)).decode()}"


def decode_ahead(text: str, committed: int) -> Ahead | None:
    """The reverse; None for anything else: then records are returned again, and none is skipped."""
    digits, _, encoded = text.partition(".")
    length = number_of(digits)
    if length is None or committed + length > LARGEST:
        return None
    try:
        data = urlsafe_b64decode(encoded.encode("ascii"))
    except (Base64Error, ValueError):
        return None
    pending: set[int] = set()
    at, value, shift = committed, 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            at += value
            if at > LARGEST:
                return None
            pending.add(at)
            value = shift = 0
    return None if shift else Ahead(committed + length, frozenset(pending))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
