"""Polls the rows of a SQL table by a column that only grows. Records have the types of the table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from ..api.connector import Config, SourceConnector
from ..api.errors import BadRequestError, ConnectError, OffsetsRefusedError, RetriableError
from ..api.records import SourceRecord
from ..api.task import SourceTask
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString, Range, ValidString
from .sql_columns import GRANULARITIES, NUMERIC_MAPPINGS, Column, TypeMapping, columns_of, row_schema
from .sql_errors import short
from .sql_sink import _engine


class SqlSourceConnector(SourceConnector):
    """Each table is one task's: rows come in the order of the column, so a key's rows do too."""

    version = "1"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("connection.url", Type.PASSWORD, importance=Importance.HIGH, documentation="SQLAlchemy's URL.")
            .define("connection.password", Type.PASSWORD, None, Importance.HIGH, "If it is not in the URL.")
            .define("tables", Type.LIST, importance=Importance.HIGH, documentation="The tables.")
            .define("incrementing.column.name", Type.STRING, "id", Importance.HIGH, "A whole number that each new row has higher than all before, in the order in which rows become visible.", validator=NonEmptyString())
            .define("key.column.name", Type.STRING, None, Importance.HIGH, "The records' key; by default the incrementing column.")
            .define("topic.prefix", Type.STRING, "", Importance.HIGH, "The topic is this and the table's name.")
            .define("poll.interval.ms", Type.INT, 1000, Importance.MEDIUM, "Between two looks.", validator=Range(1))
            .define("batch.max.rows", Type.INT, 500, Importance.LOW, "Rows per look.", validator=Range(1))
            .define("numeric.mapping", Type.STRING, "none", Importance.LOW, "What becomes of NUMERIC columns. none: Decimal. precision_only: the smallest whole type, where they have no scale and at most 18 digits. best_fit: also float64, where they have a scale and at most 15 digits. best_fit_eager_double: float64 for all that have a scale.", validator=ValidString(*NUMERIC_MAPPINGS, ignore_case=True))
            .define("timestamp.granularity", Type.STRING, "connect_logical", Importance.LOW, "What becomes of TIMESTAMP columns. connect_logical: Timestamp, in whole milliseconds. The others keep microseconds: since 1970 as a number or as text, or ISO 8601 in UTC.", validator=ValidString(*GRANULARITIES, ignore_case=True))
        )  # fmt: skip

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return SqlSourceTask

    def start(self, config: Config) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[Config]:
        tables = type(self).config().parse(self._config)["tables"]
        groups = [tables[i::max_tasks] for i in range(max_tasks)]
        return [{**self._config, "tables": ",".join(group)} for group in groups if group]

    def exactly_once_support(self, config: Config) -> bool:
        return True

    def alter_offsets(
        self,
        config: Config,
        before: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        after: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> None:
        now = {partition["table"]: offset["incrementing"] for partition, offset in before}
        for partition, offset in after:
            table = partition.get("table")
            if (
                set(partition) != {"table"}
                or not isinstance(table, str)
                or (offset is not None and not isinstance(offset.get("incrementing"), int))
            ):
                raise BadRequestError(
                    'an offset has the form {"partition": {"table": T}, "offset": {"incrementing": N}}'
                )
            if offset is not None and offset["incrementing"] < now.get(partition["table"], 0):
                raise OffsetsRefusedError(
                    f"going back in {partition['table']} would write old rows after newer ones of their keys: "
                    "DELETE the offsets to write the whole table again"
                )


class SqlSourceTask(SourceTask):
    """Looks at one table after the other."""

    def start(self, config: Config) -> None:
        self._options = SqlSourceConnector.config().parse(config)
        self._mapping = TypeMapping(
            self._options["numeric.mapping"].lower(), self._options["timestamp.granularity"].lower()
        )
        self._engine = _engine(self._options)
        self._columns: dict[str, tuple[Column, ...]] = {}
        stored = self.context.offset_storage_reader
        self._last: dict[str, int] = {}
        for table in self._options["tables"]:
            offset = stored.offset({"table": table})
            self._last[table] = -(2**63) if offset is None else int(offset["incrementing"])

    def poll(self) -> list[SourceRecord] | None:
        before = dict(self._last)
        try:
            records = [record for table in before for record in self._look(table)]
        except Exception:
            self._last = before  # what was read of other tables is returned to nobody: it is read again
            raise
        if not records:
            self.context.wait(self._options["poll.interval.ms"] / 1000)
        return records

    def _look(self, name: str) -> list[SourceRecord]:
        try:
            columns, rows = self._rows(name)
        except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
            raise RetriableError(f"the database: {short(error)}") from None  # the cause would show the values
        except sa.exc.SQLAlchemyError as error:
            raise ConnectError(f"the database: {short(error)}") from None
        counter = self._options["incrementing.column.name"]
        key = self._options["key.column.name"] or counter
        schema = row_schema(name, columns)
        records = []
        for row in rows:
            value = {column.name: column.value(row[column.name]) for column in columns}
            self._last[name] = _whole(row[counter], f"{counter} of table {name}")
            records.append(
                SourceRecord(
                    topic=f"{self._options['topic.prefix']}{name}",
                    key=value[key],
                    key_schema=schema.field(key),
                    value=value,
                    value_schema=schema,
                    source_partition={"table": name},
                    source_offset={"incrementing": self._last[name]},
                )
            )
        return records

    def _rows(self, name: str) -> tuple[tuple[Column, ...], list[Mapping[str, Any]]]:
        """The next rows, and the columns that the table had in the transaction that read them."""
        while True:
            known = name in self._columns
            try:
                with self._engine.connect() as connection:
                    return self._read(connection, name)
            except (sa.exc.ProgrammingError, sa.exc.NotSupportedError, sa.exc.OperationalError):
                # A column may have gone, or a statement that the server has prepared no longer fits its type.
                if not known:
                    raise
                del self._columns[name]
                self._engine.dispose()

    def _read(self, connection: sa.Connection, name: str) -> tuple[tuple[Column, ...], list[Mapping[str, Any]]]:
        """The columns are looked up again behind the rows, whose read keeps others from changing the table until it ends."""
        columns = self._columns.get(name) or self._known(connection, name)
        while True:
            rows = list(connection.execute(self._query(name, columns)).mappings())
            found = self._known(connection, name) if rows else columns
            if found == columns:
                return columns, [dict(row) for row in rows]
            columns = found

    def _known(self, connection: sa.Connection, name: str) -> tuple[Column, ...]:
        columns = columns_of(connection, name, self._mapping)
        for setting in ("incrementing.column.name", "key.column.name"):
            wanted = self._options[setting]
            if wanted is not None and wanted not in {column.name for column in columns}:
                raise ConnectError(f"table {name} has no column {wanted}: correct {setting}")
        self._columns[name] = columns
        return columns

    def _query(self, name: str, columns: Sequence[Column]) -> sa.Executable:
        counter = sa.column(self._options["incrementing.column.name"], sa.BigInteger)
        # Columns have no type here: values come as the driver has them.
        selected: list[Any] = [
            sa.cast(sa.column(c.name), sa.Text).label(c.name) if c.as_text else sa.column(c.name) for c in columns
        ]
        return (
            sa.select(*selected)
            .select_from(sa.table(name))
            .where(counter > self._last[name])
            .order_by(counter)
            .limit(self._options["batch.max.rows"])
        )

    def stop(self) -> None:
        if hasattr(self, "_engine"):
            self._engine.dispose()


def _whole(raw: Any, where: str) -> int:
    """The incrementing column's value. Texts have another order, and what is cut off would be read again."""
    if not isinstance(raw, (int, float, Decimal)) or raw != int(raw):
        raise ConnectError(
            f"column {where} holds {type(raw).__name__} {raw}: incrementing.column.name needs whole numbers"
        )
    return int(raw)
