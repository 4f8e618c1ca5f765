"""P5: reading Arrow batches, against the library's own consumer turned into them, and against its bare C loop."""

from __future__ import annotations

from functools import partial

from keyorder import OrderedConsumer, OrderedProducer

from .bare import read_bare
from .columns import columns, ends, make, producer_settings, raw_consumer
from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result

ROWS = 50_000


class ConsumeArrow(Measure):
    """Ours: `consume_arrow`. Theirs: `Consumer.consume`, each batch turned into a RecordBatch of the same columns.

    The limit: the library's batch call in a bare loop, which makes nothing of the messages.
    """

    id = "P5"
    title = "reading Arrow batches"
    theirs = "confluent_kafka.Consumer into a RecordBatch"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """A topic that never changed, and one that has grown."""
        from keyorder.connector.arrow.schema import batch_of

        count = 50_000 if bench.quick else 1_000_000
        figures: list[Figure] = []
        goals: list[Goal] = []
        for grown in (False, True):
            topic = make(bench, "read", grown)
            with OrderedProducer({**bench.config, **producer_settings()}) as producer:
                producer.produce_arrow(topic, columns(count))
            total = sum(ends(bench, topic).values())

            def ours(topic: str = topic, total: int = total) -> dict[str, float]:
                consumer = OrderedConsumer(
                    {**bench.config, "group.id": bench.topic("group"), "auto.offset.reset": "earliest"}
                )
                consumer.subscribe([topic])
                read = len(consumer.consume_arrow(1, 60))
                meter = bench.meter()
                while read < total:
                    read += len(consumer.consume_arrow(ROWS, 0.1))
                cost = meter.stop()
                consumer.close()
                return {"rate": total / cost.wall, "cpu": cost.cpu / total * 1e6}

            def theirs(topic: str = topic, total: int = total) -> dict[str, float]:
                consumer = raw_consumer(bench, topic)
                read = len(consumer.consume(1, 60))
                meter = bench.meter()
                while read < total:
                    read += len(batch_of(consumer.consume(min(10_000, total - read), 0.1)))
                cost = meter.stop()
                consumer.close()
                return {"rate": total / cost.wall, "cpu": cost.cpu / total * 1e6}

            pairs = bench.pairs(ours, theirs)
            what = "grown topic" if grown else "topic that never changed"
            rate, cpu = pairs.reported("rate", "rows/s"), pairs.reported("cpu", "us/row")
            figures += [Figure(f"{what}: {f.name}", f.unit, f.ours, f.theirs, f.ratio) for f in (rate, cpu)]
            assert rate.ratio is not None
            goals.append(Goal(f"4 times the rate, {what}", f"{rate.ratio.median:.2f}", rate.ratio.median >= 4))
            bare = bench.pairs(ours, partial(read_bare, bench, topic, total)).reported("rate", "rows/s")
            assert bare.ratio is not None
            figures.append(Figure(f"{what}: rate, to the bare C loop's", bare.unit, bare.ours, bare.theirs, bare.ratio))
            goals.append(
                Goal(f"0.8 of the bare C loop's rate, {what}", f"{bare.ratio.median:.2f}", bare.ratio.median >= 0.8)
            )
        return Result(
            data={"rows": count, "key bytes": 16, "value bytes": 100, "partitions": 4, "batch": ROWS},
            repeats=bench.repeats,
            figures=figures,
            goals=goals,
            notes=[
                "The broker shares the machine's cores with both.",
                "Both with fetch.queue.backoff.ms=20, our default; with the library's own, 1000, either mostly stands still.",
            ],
        )


MEASURE = ConsumeArrow()
