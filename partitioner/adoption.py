"""By which hash a topic's records were placed, and whether it may come under management.

A topic that was written by stock producers is adopted under the hash that explains where its records lie: each key's
partition is `hash % partitions`. Where no hash explains all of them, the next records of some keys would be written
elsewhere, beside those that wait to be read there, so the topic is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .errors import MisplacedKeysError, OrphanedTopicError
from .hashing import DEFAULT_HASH, HASHES, hash_named


@dataclass(frozen=True, slots=True)
class KeySample:
    """What some records of a topic show at a count of `partitions`.

    records: with a key, apart from the empty one: some stock partitioners scatter that like none. keys: distinct ones.
    explained: how many of them lie where each hash puts them, by its name. hinted: (partition, offset) of a record with the
    hint header of an OrderedProducer, None without one.
    """

    topic: str
    partitions: int
    records: int
    keys: int
    explained: Mapping[str, int]
    hinted: tuple[int, int] | None = None

    def share(self, hash: str) -> float:
        """The share of the records that lie where this hash puts them, in [0, 1]; 1 without records."""
        return self.explained[hash] / self.records if self.records else 1.0

    @property
    def explaining(self) -> tuple[str, ...]:
        """The hashes that explain every record, the default first."""
        return tuple(name for name in HASHES if self.explained[name] == self.records)

    @property
    def best(self) -> str:
        """The hash that explains most, the default where several do."""
        return max(HASHES, key=lambda name: (self.explained[name], name == DEFAULT_HASH))

    def __str__(self) -> str:
        if not self.records:
            return "no keyed records"
        shares = sorted(HASHES, key=lambda name: -self.explained[name])
        told = ", ".join(f"{name} {percent(self.explained[name], self.records)}" for name in shares)
        return f"{self.records} keyed records, {self.keys} keys: {told}"


class KeySampler:
    """Takes records in, and gives the sample."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.records = 0
        self._keys: set[bytes] = set()
        self._explained = dict.fromkeys(HASHES, 0)
        self._hinted: tuple[int, int] | None = None

    def take(self, partition: int, offset: int, key: bytes | None, hinted: bool) -> bool:
        """One record. Returns whether it counts: it has a key that is not empty."""
        if hinted and self._hinted is None:
            self._hinted = partition, offset
        if not key:
            return False
        self.records += 1
        self._keys.add(key)
        for name, each in HASHES.items():
            self._explained[name] += each.slot(key, self.partitions) == partition
        return True

    def sample(self) -> KeySample:
        """What was seen so far."""
        explained = dict(self._explained)
        return KeySample(self.topic, self.partitions, self.records, len(self._keys), explained, self._hinted)


def chosen_hash(sample: KeySample, wanted: str | None = None, accept_misplaced: bool = False) -> str:
    """The hash under which a topic is adopted.

    wanted: only under this one. accept_misplaced: also where records lie elsewhere, by an operator's word; then under the
    one that explains most. Several may explain all, as they do with one partition: then it is the default.

    Raises MisplacedKeysError where no hash explains every record, or the one that is wanted does not; OrphanedTopicError
    where records carry the hint header: they were placed by epochs that nobody knows any more. LayoutError for an
    unknown hash.
    """
    if wanted is not None:
        hash_named(wanted)
    if sample.hinted is not None:
        raise OrphanedTopicError(sample.topic, *sample.hinted)
    explaining = sample.explaining if wanted is None else [name for name in sample.explaining if name == wanted]
    for name in explaining:
        return name
    if accept_misplaced:
        return wanted or sample.best
    raise MisplacedKeysError(sample.topic, sample.partitions, str(sample), wanted)


def percent(part: int, whole: int) -> str:
    """A share that only reads 100 % or 0 % when it is."""
    share = 100 * part / whole
    if 0 < part < whole:
        share = min(max(share, 0.1), 99.9)
    return f"{share:.1f} %"


def counts_of_stock_writers(initial: int, highest: int) -> Iterator[int]:
    """The counts up to `highest` at which a stock producer of the topic's hash places keys as keyorder does."""
    count = initial
    while count <= highest:
        yield count
        count *= 2
