"""P2: produce() of single records, against the library's own."""

from __future__ import annotations

from keyorder import OrderedProducer

from .bare import send_bare
from .columns import Delivered, columns, make, producer_settings, raw_producer, rows, send_all
from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result


class Produce(Measure):
    """Ours: `OrderedProducer.produce`. Theirs: `Producer.produce` with `partitioner=murmur2_random`."""

    id = "P2"
    title = "sending records one by one, to full acknowledgement"
    theirs = "confluent_kafka.Producer"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """The same records, each with a delivery callback, from the first call to the last acknowledgement."""
        count = 50_000 if bench.quick else 500_000
        data = rows(count)

        def ours() -> dict[str, float]:
            topic, told = make(bench, "produce"), Delivered()
            with OrderedProducer({**bench.config, **producer_settings()}) as producer:
                producer.produce(topic, b"first", b"first")
                producer.flush()
                meter = bench.meter()
                send_all(producer.produce, producer.poll, topic, data, on_delivery=told)
                queued = meter.stop().wall
                producer.flush()
                cost = meter.stop()
            return _figures(told, count, queued, cost.wall, cost.cpu)

        def theirs() -> dict[str, float]:
            topic, told = make(bench, "produce"), Delivered()
            producer = raw_producer(bench)
            producer.produce(topic, b"first", b"first")
            producer.flush()
            meter = bench.meter()
            send_all(producer.produce, producer.poll, topic, data, on_delivery=told)
            queued = meter.stop().wall
            producer.flush()
            cost = meter.stop()
            producer.close()
            return _figures(told, count, queued, cost.wall, cost.cpu)

        batch = columns(count)

        pairs = bench.pairs(ours, theirs)
        limit = bench.pairs(ours, lambda: send_bare(bench, make(bench, "produce"), batch)).reported(
            "acknowledged", "records/s"
        )
        figures = [
            pairs.reported("acknowledged", "records/s"),
            pairs.reported("queued", "records/s"),
            pairs.reported("cpu", "us/record"),
            Figure("acknowledged, to the bare C loop's", limit.unit, limit.ours, limit.theirs, limit.ratio),
        ]
        assert figures[0].ratio is not None
        ratio = figures[0].ratio.median
        return Result(
            data={"records": count, "key bytes": 16, "value bytes": 100, "partitions": 4},
            repeats=len(pairs.ours),
            figures=figures,
            goals=[Goal("0.85 of the library's own rate at least", f"{ratio:.2f}", ratio >= 0.85)],
        )


def _figures(told: Delivered, count: int, queued: float, wall: float, cpu: float) -> dict[str, float]:
    if told.count != count:
        raise RuntimeError(f"{told.count} of {count} delivered")
    return {"queued": count / queued, "acknowledged": count / wall, "cpu": cpu / count * 1e6}


MEASURE = Produce()
