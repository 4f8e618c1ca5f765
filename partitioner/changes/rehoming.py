"""Which values a retired partition of a compacted topic still holds, and what has to be done with each of its keys.

Such a partition never becomes empty by itself, and some of its values are the only ones of their keys. A value there is a
key's newest record unless a record of the key lies in a *later stay*: another partition that the key went to afterwards, at
or above the cut with which it came there. What lies at a present home below that cut is older, whatever it is.

`Survivors` is folded from records as they are read: the partition itself first, then the later homes. A record at a later
home counts as soon as it was read, also if the cleaner removes it afterwards.

A copy stands at the key's home behind no other record of the present stay, and writers hold the key while it is made. So it
is the key's newest record until one of them goes on, and readers treat it as what it is: a record of its key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf

from ..epochs import Slice
from ..numbers import number_of
from ..routing import Routing
from ..timeline import Timeline

#: The header of a copy: `<partition>:<offset>` of the record that it is a copy of.
REHOMED_HEADER = "keyorder-rehomed"


class Fate(Enum):
    """What becomes of a value. COPY: to the key's home, then a tombstone. CLEAR: a tombstone. LEAVE: not decided yet."""

    COPY = "COPY"
    CLEAR = "CLEAR"
    LEAVE = "LEAVE"


@dataclass(slots=True)
class Survivor:
    """The last record of a key in the partition. stay: the key's stay that it belongs to, the newest there for a stray."""

    offset: int
    hash: int
    size: int
    stay: int
    superseded: bool = False


class Survivors:
    """The values of one retired partition, by key. Feed `note` everything of the partition, then of the `later` ones."""

    def __init__(self, timeline: Timeline, partition: int) -> None:
        self.timeline, self.partition = timeline, partition
        self._routing = Routing(timeline)
        self._hash_of = self._routing.hash.of
        self._values: dict[bytes, Survivor] = {}
        self.foreign = 0

    def __len__(self) -> int:
        """How many keys still have a value here."""
        return len(self._values)

    @property
    def size(self) -> int:
        """The bytes of those values and their keys."""
        return sum(value.size for value in self._values.values())

    def superseded(self) -> int:
        """How many of them a later record has superseded, as far as was read."""
        return sum(1 for value in self._values.values() if value.superseded)

    def later(self) -> dict[int, int]:
        """{partition: offset} where the keys that left this partition lived afterwards, and from where on to read it."""
        found: dict[int, int] = {}
        for route in self._routing.all():
            stays = self._routing.stays(route)
            first = next((i for i, stay in enumerate(stays[:-1]) if stay[0] == self.partition), None)
            for p, since, _ in stays[first + 1 :] if first is not None else ():
                if p != self.partition:
                    found[p] = min(since, found.get(p, since))
        return found

    def home(self, key: bytes) -> tuple[int, bytes]:
        """Where the key is written now, and the value of its hint header there."""
        route = self._routing.of(key)
        return route.home, route.header or b""

    def note(
        self, partition: int, offset: int, key: bytes, size: int | None, hint: int | None, version: int = 0,
        original: tuple[int, int] | None = None,
    ) -> bool:  # fmt: skip
        """One record, in the order of its partition. Returns whether it is what would be copied, as far as was read.

        size: of key and value; None for a null value. hint: of its header. The others are for `RankedSurvivors`.
        """
        route = self._routing.of(key)
        if partition == self.partition:
            if not route.lived_in(partition):
                # Put here by a foreign writer. No hold covers such a key, so nothing is proven of it: it stays.
                self.foreign += size is not None
            elif size is None:
                self._values.pop(key, None)
            else:
                self._values[key] = Survivor(offset, self._hash_of(key), size, self._stay(key, partition, offset))
                return True
            return False
        value = self._values.get(key)
        if value is None or value.superseded:
            return False
        if size is None and self._routing.is_move_tombstone(key, partition, hint):
            return False
        value.superseded = self._stay(key, partition, offset) > value.stay
        return False

    def slices(self, keys: int, size: int) -> Iterator[tuple[Slice, tuple[bytes, ...]]]:
        """The values cut into slices of at most `keys` keys and `size` bytes (or one key), each with its keys."""
        return self._cut([(value.hash, key, value.size) for key, value in self._values.items()], keys, size)

    def fates(self, keys: Collection[bytes], undecided: Collection[bytes]) -> Mapping[bytes, tuple[Fate, int]]:
        """{key: (its fate, the offset of its value)} for those of `keys` that still have a value here, by offset.

        undecided: keys with a record in a transaction that is still open at a later home. If it is aborted the value here
        is the key's newest, if not it is not; so it stays until that is known.
        """
        found: dict[bytes, tuple[Fate, int]] = {}
        values = [(key, self._values[key]) for key in keys if key in self._values]
        for key, value in sorted(values, key=lambda item: item[1].offset):
            if value.superseded:
                found[key] = Fate.CLEAR, value.offset
            else:
                found[key] = Fate.LEAVE if key in undecided else Fate.COPY, value.offset
        return found

    def forget(self, keys: Collection[bytes]) -> None:
        """These were cleared, though an older open transaction may still hide the tombstones."""
        for key in keys:
            self._values.pop(key, None)

    def _cut(
        self, rows: list[tuple[int, bytes, int]], keys: int, size: int
    ) -> Iterator[tuple[Slice, tuple[bytes, ...]]]:
        rows.sort()
        at = 0
        while at < len(rows):
            end, left = at, size
            # Keys of one hash stay together: a slice is a range of hashes.
            while end < len(rows) and (end == at or rows[end][0] == rows[end - 1][0] or (end - at < keys and left > 0)):
                left -= rows[end][2]
                end += 1
            yield Slice(self.partition, rows[at][0], rows[end - 1][0]), tuple(key for _, key, _ in rows[at:end])
            at = end

    def _stay(self, key: bytes, partition: int, offset: int) -> int:
        """The number of the stay that a record belongs to; of a stray in the partition itself the last one there, else -1."""
        stays = self._routing.stays(self._routing.of(key))
        for number in reversed(range(len(stays))):
            p, since, until = stays[number]
            if p == partition and since <= offset < until:
                return number
        if partition != self.partition:
            return -1
        return max(number for number, stay in enumerate(stays) if stay[0] == partition and stay[2] < inf)


def origin_of_copy(value: bytes | str | None) -> tuple[int, int] | None:
    """(partition, offset) of a copy's header, or None for anything that is not one: a header is data from anybody."""
    if value is None:
        return None
    try:
        text = value.decode("ascii") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
    partition, offset = (number_of(part) for part in text.partition(":")[::2])
    return None if partition is None or offset is None else (partition, offset)
