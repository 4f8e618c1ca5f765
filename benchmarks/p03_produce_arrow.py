"""P3: sending an Arrow batch, against the library's own producer called for each row."""

from __future__ import annotations

from keyorder import OrderedProducer

from .bare import send_bare
from .columns import Delivered, columns, make, producer_settings, raw_producer, rows, send_all
from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result


class ProduceArrow(Measure):
    """Ours: `produce_arrow`. Theirs: `Producer.produce` for each row, with a delivery callback: both know what arrived."""

    id = "P3"
    title = "sending rows of an Arrow batch"
    theirs = "confluent_kafka.Producer, row by row"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """The rows are ready in both shapes before the clock runs."""
        count = 50_000 if bench.quick else 500_000
        data, batch = rows(count), columns(count)

        def ours() -> dict[str, float]:
            topic = make(bench, "rows")
            with OrderedProducer({**bench.config, **producer_settings()}) as producer:
                producer.produce_arrow(topic, batch.slice(0, 10))
                producer.flush()
                meter = bench.meter()
                taken = producer.produce_arrow(topic, batch)
                queued = meter.stop().wall
                producer.flush()
                cost = meter.stop()
                if taken != count or producer.arrow_failures():
                    raise RuntimeError(f"{taken} of {count} taken")
            return {"queued": count / queued, "acknowledged": count / cost.wall, "cpu": cost.cpu / count * 1e6}

        def theirs() -> dict[str, float]:
            topic, told = make(bench, "rows"), Delivered()
            producer = raw_producer(bench)
            producer.produce(topic, b"first", b"first")
            producer.flush()
            meter = bench.meter()
            send_all(producer.produce, producer.poll, topic, data, on_delivery=told)
            queued = meter.stop().wall
            producer.flush()
            cost = meter.stop()
            producer.close()
            if told.count != count:
                raise RuntimeError(f"{told.count} of {count} delivered")
            return {"queued": count / queued, "acknowledged": count / cost.wall, "cpu": cost.cpu / count * 1e6}

        pairs = bench.pairs(ours, theirs)
        limit = bench.pairs(ours, lambda: send_bare(bench, make(bench, "rows"), batch)).reported("queued", "rows/s")
        queued, cpu = pairs.reported("queued", "rows/s"), pairs.reported("cpu", "us/row")
        assert queued.ratio is not None
        assert cpu.ratio is not None
        return Result(
            data={"rows": count, "key bytes": 16, "value bytes": 100, "partitions": 4},
            repeats=len(pairs.ours),
            figures=[
                queued,
                cpu,
                pairs.reported("acknowledged", "rows/s"),
                Figure("queued, to the bare C loop's", limit.unit, limit.ours, limit.theirs, limit.ratio),
            ],
            goals=[
                Goal("3.5 times the rows queued per second", f"{queued.ratio.median:.2f}", queued.ratio.median >= 3.5),
                Goal(
                    "a quarter of a row's CPU, to its acknowledgement",
                    f"{cpu.ratio.median:.2f}",
                    cpu.ratio.median <= 0.25,
                ),
            ],
            notes=["The broker shares the machine, so it bounds the rate to full acknowledgement for both."],
        )


MEASURE = ProduceArrow()
