"""Where keys live, worked out a second time.

This is deliberately not the product's router: the checker would share its mistakes. The rule here is the
plainest wording of linear hashing. A key starts at `h % initial`. Partitions are then added one by one;
partition `n` takes the keys with `h % m == n`, where `m` is the smallest `initial * 2**l` above `n`.
Nothing is computed in closed form. `h` is the topic's hash of the key.

The **chain** of a key is the row of its homes: one segment per stay, from the epoch that brought the
key there to the one that took it away. A segment's records lie in its home at offsets in
`[begins of its epoch, ends of the next segment's epoch)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import murmur2


@dataclass(frozen=True, slots=True)
class Epoch:
    """A committed epoch: its count, and the cuts (next offset to read, exclusive) of its move.

    `ends[q]` for each partition that keys leave, `begins[p]` for each that keys enter; both are empty in
    the first epoch.
    """

    epoch: int
    count: int
    ends: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """One stay of a key: its home since `epoch`, with records at offsets in [lower, upper)."""

    epoch: int
    home: int
    lower: int
    upper: int | None


class Topology:
    """A topic's initial count and its committed epochs, oldest first. hash: `murmur2`, `crc32` or `fnv1a`.

    Raises ValueError when epochs do not rise or a count falls below `initial`; `chain` raises it when a
    cut is missing for a key that moved.
    """

    def __init__(self, initial: int, epochs: Sequence[Epoch], hash: str = "murmur2") -> None:
        if not epochs or any(a.epoch >= b.epoch for a, b in pairwise(epochs)):
            raise ValueError("a topology has at least one epoch, and epochs rise")
        if any(epoch.count < initial for epoch in epochs) or initial < 1:
            raise ValueError("no count lies below the initial one")
        self.initial = initial
        self.hash_of = _HASHES[hash]
        self.epochs = tuple(epochs)
        self._chains: dict[bytes, tuple[Segment, ...]] = {}
        self._takes = []
        for n in range(initial, max(epoch.count for epoch in epochs)):
            m = initial
            while m <= n:
                m *= 2
            self._takes.append((n, m))

    def home(self, key: bytes, count: int) -> int:
        """The key's partition while `count` partitions are active."""
        h = self.hash_of(key)
        home = h % self.initial
        for n, m in self._takes[: count - self.initial]:
            if h % m == n:
                home = n
        return home

    def home_in(self, key: bytes, epoch: int) -> int:
        """The key's partition in `epoch`, or in the newest committed one before it."""
        count = self.epochs[0].count
        for step in self.epochs:
            if step.epoch <= epoch:
                count = step.count
        return self.home(key, count)

    def chain(self, key: bytes) -> tuple[Segment, ...]:
        """The stays of `key`, oldest first."""
        known = self._chains.get(key)
        if known is None:
            known = self._chains[key] = self._chain(key)
        return known

    def _chain(self, key: bytes) -> tuple[Segment, ...]:
        chain = [Segment(self.epochs[0].epoch, self.home(key, self.epochs[0].count), 0, None)]
        for step in self.epochs[1:]:
            here, home = chain[-1], self.home(key, step.count)
            if home == here.home:
                continue
            if here.home not in step.ends or home not in step.begins:
                raise ValueError(f"epoch {step.epoch} moves keys from {here.home} to {home} without cuts")
            chain[-1] = Segment(here.epoch, here.home, here.lower, step.ends[here.home])
            chain.append(Segment(step.epoch, home, step.begins[home], None))
        return tuple(chain)


def hash31(key: bytes) -> int:
    """Kafka's murmur2 of `key` in [0, 2**31), from a function that only gives it modulo a count."""
    top = 2**31 - 1
    h = murmur2(key, top)
    # Modulo 2**31 - 1 the largest hash, which is odd, looks like 0, which is even.
    return top if h == 0 and murmur2(key, 2) == 1 else h


def unsigned_crc32(key: bytes) -> int:
    """CRC-32 of `key` in [0, 2**32), bit by bit."""
    c = 0xFFFFFFFF
    for byte in key:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0xEDB88320 if c & 1 else 0)
    return c ^ 0xFFFFFFFF


def absolute_fnv1a(key: bytes) -> int:
    """FNV-1a of `key` as a signed 32-bit number without its sign, in [0, 2**31]."""
    h = 0x811C9DC5
    for byte in key:
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return min(h, 2**32 - h)


_HASHES: Mapping[str, Callable[[bytes], int]] = {
    "murmur2": hash31,
    "crc32": unsigned_crc32,
    "fnv1a": absolute_fnv1a,
}


def locate(chain: Sequence[Segment], partition: int, offset: int) -> int | None:
    """The segment that (partition, offset) belongs to; where cuts are equal the newest one."""
    for number in range(len(chain) - 1, -1, -1):
        segment = chain[number]
        below = segment.upper is None or offset < segment.upper
        if segment.home == partition and segment.lower <= offset and below:
            return number
    return None
