"""P7: what a small micro-batch takes, against Spark's own source."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

from keyorder import OrderedProducer, TopicAdmin

from .harness.bench import Bench, Pairs
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import percentile
from .load import key_of
from .spark_session import spark_session

PARTITIONS, ROWS, WARM_UP = 4, 40, 3
COUNTS = (1, 64, 256)
# Spark's own source asks for the log's ends behind the fetch that its consumer has sent ahead, on one connection: at the end
# of a log that fetch waits 500 ms at the broker, for each partition. Ours waits 10 ms by default, and so may theirs here.
QUICK_FETCH = {"kafka.fetch.max.wait.ms": "10"}


class SparkTrigger(Measure):
    """A query into the `noop` sink takes 40 records over four partitions in each micro-batch, in two situations.

    At the end of the log: the next 40 come when those before them are done. Backlog: all of them are there before the
    query starts, and maxOffsetsPerTrigger cuts them. The first one again with other partition counts.
    """

    id = "P7"
    title = "a small micro-batch of Spark"
    theirs = 'format("kafka")'
    needs = ("pyspark", "pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """The trigger times that Spark itself reports, of batches that had records; the first ones are not counted."""
        batches = 5 if bench.quick else 30
        with spark_session() as spark:

            def pairs(
                options: dict[str, str],
                theirs: dict[str, str],
                count: int = batches,
                partitions: int = PARTITIONS,
                **repeats: Any,
            ) -> Pairs:
                return bench.pairs(
                    lambda: _small(bench, spark, "keyorder", partitions, count, options),
                    lambda: _small(bench, spark, "kafka", partitions, count, {**options, **theirs}),
                    **repeats,
                )

            at_end = pairs({}, QUICK_FETCH)
            backlog = pairs({"maxOffsetsPerTrigger": str(ROWS)}, {})
            few = min(batches, 10)
            wide = {n: pairs({}, QUICK_FETCH, few, n, repeats=min(bench.repeats, 3), warm_up=False) for n in COUNTS}
            plain = pairs({}, {}, few, repeats=1, warm_up=False)
        figures = [
            _named(situation, each.reported(name, "ms"))
            for situation, each in (("end", at_end), ("backlog", backlog))
            for name in ("trigger", "trigger, p95", "addBatch", "latestOffset", "Spark's own")
        ]
        figures += [_named(f"end, {n} partitions", each.reported("trigger", "ms")) for n, each in wide.items()]
        figures.append(_named("end, theirs by default", plain.reported("trigger", "ms")))
        return Result(
            data={"rows": ROWS, "partitions": PARTITIONS, "batches": batches},
            repeats=len(at_end.ours),
            figures=figures,
            goals=[_goal(figure) for figure in figures if figure.name in ("end: trigger", "backlog: trigger")],
            notes=[
                "medians of a run's batches; Spark's own: the trigger without addBatch and latestOffset, the sources' part",
                f"end: Spark's own source with {' '.join(f'{k}={v}' for k, v in QUICK_FETCH.items())}; its last line: without",
            ],
        )


def _named(situation: str, figure: Figure) -> Figure:
    return replace(figure, name=f"{situation}: {figure.name}")


def _goal(figure: Figure) -> Goal:
    assert figure.ratio is not None
    found = figure.ratio.median
    return Goal(f"{figure.name} <= 0.6 times", f"{found:.2f}", found <= 0.6)


def _small(
    bench: Bench, spark: Any, form: str, partitions: int, batches: int, options: dict[str, str]
) -> dict[str, float]:
    topic = bench.topic("trigger")
    TopicAdmin(bench.config).create(topic, partitions)
    backlog = "maxOffsetsPerTrigger" in options
    with tempfile.TemporaryDirectory(prefix="keyorder-bench-") as folder, OrderedProducer(bench.config) as producer:

        def fill() -> None:
            for number in range(ROWS):
                producer.produce(topic, b"v" * 100, key_of(number))
            producer.flush(30)

        for _ in range(batches + WARM_UP if backlog else 0):
            fill()
        frame = spark.readStream.format(form).option("kafka.bootstrap.servers", bench.config["bootstrap.servers"])
        query = (
            frame.option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .start()
        )
        for _ in range(0 if backlog else batches + WARM_UP):
            fill()
            query.processAllAvailable()
        query.processAllAvailable()
        progress = [p for p in query.recentProgress if p.numInputRows][WARM_UP:]
        query.stop()
    took = [p.durationMs for p in progress]
    trigger = [float(d["triggerExecution"]) for d in took]
    add = [float(d["addBatch"]) for d in took]
    return {
        "trigger": percentile(trigger, 0.5),
        "trigger, p95": percentile(trigger, 0.95),
        "addBatch": percentile(add, 0.5),
        "latestOffset": percentile([float(d["latestOffset"]) for d in took], 0.5),
        "Spark's own": percentile(
            [t - d["addBatch"] - d["latestOffset"] for t, d in zip(trigger, took, strict=True)], 0.5
        ),
    }


MEASURE = SparkTrigger()
