"""Transforms of types: Cast, TimestampConverter, SetSchemaMetadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.schema import INT32, INT64, PRIMITIVES, STRING, TIMESTAMP, Schema
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import ValidString
from .base import HalfTransformation, R, set_field

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNITS = {"milliseconds": 1, "seconds": 1000, "microseconds": 1e-3, "nanoseconds": 1e-6}
_JAVA_PATTERN = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%f", "Z": "%z", "XXX": "%z",
    "X": "%z", "EEE": "%a", "MMM": "%b", "hh": "%I", "a": "%p", "yy": "%y", "DDD": "%j", "z": "%Z",
}  # fmt: skip


class Cast(HalfTransformation):
    """Gives fields, or the whole, another primitive type: spec=field:type,... or spec=type."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("spec", Type.LIST, importance=Importance.HIGH, documentation="field:type, or a type.")

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._whole: str | None = None
        self._fields: dict[str, str] = {}
        for part in self.options["spec"]:
            name, separator, kind = part.rpartition(":")
            if kind not in PRIMITIVES:
                raise ConfigError("spec", repr(part), f"the type must be one of {', '.join(PRIMITIVES)}")
            if separator:
                self._fields[name] = kind
            else:
                self._whole = kind
        if self._whole is not None and self._fields:
            raise ConfigError("spec", "a type for the whole beside types of fields", "give one or the other")

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        if self._whole is not None:
            new = None if schema is None else Schema(self._whole, schema.optional)
            return self.with_half(record, new, cast(self._whole, data))
        fields = self.struct(record)
        for name, kind in self._fields.items():
            if name in fields:
                fields[name] = None if fields[name] is None else cast(kind, fields[name])
                if schema is not None and (old := schema.field(name)) is not None:
                    schema = set_field(schema, name, Schema(kind, old.optional))
        return self.with_half(record, schema, fields)


def cast(kind: str, value: Any) -> Any:
    """A primitive as another type. Raises DataError for what does not fit."""
    try:
        if kind in _BITS:
            number = int(float(value)) if isinstance(value, str) and "." in value else int(value)
            if not -(2 ** (_BITS[kind] - 1)) <= number < 2 ** (_BITS[kind] - 1):
                raise DataError(f"{number} does not fit {kind}")
            return number
        if kind in ("float32", "float64"):
            return float(value)
        if kind == "boolean":
            return value.lower() == "true" if isinstance(value, str) else bool(value)
        if kind == "string":
            return str(value).lower() if isinstance(value, bool) else str(value)
        return value.encode() if isinstance(value, str) else bytes(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{type(value).__name__} cannot be cast to {kind}: {error}") from error


class TimestampConverter(HalfTransformation):
    """Between the forms of a time: Unix numbers, text by a pattern, Timestamp."""

    @classmethod
    def config(cls) -> ConfigDef:
        kinds = ("string", "unix", "Date", "Time", "Timestamp")
        return (
            ConfigDef()
            .define("field", Type.STRING, "", Importance.HIGH, "The field; empty for the whole.")
            .define("target.type", Type.STRING, importance=Importance.HIGH, validator=ValidString(*kinds))
            .define("format", Type.STRING, "", Importance.MEDIUM, "Pattern of text forms, as Java's SimpleDateFormat.")
            .define(
                "unix.precision",
                Type.STRING,
                "milliseconds",
                Importance.LOW,
                "Unit of Unix numbers.",
                validator=ValidString(*_UNITS),
            )
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        if self.options["target.type"] == "string" and not self.options["format"]:
            raise ConfigError("format", "it is missing", "TimestampConverter needs it for text")

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        kind = {"string": STRING, "unix": INT64, "Date": INT32, "Time": INT32}.get(
            self.options["target.type"], TIMESTAMP
        )
        name = self.options["field"]
        if not name:
            new = None if schema is None else Schema(kind.type, schema.optional, kind.name, kind.version)
            return self.with_half(record, new, self._convert(data))
        fields = self.struct(record)
        fields[name] = None if fields.get(name) is None else self._convert(fields[name])
        return self.with_half(record, set_field(schema, name, Schema(kind.type, True, kind.name, kind.version)), fields)

    def _convert(self, value: Any) -> Any:
        milliseconds = self._milliseconds(value)
        target = self.options["target.type"]
        if target == "unix":
            return round(milliseconds / _UNITS[self.options["unix.precision"]])
        if target == "string":
            return format_time(milliseconds, self.options["format"])
        if target == "Date":
            return milliseconds // 86_400_000
        return milliseconds % 86_400_000 if target == "Time" else milliseconds

    def _milliseconds(self, value: Any) -> int:
        if isinstance(value, str):
            try:
                parsed = datetime.strptime(value, strftime_pattern(self.options["format"]))
            except ValueError as error:
                raise DataError(f"TimestampConverter: {error}") from error
            aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=timezone.utc)
            return round(aware.timestamp() * 1000)
        if isinstance(value, datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise DataError(f"TimestampConverter cannot read {type(value).__name__}")
        return round(value * _UNITS[self.options["unix.precision"]])


def strftime_pattern(java: str) -> str:
    """A SimpleDateFormat pattern as strftime's; quoted text is kept."""
    parts = re.findall(r"'([^']*)'|([A-Za-z])(\2*)|(.)", java)
    made = ""
    for quoted, letter, more, other in parts:
        word = letter + more
        made += _JAVA_PATTERN.get(word, word) if letter else (quoted or other).replace("%", "%%")
    return made


def format_time(milliseconds: int, java: str) -> str:
    """A time as text in UTC."""
    moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    pattern = strftime_pattern(java).replace("%f", f"{milliseconds % 1000:03d}")
    return moment.strftime(pattern)


class SetSchemaMetadata(HalfTransformation):
    """Sets name and version of the schema."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("schema.name", Type.STRING, None, Importance.HIGH, "The name.")
            .define("schema.version", Type.INT, None, Importance.HIGH, "The version.")
            .define("replace.null.with.default", Type.BOOLEAN, True, Importance.MEDIUM, "A null becomes the default.")
        )

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if schema is None:
            if data is None:
                return record
            raise DataError("SetSchemaMetadata needs a schema: use a converter that has schemas")
        name = self.options["schema.name"] or schema.name
        version = self.options["schema.version"] if self.options["schema.version"] is not None else schema.version
        parts = {slot: getattr(schema, slot) for slot in schema.__slots__}
        return self.with_half(record, Schema(**{**parts, "name": name, "version": version}), data)
