"""R7: what a gate that stays closed costs its member: memory while records pile up behind it, and bytes fetched twice.

A topic shrinks from two partitions to one. The member under test owns partition 0 alone, whose later records have to
wait for partition 1; nobody reads that until the end. Meanwhile writers go on, far beyond what the member may hold.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import Consumer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock

from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import Spread
from .load import key_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_VALUE = bytes(1_000)
_KEYS = 1_000
_RATE = 4_000
_HELD = 2_000
_QUEUE_KBYTES = 4_096
_MIB = 2**20


class _Writer(threading.Thread):
    """Writes at a steady rate until told to stop."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic = OrderedProducer(dict(config)), topic
        self._stop_it = threading.Event()
        self.records = 0

    def run(self) -> None:
        while not self._stop_it.wait(0.05):
            for _ in range(_RATE // 20):
                self._producer.produce(self._topic, _VALUE, key_of(self.records % _KEYS))
                self.records += 1
            self._producer.poll(0)

    def finish(self) -> int:
        """Stop; how many records were acknowledged."""
        self._stop_it.set()
        self.join()
        self._producer.close()
        return self.records


class _Fetched:
    """Bytes of message sets that the client library received for one partition, by its own statistics."""

    def __init__(self, topic: str, partition: int) -> None:
        self._place = (topic, str(partition))
        self.bytes = self.messages = 0

    def __call__(self, text: str) -> None:
        topic, partition = self._place
        found = json.loads(text)["topics"].get(topic, {}).get("partitions", {}).get(partition)
        if found is not None:
            self.bytes, self.messages = found["rxbytes"], found["rxmsgs"]


class ClosedGate(Measure):
    """Memory and refetch of a member whose gate is closed, against a consumer that never waits."""

    id, title = "R7", "a gate that stays closed while records pile up behind it"
    theirs = "confluent_kafka.Consumer reading the same log once"

    def run(self, bench: Bench) -> Result:
        seconds = 15.0 if bench.quick else float(os.environ.get("KEYORDER_SOAK_SECONDS", "300"))
        config, topic = bench.config, bench.topic("r7")
        admin = TopicAdmin(dict(config))
        admin.create(topic, 2, initial_partition_count=1)
        fetched = _Fetched(topic, 0)
        member = self._member(config, topic, fetched)
        writer = _Writer(config, topic)
        writer.start()
        delivered = _poll_for(member, 3.0)
        bench.say("shrinking")
        shrink = threading.Thread(target=admin.shrink, args=(topic, 1))
        shrink.start()
        while shrink.is_alive():
            delivered += _poll_for(member, 0.2)
        bench.say(f"{seconds:.0f} s behind the closed gate")
        samples = self._wait_behind_it(member, seconds, bench)
        closed = member.gates()
        delivered += int(samples.pop("delivered")[0])
        total = writer.finish()
        behind = _end(config, topic, 0) - int(member.position([TopicPartition(topic, 0)])[0].offset)
        bench.say("the origin is read, the gate opens")
        delivered += self._drain(config, topic, member, total)
        member.close()
        raw = self._raw_bytes(config, topic)
        times, rss = samples["at"], samples["rss"]
        settled = rss[len(rss) // 5]
        growth = (max(rss) - settled) / _MIB
        refetch = fetched.messages / raw["messages"]
        return Result(
            data={
                "seconds": seconds,
                "records": total,
                "value bytes": len(_VALUE),
                "records behind the gate": behind,
                "held at most": _HELD,
                "gates closed at the end": len(closed),
            },
            repeats=1,
            figures=[
                Figure("memory added while closed", "MiB", Spread.of([growth])),
                Figure(
                    "records fetched",
                    "records",
                    Spread.of([float(fetched.messages)]),
                    Spread.of([float(raw["messages"])]),
                    Spread.of([refetch]),
                ),
            ],
            goals=[
                Goal("every record delivered", f"{delivered} of {total}", delivered == total),
                Goal("the gate was closed all the time", str(len(closed)), len(closed) == 1),
                Goal("memory bounded: <= 32 MiB added", f"{growth:.1f} MiB", growth <= 32),
                Goal("<= 1.1 x fetched", f"{refetch:.3f}", refetch <= 1.1),
            ],
            series={"seconds": times, "resident MiB": [r / _MIB for r in rss]},
        )

    def plot(self, result: Result, axes: Axes) -> None:
        """Resident memory over time."""
        axes.plot(result.series["seconds"], result.series["resident MiB"])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds behind the closed gate")
        axes.set_ylabel("resident memory of the process, MiB")

    def _member(self, config: dict[str, Any], topic: str, fetched: _Fetched) -> OrderedConsumer:
        member = OrderedConsumer(
            {
                **config,
                "group.id": f"{topic}-group",
                "auto.offset.reset": "earliest",
                "keyorder.hold.max.messages": _HELD,
                "queued.max.messages.kbytes": _QUEUE_KBYTES,
                "statistics.interval.ms": 500,
                "stats_cb": fetched,
            }
        )
        member.assign([TopicPartition(topic, 0)])
        return member

    def _wait_behind_it(self, member: OrderedConsumer, seconds: float, bench: Bench) -> dict[str, list[float]]:
        process, began = psutil.Process(), clock.now()
        found: dict[str, list[float]] = {"at": [], "rss": [], "delivered": [0.0]}
        while (passed := clock.now() - began) < seconds:
            found["at"].append(passed)
            found["rss"].append(float(process.memory_info().rss))
            found["delivered"][0] += _poll_for(member, 0.5)
        return found

    def _drain(self, config: dict[str, Any], topic: str, member: OrderedConsumer, total: int) -> int:
        """Read the origin as another member of the group would, then everything that waited."""
        other = OrderedConsumer({**config, "group.id": f"{topic}-group", "auto.offset.reset": "earliest"})
        other.assign([TopicPartition(topic, 1)])
        delivered, quiet = 0, clock.now()
        ends = _end(config, topic, 0)
        while clock.now() - quiet < 30:
            got = sum(message.error() is None for message in other.consume(1_000, 0.05))
            got += sum(message.error() is None for message in member.consume(5_000, 0.05))
            delivered += got
            if got:
                quiet = clock.now()
            elif int(member.position([TopicPartition(topic, 0)])[0].offset) >= ends:
                break
        other.close()
        return delivered

    def _raw_bytes(self, config: dict[str, Any], topic: str) -> dict[str, int]:
        fetched, end, at = _Fetched(topic, 0), _end(config, topic, 0), 0
        consumer = Consumer({**config, "group.id": f"{topic}-raw", "statistics.interval.ms": 200, "stats_cb": fetched})
        consumer.assign([TopicPartition(topic, 0, 0)])
        while at < end:
            for message in consumer.consume(5_000, 0.5):
                if message.error() is None:
                    at = int(message.offset() or 0) + 1
        until = clock.now() + 1.0
        while clock.now() < until:
            consumer.poll(0.1)
        consumer.close()
        return {"bytes": fetched.bytes, "messages": fetched.messages}


def _poll_for(member: OrderedConsumer, seconds: float) -> int:
    until, delivered = clock.now() + seconds, 0
    while clock.now() < until:
        delivered += sum(message.error() is None for message in member.consume(5_000, 0.2))
    return delivered


def _end(config: dict[str, Any], topic: str, partition: int) -> int:
    probe = Consumer({**config, "group.id": f"{topic}-ends"})
    high = probe.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
    probe.close()
    return int(high)


MEASURE = ClosedGate()
