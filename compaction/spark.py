"""Compaction by version as a Spark job, for topics that outgrow one machine: batch, and streaming.

Both choose by the comparator of the view, so that they give the same table. A batch of a topic is read by a scan of its
own, which reduces each partition before anything is shuffled. For any other source the layout epoch of a record is not among
the columns: tasks read the topic's timeline. A source fixes its end offsets before its tasks begin, so a timeline read in a
task knows every epoch that its records were written under.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..connector.admin import TopicAdmin
from ..connector.config import connection_of
from ..connector.consuming.view import unmanaged
from ..connector.metadata import identify
from ..connector.refusals import ClusterAdmin
from ..partitioner.errors import ConfigError
from ..partitioner.routing import HINT_HEADER, Routing, parse_hint
from ..partitioner.timeline import Timeline
from .spark_scan import COLUMNS, RANK, Scan, committed_ends
from .strategy import Strategy, StrategyKind
from .versions import COPY_HEADER, original_of, place_epoch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_REQUIRED = ("key", "value", "partition", "offset", "timestamp")


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

    Batch: one row per key. Streaming: a row whenever it supersedes what its key had, in output mode `append`; a late
    version is dropped, so the sink's last row of a key is its highest version. Write it wherever Spark writes:
    `.write.format("keyorder")` to a topic, `.write.parquet(...)`, `.writeStream...`.

    config: how the cluster is reached, as for confluent-kafka; needed unless `timeline` is given.
    source: a DataFrame with Spark's Kafka columns (key, value, partition, offset, timestamp, and headers for the header
    strategy and, unless it is by offset, for a topic with a timeline); by default `topic` is read from its beginning, a
    batch up to where it ends now.
    streaming: read the topic as a stream; a `source` says itself what it is.
    strategy: the topic's by default. timeline: the topic's by default; for a source that is no live topic.
    tombstones: keep the rows of deleted keys, with a null value; a stream always has them.
    options: further options of `format("keyorder")`, which then reads the topic; as it always does a stream. They are over
    what is set here, `kafka.isolation.level=read_committed` for one.

    Raises ConfigError, TopicNotFoundError, BrokerUnreachableError.
    Source: KIP-280; on ties across partitions see `versions.place_epoch`.
    """
    if config is not None:
        # No callables: this goes to the executors.
        config = {
            name: value for name, value in connection_of(config).items() if isinstance(value, str | int | float | bool)
        }
    own = source is None and not streaming and not options
    if (own or timeline is None) and (config is None or topic is None):
        raise ConfigError("compact", "it needs config and topic, or a source and a timeline", "give one of both")
    if own:
        assert config is not None
        assert topic is not None
        return _whole_topic(spark, config, topic, strategy, timeline, tombstones)
    if timeline is None:
        assert config is not None
        with TopicAdmin(config) as admin:
            known = admin.managed(str(topic))
    else:
        known = timeline
    strategy = strategy or Strategy.of(known.settings if known is not None else {})
    if source is None:
        if config is None or topic is None:
            raise ConfigError("compact", "without a source it needs config and topic", "give them")
        source = _read(spark, config, topic, streaming, options or {})
    _check(spark, source, strategy, known is not None)
    blind = strategy.kind is not StrategyKind.OFFSET and "headers" not in source.columns
    place = _Placing(config, topic, timeline, blind)
    if source.isStreaming:
        return _stream(source, strategy, place)
    return _batch(source, strategy, place, tombstones)


def _whole_topic(
    spark: SparkSession, config: Mapping[str, Any], topic: str, strategy: Strategy | None, timeline: Timeline | None,
    tombstones: bool,
) -> DataFrame:  # fmt: skip
    from pyspark.sql import functions as F

    client, servers = ClusterAdmin(config), str(config.get("bootstrap.servers"))
    identity = identify(client, topic, servers)
    # The ends first: a timeline that is read afterwards knows every epoch below them.
    ends = committed_ends(config, topic, identity.partitions)
    if timeline is None:
        with TopicAdmin(config) as admin:
            timeline = admin.managed(topic)
    managed = timeline is not None
    known = timeline or replace(unmanaged(topic, identity.partitions), topic_id=identity.topic_id)
    scan = Scan(config, topic, known, managed, strategy or Strategy.of(known.settings), ends, identity.topic_id)
    tasks = spark.range(0, len(ends), 1, len(ends)).mapInArrow(scan, f"{COLUMNS}, {RANK}")
    rank = ("known", "version", "epoch", "place")
    rows = tasks.select("key", F.struct(*(name for name in tasks.columns if name not in rank)).alias("row"), *rank)
    return _highest(rows, rank, tombstones)


def _read(
    spark: SparkSession, config: Mapping[str, Any], topic: str, streaming: bool, options: Mapping[str, str]
) -> DataFrame:
    reader: Any = spark.readStream if streaming else spark.read
    kafka = {f"kafka.{name}": str(value) for name, value in config.items()}
    fixed = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        # The value of an aborted transaction is no version of its key.
        "kafka.isolation.level": "read_committed",
    }
    # Spark takes names in any case. Of two forms of one name it need not take the one that comes last.
    given = {name.lower() for name in options}
    own = {name: value for name, value in {**kafka, **fixed}.items() if name.lower() not in given}
    found: DataFrame = reader.format("keyorder").options(**own, **options).load()
    return found


def _check(spark: SparkSession, source: DataFrame, strategy: Strategy, managed: bool) -> None:
    # Without its header a move tombstone counts as a deletion. By timestamp it is the latest of its key; by offset the record
    # at the new home is later. A managed topic that has not grown yet may grow before the rows are read.
    moving = managed and strategy.kind is not StrategyKind.OFFSET
    needed = [*_REQUIRED, *(["headers"] if moving or strategy.kind is StrategyKind.HEADER else [])]
    missing = [name for name in needed if name not in source.columns]
    if missing:
        raise _lacking(missing)
    if source.isStreaming and spark.conf.get(_PROVIDER) != _ROCKSDB:
        raise ConfigError(_PROVIDER, "streaming compaction keeps its state in RocksDB", f"set it to {_ROCKSDB}")
    if source.isStreaming and (find_spec("google") is None or find_spec("google.protobuf") is None):
        # Spark's own error would be that a worker has crashed.
        raise ConfigError("compact", "Spark's stateful streaming needs protobuf", "install keyorder[compact]")


def _lacking(columns: Sequence[str]) -> ConfigError:
    return ConfigError("source", f"it has no column {', '.join(columns)}", "read it with includeHeaders=true")


class _Placing:
    """Gives rows the epoch of their place; goes to the executors, and reads the timeline anew in each task.

    blind: the rows do not show which of them are move tombstones, and that counts.
    """

    def __init__(
        self, config: Mapping[str, Any] | None, topic: str | None, timeline: Timeline | None, blind: bool
    ) -> None:
        self._config, self._topic, self._timeline, self._blind = config, topic, timeline, blind

    def look(self) -> tuple[Routing, str]:
        """The routing by the timeline as it is now, and the topic's id. A topic without one counts as never changed.

        Raises ConfigError where it has got one since the call, and the rows are blind.
        """
        if self._timeline is not None:
            return Routing(self._timeline), self._timeline.topic_id
        assert self._config is not None
        assert self._topic is not None
        with TopicAdmin(self._config) as admin:
            found = admin.managed(self._topic)
        if found is not None:
            if self._blind:
                raise _lacking(["headers"])
            return Routing(found), found.topic_id
        client, servers = ClusterAdmin(self._config), str(self._config.get("bootstrap.servers"))
        identity = identify(client, self._topic, servers)
        return Routing(unmanaged(self._topic, identity.partitions)), identity.topic_id

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fill in `epoch`, and `offset` of copies; drop move tombstones. For rows with key, partition, offset, marker, copied."""
        import pyarrow as pa

        looked: tuple[Routing, str] | None = None
        for batch in batches:
            routing, topic_id = looked = looked or self.look()
            columns = [batch.column(name).to_pylist() for name in ("key", "partition", "offset", "marker", "copied")]
            epochs, offsets, keep = [], [], []
            for key, partition, offset, marker, copied in zip(*columns, strict=True):
                keep.append(not routing.is_move_tombstone(key, partition, parse_hint(marker)))
                original = None if copied is None else original_of(copied["header"], topic_id, copied["checksum"])
                epochs.append(place_epoch(routing, key, partition, offset) if original is None else original[0])
                offsets.append(offset if original is None else original[1])
            for name, filled in (("epoch", pa.array(epochs, pa.int32())), ("offset", pa.array(offsets, pa.int64()))):
                batch = batch.set_column(batch.schema.get_field_index(name), name, filled)
            yield batch.filter(pa.array(keep, pa.bool_()))


def _versioned(source: DataFrame, strategy: Strategy) -> DataFrame:
    """The keyed rows of the source with `known`, `version`, `epoch` (not filled in yet), `marker` and `copied`.

    marker: the hint of a null-value row, which alone, with key and partition, says whether it is a move tombstone.
    copied: what a compactor's copy says of its original, not judged yet.
    """
    from pyspark.sql import functions as F

    known, version = _version(strategy)
    marker = F.lit(None).cast("string")
    copied = F.lit(None).cast("struct<header:binary,checksum:bigint>")
    if "headers" in source.columns:
        hint, copy = _last_header(HINT_HEADER), _last_header(COPY_HEADER)
        marker = F.when(F.col("value").isNull(), hint.cast("string"))
        checksum = F.crc32(F.coalesce(F.col("value"), F.lit(b"")))
        counts = F.lit(strategy.kind is not StrategyKind.OFFSET)  # by offset the last record wins, whatever it is
        copied = F.when(counts & copy.isNotNull(), F.struct(copy.alias("header"), checksum.alias("checksum")))
    return source.filter(F.col("key").isNotNull()).select(
        "*",
        known.alias("known"),
        version.alias("version"),
        F.lit(0).alias("epoch"),
        marker.alias("marker"),
        copied.alias("copied"),
    )


def _last_header(name: str) -> Column:
    """The value of the last header of that name, null without one."""
    from pyspark.sql import functions as F

    named = F.filter("headers", lambda h: h["key"] == name)
    return F.when(F.size(named) > 0, F.element_at(named, -1)["value"])


def _version(strategy: Strategy) -> tuple[Column, Column]:
    """(whether a row has a version, the version): columns, so that no row leaves the JVM for it."""
    from pyspark.sql import functions as F

    if strategy.kind is StrategyKind.OFFSET:
        return F.lit(True), F.lit(0).cast("bigint")
    if strategy.kind is StrategyKind.TIMESTAMP:
        return F.lit(True), F.unix_millis(F.col("timestamp"))
    last = _last_header(strategy.header)
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
    # only what is left: a row per key and partition, and one per copy and per possible move tombstone.
    within = F.struct("known", "version", "offset")
    left = rows.groupBy("key", "partition", "marker", "copied").agg(
        F.max_by(payload, within).alias("row"), F.max(within).alias("rank")
    )
    placed = left.select(
        "key",
        "partition",
        "marker",
        "copied",
        "row",
        "rank.known",
        "rank.version",
        "rank.offset",
        F.lit(0).alias("epoch"),
    )
    schema = placed.schema
    return _highest(placed.mapInArrow(place, schema), ("known", "version", "epoch", "offset"), tombstones)


def _highest(rows: DataFrame, rank: Sequence[str], tombstones: bool) -> DataFrame:
    """Of rows with `key` and `row` (the columns to give) the row of each key with the highest rank."""
    from pyspark.sql import functions as F

    best = rows.groupBy("key").agg(F.max_by("row", F.struct(*rank)).alias("row")).select("row.*")
    return best if tombstones else best.filter(F.col("value").isNotNull())


def _stream(source: DataFrame, strategy: Strategy, place: _Placing) -> DataFrame:
    from pyspark.sql import functions as F

    from .spark_state import superseding

    rows = _versioned(source, strategy).select(
        "key",
        "partition",
        "marker",
        "copied",
        F.struct(*source.columns).alias("row"),
        "known",
        "version",
        "offset",
        "epoch",
    )
    placed = rows.mapInArrow(place, rows.schema)
    return superseding(placed, source.schema)
