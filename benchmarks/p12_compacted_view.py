"""P12: a topic as a table, against the same read without compaction."""

from __future__ import annotations

from random import Random
from typing import Any

from confluent_kafka import Producer
from keyorder import TopicAdmin
from keyorder.compaction.strategy import encode_version
from keyorder.compaction.view import CompactedView
from keyorder.connector.log_offsets import LogOffsets

from .harness.bench import Bench
from .harness.measure import Goal, Measure, Result
from .load import key_of

PARTITIONS, VALUE = 4, 100


class CompactedViewSpeed(Measure):
    """Ours: `CompactedView.load()` by a version header. Theirs: the same records into Arrow batches, and dropped."""

    id = "P12"
    title = "compaction by version: a topic as a table"
    theirs = "the same read, not compacted"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """One topic, filled once, read by both in turns."""
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

            offsets = LogOffsets(config)
            ends = offsets.high_watermarks([(topic, p) for p in range(PARTITIONS)])
            offsets.close()
            with ArrowReader(config) as reader:
                meter = bench.meter()
                reader.assign({topic: [(p, 0, end) for (_, p), end in ends.items()]})
                rows = 0
                while not reader.done:
                    rows += len(reader.read(100_000, 0.5))
                wall = meter.stop().wall
            if rows != records:
                raise RuntimeError(f"{rows} rows of {records}")
            return {"rate": size / wall}

        pairs = bench.pairs(ours, theirs)
        rate = pairs.reported("rate", "MB/s")
        assert rate.ratio is not None
        ratio = rate.ratio.median
        return Result(
            data={"records": records, "keys": keys, "partitions": PARTITIONS, "value bytes": VALUE, "header bytes": 9},
            repeats=len(pairs.ours),
            figures=[rate, pairs.cpu()],
            goals=[Goal("a view reads at 0.7 times the speed of the same read at least", f"{ratio:.2f}", ratio >= 0.7)],
            notes=["MB count keys, values and headers. Each version of a key is written at a random moment."],
        )


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
