"""Tables behind the SQL sink: what their columns are, and the guarded statements, in SQLAlchemy's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from types import NoneType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..api.errors import DataError
from ..api.records import SinkRecord
from ..api.schema import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME, Schema
from ..api.text import json_text

VERSION = "__keyorder_version"
_BY_SCHEMA: dict[str, Any] = {
    "int8": sa.BigInteger,
    "int16": sa.BigInteger,
    "int32": sa.BigInteger,
    "int64": sa.BigInteger,
    "float32": sa.Double,
    "float64": sa.Double,
    "boolean": sa.Boolean,
    "string": sa.Text,
    "bytes": sa.LargeBinary,
    DECIMAL_NAME: sa.Numeric,
    DATE_NAME: sa.Date,
    TIME_NAME: sa.Time,
    TIMESTAMP_NAME: sa.DateTime(timezone=True),
}


def column_type(value: Any, schema: Schema | None = None) -> Any:
    """The column type of a field: by its schema, else by its value. Structs, maps and lists become JSON text."""
    if schema is not None:
        return _BY_SCHEMA.get(schema.name or "", _BY_SCHEMA.get(schema.type, sa.Text))
    for kinds, made in (
        (bool, sa.Boolean),
        (int, sa.BigInteger),
        (float, sa.Double),
        ((bytes, bytearray), sa.LargeBinary),
    ):
        if isinstance(value, kinds):
            return made
    return sa.Text


def column_value(value: Any, kind: Any, sqlite: bool) -> Any:
    """A field as the driver takes it for a column of this type. Raises DataError for what would not come back as it was."""
    if isinstance(value, (Mapping, list, tuple)):
        value = json_text(value)
    if isinstance(kind, sa.LargeBinary) and not isinstance(value, (bytes, bytearray, memoryview, NoneType)):
        raise DataError(f"a column of bytes takes no {type(value).__name__}")  # a driver would raise a bare TypeError
    if isinstance(value, datetime) and value.tzinfo and isinstance(kind, sa.DateTime) and not kind.timezone:
        return value.astimezone(timezone.utc).replace(tzinfo=None)  # the server would take its session's time zone
    if isinstance(kind, sa.String):
        if isinstance(value, Decimal):
            return format(value, "f")
        return value.isoformat() if isinstance(value, (date, time)) else value
    if sqlite and isinstance(value, Decimal) and Decimal(repr(float(value))) != value:
        raise DataError(f"SQLite's numbers have 15 digits, which {value} exceeds: make its column TEXT")
    return value


def _check_name(field: str, longest: int) -> None:
    """Raises DataError for a field whose name no column can have. longest: in bytes."""
    try:
        fits = 0 < len(field.encode()) <= longest and "\0" not in field
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise DataError(f"the field name {field!r} is not possible for a column: rename the field")


def _folded(name: str) -> str:
    """As SQLite compares names: letters of ASCII alone have no case."""
    return re.sub("[A-Z]+", lambda found: found[0].lower(), name)


class GuardedTable:
    """One table and the versions of its deleted keys beside it (`<name>__deleted`).

    Every row carries the version of the record that wrote it; a deleted key keeps its version in the second table. A
    statement whose version is not higher than what is there changes nothing, whatever comes again or late.
    """

    def __init__(self, engine: sa.Engine, name: str, keys: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        """keys, fields: column types by name, if the table has to be made. Raises DataError for one that does not fit."""
        self._insert: Any = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}[engine.dialect.name]
        self._sqlite = engine.dialect.name == "sqlite"
        for field in fields:
            _check_name(field, engine.dialect.max_identifier_length)
        if self._sqlite and len({_folded(n) for n in (*keys, *fields, VERSION)}) <= len(keys) + len(fields):
            raise DataError("SQLite takes column names that differ in case alone for one: rename a field")
        metadata = sa.MetaData()

        def own() -> list[sa.Column[Any]]:
            return [sa.Column(n, t, primary_key=True, autoincrement=False) for n, t in keys.items()]

        def version() -> sa.Column[Any]:
            return sa.Column(VERSION, sa.BigInteger, nullable=False)

        self.table = sa.Table(name, metadata, *own(), *[sa.Column(n, t) for n, t in fields.items()], version())
        self.deleted = sa.Table(f"{name}__deleted", metadata, *own(), version())
        # A table that is made for a deletion has its key alone; it is made in full when a value comes.
        self.complete = bool(fields) or sa.inspect(engine).has_table(name)
        self._create(engine, metadata.create_all if self.complete else self.deleted.create)
        if self.complete:  # another task may have made it, of other fields
            self.table = sa.Table(name, sa.MetaData(), autoload_with=engine)
            self._check(keys)
        self.keys = tuple(keys)

    @staticmethod
    def _create(engine: sa.Engine, create: Callable[..., None]) -> None:
        """Make what is missing. It fails where another task makes the same table, once for each of the two."""
        for _ in range(2):
            try:
                create(engine, checkfirst=True)
                return
            except sa.exc.DBAPIError:
                continue
        create(engine, checkfirst=True)

    def has(self, fields: Iterable[str]) -> bool:
        """Whether the table is there and has a column for each of these fields, as far as is known here."""
        return self.complete and not set(fields) - {c.name for c in self.table.columns}

    def _check(self, keys: Mapping[str, Any]) -> None:
        name, found = self.table.name, {c.name for c in self.table.primary_key.columns}
        if found != set(keys):
            raise DataError(f"table {name} has the primary key {sorted(found)}, the records' keys are {sorted(keys)}")
        if VERSION not in self.table.columns:
            raise DataError(
                f"table {name} has no column {VERSION}: ALTER TABLE {name} ADD COLUMN {VERSION} BIGINT NOT NULL DEFAULT -1"
            )

    def upsert(
        self, connection: sa.Connection, key: Mapping[str, Any], fields: Mapping[str, Any], version: int
    ) -> None:
        """Insert or update the row of `key`, unless a record of this version or a higher one has been here."""
        unknown = fields.keys() - {c.name for c in self.table.columns}
        if unknown:
            raise DataError(
                f"table {self.table.name} has no column {', '.join(sorted(unknown))}: add it, or drop the field"
            )
        key = self._stored(key)
        row = {**self._stored(fields), **key, VERSION: version}
        columns = [self.table.c[name] for name in row]
        newer = sa.exists().where(*self._is(self.deleted, key), self.deleted.c[VERSION] >= version)
        values = sa.select(*[sa.literal(value, self.table.c[name].type) for name, value in row.items()]).where(~newer)
        statement = self._insert(self.table).from_select([c.name for c in columns], values)
        others = {name: statement.excluded[name] for name in row if name not in key}
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=list(self.keys), set_=others, where=self.table.c[VERSION] < statement.excluded[VERSION]
            )
        )

    def delete(self, connection: sa.Connection, key: Mapping[str, Any], version: int) -> None:
        """Delete the row of `key`, unless a record of this version or a higher one has been here."""
        key = self._stored(key)
        if self.complete:
            connection.execute(sa.delete(self.table).where(*self._is(self.table, key), self.table.c[VERSION] < version))
        statement = self._insert(self.deleted).values({**key, VERSION: version})
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=list(self.keys),
                set_={VERSION: statement.excluded[VERSION]},
                where=self.deleted.c[VERSION] < statement.excluded[VERSION],
            )
        )

    def _stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: column_value(value, self.table.c[name].type, self._sqlite) for name, value in values.items()}

    @staticmethod
    def _is(table: sa.Table, key: Mapping[str, Any]) -> Sequence[Any]:
        return [table.c[name] == value for name, value in key.items()]


def schema_of_field(record: SinkRecord, name: str, of_key: bool) -> Schema | None:
    """The schema of one field of a record's key or value."""
    schema = record.key_schema if of_key else record.value_schema
    return None if schema is None else schema.field(name)
