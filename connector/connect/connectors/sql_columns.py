"""The columns of a table that is read: which schema each has, and a driver's value as that schema's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from ..api.errors import ConnectError
from ..api.schema import BOOLEAN, BYTES, DATE, FLOAT64, INT64, STRING, TIME, TIMESTAMP, Field, Schema, decimal_schema

NUMERIC_MAPPINGS = ("none", "precision_only", "best_fit", "best_fit_eager_double")
GRANULARITIES = ("connect_logical", "micros_long", "micros_string", "micros_iso_datetime_string")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WHOLE_DIGITS = 18  # of which every number fits int64
_DOUBLE_DIGITS = 15  # of which every number comes back from a float64 as it was
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """How types are mapped: the settings `numeric.mapping` and `timestamp.granularity`."""

    numeric: str = "none"
    granularity: str = "connect_logical"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. as_text: the database is asked for the value's text, since the type has no schema of its own."""

    name: str
    schema: Schema
    convert: Convert
    as_text: bool = False

    def value(self, raw: Any) -> Any:
        """A driver's value as the schema has it. What does not fit is left as it is: the converter refuses it."""
        if raw is None:
            return None
        try:
            return self.convert(raw)
        except (ValueError, TypeError, ArithmeticError):
            return raw


def columns_of(connection: sa.Connection, table: str, mapping: TypeMapping) -> tuple[Column, ...]:
    """The columns of a table or a view, in its order. Raises ConnectError where there is none of that name."""
    try:
        found = sa.inspect(connection).get_columns(table)
    except sa.exc.NoSuchTableError:
        raise ConnectError(f"the database has no table {table}") from None
    sqlite = connection.dialect.name == "sqlite"
    return tuple(_column(each["name"], each["type"], bool(each["nullable"]), sqlite, mapping) for each in found)


def row_schema(table: str, columns: tuple[Column, ...]) -> Schema:
    """The struct of a row. It bears the table's name, where Avro could take that."""
    name = table if _AVRO_NAME.match(table) else None
    return Schema("struct", name=name, fields=tuple(Field(column.name, column.schema) for column in columns))


def _column(name: str, kind: Any, nullable: bool, sqlite: bool, mapping: TypeMapping) -> Column:
    while isinstance(kind, postgresql.DOMAIN):
        kind = kind.data_type
    if isinstance(kind, sa.ARRAY):
        item = _column(name, kind.item_type, True, sqlite, mapping)
        if not item.as_text:
            schema = Schema("array", nullable, values=item.schema)
            return Column(name, schema, _Items(item))
    found = _typed(kind, sqlite, mapping)
    if found is None:
        return Column(name, replace(STRING, optional=nullable), str, as_text=True)
    schema, convert = found
    return Column(name, replace(schema, optional=nullable), convert)


def _typed(kind: Any, sqlite: bool, mapping: TypeMapping) -> tuple[Schema, Convert] | None:
    """The schema of a type and what makes its values; None for one that only its text can stand for."""
    if isinstance(kind, sa.Boolean):
        return BOOLEAN, _boolean
    if isinstance(kind, sa.Integer):
        # SQLite keeps 64 bits in a column of any whole type.
        small, big = isinstance(kind, sa.SmallInteger), sqlite or isinstance(kind, sa.BigInteger)
        return (INT64 if big else Schema("int16" if small else "int32")), _as_it_is
    if isinstance(kind, sa.Float):
        single = not sqlite and (isinstance(kind, sa.REAL) or (kind.precision or 53) <= 24)
        return (Schema("float32") if single else FLOAT64), float
    if isinstance(kind, sa.Numeric):
        return _numeric(kind.precision, kind.scale, mapping.numeric)
    if isinstance(kind, sa.DateTime):
        return _TIMESTAMPS[mapping.granularity]
    if isinstance(kind, sa.Date):
        return DATE, _date
    if isinstance(kind, sa.Time):
        return None if kind.timezone else (TIME, _time)
    if isinstance(kind, sa.LargeBinary):
        return BYTES, bytes
    # A driver would parse JSON, and lose digits of its numbers.
    return (STRING, _as_it_is) if isinstance(kind, sa.String) else None


def _numeric(precision: int | None, scale: int | None, mapping: str) -> tuple[Schema, Convert]:
    if precision is None:
        return STRING, _digits  # each value has a scale of its own, and a schema has one
    scale = scale or 0
    whole = scale == 0 or (scale < 0 and mapping.startswith("best_fit"))
    if mapping != "none" and whole and precision - scale <= _WHOLE_DIGITS:
        bounds = ((2, "int8"), (4, "int16"), (9, "int32"), (_WHOLE_DIGITS, "int64"))
        return Schema(next(name for digits, name in bounds if precision - scale <= digits)), _whole
    if scale > 0 and (mapping == "best_fit_eager_double" or (mapping == "best_fit" and precision <= _DOUBLE_DIGITS)):
        return FLOAT64, float
    return decimal_schema(scale), _decimal


# -- values ----------------------------------------------------------------------------------------------------------


def _as_it_is(raw: Any) -> Any:
    return raw


def _boolean(raw: Any) -> Any:
    """SQLite has 0 and 1."""
    return bool(raw) if raw in (0, 1) else raw


def _whole(raw: Any) -> Any:
    number = int(raw)
    return number if number == raw else raw


def _digits(raw: Any) -> str:
    return format(raw, "f") if isinstance(raw, Decimal) else str(raw)


def _decimal(raw: Any) -> Any:
    """SQLite has ints and floats: the shortest digits that stand for the float are those that were stored."""
    return Decimal(repr(raw)) if isinstance(raw, (int, float)) and not isinstance(raw, bool) else raw


def _date(raw: Any) -> Any:
    return date.fromisoformat(raw) if isinstance(raw, str) else raw


def _time(raw: Any) -> Any:
    return time.fromisoformat(raw) if isinstance(raw, str) else raw


def _moment(raw: Any) -> Any:
    """A time without a zone is UTC."""
    if isinstance(raw, str):
        raw = datetime.fromisoformat(f"{raw[:-1]}+00:00" if raw.endswith("Z") else raw)
    if not isinstance(raw, datetime):
        raise TypeError
    return raw.replace(tzinfo=timezone.utc) if raw.tzinfo is None else raw.astimezone(timezone.utc)


def _microseconds(raw: Any) -> int:
    since: timedelta = _moment(raw) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_TIMESTAMPS: Mapping[str, tuple[Schema, Convert]] = {
    "connect_logical": (TIMESTAMP, _moment),
    "micros_long": (INT64, _microseconds),
    "micros_string": (STRING, lambda raw: str(_microseconds(raw))),
    "micros_iso_datetime_string": (
        STRING,
        lambda raw: _moment(raw).replace(tzinfo=None).isoformat(timespec="microseconds"),
    ),
}


@dataclass(frozen=True, slots=True)
class _Items:
    """The values of an array's items; one inside of another is left as it is, and refused."""

    item: Column

    def __call__(self, raw: Any) -> list[Any]:
        return [self.item.value(value) for value in raw]
