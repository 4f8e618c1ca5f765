"""Upserts records into SQL tables (SQLite, PostgreSQL), guarded by version: what comes again or late changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from ....partitioner.errors import ConfigError
from ..api.connector import Config, SinkConnector
from ..api.errors import ConnectError, DataError, RetriableError
from ..api.records import SinkRecord
from ..api.task import SinkTask
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString, Range, ValidString
from .sql_errors import is_of_values, short
from .sql_tables import VERSION, GuardedTable, column_type, schema_of_field

_DIALECTS = ("postgresql", "sqlite")


class SqlSinkConnector(SinkConnector):
    """One row per key. A null value deletes the row. Any number of tasks, any number of deliveries: the newest wins."""

    version = "1"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "connection.url",
                Type.PASSWORD,
                importance=Importance.HIGH,
                documentation="SQLAlchemy's URL, such as postgresql+psycopg://user@host/db or sqlite:////path.",
                validator=None,
            )
            .define("connection.password", Type.PASSWORD, None, Importance.HIGH, "If it is not in the URL.")
            .define("table.name.format", Type.STRING, "${topic}", Importance.MEDIUM, "The table.", validator=NonEmptyString())
            .define("pk.fields", Type.LIST, ["key"], Importance.HIGH, "Primary key: one column of a plain key, or fields.")
            .define("delete.enabled", Type.BOOLEAN, True, Importance.MEDIUM, "Whether null values delete; else they are refused.")
            .define("version.mode", Type.STRING, "offset", Importance.HIGH, "Where versions come from.", validator=ValidString("offset", "header"))
            .define("version.header", Type.STRING, None, Importance.MEDIUM, "For header: its name; a whole number not below 0.")
            .define("retry.backoff.ms", Type.INT, 1000, Importance.LOW, "The wait after the database failed.", validator=Range(1))
        )  # fmt: skip

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return SqlSinkTask

    def start(self, config: Config) -> None:
        _engine(type(self).config().parse(config)).dispose()
        self._config = config

    def task_configs(self, max_tasks: int) -> list[Config]:
        return [dict(self._config) for _ in range(max_tasks)]


class SqlSinkTask(SinkTask):
    """Each put is one database transaction; so there is nothing left to flush."""

    def start(self, config: Config) -> None:
        self._options = SqlSinkConnector.config().parse(config)
        if self._options["version.mode"] == "header" and not self._options["version.header"]:
            raise ConfigError("version.header", "it is missing", "name the header, or use version.mode=offset")
        self._engine = _engine(self._options)
        self._tables: dict[str, GuardedTable] = {}

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Raises RetriableError while the database is away. Records that do not fit are reported, or fail the task."""
        try:
            self._make_tables(records)
            with self._engine.begin() as connection:
                for record in records:
                    self._one(connection, record)
        except (sa.exc.SQLAlchemyError, OverflowError, UnicodeError) as error:
            away = isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)) and not is_of_values(error)
            if away:
                self.context.timeout(self._options["retry.backoff.ms"] / 1000)
            # The cause would show the values.
            raise (RetriableError if away else ConnectError)(f"the database: {short(error)}") from None

    def _make_tables(self, records: Sequence[SinkRecord]) -> None:
        """Apart from the records' transaction: what is made in one that is rolled back would be gone again."""
        for record in records:
            try:
                fields = dict(record.value) if isinstance(record.value, Mapping) else {"value": record.value}
                self._table(record, self._key(record), {} if record.value is None else fields)
            except DataError:
                continue  # it is met again in the record's turn, and reported there

    def _one(self, connection: sa.Connection, record: SinkRecord) -> None:
        """Within a savepoint where failures are tolerated, so that one record does not undo the others."""
        reporter = self.context.errant_record_reporter
        if reporter is None:
            self._store(connection, record)
            return
        failure: DataError | None = None
        try:
            with connection.begin_nested():
                self._store(connection, record)
        except (DataError, sa.exc.SQLAlchemyError, OverflowError, UnicodeError) as error:
            if not is_of_values(error):
                raise
            failure = error if isinstance(error, DataError) else DataError(f"the database: {short(error)}")
        if failure is not None:  # out here, where it has no context that would show the values
            reporter.report(record, failure)

    def _store(self, connection: sa.Connection, record: SinkRecord) -> None:
        key, version = self._key(record), self._version(record)
        if record.value is None:
            if not self._options["delete.enabled"]:
                raise DataError("the value is null, and delete.enabled is false")
            self._table(record, key, {}).delete(connection, key, version)
            return
        fields = dict(record.value) if isinstance(record.value, Mapping) else {"value": record.value}
        self._table(record, key, fields).upsert(connection, key, fields, version)

    def _key(self, record: SinkRecord) -> dict[str, Any]:
        names: list[str] = self._options["pk.fields"]
        if record.key is None:
            raise DataError("the record has no key")
        if not isinstance(record.key, Mapping):
            if len(names) != 1:
                raise DataError(f"a plain key fills one column, pk.fields names {len(names)}")
            return {names[0]: record.key}
        if any(record.key.get(name) is None for name in names):
            raise DataError(f"the key lacks one of {', '.join(names)}")
        return {name: record.key[name] for name in names}

    def _version(self, record: SinkRecord) -> int:
        if self._options["version.mode"] == "offset":
            return record.version
        header = record.headers.last(self._options["version.header"])
        text = "" if header is None else str(header.value)
        if not (text.isascii() and text.isdigit() and int(text) < 2**63):
            raise DataError(f"header {self._options['version.header']!r} holds no whole number below 2^63")
        return int(text)

    def _table(self, record: SinkRecord, key: Mapping[str, Any], fields: Mapping[str, Any]) -> GuardedTable:
        name = self._options["table.name.format"].replace("${topic}", record.topic)
        found = self._tables.get(name)
        if found is None or (fields and not found.has(fields)):
            if VERSION in fields:
                raise DataError(f"the field {VERSION} is the connector's own")
            keys = {n: column_type(v, schema_of_field(record, n, True)) for n, v in key.items()}
            types = {n: column_type(v, schema_of_field(record, n, False)) for n, v in fields.items() if n not in key}
            found = self._tables[name] = GuardedTable(self._engine, name, keys, types)
        return found

    def stop(self) -> None:
        if hasattr(self, "_engine"):
            self._engine.dispose()


def _engine(options: Mapping[str, Any]) -> sa.Engine:
    """The engine of the settings; nothing is connected yet. Raises ConfigError, which shows no password."""
    try:
        url = sa.make_url(options["connection.url"].value)
        if options["connection.password"] is not None:
            url = url.set(password=options["connection.password"].value)
        if url.get_backend_name() not in _DIALECTS:
            raise ConfigError(
                "connection.url", f"{url.get_backend_name()} is not supported", f"use {' or '.join(_DIALECTS)}"
            )
        return sa.create_engine(url, pool_size=1, pool_pre_ping=True, hide_parameters=True)
    except (sa.exc.ArgumentError, ImportError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            "connection.url", f"no usable URL ({type(error).__name__})", "write dialect+driver://user@host/database"
        ) from None
