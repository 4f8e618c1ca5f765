"""Transforms of times: TimestampConverter, TimestampRouter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.date_patterns import DatePattern
from ..api.errors import DataError
from ..api.java import hash_order
from ..api.schema import DATE, INT64, STRING, TIME, TIMESTAMP, Field, Schema, decode_logical, epoch_ms, moment
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import ValidString
from .base import (
    HalfTransformation,
    R,
    Transformation,
    UpdatedSchemas,
    bare_struct,
    field_value,
    fields_of,
    null_or_default,
    required,
)

_DAY_MS = 86_400_000
_LONG = 2**63
# Unit of Unix numbers: (how many make a millisecond, how many milliseconds one makes).
_UNITS = {"seconds": (1, 1000), "milliseconds": (1, 1), "microseconds": (1000, 1), "nanoseconds": (1_000_000, 1)}
_LOGICAL = (DATE.name, TIME.name, TIMESTAMP.name)
_TARGETS = {"string": STRING, "unix": INT64, "Date": DATE, "Time": TIME, "Timestamp": TIMESTAMP}


def date_pattern(setting: str, text: str) -> DatePattern:
    """A pattern of Java's SimpleDateFormat. Raises ConfigError that names what is wrong with it."""
    try:
        return DatePattern(text)
    except ValueError as error:
        raise ConfigError(setting, f"{text!r}: {error}", "write it as Java's SimpleDateFormat") from None


class TimestampRouter(Transformation):
    """Puts the record's time into the topic's name."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("topic.format", Type.STRING, "${topic}-${timestamp}", Importance.HIGH, "The new name.")
            .define("timestamp.format", Type.STRING, "yyyyMMdd", Importance.HIGH, "As Java's SimpleDateFormat, in UTC.")
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._pattern = date_pattern("timestamp.format", self.options["timestamp.format"])

    def apply(self, record: R) -> R | None:
        if record.timestamp is None:
            raise DataError("TimestampRouter: the record has no timestamp")
        text = self._pattern.format(record.timestamp)
        name = self.options["topic.format"].replace("${topic}", record.topic).replace("${timestamp}", text)
        return record.new(topic=name)


class TimestampConverter(HalfTransformation):
    """Between the forms of a time: Unix numbers, text by a pattern, Date, Time, Timestamp."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(
            ConfigDef()
            .define("field", Type.STRING, "", Importance.HIGH, "The field; empty for the whole.")
            .define("target.type", Type.STRING, importance=Importance.HIGH, validator=ValidString(*_TARGETS))
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
        self._target: str = self.options["target.type"]
        self._pattern = date_pattern("format", self.options["format"]) if self.options["format"].strip() else None
        if self._target == "string" and self._pattern is None:
            raise ConfigError("format", "it is missing", "TimestampConverter needs it for text")
        self._unit, self._milliseconds = _UNITS[self.options["unix.precision"]]
        self._schemas = UpdatedSchemas(self._updated)

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        name = self.options["field"]
        if schema is None:
            if data is None or not name:
                return self.with_half(record, None, self._convert(None, data))
            fields = fields_of(None, data, "TimestampConverter")
            made = {**fields, name: self._convert(None, fields.get(name))}
            return self.with_half(record, None, hash_order(made, copied=len(fields)))
        if not name:
            return self.with_half(record, self._of(schema), self._convert(schema, data))
        if schema.type != "struct":
            raise DataError(f"TimestampConverter: field {name!r} is looked for in a value of type {schema.type}")
        updated = self._schemas.of(schema)
        return self.with_half(record, updated, None if data is None else self._struct(schema, updated, data))

    def _struct(self, schema: Schema, updated: Schema, data: Any) -> dict[str, Any]:
        fields = fields_of(schema, data, "TimestampConverter")
        made = {}
        for before, after in zip(schema.fields, updated.fields, strict=True):
            value = field_value(before, fields, self.options["replace.null.with.default"])
            if before.name == self.options["field"]:
                value = self._convert(before.schema, value)
            made[before.name] = required(after, value)
        return made

    def _of(self, schema: Schema) -> Schema:
        return replace(_TARGETS[self._target], optional=schema.optional)

    def _updated(self, schema: Schema) -> Schema:
        name = self.options["field"]
        fields = tuple(Field(f.name, self._of(f.schema)) if f.name == name else f for f in schema.fields)
        made = replace(bare_struct(schema, fields), optional=schema.optional)
        return made if schema.default is None else replace(made, default=self._struct(schema, made, schema.default))

    def _convert(self, schema: Schema | None, value: Any) -> Any:
        if schema is not None and schema.name not in _LOGICAL and schema.type not in ("string", "int64"):
            raise DataError(f"TimestampConverter: type {schema.type} is no form of a time")
        if value is None:
            return None
        milliseconds = self._read(schema, value)
        target = self._target
        if target == "string":
            assert self._pattern is not None
            return self._pattern.format(milliseconds)
        if target == "unix":
            return self._in_units(milliseconds)
        if target == "Date":
            return decode_logical(DATE, milliseconds // _DAY_MS)
        return decode_logical(TIME, milliseconds % _DAY_MS) if target == "Time" else moment(milliseconds)

    def _read(self, schema: Schema | None, value: Any) -> int:
        if isinstance(value, str):
            if self._pattern is None:
                raise DataError("TimestampConverter: there is no format to read text by")
            try:
                return self._pattern.parse(value)
            except ValueError as error:
                raise DataError(f"TimestampConverter: {error}") from error
        if isinstance(value, (datetime, date, time)):
            return epoch_ms(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise DataError(f"TimestampConverter: a {type(value).__name__} is no form of a time")
        found = _toward_zero(value * self._milliseconds, self._unit)
        if not -_LONG <= found < _LONG:
            raise DataError(f"TimestampConverter: {value} {self.options['unix.precision']} are too many ms for int64")
        return found

    def _in_units(self, milliseconds: int) -> int:
        found = _toward_zero(milliseconds * self._unit, self._milliseconds)
        if not -_LONG <= found < _LONG:
            raise DataError(
                f"TimestampConverter: {milliseconds} ms are too many {self.options['unix.precision']} for int64"
            )
        return found


def _toward_zero(number: int, divisor: int) -> int:
    """As Java divides."""
    return number // divisor if number >= 0 else -(-number // divisor)
