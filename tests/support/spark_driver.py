"""Spark drivers that are processes of their own, so that they and their workers can be killed.

    python spark_driver.py '{"folder": ..., "servers": ..., "topic": ..., "rows": ..., "trigger": ...}'

writes 0, 1, 2, … in micro-batches of `rows` through the exactly-once sink, each number under the key `number % 20`: one
task has all numbers of a key, in their order. Prints the number of each finished batch; ends when standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition
from keyorder import OrderedConsumer
from keyorder.connector import clock

KEYS = 20


class SparkDriver:
    """One driver with its Java machine and its workers. `finished`: the last batch that it said was finished, -1 before."""

    def __init__(self, spec: Mapping[str, Any], env: Mapping[str, str] | None = None) -> None:
        self._log = Path(spec["folder"]) / "driver.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", __file__, json.dumps(dict(spec))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONFAULTHANDLER": "1", **(env or {})},
                start_new_session=True,
            )
        self.finished = -1
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether the driver itself runs."""
        return self._process.poll() is None

    def await_batch(self, number: int, timeout: float = 600.0) -> None:
        """Return when batch `number` is finished; fails when the driver ends before, or for `timeout` seconds no batch does."""
        with self._news:
            while self.finished < number and self._reader.is_alive():
                if not self._news.wait(timeout):  # each batch notifies, and so does the end
                    break
        if self.finished < number:
            raise AssertionError(f"{self._why()} {self.finished}: {self._log.read_text()[-12_000:]}")

    def _why(self) -> str:
        if not self._reader.is_alive():
            return "the driver ended after"
        for worker in self.workers():
            with suppress(psutil.Error):
                worker.send_signal(signal.SIGABRT)  # the fault handler writes to the log where each thread is
                worker.wait(120)
        return "no batch after"

    def workers(self) -> list[psutil.Process]:
        """The Python processes in which tasks run: children of Spark's forking daemon."""
        found: list[psutil.Process] = []
        for process in _descendants(self._process.pid):
            try:
                if "pyspark.daemon" in process.cmdline():
                    found.extend(process.children())
            except psutil.NoSuchProcess:
                continue
        return list({process.pid: process for process in found}.values())

    def kill_worker(self, random: Random) -> bool:
        """SIGKILL to one of the workers; False when there is none now."""
        alive = self.workers()
        if not alive:
            return False
        try:
            random.choice(alive).send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to all of them at once: the driver's Python, its Java machine, the workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(120)

    def stop(self) -> None:
        """Let it finish in its own way."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(120) == 0, self._log.read_text()[-4000:]
        finally:
            if self.alive:
                self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.finished = max(self.finished, int(line))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def read_topic(config: Mapping[str, Any], topic: str, isolation: str = "read_committed") -> list[Any]:
    """All records of a topic, partition by partition."""
    consumer = Consumer(
        {
            **config,
            "group.id": "reads",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Any] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "the topic cannot be read to its end"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found.append(message)
    consumer.close()
    return found


def delivered(config: Mapping[str, Any], topic: str, count: int) -> dict[int, list[int]]:
    """The numbers of each key as a new ordered reader of committed records is given them, `count` in all."""
    settings = {"group.id": f"judge-{topic}", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = OrderedConsumer({**config, **settings, "auto.commit.interval.ms": 200})
    values: dict[int, list[int]] = {}
    deadline = clock.now() + 180
    try:
        consumer.subscribe([topic])
        while sum(len(each) for each in values.values()) < count:
            assert clock.now() < deadline, {key: len(each) for key, each in values.items()}
            for message in consumer.consume(2_000, 0.5):
                assert message.error() is None, message.error()
                values.setdefault(int(message.key()), []).append(int(message.value()))
    finally:
        consumer.close()
    return values


def faults(values: Mapping[int, list[int]]) -> dict[str, int]:
    """How many numbers are missing below each key's last, come twice, or come behind a later one."""
    lost = doubled = reordered = 0
    for key, seen in values.items():
        lost += len(set(range(key, max(seen) + 1, KEYS)) - set(seen))
        doubled += len(seen) - len(set(seen))
        highest = -1
        for number in seen:
            reordered += number < highest
            highest = max(highest, number)
    return {"lost": lost, "doubled": doubled, "reordered": reordered}


def main(spec: dict[str, Any]) -> None:
    """The driver's side."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from keyorder.streaming.data_source import KeyorderDataSource
    from support.spark_session import start_spark

    spark = start_spark(Path(spec["folder"]))
    spark.dataSource.register(KeyorderDataSource)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", spec["rows"])
    rows = source.option("numPartitions", 2).load()
    rows = rows.selectExpr(f"cast(value % {KEYS} as string) as key", "cast(value as string) as value")
    writer = rows.writeStream.format("keyorder").option("kafka.bootstrap.servers", spec["servers"])
    writer = writer.option("topic", spec["topic"]).option("checkpointLocation", f"{spec['folder']}/checkpoint")
    writer = writer.option("keyorder.sink.exactly.once", "true").options(**spec.get("options", {}))
    query = writer.trigger(processingTime="50 milliseconds").start()
    asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), asked.set()), daemon=True).start()
    while not query.awaitTermination(0.1):
        for progress in query.recentProgress[-1:]:
            print(progress["batchId"], flush=True)
        if asked.is_set():
            query.stop()
            break
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
