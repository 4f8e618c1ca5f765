"""P4: consume() of single records, against the library's own."""

from __future__ import annotations

from functools import partial

from keyorder import OrderedConsumer, OrderedProducer

from .bare import read_bare
from .columns import columns, ends, make, producer_settings, raw_consumer, rows, send_all
from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result

BATCH = 1_000
# A record's headers become objects when they are looked at; ours has to see whether one of them is its own.
_HEADERS: list[tuple[str, str | bytes | None]] = [(f"trace-{n}", b"0123456789abcdef") for n in range(20)]


class Consume(Measure):
    """Ours: `OrderedConsumer.consume`. Theirs: `Consumer.consume` with the same batch size."""

    id = "P4"
    title = "reading records in batches of 1 000"
    theirs = "confluent_kafka.Consumer"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """A topic that never changed, one that has grown, where a part of the records carries the hint, and one with headers."""
        count = 50_000 if bench.quick else 500_000
        figures: list[Figure] = []
        goals: list[Goal] = []
        for what, grown, headers, wanted in (
            ("topic that never changed", False, False, 1.0),
            ("grown topic", True, False, 1.0),
            ("topic that never changed, 20 headers", False, True, 0.9),
        ):
            topic = make(bench, "read", grown)
            with OrderedProducer({**bench.config, **producer_settings()}) as producer:
                if headers:
                    send_all(producer.produce, producer.poll, topic, rows(count // 5), headers=_HEADERS)
                    producer.flush()
                else:
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
            rate, cpu = pairs.reported("rate", "records/s"), pairs.reported("cpu", "us/record")
            figures += [Figure(f"{what}: {f.name}", f.unit, f.ours, f.theirs, f.ratio) for f in (rate, cpu)]
            assert rate.ratio is not None
            goal = f"{wanted:g} times the library's own rate, {what}"
            goals.append(Goal(goal, f"{rate.ratio.median:.2f}", rate.ratio.median >= wanted))
            if headers:
                continue
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
