"""P6: how fast a streaming query reads a topic, against Spark's own source."""

from __future__ import annotations

import tempfile
from typing import Any

from keyorder import TopicAdmin
from keyorder.connector import clock

from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result
from .load import fill
from .spark_session import spark_session

PARTITIONS, KEYS, VALUE_BYTES = 4, 100_000, 100


class SparkSource(Measure):
    """One topic by `format("keyorder")` and by `format("kafka")`, in one session, one micro-batch into the `noop` sink."""

    id = "P6"
    title = "read a topic with Spark"
    theirs = 'format("kafka")'
    needs = ("pyspark", "pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """Both sources with the defaults that they come with; a fresh checkpoint for each run."""
        rows = 100_000 if bench.quick else 3_000_000
        servers = bench.config["bootstrap.servers"]
        topic = bench.topic("source")
        TopicAdmin(bench.config).create(topic, PARTITIONS)
        bench.say(f"writing {rows} records")
        fill(bench.config, topic, rows, KEYS, b"v" * VALUE_BYTES)
        with spark_session() as spark:
            pairs = bench.pairs(
                lambda: _read(spark, "keyorder", servers, topic, rows),
                lambda: _read(spark, "kafka", servers, topic, rows),
            )
        add, whole, cpu = pairs.reported("addBatch", "s"), pairs.reported("whole query", "s"), pairs.cpu()
        return Result(
            data={"rows": rows, "bytes": rows * (VALUE_BYTES + 16), "keys": KEYS, "partitions": PARTITIONS},
            repeats=len(pairs.ours),
            figures=[add, whole, cpu],
            goals=[_faster(add, 2.5), _faster(whole, 1.8)],
            notes=["Java machine, Python workers and clients count as one"],
        )


def _read(spark: Any, form: str, servers: str, topic: str, rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="keyorder-bench-") as folder:
        began = clock.now()
        frame = spark.readStream.format(form).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        query = (
            frame.option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        whole = clock.now() - began
        progress = query.recentProgress
    read = sum(p.numInputRows for p in progress)
    if read != rows:
        raise RuntimeError(f"{form} read {read} of {rows} rows")
    return {"addBatch": sum(p.durationMs.get("addBatch", 0) for p in progress) / 1000, "whole query": whole}


def _faster(figure: Figure, bound: float) -> Goal:
    assert figure.ratio is not None
    found = 1 / figure.ratio.median
    return Goal(f"{figure.name}: {bound} times as fast", f"{found:.2f}", found >= bound)


MEASURE = SparkSource()
