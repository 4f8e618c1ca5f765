"""P17: the time from `produce()` to the record's return by `poll()`, at a steady rate, against the library's own clients."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector import clock

from .columns import PARTITIONS, make, make_unmanaged
from .harness.bench import Bench, Pairs
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import Spread, percentile
from .load import key_of

RATE = 1_000
_KEYS = 1_000
_VALUE = 100
#: Goals: what ours may add, in milliseconds.
_P50, _P99 = 0.2, 1.0


class Latency(Measure):
    """Ours: `OrderedProducer` to `OrderedConsumer`. Theirs: confluent_kafka's, with Java's partitioner. Both idempotent."""

    id = "P17"
    title = "end-to-end latency"
    theirs = "confluent_kafka"

    def run(self, bench: Bench) -> Result:
        """Three topics: unmanaged, managed and never changed, grown. Each run has clients and a group of its own."""
        seconds = 2 if bench.quick else 15
        figures: list[Figure] = []
        goals: list[Goal] = []
        for kind in ("unmanaged topic", "topic that never changed", "grown topic"):
            topic = _topic(bench, kind)
            pairs = bench.pairs(
                lambda topic=topic: _run(bench, topic, seconds, OrderedProducer, OrderedConsumer, {}),  # type: ignore[misc]
                lambda topic=topic: _run(  # type: ignore[misc]
                    bench, topic, seconds, Producer, Consumer, {"partitioner": "murmur2_random"}
                ),
            )
            for name, most in (("p50", _P50), ("p99", _P99)):
                found = pairs.reported(name, "ms")
                figures.append(Figure(f"{kind}: {name}", found.unit, found.ours, found.theirs, found.ratio))
                added = _added(pairs, name)
                figures.append(Figure(f"{kind}: added to {name}", "ms", added))
                goals.append(
                    Goal(f"added to {name}, {kind} <= {most} ms", f"{added.median:.2f} ms", added.median <= most)
                )
        return Result(
            data={
                "records/s": RATE,
                "seconds": seconds,
                "keys": _KEYS,
                "value bytes": _VALUE,
                "partitions": PARTITIONS,
                "linger": "5 ms, the library's default",
            },
            repeats=bench.repeats,
            figures=figures,
            goals=goals,
            notes=["Writer and reader are two threads of one process. The first second of each run is not counted."],
        )


def _added(pairs: Pairs, name: str) -> Spread:
    """Ours minus theirs, pair by pair."""
    return Spread.of(
        [a.values[name] - b.values[name] for a, b in zip(pairs.ours, pairs.theirs, strict=True)],
    )


def _topic(bench: Bench, kind: str) -> str:
    if kind == "unmanaged topic":
        return make_unmanaged(bench, "latency")
    return make(bench, "latency", grown=kind == "grown topic")


def _run(
    bench: Bench,
    topic: str,
    seconds: int,
    producer_of: Callable[[dict[str, Any]], Any],
    consumer_of: Callable[[dict[str, Any]], Any],
    more: dict[str, Any],
) -> dict[str, float]:
    """The latencies of one run: p50 and p99, milliseconds."""
    consumer = consumer_of({**bench.config, "group.id": bench.topic("group"), "auto.offset.reset": "latest"})
    placed = threading.Event()
    consumer.subscribe([topic], on_assign=lambda *_: placed.set())
    while not placed.is_set():
        consumer.poll(0.1)
    producer = producer_of({**bench.config, "enable.idempotence": True, **more})
    total = RATE * (seconds + 1)
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(producer, topic, total, stop))
    writer.start()
    taken: list[float] = []
    try:
        # Records of the first second may lie before the position at which the reader began; no later one does.
        while True:
            message = consumer.poll(60)
            assert message is not None, "no record for a minute"
            assert message.error() is None, message.error()
            number, sent = struct.unpack_from("<Id", message.value())
            if number >= RATE:
                taken.append((clock.now() - sent) * 1000)
            if len(taken) == total - RATE:
                break
    finally:
        stop.set()
        writer.join()
        producer.flush(60)
        consumer.close()
        if hasattr(producer, "close"):
            producer.close()
    return {"p50": percentile(taken, 0.5), "p99": percentile(taken, 0.99)}


def _write(producer: Any, topic: str, total: int, stop: threading.Event) -> None:
    """One record a millisecond; late ones follow at once."""
    pad = b"v" * (_VALUE - struct.calcsize("<Id"))
    began = clock.now()
    for number in range(total):
        wait = began + number / RATE - clock.now()
        if wait > 0 and stop.wait(wait):
            return
        producer.produce(topic, struct.pack("<Id", number, clock.now()) + pad, key_of(number % _KEYS))
        producer.poll(0)


MEASURE = Latency()
