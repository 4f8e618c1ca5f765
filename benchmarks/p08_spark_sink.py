"""P8: what a row costs on its way from Spark into Kafka, against Spark's own sink."""

from __future__ import annotations

from typing import Any

from keyorder import TopicAdmin
from keyorder.connector.log_offsets import LogOffsets

from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result
from .spark_session import spark_session

PARTITIONS, TASKS, KEYS = 4, 4, 100_000
KEY_BYTES, VALUE_BYTES = 16, 100


class SparkSink(Measure):
    """The same cached rows by `format("keyorder")` and by `format("kafka")`, in one session, each to a fresh topic."""

    id = "P8"
    title = "write a DataFrame to Kafka"
    theirs = 'format("kafka")'
    needs = ("pyspark", "pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """Both sinks with the defaults that they come with, except for the client's linger, which is made equal."""
        rows = 100_000 if bench.quick else 3_000_000
        servers = bench.config["bootstrap.servers"]
        with spark_session() as spark:
            frame = spark.range(0, rows, 1, TASKS).selectExpr(
                f"lpad(cast(id % {KEYS} as string), {KEY_BYTES}, '0') as key",
                f"substr(concat(sha2(cast(id as string), 256), sha1(cast(id as string))), 1, {VALUE_BYTES}) as value",
            )
            frame = frame.selectExpr("cast(key as binary) as key", "cast(value as binary) as value").persist()
            frame.count()

            def write(form: str) -> dict[str, float]:
                topic = bench.topic(form)
                TopicAdmin({"bootstrap.servers": servers}).create(topic, PARTITIONS)
                meter = bench.meter()
                writer = frame.write.format(form).option("kafka.bootstrap.servers", servers)
                writer.option("topic", topic).mode("append").save()
                cost = meter.stop()
                written = _records(bench, topic)
                if written != rows:
                    raise RuntimeError(f"{form} wrote {written} of {rows} rows")
                return {"rate": rows / cost.wall, "cpu": cost.cpu / rows * 1e6, "broker": cost.broker_cpu / rows * 1e6}

            pairs = bench.pairs(lambda: write("keyorder"), lambda: write("kafka"))
        rate = pairs.reported("rate", "rows/s")
        cpu = pairs.reported("cpu", "CPU-µs/row")
        broker = pairs.reported("broker", "broker CPU-µs/row")
        return Result(
            data={
                "rows": rows,
                "bytes": rows * (KEY_BYTES + VALUE_BYTES),
                "keys": KEYS,
                "partitions": PARTITIONS,
                "tasks": TASKS,
            },
            repeats=len(pairs.ours),
            figures=[rate, cpu, broker],
            goals=[_goal(rate, ">=", 1.5), _goal(cpu, "<=", 0.7)],
            notes=["Java machine, Python workers and clients count as one; the broker's CPU is apart"],
        )


def _goal(figure: Figure, sign: str, bound: float) -> Goal:
    assert figure.ratio is not None
    found = figure.ratio.median
    return Goal(f"{figure.name} {sign} {bound}", f"{found:.2f}", found >= bound if sign == ">=" else found <= bound)


def _records(bench: Bench, topic: str) -> int:
    offsets: Any = LogOffsets(bench.config)
    try:
        marks = offsets.high_watermarks([(topic, p) for p in range(PARTITIONS)], timeout=10.0)
        return int(sum(marks.values()))
    finally:
        offsets.close()


MEASURE = SparkSink()
