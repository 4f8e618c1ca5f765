"""`format("keyorder")`: what Spark's Python Data Source API asks of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ..partitioner.errors import ConfigError
from .errors import NoOptionsError, SourceSchemaError
from .source.options import source_options
from .source.readers import BatchReader, StreamReader
from .source.schema import source_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .sink.options import SinkOptions
    from .sink.writer import BatchWriter, StreamWriter


class KeyorderDataSource(DataSource):
    """Managed topics as a Spark source and sink; options as those of `format("kafka")`."""

    @classmethod
    def name(cls) -> str:
        """The name that `format()` is given."""
        return "keyorder"

    def schema(self) -> StructType:
        """The columns of what is read. Raises NoOptionsError; ConfigError for what is wrong in a batch query and a
        streaming one alike.
        """
        if not set(self.options) - {"path"}:
            raise NoOptionsError
        try:
            source_options(self.options, streaming=False)
        except ConfigError as of_batch:
            # Spark asks this at load(), and does not say which of the two it is.
            try:
                source_options(self.options, streaming=True)
            except ConfigError as of_stream:
                raise self._of_both(of_batch, of_stream) from None
        return source_schema(str(self.options.get("includeHeaders", "false")).strip().lower() == "true")

    def reader(self, schema: StructType) -> BatchReader:
        """Raises ConfigError, SourceSchemaError."""
        self._check_fixed(schema)
        return BatchReader(source_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Raises ConfigError, SourceSchemaError."""
        self._check_fixed(schema)
        return StreamReader(source_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Raises NoOptionsError, ConfigError, SinkSchemaError, SaveModeError."""
        from .sink.headers import refuse_versions
        from .sink.options import own_header
        from .sink.writer import BatchWriter, SaveModeError

        if overwrite:
            raise SaveModeError
        options = replace(self._sink(schema), one_batch=True)
        if options.version_header is not None and options.topic is not None:
            refuse_versions(options, options.topic, own_header(options, options.topic))
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Raises ConfigError, SinkSchemaError."""
        from .sink.writer import StreamWriter

        return StreamWriter(self._sink(schema))

    def _of_both(self, of_batch: ConfigError, of_stream: ConfigError) -> ConfigError:
        """The error that both kinds of query have: the other one may be about what only a batch query refuses."""
        try:
            source_options({n: v for n, v in self.options.items() if n.lower() != of_batch.setting.lower()}, False)
        except ConfigError as next_of_batch:
            if next_of_batch.setting == of_stream.setting:
                return of_stream
        return of_batch

    def _check_fixed(self, schema: StructType) -> None:
        if schema != self.schema():
            raise SourceSchemaError

    def _sink(self, schema: StructType) -> SinkOptions:
        # Spark starts a process for each question that it asks of a source: those of the sink's imports stay out of them.
        from .sink.columns import check_schema
        from .sink.options import STALE, sink_options, with_topics_header

        if not set(self.options) - {"path"}:
            raise NoOptionsError(writing=True)
        options = sink_options(self.options)
        versioned = any(field.name.lower() == "version" for field in schema.fields)
        if versioned and options.compaction_header is None:
            options = with_topics_header(options)
        check_schema(schema, options.topic, options.explicit_partition, options.compaction_header is not None)
        if options.stale != "write" and options.compaction_header is None:
            raise ConfigError(
                STALE,
                "there is no version to compare by",
                "give a column version, and compaction.strategy.header where the topic has no strategy by header or rows name "
                "their topics",
            )
        return options
