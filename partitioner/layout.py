"""Linear hashing: a layout says which partition is a key's home (KIP-253, "Proposed Changes" 5).

Growing or shrinking by one partition moves keys from or to exactly one other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from .errors import LayoutError
from .hashing import DEFAULT_HASH, HASHES, hash_named, key_bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """`count` active partitions, of which `initial` were there when the topic came under management.

    initial: partitions at adoption; never changes, and is the lowest count (KIP-253 `initial_partition_count`).
    count: partitions that are written now, 0..count-1 (KIP-253 `undeleted_partition_count`).
    hash: by which keys are placed, `murmur2`, `crc32` or `fnv1a`; see `hashing`.
    low: initial * 2**L, L the largest with low <= count. split: count - low, how many of the low ones are split.
    period: a home depends on `hash % period` alone.

    Raises LayoutError unless 1 <= initial <= count and the hash is one of these.
    """

    initial: int
    count: int
    hash: str = DEFAULT_HASH
    low: int = field(init=False, repr=False, compare=False)
    split: int = field(init=False, repr=False, compare=False)
    period: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.initial <= self.count:
            raise LayoutError(f"a layout needs 1 <= initial <= count, not initial={self.initial}, count={self.count}")
        hash_named(self.hash)
        low = self.initial
        while low * 2 <= self.count:
            low *= 2
        split = self.count - low
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "split", split)
        object.__setattr__(self, "period", low * 2 if split else low)

    def home(self, key: bytes | str) -> int:
        """The partition of `key`, in [0, count). Raises KeyTypeError for a key that is not bytes or str."""
        data = key_bytes(key)
        slot = HASHES[self.hash].slot
        home = slot(data, self.low)
        return slot(data, self.low * 2) if home < self.split else home

    def __repr__(self) -> str:
        other = "" if self.hash == DEFAULT_HASH else f", hash={self.hash!r}"
        return f"Layout(initial={self.initial}, count={self.count}{other})"

    def home_of_hash(self, h: int) -> int:
        """The partition of a key whose hash is `h` (or `h` modulo any multiple of `period`)."""
        home = h % self.low
        return h % (self.low * 2) if home < self.split else home

    def parent(self, p: int) -> int:
        """The partition that `p` was split from. Raises LayoutError for p < initial, which was split from none."""
        if p < self.initial:
            raise LayoutError(f"partition {p} is one of the first {self.initial}: it has no parent")
        low = self.initial
        while low * 2 <= p:
            low *= 2
        return p - low

    def origin(self, p: int, count: int) -> int:
        """`p`, walked up `parent` until it is below `count`: who holds p's keys in the layout of `count`.

        Raises LayoutError for count < initial.
        """
        if count < self.initial:
            raise LayoutError(f"a count of {count} is below the initial {self.initial}")
        while p >= count:
            p = self.parent(p)
        return p

    def resized(self, count: int) -> Layout:
        """The same topic with another count. Raises LayoutError below `initial`."""
        return Layout(self.initial, count, self.hash)

    def moves_to(self, other: Layout) -> Iterator[tuple[int, int]]:
        """Each (from, to) between which keys move when this layout becomes `other`, ordered by the outer partition."""
        if (self.initial, self.hash) != (other.initial, other.hash):
            raise LayoutError(f"layouts of different topics: {self} and {other}")
        for p in range(self.count, other.count):
            yield self.origin(p, self.count), p
        for d in range(other.count, self.count):
            yield d, self.origin(d, other.count)

    def share(self, p: int) -> Fraction:
        """The part of the hash space whose home is `p`, as an exact fraction."""
        split = p < self.split or p >= self.low
        return Fraction(1, self.low * 2 if split else self.low)

    def share_moved(self, other: Layout) -> Fraction:
        """The part of the hash space that changes its home when this layout becomes `other`."""
        grown = max(self, other, key=lambda layout: layout.count)
        shrunk = min(self, other, key=lambda layout: layout.count)
        return sum((grown.share(p) for p in range(shrunk.count, grown.count)), Fraction(0))


def same_routing(initial: int, count: int, hash: str = DEFAULT_HASH) -> Layout:
    """The layout of `count` partitions over a lower initial count under which no key moves.

    `hash % count` and linear hashing agree where count is initial * 2**k. Raises LayoutError elsewhere.
    """
    layout = Layout(initial, count, hash)
    if layout.split:
        allowed = [count]
        while allowed[-1] % 2 == 0:
            allowed.append(allowed[-1] // 2)
        raise LayoutError(
            f"an initial count of {initial} would move keys of a topic with {count} partitions: "
            f"use one of {', '.join(map(str, allowed))}"
        )
    return layout
