"""MaskField: fields without their content."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

from ..api.errors import DataError
from ..api.java import hash_order, to_float32
from ..api.schema import INTEGERS, Schema
from ..api.text import java_decimal
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString
from .base import HalfTransformation, R, field_value, fields_of, needed_list, null_or_default, required

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# The value without content of each Python type; a datetime is a date, so it comes first.
_EMPTY: tuple[tuple[type, Any], ...] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (str, ""),
    (Decimal, Decimal(0)),
    (datetime, _EPOCH),
    (date, _EPOCH.date()),
    (time, time()),
    (list, []),
)


class MaskField(HalfTransformation):
    """Replaces fields by the null value of their type, or by a replacement."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(
            needed_list("fields", "Fields to mask.").define(
                "replacement",
                Type.STRING,
                None,
                Importance.LOW,
                "What to write instead, for text and numbers.",
                validator=NonEmptyString(),
            )
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        given = self.options["fields"]
        # A HashSet of the list: new fields of a map come in the order in which the JVM puts them.
        self._names = hash_order(dict.fromkeys(given), sized=max(len(given) * 4 // 3 + 1, 16))

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        fields = fields_of(schema, data, "MaskField")
        names = self._names
        if schema is None:
            made = {**fields, **{name: self._mask(name, None, fields.get(name)) for name in names}}
            return self.with_half(record, None, hash_order(made, copied=len(fields)))
        changed = {}
        for f in schema.fields:
            value = field_value(f, fields, self.options["replace.null.with.default"])
            changed[f.name] = required(f, self._mask(f.name, f.schema, value) if f.name in names else value)
        return self.with_half(record, schema, changed)

    def _mask(self, name: str, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        if self.options["replacement"] is not None:
            return self._replacement(name, schema, value)
        if isinstance(value, Mapping) and (schema is None or schema.type == "map"):
            return {}
        for kind, empty in _EMPTY:
            if isinstance(value, kind):
                return [] if kind is list else empty
        raise DataError(f"MaskField: field {name!r} of type {_type(schema, value)} has no value without content")

    def _replacement(self, name: str, schema: Schema | None, value: Any) -> Any:
        text = self.options["replacement"]
        if isinstance(value, str):
            return text
        number = java_decimal(text)
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise DataError(f"MaskField: field {name!r} of type {_type(schema, value)} takes no replacement")
        if number is None:
            raise DataError(f"MaskField: {text!r} cannot stand for field {name!r}: it is no number")
        if isinstance(value, Decimal):
            return number
        if isinstance(value, float):
            return to_float32(float(number)) if _type(schema, value) == "float32" else float(number)
        bound = INTEGERS["int64" if schema is None else schema.type]
        if not -bound <= int(number) < bound:
            raise DataError(
                f"MaskField: {text!r} cannot stand for field {name!r}: it does not fit {_type(schema, value)}"
            )
        return int(number)


def _type(schema: Schema | None, value: Any) -> str:
    return type(value).__name__ if schema is None else schema.type
