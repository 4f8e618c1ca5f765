"""Transforms of types: Cast, SetSchemaMetadata."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.java import hash_order, to_float32
from ..api.schema import DECIMAL_NAME, INTEGERS, LOGICAL, PRIMITIVES, Field, Schema, encode_logical
from ..api.text import time_text, to_text
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from .base import (
    HalfTransformation,
    R,
    UpdatedSchemas,
    bare_struct,
    field_value,
    fields_of,
    needed_list,
    null_or_default,
    required,
)

_TARGETS = tuple(kind for kind in PRIMITIVES if kind != "bytes")
_FLOAT32 = Schema("float32")
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)")


class Cast(HalfTransformation):
    """Gives fields, or the whole, another primitive type: spec=field:type,... or spec=type."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(needed_list("spec", "field:type, or a type."))

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._whole: str | None = None
        self._fields: dict[str, str] = {}
        for part in self.options["spec"]:
            name, separator, kind = (word.strip() for word in part.partition(":"))
            kind = (kind if separator else name).lower()
            if kind not in _TARGETS:
                raise ConfigError("spec", repr(part), f"the type must be one of {', '.join(_TARGETS)}")
            if separator:
                self._fields[name] = kind
            else:
                self._whole = kind
        if self._whole is not None and len(self.options["spec"]) > 1:
            raise ConfigError("spec", "a type for the whole beside other casts", "give one or the other")
        self._fields = hash_order(self._fields)  # new fields of a map come in the order in which the JVM puts them
        self._schemas = UpdatedSchemas(self._updated)

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        updated = None if schema is None else self._schemas.of(schema)
        if self._whole is not None:
            return self.with_half(record, updated, cast(schema, data, self._whole))
        fields = fields_of(schema, data, "Cast")
        if schema is None or updated is None:
            made = {**fields, **{name: cast(None, fields.get(name), kind) for name, kind in self._fields.items()}}
            return self.with_half(record, None, hash_order(made, copied=len(fields)))
        changed = {}
        for before, after in zip(schema.fields, updated.fields, strict=True):
            value = field_value(before, fields, self.options["replace.null.with.default"])
            target = self._fields.get(before.name)
            changed[before.name] = required(after, value if target is None else cast(before.schema, value, target))
        return self.with_half(record, updated, changed)

    def _updated(self, schema: Schema) -> Schema:
        if self._whole is not None:
            default = cast(schema, schema.default, self._whole)
            made = Schema(
                self._whole, schema.optional, schema.name, schema.version, schema.doc, default, schema.parameters
            )
            if default is not None:
                made.check(default, "the default")
            return made
        if schema.default is not None:
            raise DataError("Cast: a struct with a default of its own cannot be changed")
        fields = []
        for f in schema.fields:
            target = self._fields.get(f.name)
            if target is not None:
                default = cast(f.schema, f.schema.default, target)
                f = Field(f.name, Schema(target, f.schema.optional, default=default))
            fields.append(f)
        return replace(bare_struct(schema, tuple(fields)), optional=schema.optional)


def cast(schema: Schema | None, value: Any, kind: str) -> Any:
    """A primitive as another type. Raises DataError for what cannot be one, and for a number that the type does not hold."""
    if value is None:
        return None
    if schema is not None and schema.type not in PRIMITIVES:
        raise DataError(f"Cast: a value of type {schema.type} cannot be cast")
    if schema is None and not isinstance(value, (bool, int, float, str, bytes, bytearray, memoryview)):
        raise DataError(f"Cast: a {type(value).__name__} without a schema cannot be cast")
    if kind == "string":
        if isinstance(value, (bytes, bytearray, memoryview)):
            return base64.b64encode(bytes(value)).decode()
        return time_text(value) if isinstance(value, (date, time)) else to_text(schema, value)
    if schema is not None and schema.name in LOGICAL and schema.name != DECIMAL_NAME:
        value = encode_logical(schema, value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise DataError(f"Cast: bytes cannot be cast to {kind}: only to a string")
    if kind == "boolean":
        return value.lower() == "true" if isinstance(value, str) else _whole(value, "int64") != 0
    if kind in INTEGERS:
        if isinstance(value, str) and not _INTEGER.fullmatch(value):
            raise DataError(f"Cast: {value!r} is no whole number")
        return _whole(value, kind)
    number = _real(value)
    if schema is not None and schema.type == "float32":
        number = to_float32(number)
    if kind == "float64":
        return number
    # Without a schema nothing tells that it has 24 bits: then it is the number that Java writes for it.
    return to_float32(number) if schema is not None else float(to_text(_FLOAT32, number))


def _whole(value: Any, kind: str) -> int:
    """A number without its fraction. The JVM cuts off the bits that a type does not hold; here that is an error."""
    try:
        number = int(value)
    except (ValueError, OverflowError):  # neither NaN nor an infinity is a whole number
        raise DataError(f"Cast: {value} is no {kind}") from None
    if not -INTEGERS[kind] <= number < INTEGERS[kind]:
        raise DataError(f"Cast: {value} does not fit {kind}")
    return number


def _real(value: Any) -> float:
    if not isinstance(value, str):
        return _as_float(value)
    text = value.strip()
    if not _DOUBLE.fullmatch(text):
        raise DataError(f"Cast: {value!r} is no number")
    return float(text if text[-1] in "yN" else text.rstrip("fFdD"))


def _as_float(value: int | float | Decimal | bool) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class SetSchemaMetadata(HalfTransformation):
    """Sets name and version of the schema."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(
            ConfigDef()
            .define("schema.name", Type.STRING, None, Importance.HIGH, "The name.")
            .define("schema.version", Type.INT, None, Importance.HIGH, "The version.")
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        name, version = self.options["schema.name"], self.options["schema.version"]
        if name is None and version is None:
            raise ConfigError("schema.name", "neither it nor schema.version is set", "set one of them")
        changes = {k: v for k, v in (("name", name), ("version", version)) if v is not None}
        self._schemas = UpdatedSchemas(lambda schema: replace(schema, **changes))

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if schema is None:
            if data is None:
                return record
            raise DataError("SetSchemaMetadata needs a schema: use a converter that has schemas")
        if schema.type == "struct" and data is not None:
            fields = fields_of(schema, data, "SetSchemaMetadata")
            defaults = self.options["replace.null.with.default"]
            data = {f.name: required(f, field_value(f, fields, defaults)) for f in schema.fields}
        return self.with_half(record, self._schemas.of(schema), data)
