"""`format("keyorder")`: what Spark's Python Data Source API asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from .sink.columns import check_schema
from .sink.options import SinkOptions, sink_options
from .sink.writer import BatchWriter, SaveModeError, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class KeyorderDataSource(DataSource):
    """Managed topics as a Spark source and sink; options as those of `format("kafka")`."""

    @classmethod
    def name(cls) -> str:
        """The name that `format()` is given."""
        return "keyorder"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Raises ConfigError, SinkSchemaError, SaveModeError."""
        if overwrite:
            raise SaveModeError
        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Raises ConfigError, SinkSchemaError."""
        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> SinkOptions:
        options = sink_options(self.options)
        check_schema(schema, options.topic, options.explicit_partition)
        return options
