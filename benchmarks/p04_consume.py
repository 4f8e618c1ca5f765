"""P4: consume() of single records, against the library's own."""

from __future__ import annotations

from functools import partial

from keyorder import OrderedConsumer, OrderedProducer

from .bare import read_bare
from .columns import columns, ends, make, producer_settings, raw_consumer
from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result

BATCH = 1_000


class Consume(Measure):
    """Ours: `OrderedConsumer.consume`. Theirs: `Consumer.consume` with the same batch size."""

    id = "P4"
    title = "reading records in batches of 1 000"
    theirs = "confluent_kafka.Consumer"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """A topic that never changed, and one that has grown, where a part of the records carries the hint."""
        count = 50_000 if bench.quick else 500_000
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
                read = len(consumer.consume(1, 60))
                meter = bench.meter()
                while read < total:
                    read += len(consumer.consume(min(BATCH, total - read), 1.0))
                cost = meter.stop()
                consumer.close()
                return {"rate": total / cost.wall, "cpu": cost.cpu / total * 1e6}

            def theirs(topic: str = topic, total: int = total) -> dict[str, float]:
                consumer = raw_consumer(bench, topic)
                read = len(consumer.consume(1, 60))
                meter = bench.meter()
                while read < total:
                    read += len(consumer.consume(min(BATCH, total - read), 1.0))
                cost = meter.stop()
                consumer.close()
                return {"rate": total / cost.wall, "cpu": cost.cpu / total * 1e6}

            pairs = bench.pairs(ours, theirs)
            what = "grown topic" if grown else "topic that never changed"
            rate, cpu = pairs.reported("rate", "records/s"), pairs.reported("cpu", "us/record")
            figures += [Figure(f"{what}: {f.name}", f.unit, f.ours, f.theirs, f.ratio) for f in (rate, cpu)]
            assert rate.ratio is not None
            goals.append(Goal(f"the library's own rate, {what}", f"{rate.ratio.median:.2f}", rate.ratio.median >= 1.0))
            bare = bench.pairs(ours, partial(read_bare, bench, topic, total)).reported("rate", "records/s")
            figures.append(Figure(f"{what}: rate, to the bare C loop's", bare.unit, bare.ours, bare.theirs, bare.ratio))
        return Result(
            data={"records": count, "key bytes": 16, "value bytes": 100, "partitions": 4, "batch": BATCH},
            repeats=bench.repeats,
            figures=figures,
            goals=goals,
            notes=[
                "Both with fetch.queue.backoff.ms=20, our default; with the library's own, 1000, either mostly stands still."
            ],
        )


MEASURE = Consume()
