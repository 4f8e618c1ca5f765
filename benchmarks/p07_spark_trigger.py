"""P7: what a small micro-batch takes, against Spark's own source."""

from __future__ import annotations

import tempfile
from typing import Any

from keyorder import OrderedProducer, TopicAdmin

from .harness.bench import Bench
from .harness.measure import Goal, Measure, Result
from .harness.spread import percentile
from .load import key_of
from .spark_session import spark_session

PARTITIONS, ROWS = 4, 40


class SparkTrigger(Measure):
    """A query into the `noop` sink gets 40 records over four partitions, once more when they are done, and so on."""

    id = "P7"
    title = "a small micro-batch of Spark"
    theirs = 'format("kafka")'
    needs = ("pyspark", "pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """The trigger times that Spark itself reports, of batches that had records; the first ones are not counted."""
        batches = 5 if bench.quick else 30
        with spark_session() as spark:
            pairs = bench.pairs(
                lambda: _small(bench, spark, "keyorder", batches), lambda: _small(bench, spark, "kafka", batches)
            )
        figures = [pairs.reported(name, "ms") for name in ("trigger", "trigger, p95", "addBatch", "planning")]
        ratio = figures[0].ratio
        assert ratio is not None
        return Result(
            data={"rows": ROWS, "partitions": PARTITIONS, "batches": batches},
            repeats=len(pairs.ours),
            figures=figures,
            goals=[Goal("trigger <= 1.3 times", f"{ratio.median:.2f}", ratio.median <= 1.3)],
            notes=["medians of a run's batches; planning: latestOffset, offsets log and query planning"],
        )


def _small(bench: Bench, spark: Any, form: str, batches: int) -> dict[str, float]:
    topic = bench.topic("trigger")
    TopicAdmin(bench.config).create(topic, PARTITIONS)
    warm_up = 3
    with tempfile.TemporaryDirectory(prefix="keyorder-bench-") as folder, OrderedProducer(bench.config) as producer:
        frame = spark.readStream.format(form).option("kafka.bootstrap.servers", bench.config["bootstrap.servers"])
        query = (
            frame.option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .start()
        )
        for _ in range(batches + warm_up):
            for number in range(ROWS):
                producer.produce(topic, b"v" * 100, key_of(number))
            producer.flush(30)
            query.processAllAvailable()
        progress = [p for p in query.recentProgress if p.numInputRows][warm_up:]
        query.stop()
    took = [p.durationMs for p in progress]
    trigger = [float(d["triggerExecution"]) for d in took]
    add = [float(d["addBatch"]) for d in took]
    return {
        "trigger": percentile(trigger, 0.5),
        "trigger, p95": percentile(trigger, 0.95),
        "addBatch": percentile(add, 0.5),
        "planning": percentile([t - a for t, a in zip(trigger, add, strict=True)], 0.5),
    }


MEASURE = SparkTrigger()
