"""P10: from the last record of a moved key at its old home to the first at its new one, in another member."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from keyorder import Layout, OrderedProducer, TopicAdmin
from keyorder.connector import clock

from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import Spread, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEYS = [k for k in (f"k{i}" for i in range(200)) if Layout(1, 2).home(k) != 0]
RATE, BROKERS = 500.0, 3
# Seconds between two changes: otherwise the next one's start, which loads the broker, falls into the hand-over.
PAUSE = 0.5
COMMITS = 200
# What other systems publish as the interval at which a consumer looks whether it may go on behind a split.
PUBLISHED = {"KCL": 10.0, "Flink Kinesis": 10.0, "Pravega": 30.0}
MEMBER = """
import json, sys
from keyorder import OrderedConsumer
from keyorder.connector import clock

consumer = OrderedConsumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while len(consumer.assignment()) != 1:
    consumer.poll(0.05)
print("ready", flush=True)
seen, stop, rest = [], False, 0.0
while not stop:
    message = consumer.poll(0.5)
    back = clock.now()
    if seen and seen[-1][3] is None:
        seen[-1][3] = began  # the application was done with it when it called poll() again
    if message is not None and message.error() is None:
        value = message.value().decode()
        if value == "stop":
            stop = True
        else:
            seen.append([int(value), message.partition(), back, None])
    began = clock.now()
print(json.dumps([[n, p, a, d or a] for n, p, a, d in seen]), flush=True)
consumer.close()
"""


class HandOver(Measure):
    """One topic grows from one partition to two and back, under load, with one member for each partition."""

    id = "P10"
    title = "hand-over of a moved key from one member to another"
    theirs = "published polls: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in PUBLISHED.items())

    def run(self, bench: Bench) -> Result:
        """A fresh topic and group for each repeat; each change hands all keys over."""
        changes = 6 if bench.quick else 30
        times, figures, goals = self._situation(bench, changes, "")
        with bench.beside(BROKERS) as three:
            _, beside, missed = self._situation(three, changes, f"{BROKERS} brokers: ")
        quickest = min(PUBLISHED.values()) * 1e3
        return Result(
            data={
                "keys": len(KEYS),
                "partitions": "1 <-> 2",
                "hand-overs": len(times),
                "load": f"{RATE:.0f} records/s of keys that move",
                "between changes": f"{PAUSE} s",
            },
            repeats=bench.repeats,
            figures=[*figures, *beside],
            goals=[*goals, *missed],
            notes=[
                "From the moment at which the application is done with the last record at the old home (it calls poll() "
                "again) and the first at the new home is acknowledged, to the moment at which another process is given it.",
                f"The shortest published interval of a poll elsewhere is {quickest / 1e3:.0f} s; those were not run here.",
                "A hand-over has one commit in it. The group's coordinator waits for more to write before it answers "
                "(group.coordinator.append.linger.ms, 5 ms by default): what confluent-kafka's consumer waits for one is shown.",
            ],
            series={"hand-over, ms": sorted(times)},
        )

    def _situation(self, bench: Bench, changes: int, name: str) -> tuple[list[float], list[Figure], list[Goal]]:
        """The time of every hand-over, what the table shows of them, and the goals."""
        times: list[float] = []
        medians: list[float] = []
        slowest: list[float] = []
        cpu: list[float] = []
        commits: list[float] = []
        for number in range(-1, bench.repeats):
            bench.say(name + (f"run {number + 1} of {bench.repeats}" if number >= 0 else "warm-up"))
            meter = bench.meter()
            found = self._once(bench, changes if number >= 0 else 2)
            cost = meter.stop()
            if number >= 0:
                times.extend(found)
                medians.append(percentile(found, 0.5))
                slowest.append(percentile(found, 0.99))
                cpu.append(cost.cpu)
                commits.append(percentile(_commits(bench), 0.5))
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        figures = [
            Figure(f"{name}hand-over, p50", "ms", Spread.of(medians)),
            Figure(f"{name}hand-over, p99", "ms", Spread.of(slowest)),
            Figure(f"{name}cpu", "s", Spread.of(cpu)),
            Figure(f"{name}a commit alone, confluent-kafka, p50", "ms", Spread.of(commits)),
        ]
        goals = [
            Goal(f"{name}p50 <= 8 ms", f"{p50:.1f} ms", p50 <= 8),
            Goal(f"{name}p99 <= 15 ms", f"{p99:.1f} ms", p99 <= 15),
        ]
        return times, figures, goals

    def _once(self, bench: Bench, changes: int) -> list[float]:
        topic = bench.topic("hand-over")
        admin = TopicAdmin(bench.config)
        admin.create(topic, 1, config={"keyorder.view.age.ms": "200"})
        admin.expand(topic, 2)
        group = {
            **bench.config,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "fetch.wait.max.ms": 100,
        }
        with ExitStack() as stack:
            members = [stack.enter_context(_Member(group, topic)) for _ in range(2)]
            for member in members:
                member.ready()
            writer = stack.enter_context(_Writer(bench, topic))
            for number in range(changes):
                (admin.shrink if number % 2 == 0 else admin.expand)(topic, 1 if number % 2 == 0 else 2)
                time.sleep(PAUSE)
            sent = writer.finish()
            seen = [row for member in members for row in member.seen()]
        return _hand_overs(sent, seen)

    def plot(self, result: Result, axes: Axes) -> None:
        """The share of hand-overs by their length."""
        times = result.series["hand-over, ms"]
        axes.plot(times, [(i + 1) / len(times) for i in range(len(times))], drawstyle="steps-post", label="keyorder")
        for name, seconds in PUBLISHED.items():
            axes.axvline(seconds * 1e3, color="#c8553d", linestyle="--", label=f"{name}, published poll")
        axes.set_xscale("log")
        axes.set_xlabel("hand-over of a key, ms")
        axes.set_ylabel("share of hand-overs")
        axes.legend(loc="center right")


class _Member:
    """A consumer as a process of its own."""

    def __init__(self, config: dict[str, object], topic: str) -> None:
        words = [sys.executable, "-c", MEMBER, json.dumps(config), topic]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ready(self) -> None:
        """Return when it owns its partition."""
        if self._line() != "ready":
            raise RuntimeError("a member did not start")

    def seen(self) -> list[list[float]]:
        """[number, partition, given at, done at] of each record, when it was told to stop."""
        found: list[list[float]] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class _Writer(threading.Thread):
    """Numbered records of the moving keys in turn, at a steady rate."""

    def __init__(self, bench: Bench, topic: str) -> None:
        super().__init__(daemon=True)
        self._topic, self._over, self._acknowledged = topic, threading.Event(), list[float]()
        allowed = {"keyorder.allow.explicit.partition": True}
        self._producer = OrderedProducer({**bench.config, "linger.ms": 0, **allowed})

    def __enter__(self) -> _Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._producer.close()

    def run(self) -> None:
        due = clock.now()
        while not self._over.is_set():
            number = len(self._acknowledged)
            self._acknowledged.append(0.0)
            self._producer.produce(
                self._topic, str(number), KEYS[number % len(KEYS)], on_delivery=partial(self._delivered, number)
            )
            self._producer.poll(0)
            due += 1 / RATE
            self._over.wait(max(0.0, due - clock.now()))  # the pace of the load

    def _delivered(self, number: int, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acknowledged[number] = clock.now()

    def finish(self) -> Sequence[float]:
        """Stop, tell the members to stop, and return when each number was acknowledged."""
        self._over.set()
        self.join()
        self._producer.flush(30)
        for partition in range(2):
            self._producer.produce(self._topic, "stop", None, partition)
        self._producer.flush(30)
        if not all(self._acknowledged):
            raise RuntimeError("a record failed: the figures would leave it out")
        return self._acknowledged


def _commits(bench: Bench) -> list[float]:
    """Milliseconds of each commit of a stock consumer, one after the other."""
    topic = bench.topic("commits")
    TopicAdmin(bench.config).create(topic, 1)
    consumer = Consumer({**bench.config, "group.id": topic, "enable.auto.commit": False})
    took: list[float] = []
    for offset in range(COMMITS):
        began = clock.now()
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        took.append((clock.now() - began) * 1e3)
    consumer.close()
    return took


def _hand_overs(acknowledged: Sequence[float], seen: Sequence[Sequence[float]]) -> list[float]:
    """Milliseconds of each hand-over. All keys move together, so a change shows where the partition of numbers changes.

    It begins when both are true: the last record at the old home is done with, the first at the new one is in the log.
    """
    by_number = {int(row[0]): row for row in seen}
    if len(by_number) != len(acknowledged):
        raise RuntimeError(f"{len(acknowledged)} records were sent, {len(by_number)} seen: the figures would be wrong")
    found: list[float] = []
    for number in range(1, len(acknowledged)):
        before, row = by_number[number - 1], by_number[number]
        if before[1] != row[1]:
            # A record may be given before its writer has come to hear of the acknowledgement.
            found.append(max(0.0, row[2] - max(before[3], acknowledged[number])) * 1e3)
    return found


MEASURE = HandOver()
