"""Writers at load, each a process of its own, and what they saw; a topic filled to a size.

A writer's process:  python -m keyorder.benchmarks.load '{"config": ..., "topic": ..., "rate": ...}'
It sends at its rate whatever comes back, so that what waits is seen as latency. Commands come on standard input, one
word a line: `pause` (stop, flush, answer), `resume TOPIC`, `stop`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from keyorder import OrderedProducer
from keyorder.connector import clock

from .harness.bench import Bench

_TICK = 0.005


def key_of(number: int) -> bytes:
    """The bench's keys: 16 bytes each."""
    return b"key-%012d" % number


def fill(config: dict[str, Any], topic: str, records: int, keys: int, value: bytes) -> None:
    """Write records by Kafka's own default partitioner; on a topic that never changed it agrees with keyorder's."""
    producer = Producer(
        {**config, "partitioner": "murmur2_random", "linger.ms": 20, "queue.buffering.max.messages": 10**6}
    )
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, key_of(number % keys))
                break
            except BufferError:
                producer.poll(0.1)
        if number % 5_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"{topic} could not be filled within two minutes")


@dataclass(frozen=True, slots=True)
class Sent:
    """What one writer saw. Times are seconds of connector.clock, the same for all processes.

    at, latency: for each acknowledged record, when it was handed over and how long until it was acknowledged.
    key: which. held: seconds that keyorder held records. failed: records without acknowledgement.
    """

    at: array[float]
    latency: array[float]
    key: array[int]
    held: Sequence[float]
    failed: int


def drained(seen: Sequence[Sent], since: float, until: float, moments: int = 100) -> list[float]:
    """Seconds until all that the writers had in flight at a moment was acknowledged, for moments of [since, until).

    A change waits for that before it reads the cuts, so no hold can be shorter than the broker makes it.
    """
    times = [since + (until - since) * k / moments for k in range(moments)]
    ends = list(times)
    for sent in seen:
        for at, latency in zip(sent.at, sent.latency, strict=True):
            for k in range(bisect_left(times, at), bisect_left(times, at + latency)):
                ends[k] = max(ends[k], at + latency)
    return [end - moment for moment, end in zip(times, ends, strict=True)]


class Writer:
    """The parent's side of one writer process."""

    def __init__(self, spec: dict[str, Any], out: Path) -> None:
        self._out = out
        self._process = subprocess.Popen(
            [sys.executable, "-Im", __name__, json.dumps({**spec, "out": str(out)})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def say(self, command: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def heard(self) -> float:
        """Wait for its next answer: a moment of the clock."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a writer ended with code {self._process.wait()}")
        return float(line)

    def finish(self) -> Sent:
        """Stop it; what it saw."""
        self.say("stop")
        if self._process.wait(60):
            raise RuntimeError(f"a writer ended with code {self._process.returncode}")
        found = json.loads(self._out.with_suffix(".json").read_text("utf-8"))
        at, latency, key = array("d"), array("d"), array("q")
        with self._out.open("rb") as file:
            at.fromfile(file, found["records"])
            latency.fromfile(file, found["records"])
            key.fromfile(file, found["records"])
        return Sent(at, latency, key, found["held"], found["failed"])

    def kill(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def writers(
    bench: Bench, count: int, topic: str, folder: Path, ordered: bool, rate: float, keys: int, value_bytes: int
) -> Iterator[list[Writer]]:
    """`count` writers at `rate` records a second each, spread over `keys` keys. Returns when each had an acknowledgement."""
    started: list[Writer] = []
    try:
        for number in range(count):
            spec = {
                "config": bench.config,
                "topic": topic,
                "ordered": ordered,
                "rate": rate,
                "keys": list(range(number, keys, count)),
                "value_bytes": value_bytes,
            }
            started.append(Writer(spec, folder / f"{topic}-{number}.bin"))
        for writer in started:
            writer.heard()
        yield started
    finally:
        for writer in started:
            writer.kill()


class _Load:
    """The child's side."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._topic = spec["topic"]
        self._numbers: list[int] = spec["keys"]
        self._keys = [key_of(number) for number in self._numbers]
        self._value = b"v" * spec["value_bytes"]
        self._rate, self._out = spec["rate"], Path(spec["out"])
        self.producer: Any
        if spec["ordered"]:
            self.producer = OrderedProducer(spec["config"])
        else:
            self.producer = Producer({**spec["config"], "partitioner": "murmur2_random", "enable.idempotence": True})
        self._at, self._latency, self._key = array("d"), array("d"), array("q")
        self._failed = self._sent = 0
        self._tell_next = True
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(line.strip())
        self._commands.put("stop")  # the parent has gone

    def run(self) -> None:
        """Until told to stop."""
        began, due = clock.now(), 0
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                command = ""
            if command == "stop":
                break
            if command == "pause":
                self.producer.flush(60)
                print(clock.now(), flush=True)
                _, _, self._topic = self._commands.get().partition(" ")
                self._tell_next = True
                began, due = clock.now(), 0
            elapsed = clock.now() - began
            while due < elapsed * self._rate:
                self._send()
                due += 1
            until = clock.now() + _TICK
            while (left := until - clock.now()) > 0:
                self.producer.poll(clock.blocking(left))
        self.producer.flush(60)
        held = self.producer.hold_times() if isinstance(self.producer, OrderedProducer) else []
        with self._out.open("wb") as file:
            for column in (self._at, self._latency, self._key):
                column.tofile(file)
        found = {"records": len(self._at), "held": held, "failed": self._failed}
        self._out.with_suffix(".json").write_text(json.dumps(found), "utf-8")
        self.producer.close()

    def _send(self) -> None:
        place = self._sent % len(self._keys)
        self._sent += 1
        at = clock.now()
        done = partial(self._delivered, at, self._numbers[place])
        while True:
            try:
                self.producer.produce(self._topic, self._value, self._keys[place], on_delivery=done)
                return
            except BufferError:
                self.producer.poll(_TICK)

    def _delivered(self, at: float, key: int, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed += 1
            return
        now = clock.now()
        self._at.append(at)
        self._latency.append(now - at)
        self._key.append(key)
        if self._tell_next:
            self._tell_next = False
            print(now, flush=True)


if __name__ == "__main__":
    _Load(json.loads(sys.argv[1])).run()
