"""ProtobufConverter: messages whose schema stands in a schema registry, as proto3 (Confluent's wire format)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.schema import Schema, frozen
from ..config.configdef import ConfigDef
from .base import Converter
from .json import SchemaCache
from .protobuf_schemas import LOGICAL, SCALARS, Message, ProtoField, ProtoFile, numbered, parsed, proto_of, schema_of
from .registry import SchemaRegistry, registry_settings

_MAGIC = b"\x00"
_SCHEMAS = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {"fixed32": "<I", "sfixed32": "<i", "float": "<f", "fixed64": "<Q", "sfixed64": "<q", "double": "<d"}
_BITS = {"int32": 32, "uint32": 32, "sint32": 32, "int64": 64, "uint64": 64, "sint64": 64}


class ProtobufConverter(Converter):
    """io.confluent.connect.protobuf.ProtobufConverter: magic byte, schema id, which message of the schema, the message."""

    @classmethod
    def config(cls) -> ConfigDef:
        return registry_settings()

    def configure(self, config: Mapping[str, str], is_key: bool) -> None:
        super().configure(config, is_key)
        if not self.options["schema.registry.url"]:
            raise ConfigError("schema.registry.url", "it is missing", "give the registry's address")
        self._registry = SchemaRegistry.of(self.options)
        self._written, self._files, self._schemas = (SchemaCache(_SCHEMAS) for _ in range(3))

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None  # a tombstone stays one
        if schema is None:
            raise DataError("Protobuf needs a schema, and the record has none")
        # The schema is kept beside, so that its id stays its own.
        _, number, file = self._written.get((topic, id(schema)), lambda: (schema, *self._registered(topic, schema)))
        schema.check(value)
        return _MAGIC + struct.pack(">I", number) + b"\x00" + encoded(file, file.messages[0], value)

    def _registered(self, topic: str, schema: Schema) -> tuple[int, ProtoFile]:
        text = proto_of(schema)
        subject = f"{topic}-{'key' if self.is_key else 'value'}"
        create = self.options["auto.register.schemas"]
        return self._registry.register(subject, text, create, "PROTOBUF"), parsed(text)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if data[:1] != _MAGIC or len(data) < 6:
            raise DataError("the bytes do not begin with the magic byte 0, a schema id and a message's place")
        number = struct.unpack(">I", data[1:5])[0]
        file: ProtoFile = self._files.get(number, lambda: self._registry.read(number, parsed))
        path, at = _path(data, 5)
        message = file.at(path)
        schema: Schema = self._schemas.get((number, tuple(path)), lambda: schema_of(file, message))
        return schema, decoded(file, message, data[at:])


def _path(data: bytes, at: int) -> tuple[list[int], int]:
    """Which message: a count and indexes, signed; a single zero stands for the first."""
    count, at = _varint(data, at)
    if not count:
        return [0], at
    path = []
    for _ in range(_signed(count)):
        index, at = _varint(data, at)
        path.append(_signed(index))
    return path, at


# -- writing ---------------------------------------------------------------------------------------------------------


def encoded(file: ProtoFile, message: Message, value: Mapping[str, Any]) -> bytes:
    """A struct as a message, its fields in the order of their numbers: one value has one text of bytes."""
    out = bytearray()
    for each in sorted(message.fields, key=lambda each: each.number):
        found = value.get(each.name)
        if found is None:
            continue
        if each.type == "map":
            for pair in found.items():
                out += _delimited(each.number, _entry(file, each, pair))
        elif each.repeated and each.type in SCALARS and each.type not in ("string", "bytes"):
            if found:
                out += _delimited(each.number, b"".join(_scalar(each.type, item) for item in found))
        elif each.repeated:
            for item in found:
                out += _one(file, each, item)
        elif each.present or each.type not in SCALARS or not _is_zero(each.type, found):
            out += _one(file, each, found)
    return bytes(out)


def _entry(file: ProtoFile, each: ProtoField, pair: tuple[Any, Any]) -> bytes:
    assert each.key is not None
    assert each.value is not None
    return _one(file, each.key, pair[0]) + _one(file, each.value, pair[1])


def _one(file: ProtoFile, each: ProtoField, value: Any) -> bytes:
    if each.type in SCALARS:
        data = _scalar(each.type, value)
        wire = _wire(each.type)
        return _delimited(each.number, data) if wire == _BYTES else _tag(each.number, wire) + data
    if each.type in LOGICAL:
        return _delimited(each.number, _logical_bytes(each.type, value))
    return _delimited(each.number, encoded(file, file.by_name[each.type], value))


def _scalar(kind: str, value: Any) -> bytes:
    if kind == "string":
        return str(value).encode()
    if kind == "bytes":
        return bytes(value)
    if kind in _FIXED:
        return struct.pack(_FIXED[kind], value)
    return _number(int(value))


def _is_zero(kind: str, value: Any) -> bool:
    """Whether proto3 leaves it out; -0.0 is no zero."""
    data = _scalar(kind, value)
    return not any(data)


def _logical_bytes(kind: str, value: Any) -> bytes:
    parts: tuple[int, ...]
    if kind == "google.protobuf.Timestamp":
        micros = (value - _EPOCH) // timedelta(microseconds=1)
        parts = (micros // 1_000_000, micros % 1_000_000 * 1000)
    elif kind == "google.type.Date":
        parts = (value.year, value.month, value.day)
    else:
        parts = (value.hour, value.minute, value.second, value.microsecond * 1000)
    return b"".join(_tag(n, _VARINT) + _number(part) for n, part in enumerate(parts, 1) if part)


def _tag(number: int, wire: int) -> bytes:
    return _number(number << 3 | wire)


def _delimited(number: int, data: bytes) -> bytes:
    return _tag(number, _BYTES) + _number(len(data)) + data


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# -- reading ---------------------------------------------------------------------------------------------------------


def decoded(file: ProtoFile, message: Message, data: bytes) -> dict[str, Any]:
    """A message as a struct: what is absent is null where that is told, else zero; unknown fields are passed over."""
    fields, found = numbered(message.fields), dict[str, Any]()
    for number, wire, raw in _parts(data):
        each = fields.get(number)
        if each is None:
            continue
        if each.type == "map":
            entry = _map_entry(file, each, raw)
            found.setdefault(each.name, {}).update(entry)
        elif each.repeated:
            packed = wire == _BYTES and (each.type in file.enums or _wire(each.type) != _BYTES)
            items = _packed(each.type, raw) if packed else [raw]
            found.setdefault(each.name, []).extend(_value(file, each, item) for item in items)
        elif isinstance(raw, bytes) and each.type in file.by_name and each.name in found:
            raise DataError(f"field {each.name!r} comes twice in one message, which is not supported")
        else:
            found[each.name] = _value(file, each, raw)
    return {each.name: found[each.name] if each.name in found else _absent(file, each) for each in message.fields}


def _parts(data: bytes) -> Iterable[tuple[int, int, Any]]:
    """(number, wire type, number or bytes) of each field. Raises DataError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            raw, at = _varint(data, at)
            yield number, wire, raw
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise DataError(f"wire type {wire} is not supported")
        if at + size > len(data):
            raise DataError("the bytes end in the middle of a field: they are no message of this schema")
        yield number, wire, data[at : at + size]
        at += size


def _map_entry(file: ProtoFile, each: ProtoField, raw: Any) -> dict[Any, Any]:
    assert each.key is not None
    assert each.value is not None
    if not isinstance(raw, bytes):
        raise DataError(f"field {each.name!r} is no map in the bytes, as it is in the schema")
    pair = {number: part for number, _, part in _parts(raw)}
    key = _value(file, each.key, pair[1]) if 1 in pair else _zero(file, each.key)
    value = _value(file, each.value, pair[2]) if 2 in pair else _zero(file, each.value)
    return {frozen(key): value}


def _packed(kind: str, raw: bytes) -> list[Any]:
    if kind in _FIXED:
        size = struct.calcsize(_FIXED[kind])
        if len(raw) % size:
            raise DataError("packed numbers end in the middle of one")
        return [raw[at : at + size] for at in range(0, len(raw), size)]
    found, at = [], 0
    while at < len(raw):
        one, at = _varint(raw, at)
        found.append(one)
    return found


def _value(file: ProtoFile, each: ProtoField, raw: Any) -> Any:
    kind = each.type
    expected = int if _wire(kind) == _VARINT or kind in file.enums else bytes
    data: Any = raw
    if not isinstance(raw, expected) or (kind in _FIXED and len(data) != struct.calcsize(_FIXED[kind])):
        raise DataError(f"field {each.name!r} has another type in the bytes than in the schema")
    if kind in file.enums:
        number = _bits(data, 32)
        if number not in file.enums[kind]:
            raise DataError(f"field {each.name!r} has the value {number}, which enum {kind} has no name for")
        return file.enums[kind][number]
    if kind in LOGICAL:
        return _logical(kind, data)
    if kind in file.by_name:
        return decoded(file, file.by_name[kind], data)
    return _plain(kind, data, each.name)


def _plain(kind: str, raw: Any, name: str) -> Any:
    if kind == "string":
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"field {name!r} is no text: {error.reason} at {error.start}") from error
    if kind == "bytes":
        return raw
    if kind == "bool":
        return bool(raw)
    number = struct.unpack(_FIXED[kind], raw)[0] if kind in _FIXED else raw
    if kind in ("sint32", "sint64"):
        return _signed(number)
    if kind in ("int32", "int64"):
        return _bits(number, _BITS[kind])
    if kind in ("uint64", "fixed64") and number >= 1 << 63:
        raise DataError(f"field {name!r} has {number}, which int64 does not hold")
    return number


def _logical(kind: str, raw: bytes) -> Any:
    parts = {number: _bits(part, 64) for number, wire, part in _parts(raw) if wire == _VARINT}

    def part(number: int) -> int:
        return parts.get(number, 0)

    try:
        if kind == "google.protobuf.Timestamp":
            return _EPOCH + timedelta(seconds=part(1), microseconds=part(2) // 1000)
        if kind == "google.type.Date":
            return date(part(1), part(2), part(3))
        return time(part(1), part(2), part(3), part(4) // 1000)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{kind} has a value that Python has not: {error}") from error


def _absent(file: ProtoFile, each: ProtoField) -> Any:
    if each.type == "map":
        return {}
    if each.repeated:
        return []
    if each.present or each.type in LOGICAL or each.type in file.by_name:
        return None
    return _zero(file, each)


def _zero(file: ProtoFile, each: ProtoField) -> Any:
    if each.type in file.enums:
        return _value(file, each, 0)
    if each.type in file.by_name:
        return decoded(file, file.by_name[each.type], b"")
    if each.type in LOGICAL:
        return _logical(each.type, b"")
    zeros: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}
    return zeros.get(each.type, 0)


def _wire(kind: str) -> int:
    if kind in _FIXED:
        return _FIXED32 if _FIXED[kind][1] in "Iif" else _FIXED64
    return _VARINT if kind in SCALARS and kind not in ("string", "bytes") else _BYTES


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), at
        shift += 7
    raise DataError("the bytes end in the middle of a number: they are no message of this schema")


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _bits(number: int, bits: int) -> int:
    """The lowest bits as a signed number, as Protobuf reads one."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
