"""Compaction by version as a Spark job, for topics that outgrow one machine: batch, and streaming.

Both choose by the comparator of the view, so that they give the same table. The layout epoch of a record is not among the
source's columns: tasks read the topic's timeline. A source fixes its end offsets before its tasks begin, so a timeline read
in a task knows every epoch that its records were written under.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient

from ..connector.admin import TopicAdmin
from ..connector.config import connection_of
from ..connector.metadata import identify
from ..connector.view import unmanaged
from ..partitioner.errors import ConfigError
from ..partitioner.routing import HINT_HEADER, Routing, parse_hint
from ..partitioner.timeline import Timeline
from .strategy import Strategy, StrategyKind
from .versions import place_epoch

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame, SparkSession

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_REQUIRED = ("key", "value", "partition", "offset", "timestamp")
_RANK = "struct<known:boolean,version:bigint,epoch:int,offset:bigint>"


def compact(
    spark: SparkSession,
    config: Mapping[str, Any] | None = None,
    topic: str | None = None,
    *,
    source: DataFrame | None = None,
    streaming: bool = False,
    strategy: Strategy | None = None,
    timeline: Timeline | None = None,
    tombstones: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The highest version of each key of a topic, as a DataFrame with the columns of the source.

    Batch: one row per key. Streaming: a row whenever it supersedes what its key had, in output mode `update`; a late
    version is dropped, so the sink's last row of a key is its highest version. Write it wherever Spark writes:
    `.write.format("keyorder")` to a topic, `.write.parquet(...)`, `.writeStream...`.

    config: how the cluster is reached, as for confluent-kafka; needed unless `timeline` is given.
    source: a DataFrame with Spark's Kafka columns (key, value, partition, offset, timestamp, and headers for the header
    strategy and for topics that have grown); by default `topic` is read from its beginning with `format("keyorder")`.
    streaming: read the topic as a stream; a `source` says itself what it is.
    strategy: the topic's by default. timeline: the topic's by default; for a source that is no live topic.
    tombstones: keep the rows of deleted keys, with a null value; a stream always has them.
    options: further options of the source.

    Raises ConfigError, TopicNotFoundError, BrokerUnreachableError.
    Source: KIP-280; on ties across partitions see `versions.place_epoch`.
    """
    if timeline is None:
        if config is None or topic is None:
            raise ConfigError("compact", "it needs config and topic, or a timeline", "give one of both")
        # No callables: this goes to the executors.
        config = {
            name: value for name, value in connection_of(config).items() if isinstance(value, str | int | float | bool)
        }
        with TopicAdmin(config) as admin:
            known = admin.managed(topic)
        strategy = strategy or Strategy.of(known.settings if known is not None else {})
    else:
        strategy = strategy or Strategy.of(timeline.settings)
    if source is None:
        if config is None or topic is None:
            raise ConfigError("compact", "without a source it needs config and topic", "give them")
        source = _read(spark, config, topic, streaming, options or {})
    _check(spark, source, strategy)
    place = _Placing(config, topic, timeline)
    if source.isStreaming:
        return _stream(source, strategy, place)
    return _batch(source, strategy, place, tombstones)


def _read(
    spark: SparkSession, config: Mapping[str, Any], topic: str, streaming: bool, options: Mapping[str, str]
) -> DataFrame:
    reader: Any = spark.readStream if streaming else spark.read
    kafka = {f"kafka.{name}": str(value) for name, value in config.items()}
    fixed = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    found: DataFrame = reader.format("keyorder").options(**{**kafka, **fixed, **options}).load()
    return found


def _check(spark: SparkSession, source: DataFrame, strategy: Strategy) -> None:
    needed = [*_REQUIRED, *(["headers"] if strategy.kind is StrategyKind.HEADER else [])]
    missing = [name for name in needed if name not in source.columns]
    if missing:
        raise ConfigError("source", f"it has no column {', '.join(missing)}", "read it with includeHeaders=true")
    if source.isStreaming and spark.conf.get(_PROVIDER) != _ROCKSDB:
        raise ConfigError(_PROVIDER, "streaming compaction keeps its state in RocksDB", f"set it to {_ROCKSDB}")


class _Placing:
    """Gives rows the epoch of their place; goes to the executors, and reads the timeline anew in each task."""

    def __init__(self, config: Mapping[str, Any] | None, topic: str | None, timeline: Timeline | None) -> None:
        self._config, self._topic, self._timeline = config, topic, timeline

    def routing(self) -> Routing:
        """By the timeline as it is now; a topic without one counts as never changed."""
        if self._timeline is not None:
            return Routing(self._timeline)
        assert self._config is not None
        assert self._topic is not None
        with TopicAdmin(self._config) as admin:
            found = admin.managed(self._topic)
        if found is None:
            client, servers = AdminClient(connection_of(self._config)), str(self._config.get("bootstrap.servers"))
            found = unmanaged(self._topic, identify(client, self._topic, servers).partitions)
        return Routing(found)

    def __call__(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Fill in `epoch` and drop move tombstones, for rows with key, partition, offset and marker."""
        routing: Routing | None = None
        for frame in frames:
            routing = routing or self.routing()
            epochs, keep = [], []
            for key, partition, offset, marker in zip(
                frame["key"], frame["partition"], frame["offset"], frame["marker"], strict=True
            ):
                data = bytes(key)
                hint = parse_hint(marker) if isinstance(marker, str) else None
                keep.append(not routing.is_move_tombstone(data, int(partition), hint))
                epochs.append(place_epoch(routing, data, int(partition), int(offset)))
            frame["epoch"] = epochs
            yield frame[keep]


def _versioned(source: DataFrame, strategy: Strategy) -> DataFrame:
    """The keyed rows of the source with `known`, `version`, `epoch` (not filled in yet) and `marker`.

    marker: the hint of a null-value row, which alone, with key and partition, says whether it is a move tombstone.
    """
    from pyspark.sql import functions as F

    known, version = _version(strategy)
    marker = F.lit(None).cast("string")
    if "headers" in source.columns:
        hint = F.element_at(F.filter("headers", lambda h: h["key"] == HINT_HEADER), -1)["value"].cast("string")
        marker = F.when(
            F.col("value").isNull() & (F.size(F.filter("headers", lambda h: h["key"] == HINT_HEADER)) > 0), hint
        )
    return source.filter(F.col("key").isNotNull()).select(
        "*",
        known.alias("known"),
        version.alias("version"),
        F.lit(0).alias("epoch"),
        marker.alias("marker"),
    )


def _version(strategy: Strategy) -> tuple[Column, Column]:
    """(whether a row has a version, the version): columns, so that no row leaves the JVM for it."""
    from pyspark.sql import functions as F

    if strategy.kind is StrategyKind.OFFSET:
        return F.lit(True), F.lit(0).cast("bigint")
    if strategy.kind is StrategyKind.TIMESTAMP:
        return F.lit(True), F.unix_millis(F.col("timestamp"))
    named = F.filter("headers", lambda h: h["key"] == strategy.header)
    last = F.when(F.size(named) > 0, F.element_at(named, -1)["value"])
    # A negative base makes conv read its 64 bits as a signed number.
    number = F.when(F.length(last) == 8, F.conv(F.hex(last), 16, -10).cast("bigint"))
    if strategy.positive_only:
        number = F.when(number > 0, number)
    return number.isNotNull(), F.coalesce(number, F.lit(0).cast("bigint"))


def _batch(source: DataFrame, strategy: Strategy, place: _Placing, tombstones: bool) -> DataFrame:
    from pyspark.sql import functions as F

    rows = _versioned(source, strategy)
    payload = F.struct(*source.columns)
    # Within one partition a key's epochs grow with its offsets, so that (version, offset) decides there and Python sees
    # only what is left: a row per key, partition and marker.
    within = F.struct("known", "version", "offset")
    left = rows.groupBy("key", "partition", "marker").agg(
        F.max_by(payload, within).alias("row"), F.max(within).alias("rank")
    )
    placed = left.select(
        "key", "partition", "marker", "row", "rank.known", "rank.version", "rank.offset", F.lit(0).alias("epoch")
    )
    schema = placed.schema
    best = (
        placed.mapInPandas(place, schema)
        .groupBy("key")
        .agg(F.max_by("row", F.struct("known", "version", "epoch", "offset")).alias("row"))
        .select("row.*")
    )
    return best if tombstones else best.filter(F.col("value").isNotNull())


def _stream(source: DataFrame, strategy: Strategy, place: _Placing) -> DataFrame:
    from pyspark.sql import functions as F

    from .spark_state import superseding

    rows = _versioned(source, strategy).select(
        "key", "partition", "marker", F.struct(*source.columns).alias("row"), "known", "version", "offset", "epoch"
    )
    placed = rows.mapInPandas(place, rows.schema)
    return superseding(placed, source.schema)
