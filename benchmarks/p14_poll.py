"""P14: the loop `poll(1.0)`, one record at a time, and `await poll()`, against the library's own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.aio import AIOConsumer as RawAIOConsumer
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.aio import AIOConsumer

from .columns import PARTITIONS, columns, ends, make, make_unmanaged, producer_settings, raw_producer, rows, send_all
from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result

BUSY = 2
# The stock client hands each `await poll()` to a thread, at 13 000 a second: it reads a part of the topic only.
AWAITED = 20
_RATE, _CPU = 0.8, 1.3


class Poll(Measure):
    """Ours: `OrderedConsumer.poll` and `AIOConsumer.poll`. Theirs: those of confluent_kafka, in a group of their own too."""

    id = "P14"
    title = "reading records one at a time"
    theirs = "confluent_kafka.Consumer"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """Three topics: unmanaged, managed and never changed, grown. Each on the machine as it is, and beside busy loops."""
        count = 20_000 if bench.quick else 300_000
        figures: list[Figure] = []
        goals: list[Goal] = []
        for kind in ("unmanaged topic", "topic that never changed", "grown topic"):
            topic = _filled(bench, kind, count)
            total = sum(ends(bench, topic).values())
            for load in ("", f", beside {BUSY} busy loops"):
                with _busy(BUSY if load else 0):
                    self._pair(bench, f"poll(), {kind}{load}", topic, total, figures, goals)
            self._awaited(bench, f"await poll(), {kind}", topic, total, figures, goals)
        return Result(
            data={"records": count, "key bytes": 16, "value bytes": 100, "partitions": PARTITIONS, "timeout": "1 s"},
            repeats=bench.repeats,
            figures=figures,
            goals=goals,
            notes=[
                "All with fetch.queue.backoff.ms=20, our default; with the library's own, 1000, either mostly stands still."
            ],
        )

    def _pair(self, bench: Bench, what: str, topic: str, total: int, figures: list[Figure], goals: list[Goal]) -> None:
        def read(client: Callable[[dict[str, Any]], Any]) -> dict[str, float]:
            consumer = client(_settings(bench))
            consumer.subscribe([topic])
            got = 0
            while not got:
                got = _is_record(consumer.poll(60))
            meter = bench.meter()
            poll = consumer.poll
            while got < total:
                got += _is_record(poll(1.0))
            cost = meter.stop()
            consumer.close()
            return {"rate": total / cost.wall, "cpu": cost.cpu / total * 1e6}

        pairs = bench.pairs(lambda: read(OrderedConsumer), lambda: read(Consumer))
        _report(what, pairs.reported("rate", "records/s"), pairs.reported("cpu", "us/record"), figures, goals)

    def _awaited(
        self, bench: Bench, what: str, topic: str, total: int, figures: list[Figure], goals: list[Goal]
    ) -> None:
        async def read(client: Callable[[dict[str, Any]], Any], wanted: int) -> dict[str, float]:
            consumer = client(_settings(bench))
            await consumer.subscribe([topic])
            got = 0
            while not got:
                got = _is_record(await consumer.poll(60))
            meter = bench.meter()
            while got < wanted:
                got += _is_record(await consumer.poll(1.0))
            cost = meter.stop()
            await consumer.close()
            return {"rate": wanted / cost.wall, "cpu": cost.cpu / wanted * 1e6}

        pairs = bench.pairs(
            lambda: asyncio.run(read(AIOConsumer, total)),
            lambda: asyncio.run(read(RawAIOConsumer, max(1, total // AWAITED))),
        )
        _report(what, pairs.reported("rate", "records/s"), pairs.reported("cpu", "us/record"), figures, goals)


def _report(what: str, rate: Figure, cpu: Figure, figures: list[Figure], goals: list[Goal]) -> None:
    figures += [Figure(f"{what}: {f.name}", f.unit, f.ours, f.theirs, f.ratio) for f in (rate, cpu)]
    assert rate.ratio is not None
    assert cpu.ratio is not None
    goals.append(
        Goal(f"{_RATE} of the library's own rate: {what}", f"{rate.ratio.median:.2f}", rate.ratio.median >= _RATE)
    )
    goals.append(Goal(f"{_CPU} of its CPU: {what}", f"{cpu.ratio.median:.2f}", cpu.ratio.median <= _CPU))


def _settings(bench: Bench) -> dict[str, Any]:
    return {
        **bench.config,
        "group.id": bench.topic("group"),
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 20,
    }


def _is_record(message: Any) -> bool:
    return message is not None and message.error() is None


def _filled(bench: Bench, kind: str, count: int) -> str:
    if kind == "unmanaged topic":
        topic = make_unmanaged(bench, "read")
        producer = raw_producer(bench)
        send_all(producer.produce, producer.poll, topic, rows(count))
        producer.flush()
        return topic
    topic = make(bench, "read", grown=kind == "grown topic")
    with OrderedProducer({**bench.config, **producer_settings()}) as ordered:
        ordered.produce_arrow(topic, columns(count))
    return topic


@contextmanager
def _busy(loops: int) -> Iterator[None]:
    """Other processes that take all the CPU they get."""
    with ExitStack() as stack:
        for _ in range(loops):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


MEASURE = Poll()
