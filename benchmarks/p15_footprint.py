"""P15: what clients cost a process while they have nothing to do: threads, connections, descriptors, memory, CPU, requests.

The measured process is this module as a program:

    python -Im keyorder.benchmarks.p15_footprint '{"config": ..., "topics": [...], "ordered": true, ...}'
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import Consumer, Producer
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock

from .harness.bench import Bench, Pairs
from .harness.measure import Figure, Goal, Measure, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COUNTS = (1, 10)
_SHARES = {1: 3.5, 10: 1.5}
# Processes beside each other, of which the mean counts: how many connections a pair of clients has is a matter of where the
# topic's leader, the group's coordinator and the brokers that they begin with happen to be.
_PROCESSES = {1: 6, 10: 1}
# Seconds: until everything that is open for a while alone is closed, and for how long is counted.
_SETTLE, _COUNT = 30.0, 20.0
_UNITS = {
    "threads": "threads",
    "connections": "connections",
    "descriptors": "descriptors",
    "memory": "MiB",
    "idle CPU": "CPU s/s",
    "idle requests": "requests/s",
}
# Linux's struct tcp_info: segments with data that were sent. A request of an idle client is one segment.
_DATA_SEGMENTS_OUT = slice(156, 160)


class Footprint(Measure):
    """So many consumers and as many producers in one process, beside one broker and beside three."""

    id = "P15"
    title = "footprint of idle clients"
    theirs = "confluent_kafka"

    def run(self, bench: Bench) -> Result:
        """A pair is a process with ordered clients and one with stock clients, or some of each: see _PROCESSES."""
        figures: list[Figure] = []
        goals: list[Goal] = []
        repeats = 1 if bench.quick else min(bench.repeats, 3)
        for brokers, config in self._clusters(bench):
            for count in _COUNTS:
                bench.say(f"{count} of each, {brokers} brokers")
                pairs = self._pairs(bench, config, count, repeats)
                name = f"{count} + {count}, {brokers} broker{'s' if brokers > 1 else ''}"
                found = {what: pairs.reported(what, unit) for what, unit in _UNITS.items()}
                figures += [Figure(f"{name}: {what}", f.unit, f.ours, f.theirs, f.ratio) for what, f in found.items()]
                for what in ("threads", "connections", "idle requests"):
                    share, ratio = _SHARES[count], found[what].ratio
                    median = float("inf") if ratio is None else ratio.median
                    goals.append(Goal(f"{name}: {what} <= {share} x stock's", f"{median:.2f}", median <= share))
        return Result(
            data={"topics": "one per pair of clients, 1 partition", "records": "1 per topic, before it is counted"},
            repeats=repeats,
            figures=figures,
            goals=goals,
            notes=[
                "Threads are those that the clients add to the application's own.",
                "1 + 1: the mean of six processes beside each other, each with a topic and a group of its own.",
                "Requests are counted as TCP segments with data that the process sent.",
            ],
        )

    def plot(self, result: Result, axes: Axes) -> None:
        """A bar for each ratio."""
        found = [(figure.name, figure.ratio.median) for figure in result.figures if figure.ratio is not None]
        axes.barh([name for name, _ in found], [ratio for _, ratio in found])
        axes.set_xlabel("times stock")

    def _clusters(self, bench: Bench) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number of brokers, configuration), one after the other."""
        yield 1, bench.config
        with bench.beside(3) as three:
            yield 3, three.config

    def _pairs(self, bench: Bench, config: dict[str, Any], count: int, repeats: int) -> Pairs:
        sets = [[bench.topic("idle") for _ in range(count)] for _ in range(_PROCESSES[count])]
        admin = TopicAdmin(config)
        for topic in (topic for topics in sets for topic in topics):
            admin.create(topic, 1)
        settle, period = (6.0, 6.0) if bench.quick else (_SETTLE, _COUNT)
        specs = [{"config": config, "topics": topics, "settle": settle, "count": period} for topics in sets]

        def measured(ordered: bool) -> dict[str, float]:
            with ThreadPoolExecutor(len(specs)) as pool:
                found = list(pool.map(lambda spec: _measured({**spec, "ordered": ordered}), specs))
            return {what: fmean(each[what] for each in found) for what in found[0]}

        return bench.pairs(lambda: measured(True), lambda: measured(False), repeats=repeats, warm_up=False)


def _measured(spec: dict[str, Any]) -> dict[str, float]:
    """The figures of one process."""
    words = [sys.executable, "-Im", __name__, json.dumps(spec)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the measured process ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _connections() -> list[socket.socket]:
    """Duplicates of the process's connected TCP sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                connection = socket.socket(fileno=os.dup(int(name)))
                if connection.family in (socket.AF_INET, socket.AF_INET6) and _is_connected(connection):
                    found.append(connection)
                else:
                    connection.close()
    return found


def _is_connected(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def _sent() -> dict[tuple[Any, ...], int]:
    """{(own address, the other's): segments with data sent so far} of every connection."""
    found = {}
    for each in _connections():
        with closing(each), suppress(OSError):
            info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            sent = int.from_bytes(info[_DATA_SEGMENTS_OUT], sys.byteorder)
            found[each.getsockname()[:2], each.getpeername()[:2]] = sent
    return found


class _Application:
    """Consumers, each polled by a thread of its own as applications do, and producers."""

    def __init__(self, config: dict[str, Any], topics: list[str], ordered: bool) -> None:
        consumer, producer = (OrderedConsumer, OrderedProducer) if ordered else (Consumer, Producer)
        theirs = {**config, "auto.offset.reset": "earliest"}
        self._topics = topics
        self._producers: list[Any] = [producer(dict(config)) for _ in topics]
        self._consumers: list[Any] = [consumer({**theirs, "group.id": f"{t}-{os.getpid()}"}) for t in topics]
        self._seen = [threading.Event() for _ in topics]
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._poll, args=(i,)) for i in range(len(topics))]

    def begin(self) -> None:
        """Return when every producer has delivered a record and every consumer has one."""
        for topic, each in zip(self._topics, self._producers, strict=True):
            each.produce(topic, b"value", b"key")
        for each in self._producers:
            if each.flush(60):
                raise RuntimeError("a record was not delivered")
        for thread in self._threads:
            thread.start()
        for seen in self._seen:
            if not seen.wait(120):
                raise RuntimeError("a consumer got no record")

    @property
    def threads(self) -> int:
        """The application's own threads, the first one included."""
        return 1 + len(self._threads)

    def close(self) -> None:
        """End all clients."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for each in self._consumers:
            each.close()
        for each in self._producers:
            each.flush(30)

    def _poll(self, number: int) -> None:
        consumer = self._consumers[number]
        consumer.subscribe([self._topics[number]])
        while not self._stopping.is_set():
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                self._seen[number].set()


def main(spec: dict[str, Any]) -> dict[str, float]:
    """One process's figures."""
    me = psutil.Process()
    at_first = len(os.listdir("/proc/self/fd")), me.memory_info().rss
    application = _Application(spec["config"], spec["topics"], spec["ordered"])
    try:
        application.begin()
        threading.Event().wait(spec["settle"])
        before, cpu, began = _sent(), sum(os.times()[:2]), clock.now()
        threading.Event().wait(spec["count"])
        after, seconds = _sent(), clock.now() - began
        return {
            "threads": len(list(Path("/proc/self/task").iterdir())) - application.threads,
            "connections": len(after),
            "descriptors": len(os.listdir("/proc/self/fd")) - at_first[0],
            "memory": (me.memory_info().rss - at_first[1]) / 2**20,
            "idle CPU": (sum(os.times()[:2]) - cpu) / seconds,
            "idle requests": sum(count - before.get(who, 0) for who, count in after.items()) / seconds,
        }
    finally:
        application.close()


MEASURE = Footprint()

if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
