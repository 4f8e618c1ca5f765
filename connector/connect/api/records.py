"""Records on their way through a connector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .schema import Schema

if TYPE_CHECKING:
    from typing_extensions import Self


class Header(NamedTuple):
    """One header: its key may occur again."""

    key: str
    value: Any
    schema: Schema | None = None


class Headers:
    """A record's headers, in order, duplicates kept."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Header] = ()) -> None:
        self._items = list(items)

    def __iter__(self) -> Iterator[Header]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self._items == other._items

    def __repr__(self) -> str:
        return f"Headers({[header.key for header in self._items]})"

    def add(self, key: str, value: Any, schema: Schema | None = None) -> Self:
        """Append a header."""
        self._items.append(Header(key, value, schema))
        return self

    def remove(self, key: str) -> Self:
        """Drop every header of that key."""
        self._items = [header for header in self._items if header.key != key]
        return self

    def last(self, key: str) -> Header | None:
        """The last header of that key."""
        return next((header for header in reversed(self._items) if header.key == key), None)

    def all(self, key: str) -> list[Header]:
        """Every header of that key."""
        return [header for header in self._items if header.key == key]

    def copy(self) -> Headers:
        """Headers that can be changed apart from these."""
        return Headers(self._items)


class Original:
    """The message that a record was read from. A copy has the same one; a pickle, which cannot hold it, none."""

    __slots__ = ("message",)

    def __init__(self, message: Any = None) -> None:
        self.message = message

    def __deepcopy__(self, memo: Any) -> Original:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Original, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRecord:
    """What both directions have in common. timestamp: milliseconds since 1970, or None. Change one by `new`."""

    topic: str
    key: Any = None
    value: Any = None
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    headers: Headers = field(default_factory=Headers)
    timestamp: int | None = None

    def new(self, **changes: Any) -> Self:
        """A copy with these fields changed; headers are copied too, so that the original keeps its own."""
        changes.setdefault("headers", self.headers.copy())
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord(ConnectRecord):
    """A record from a source task.

    source_partition, source_offset: JSON objects of the task's own; the offset is where to go on *after* this record.
    The partition of the topic is never chosen here: keyorder places keys.
    """

    source_partition: Mapping[str, Any] = field(default_factory=dict)
    source_offset: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord(ConnectRecord):
    """A record for a sink task, with its place in Kafka, which transforms do not change.

    epoch: that of the layout in which its key came to this partition, 0 if it never moved. (epoch, offset) grows along
    the records of one key whatever the partition, which offsets alone do not.
    raw_key: the key's bytes as they lie in Kafka: what keyorder's order is about.
    original: the runtime's own, for a record that is reported; not compared. None of a record that the runtime has not made.
    """

    partition: int = 0
    offset: int = 0
    epoch: int = 0
    timestamp_type: str = "CreateTime"
    original_topic: str = ""
    raw_key: bytes | None = None
    original: Original | None = field(default=None, compare=False, repr=False)

    @property
    def version(self) -> int:
        """(epoch, offset) as one number below 2^63: 15 bits of epoch, 48 of offset."""
        return (self.epoch << 48) | self.offset
