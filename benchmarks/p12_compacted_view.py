"""P12: a topic as a table, against the same read without compaction; as a Spark job, against Spark's own means."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from confluent_kafka import Producer
from keyorder import TopicAdmin
from keyorder.compaction.spark import compact
from keyorder.compaction.strategy import encode_version
from keyorder.compaction.view import CompactedView
from keyorder.connector import clock
from keyorder.connector.log_offsets import LogOffsets

from .harness.bench import Bench
from .harness.measure import Goal, Measure, Result
from .load import key_of
from .spark_session import spark_session

PARTITIONS, VALUE = 4, 100
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")


class CompactedViewSpeed(Measure):
    """The view: `CompactedView.load()` by a version header, against the same records into Arrow batches, and dropped.

    The Spark job: `compact()`, against `max_by` per key over `format("kafka")`; both to the `noop` sink.
    """

    id = "P12"
    title = "compaction by version: a topic as a table"
    theirs = "the same read, not compacted; max_by in Spark"
    needs = ("pyarrow", "numba", "pyspark")

    def run(self, bench: Bench) -> Result:
        """One topic, filled once, read by all four; the two of a pair in turns."""
        records = 100_000 if bench.quick else 2_000_000
        keys = records // 10
        config, topic = bench.config, bench.topic("view")
        settings = {"compaction.strategy": "header", "compaction.strategy.header": "v"}
        TopicAdmin(config).create(topic, PARTITIONS, config=settings)
        _fill(config, topic, records, keys)
        size = records * (16 + VALUE + 9) / 1e6

        def ours() -> dict[str, float]:
            with CompactedView(config, topic) as view:
                meter = bench.meter()
                view.load()
                wall = meter.stop().wall
                if (len(view), view.counts.records) != (keys, records):
                    raise RuntimeError(f"{len(view)} keys of {view.counts.records} records")
            return {"rate": size / wall}

        def theirs() -> dict[str, float]:
            from keyorder.connector.arrow.reader import ArrowReader

            meter = bench.meter()  # to find the ends and to connect is part of either
            offsets = LogOffsets(config)
            ends = offsets.stable_ends([(topic, p) for p in range(PARTITIONS)])
            offsets.close()
            with ArrowReader(config) as reader:
                reader.assign({topic: [(p, 0, end) for (_, p), end in ends.items()]})
                rows = 0
                while not reader.done:
                    rows += len(reader.read(100_000, 0.5))
                wall = meter.stop().wall
            if rows != records:
                raise RuntimeError(f"{rows} rows of {records}")
            return {"rate": size / wall}

        view = bench.pairs(ours, theirs)
        with spark_session() as spark:
            job = bench.pairs(
                lambda: _job(_compacted(spark, config, topic), size),
                lambda: _job(_by_max(spark, config, topic), size),
            )
            if not bench.quick:
                _same_table(_compacted(spark, config, topic), _by_max(spark, config, topic), keys)
        reads, jobs = view.reported("rate", "MB/s"), job.reported("rate", "MB/s")
        assert reads.ratio is not None
        assert jobs.ratio is not None
        ratio, job_ratio = reads.ratio.median, jobs.ratio.median
        return Result(
            data={"records": records, "keys": keys, "partitions": PARTITIONS, "value bytes": VALUE, "header bytes": 9},
            repeats=len(view.ours),
            figures=[
                replace(reads, name="view: rate"),
                replace(view.cpu(), name="view: CPU"),
                replace(jobs, name="Spark job: rate"),
                replace(job.cpu(), name="Spark job: CPU"),
            ],
            goals=[
                Goal("a view reads as fast as the same read", f"{ratio:.2f}", ratio >= 1.0),
                Goal("the Spark job is 1.5 times as fast as max_by", f"{job_ratio:.2f}", job_ratio >= 1.5),
            ],
            notes=[
                "MB count keys, values and headers. Each version of a key is written at a random moment.",
                "Both Spark plans give key, value, partition, offset, timestamp and headers of each key's highest version.",
            ],
        )


def _compacted(spark: Any, config: dict[str, Any], topic: str) -> Any:
    return compact(spark, config, topic).select(*COLUMNS)


def _by_max(spark: Any, config: dict[str, Any], topic: str) -> Any:
    """What one would write by Spark's own means; the version is decoded by its SQL functions."""
    from pyspark.sql import functions as F

    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", config["bootstrap.servers"])
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    own = F.element_at(F.filter("headers", lambda header: header["key"] == "v"), -1)["value"]
    version = F.conv(F.hex(own), 16, -10).cast("bigint")
    return rows.groupBy("key").agg(
        F.max_by(F.struct(*COLUMNS[1:]), F.struct(version, "offset")).alias("row")
    ).select("key", "row.*")  # fmt: skip


def _job(frame: Any, size: float) -> dict[str, float]:
    began = clock.now()
    frame.write.format("noop").mode("overwrite").save()
    return {"rate": size / (clock.now() - began)}


def _same_table(ours: Any, theirs: Any, keys: int) -> None:
    found = [{bytes(r["key"]): (r["partition"], r["offset"]) for r in frame.collect()} for frame in (ours, theirs)]
    if found[0] != found[1] or len(found[0]) != keys:
        raise RuntimeError("the two plans give different tables")


def _fill(config: dict[str, Any], topic: str, records: int, keys: int) -> None:
    """Versions of all keys in random order."""
    numbers = list(range(records))
    Random(1).shuffle(numbers)
    producer = Producer(
        {**config, "partitioner": "murmur2_random", "linger.ms": 20, "queue.buffering.max.messages": 10**6}
    )
    value = b"v" * VALUE
    for number in numbers:
        while True:
            try:
                producer.produce(topic, value, key_of(number % keys), headers=[("v", encode_version(number // keys))])
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{topic} could not be filled within two minutes")


MEASURE = CompactedViewSpeed()
