"""Polls the rows of a SQL table by a column that only grows: an id, and optionally a time of change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from ..api.connector import Config, SourceConnector
from ..api.errors import BadRequestError, ConnectError, OffsetsRefusedError, RetriableError
from ..api.records import SourceRecord
from ..api.task import SourceTask
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString, Range
from .sql_sink import _engine, _short


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
            if set(partition) != {"table"} or (offset is not None and not isinstance(offset.get("incrementing"), int)):
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
        self._engine = _engine(self._options)
        stored = self.context.offset_storage_reader
        self._last: dict[str, int] = {}
        for table in self._options["tables"]:
            offset = stored.offset({"table": table})
            self._last[table] = -(2**63) if offset is None else int(offset["incrementing"])

    def poll(self) -> list[SourceRecord] | None:
        records = [record for table in self._last for record in self._look(table)]
        if not records:
            self.context.wait(self._options["poll.interval.ms"] / 1000)
        return records

    def _look(self, name: str) -> list[SourceRecord]:
        counter = self._options["incrementing.column.name"]
        table = sa.table(name, sa.column(counter, sa.BigInteger))
        query = (
            sa.select(sa.text("*"))
            .select_from(table)
            .where(table.c[counter] > self._last[name])
            .order_by(table.c[counter])
            .limit(self._options["batch.max.rows"])
        )
        try:
            with self._engine.connect() as connection:
                rows = [dict(row) for row in connection.execute(query).mappings()]
        except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
            raise RetriableError(f"the database: {_short(error)}") from error
        except sa.exc.SQLAlchemyError as error:
            raise ConnectError(f"the database: {_short(error)}") from error
        records = []
        for row in rows:
            self._last[name] = int(row[counter])
            records.append(
                SourceRecord(
                    topic=f"{self._options['topic.prefix']}{name}",
                    key=_plain(row[self._options["key.column.name"] or counter]),
                    value={column: _plain(value) for column, value in row.items()},
                    source_partition={"table": name},
                    source_offset={"incrementing": self._last[name]},
                )
            )
        return records

    def stop(self) -> None:
        if hasattr(self, "_engine"):
            self._engine.dispose()


def _plain(value: Any) -> Any:
    """A column's value as JSON has it: times in ISO 8601, decimals as text, bytes as they are."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, memoryview):
        return bytes(value)
    return str(value) if isinstance(value, Decimal) else value
