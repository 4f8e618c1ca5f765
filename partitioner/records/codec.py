"""Control records as bytes: a version in front, Avro behind it.

    b"KO" | kind (1 byte) | major (1) | minor (1) | Avro, schemaless

A new minor version only appends fields with defaults at the end of the outermost record, so an older reader reads a
prefix and a newer reader fills in defaults. A new major version is refused by older readers. Whoever would *rewrite*
a record of a newer minor must refuse too, since it would drop what it cannot see: `Decoded.require_known`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import fastavro
from fastavro.types import Schema

from ..errors import CorruptRecordError, RecordVersionError

_MAGIC = b"KO"
MAJOR = 1


@dataclass(frozen=True, slots=True)
class RecordKind:
    """One kind of control record: its number in front, its name, its major version, and its schemas by minor version."""

    number: int
    name: str
    schemas: tuple[Schema, ...]
    major: int = MAJOR

    @property
    def minor(self) -> int:
        """The newest minor version that this code knows, and writes."""
        return len(self.schemas) - 1


@dataclass(frozen=True, slots=True)
class Decoded:
    """The fields of a record, and the version that wrote it: `kind.major` and `minor`."""

    fields: Mapping[str, Any]
    minor: int
    kind: RecordKind

    def require_known(self) -> None:
        """Raises RecordVersionError for a newer minor version: whoever writes the record again would drop its new fields."""
        if self.minor > self.kind.minor:
            raise RecordVersionError(self.kind.name, (self.kind.major, self.minor), self.kind.major)


def array(of: Schema) -> Schema:
    """The schema of a list."""
    return {"type": "array", "items": of}


def fields(**types: Schema) -> list[dict[str, Any]]:
    """The fields of a record, in the order of the arguments: name=type."""
    return [{"name": name, "type": of} for name, of in types.items()]


def record(name: str, **types: Schema) -> Schema:
    """The schema of a record inside of another one; its fields as in `fields`."""
    return {"type": "record", "name": f"keyorder.{name}", "fields": fields(**types)}


def record_kind(number: int, name: str, *versions: list[dict[str, Any]], major: int = MAJOR) -> RecordKind:
    """A kind whose versions each list all fields, in order; checked to be append-only."""
    for older, newer in pairwise(versions):
        if newer[: len(older)] != older or any("default" not in f for f in newer[len(older) :]):
            raise ValueError(f"{name}: a minor version may only append fields with defaults")
    schemas = tuple(
        fastavro.parse_schema({"type": "record", "name": f"keyorder.{name}", "fields": fields}, {})
        for fields in versions
    )
    return RecordKind(number, name, schemas, major)


def encode(kind: RecordKind, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a record, in the newest version known here."""
    out = io.BytesIO()
    out.write(_MAGIC + bytes((kind.number, kind.major, kind.minor)))
    fastavro.schemaless_writer(out, kind.schemas[-1], dict(fields))
    return out.getvalue()


def decode(kind: RecordKind, data: bytes) -> Decoded:
    """The fields of a record. Raises as `decode_any`."""
    return decode_any((kind,), data)


def decode_any(majors: Sequence[RecordKind], data: bytes) -> Decoded:
    """The fields of a record of one of these major versions of a kind, oldest first.

    Raises RecordVersionError for another major version, CorruptRecordError for anything that is not such a record.
    """
    kind = majors[0]
    if len(data) < 5 or data[:2] != _MAGIC or data[2] != kind.number:
        raise CorruptRecordError(f"not a {kind.name} record: it begins with {data[:5].hex() or 'nothing'}")
    major, minor = data[3], data[4]
    for kind in majors:
        if kind.major == major:
            break
    else:
        raise RecordVersionError(kind.name, (major, minor), majors[-1].major)
    written = kind.schemas[min(minor, kind.minor)]
    try:
        fields = fastavro.schemaless_reader(io.BytesIO(data[5:]), written, kind.schemas[-1])
    except Exception as error:  # fastavro raises whatever the bytes lead it to: all of it means the same here
        raise CorruptRecordError(
            f"a {kind.name} record of version {major}.{minor} cannot be decoded: {error!r}"
        ) from error
    if not isinstance(fields, dict):
        raise CorruptRecordError(f"a {kind.name} record decoded to {type(fields).__name__}")
    return Decoded(fields, minor, kind)
