"""Second implementations of the pure core: slow, obvious, and written without a look at the first ones.

They enumerate where the product computes: partitions are split one at a time, homes are found by trying every partition,
and a topic is a list of lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random

from keyorder.partitioner.epochs import Epoch
from keyorder.partitioner.timeline import Timeline


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, signed, written down from the algorithm's description."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def crc32(data: bytes) -> int:
    """CRC-32 of `data`, unsigned: the remainder of a division of polynomials over GF(2), bits in reflected order."""
    c = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            c = (c >> 1) ^ (0xEDB88320 * ((c ^ byte >> bit) & 1))
    return c ^ 0xFFFFFFFF


def fnv1a(data: bytes) -> int:
    """32-bit FNV-1a of `data`, taken as a signed number, without its sign."""
    h = 2166136261
    for byte in data:
        h = (h ^ byte) * 16777619 % 2**32
    return abs(h - 2**32 if h >= 2**31 else h)


HASHES = {"murmur2": lambda data: murmur2(data) & 0x7FFFFFFF, "crc32": crc32, "fnv1a": fnv1a}


@lru_cache(maxsize=4096)
def cells(initial: int, count: int) -> tuple[tuple[int, int], ...]:
    """(residue, modulus) of each partition: partition p holds the hashes with h % modulus == residue.

    Grown from `initial` by splitting one partition after another, always the least split one with the lowest number.
    """
    if count == initial:
        return tuple((p, initial) for p in range(initial))
    before = list(cells(initial, count - 1))
    splits = min(range(len(before)), key=lambda p: (before[p][1], p))
    residue, modulus = before[splits]
    before[splits] = (residue, modulus * 2)
    return (*before, (residue + modulus, modulus * 2))


def dumb_home(initial: int, count: int, h: int) -> int:
    """The partition whose cell holds `h`, found by trying all; exactly one does."""
    (home,) = [p for p, (residue, modulus) in enumerate(cells(initial, count)) if h % modulus == residue]
    return home


def hash_space(initial: int, *counts: int) -> range:
    """Enough hashes to see every home under each of these counts equally often."""
    return range(max(modulus for count in counts for _, modulus in cells(initial, count)))


def dumb_moves(initial: int, before: int, after: int) -> set[tuple[int, int]]:
    """Each (from, to) that some hash takes when the count changes."""
    pairs = ((dumb_home(initial, before, h), dumb_home(initial, after, h)) for h in hash_space(initial, before, after))
    return {(q, p) for q, p in pairs if q != p}


@lru_cache(maxsize=4096)
def key_of_hash(slot: int, modulus: int) -> bytes:
    """Some key whose positive murmur2 is `slot` modulo `modulus`."""
    return next(key for key in (b"k%d" % i for i in range(10_000_000)) if (murmur2(key) & 0x7FFFFFFF) % modulus == slot)


Step = tuple[int, Mapping[int, int], Mapping[int, int]]


def timeline_of(initial: int, steps: Sequence[Step], start: int | None = None, first: int = 0) -> Timeline:
    """A timeline with one epoch per (count, ends, begins), whose maps are cut to the cuts needed, 0 where missing."""
    epochs = [Epoch(first, start or initial)]
    for number, (count, ends, begins) in enumerate(steps, first + 1):
        moves = dumb_moves(initial, epochs[-1].count, count)
        epochs.append(
            Epoch(number, count, {q: ends.get(q, 0) for q, _ in moves}, {p: begins.get(p, 0) for _, p in moves})
        )
    return Timeline("t", "topic-id", "cluster-id", initial, tuple(epochs))


class World:
    """A topic as a list of lists, written to by writers that obey the cuts. Keys are slots of the hash space."""

    def __init__(self, random: Random, counts: Sequence[int], keys: int = 4, writes: int = 4) -> None:
        """The first count is the initial one; before, during and after each change up to `writes` records are written."""
        self.random, self.initial = random, counts[0]
        period = max(modulus for count in counts for _, modulus in cells(self.initial, count))
        self.keys = [random.randrange(period) for _ in range(keys)]
        self.logs: list[list[tuple[int, int] | None]] = [[] for _ in range(max(counts))]
        self.written: dict[int, list[tuple[int, int]]] = {key: [] for key in self.keys}
        self.ends_seen: list[list[int]] = []
        epochs = [Epoch(0, counts[0])]
        self._count = counts[0]
        self._write(writes, self.keys)
        for number, count in enumerate(counts[1:], 1):
            moves = dumb_moves(self.initial, self._count, count)
            # The moving keys are held while the cuts are read, each at its own moment; the others are not.
            staying = [k for k in self.keys if self.home(k) == dumb_home(self.initial, count, k)]
            cuts: dict[int, int] = {}
            for p in random.sample(range(len(self.logs)), len(self.logs)):
                self._write(1, staying)
                cuts[p] = len(self.logs[p])
            epochs.append(Epoch(number, count, {q: cuts[q] for q, _ in moves}, {p: cuts[p] for _, p in moves}))
            self._count = count
            self._write(writes, self.keys)
        self.timeline = Timeline("t", "topic-id", "cluster-id", self.initial, tuple(epochs))

    def home(self, key: int) -> int:
        """Where `key` is written now."""
        return dumb_home(self.initial, self._count, key)

    def _write(self, at_most: int, keys: Sequence[int]) -> None:
        for _ in range(self.random.randint(0, at_most) if keys else 0):
            key = self.random.choice(keys)
            log = self.logs[self.home(key)]
            self.written[key].append((self.home(key), len(log)))
            log.append((key, len(self.written[key])))
            self.ends_seen.append([len(log) for log in self.logs])

    def remove_some(self, share: float) -> None:
        """Retention, compaction, aborted transactions: offsets that show no record."""
        for p, log in enumerate(self.logs):
            for offset, record in enumerate(log):
                if record is not None and self.random.random() < share:
                    log[offset] = None
                    self.written[record[0]].remove((p, offset))


class DumbGates:
    """The rule of the gate, word by word: every origin, every older gate, asked anew."""

    def __init__(self, timeline: Timeline, position: Mapping[int, int], waived: set[tuple[int, int]]) -> None:
        self.position, self.waived = position, waived
        self.waits: dict[tuple[int, int], set[int]] = {}
        self.ends: dict[int, Mapping[int, int]] = {}
        self.begins: dict[tuple[int, int], int] = {}
        before = timeline.epochs[0]
        for epoch in timeline.epochs[1:]:
            self.ends[epoch.number] = epoch.ends
            for q, p in dumb_moves(timeline.initial, before.count, epoch.count):
                self.waits.setdefault((p, epoch.number), set()).add(q)
                self.begins[p, epoch.number] = epoch.begins[p]
            before = epoch

    def chain(self, gate: tuple[int, int]) -> list[tuple[int, int]]:
        """The older gates that this one waits for."""
        e = gate[1]
        return [
            (q, f)
            for q in self.waits[gate]
            for r, f in self.waits
            if r == q and f < e and self.begins[q, f] <= self.ends[e][q]
        ]

    def is_open(self, gate: tuple[int, int]) -> bool:
        """Whether gate (partition, epoch) is open."""
        if gate in self.waived:
            return True
        reached = all(self.position[q] >= self.ends[gate[1]][q] for q in self.waits[gate])
        return reached and all(self.is_open(older) for older in self.chain(gate))

    def blockers(self, gate: tuple[int, int]) -> set[tuple[int, int]]:
        """(q, offset) still to be reached, for this gate and the closed ones before it."""
        if self.is_open(gate):
            return set()
        ends = self.ends[gate[1]]
        found = {(q, ends[q]) for q in self.waits[gate] if self.position[q] < ends[q]}
        return found.union(*(self.blockers(older) for older in self.chain(gate)))

    def first_closed(self, partition: int) -> tuple[int, int] | None:
        """(begins, epoch) of the closed gate of a partition with the lowest begins."""
        closed = [(self.begins[p, e], e) for p, e in self.waits if p == partition and not self.is_open((p, e))]
        return min(closed, default=None)
