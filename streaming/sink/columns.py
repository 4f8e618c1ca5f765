"""Rows as columns: which a DataFrame must have, and how a batch of them becomes records of topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...partitioner.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = ("topic", "partition", "headers", "key", "value", "version")


class SinkSchemaError(UsageError, ValueError):
    """A DataFrame that cannot be written as records: a column is missing or of another type."""


class NullTopicError(UsageError, ValueError):
    """A row without a topic, where no `topic` option names one for all."""

    def __str__(self) -> str:
        return "null topic present in the data: use the topic option for all rows, or fill the topic column"


@dataclass(frozen=True)
class Rows:
    """Rows of one topic, in their order.

    Columns: key, value (binary, null where null); headers, partition, version (int64) or None.
    """

    topic: str
    key: pa.Array
    value: pa.Array
    headers: pa.Array | None
    partition: pa.Array | None
    version: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.value)

    def filtered(self, keep: Any) -> Rows:
        """The rows that a boolean column names."""
        columns = (self.key, self.value, self.headers, self.partition, self.version)
        return Rows(self.topic, *(None if column is None else column.filter(keep) for column in columns))


def check_schema(schema: StructType, topic: str | None, explicit_partition: bool, versioned: bool = False) -> None:
    """Refuse what Spark's own sink refuses, in the driver, before a task runs.

    versioned: whether a column `version` is to become a header.

    Raises SinkSchemaError, ConfigError (a `partition` column without the option that allows it).
    """
    from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType

    fields = {field.name.lower(): field for field in schema.fields}
    if "value" not in fields:
        raise SinkSchemaError("Required attribute 'value' not found: select a column named value, string or binary")
    if topic is None and "topic" not in fields:
        raise SinkSchemaError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic"
        )
    wanted = {
        **({"topic": (StringType,)} if topic is None else {}),
        "key": (StringType, BinaryType),
        "value": (StringType, BinaryType),
        "partition": (IntegerType,),
        **({"version": (LongType,)} if versioned else {}),
    }
    if versioned and "version" not in fields:
        raise SinkSchemaError(
            "Required attribute 'version' not found: compaction.strategy.header writes a column of that name, of type "
            "bigint, as a header"
        )
    for name, types in wanted.items():
        if name in fields and not isinstance(fields[name].dataType, types):
            names = " or ".join(t.typeName() for t in types)
            raise SinkSchemaError(
                f"{name} attribute type must be a {names}, not {fields[name].dataType.simpleString()}"
            )
    headers = fields.get("headers")
    if headers is not None and not (
        isinstance(headers.dataType, ArrayType)
        and headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    ):
        raise SinkSchemaError(
            "headers attribute type must be a array<struct<key:string,value:binary>>, "
            f"not {headers.dataType.simpleString()}"
        )
    if "partition" in fields and not explicit_partition:
        raise ConfigError(
            "partition",
            "a column of that name would place rows by hand, and keys would lose their order at the next layout change",
            "drop the column, or set keyorder.allow.explicit.partition=true",
        )


def written(batch: pa.RecordBatch, topic: str | None, versioned: bool) -> pa.RecordBatch:
    """Only the columns that become records: Spark's own sink passes over all others, too.

    topic: of the `topic` option, which wins over the column. versioned: whether `version` becomes a header.
    """
    left_out = ({"topic"} if topic is not None else set()) | (set() if versioned else {"version"})
    wanted = set(_COLUMNS) - left_out
    return batch.select([index for index, name in enumerate(batch.schema.names) if name.lower() in wanted])


def split_by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[Rows]:
    """The rows of each topic, in the batch's order. Raises NullTopicError."""
    columns: dict[str, Any] = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
    key = _binary(columns["key"]) if "key" in columns else pa.nulls(batch.num_rows, pa.binary())
    whole = Rows(
        topic or "",
        key,
        _binary(columns["value"]),
        columns.get("headers"),
        columns.get("partition"),
        columns.get("version"),
    )
    if topic is not None:
        yield whole
        return
    topics = columns["topic"]
    if topics.null_count:
        raise NullTopicError
    for name in pc.unique(topics).to_pylist():
        yield replace(whole, topic=name).filtered(pc.equal(topics, name))


def _binary(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    return column
