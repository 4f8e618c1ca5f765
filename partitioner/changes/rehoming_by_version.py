"""Re-homing where the topic has a version strategy: what survives is the highest version, not the newest record.

The same work as `rehoming.Survivors`, with another question: of all records of a key, wherever it has lived, which has the
highest rank, (version, epoch, offset)? If that one lies in the retired partition it goes home, also when a lower version has
been written there since: behind the copy the home's last record is the highest version again, which a stock cleaner keeps.
If not, the partition only lets go of the key: a copy would displace the winner, wherever that is. A deletion that has won
over something elsewhere goes home like a value, or the lower version there would come back.

Move tombstones are no versions. One in the retired partition says that the key was written elsewhere since, not that its
versions here have lost. One elsewhere says that the versions before it there are about to go, so that they hold nothing up:
or two retired partitions might each leave a winner to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ..epochs import Slice
from ..timeline import Timeline
from ..version_order import Rank, place_epoch
from .rehoming import Fate, Survivors


@dataclass(slots=True)
class _Contest:
    """A key's best record in the partition, and the highest rank in each other. cleared: no value is the last record here."""

    offset: int
    hash: int
    size: int
    rank: Rank
    deleted: bool
    cleared: bool
    elsewhere: dict[int, Rank] = field(default_factory=dict)

    @property
    def won(self) -> bool:
        """Whether no record elsewhere is above the best one here, nor a copy of it."""
        return all(rank < self.rank for rank in self.elsewhere.values())

    @property
    def fate(self) -> Fate | None:
        """None where there is nothing to do."""
        if self.won and (self.elsewhere or not self.deleted):
            return Fate.COPY
        return None if self.cleared else Fate.CLEAR


class RankedSurvivors(Survivors):
    """As `Survivors`, by rank. Feed `note` everything of the partition, then of the `later` ones: all that keys lived in."""

    def __init__(self, timeline: Timeline, partition: int) -> None:
        super().__init__(timeline, partition)
        self._contests: dict[bytes, _Contest] = {}

    def __len__(self) -> int:
        """How many keys still need something done here."""
        return sum(1 for contest in self._contests.values() if contest.fate is not None)

    @property
    def size(self) -> int:
        """The bytes of what is at stake: keys and values."""
        return sum(contest.size for contest in self._contests.values() if contest.fate is not None)

    def superseded(self) -> int:
        """How many of them are only to be tombstoned, as far as was read."""
        return sum(1 for contest in self._contests.values() if contest.fate is Fate.CLEAR)

    def later(self) -> dict[int, int]:
        """{partition: 0}: every other home that a key of this partition ever had, since a version there may be higher."""
        found: dict[int, int] = {}
        for route in self._routing.all():
            if route.lived_in(self.partition):
                found.update((p, 0) for p, _, _ in self._routing.stays(route) if p != self.partition)
        return found

    def note(
        self, partition: int, offset: int, key: bytes, size: int | None, hint: int | None, version: int = 0,
        original: tuple[int, int] | None = None,
    ) -> bool:  # fmt: skip
        """As `Survivors.note`. version: what it competes with; original: (epoch, offset) of what a compactor's copy is of."""
        here = partition == self.partition
        if not self._routing.of(key).lived_in(self.partition):
            self.foreign += here and size is not None
            return False
        contest = self._contests.get(key)
        if size is None and self._routing.is_move_tombstone(key, partition, hint):
            if contest is not None and here:
                contest.cleared = True
            elif contest is not None:
                contest.elsewhere.pop(partition, None)
            return False
        place = original or (place_epoch(self._routing, key, partition, offset), offset)
        rank = (version, *place)
        if not here:
            if contest is not None:
                contest.elsewhere[partition] = max(rank, contest.elsewhere.get(partition, rank))
            return False
        if contest is None:
            self._contests[key] = _Contest(
                offset, self._hash_of(key), size or len(key), rank, size is None, size is None
            )
            return True
        contest.cleared = size is None
        if rank < contest.rank:
            return False
        contest.offset, contest.size, contest.rank, contest.deleted = offset, size or len(key), rank, size is None
        return True

    def slices(self, keys: int, size: int) -> Iterator[tuple[Slice, tuple[bytes, ...]]]:
        """As `Survivors.slices`."""
        rows = [(c.hash, key, c.size) for key, c in self._contests.items() if c.fate is not None]
        return self._cut(rows, keys, size)

    def fates(self, keys: Collection[bytes], undecided: Collection[bytes]) -> Mapping[bytes, tuple[Fate, int]]:
        """As `Survivors.fates`; the offset is that of the best record."""
        found: dict[bytes, tuple[Fate, int]] = {}
        contests = [(key, self._contests[key]) for key in keys if key in self._contests]
        for key, contest in sorted(contests, key=lambda item: item[1].offset):
            fate = contest.fate
            if fate is not None:
                found[key] = (Fate.LEAVE if fate is Fate.COPY and key in undecided else fate), contest.offset
        return found

    def forget(self, keys: Collection[bytes]) -> None:
        """As `Survivors.forget`."""
        for key in keys:
            self._contests.pop(key, None)
