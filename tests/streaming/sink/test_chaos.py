"""The exactly-once sink while workers, drivers and brokers are killed at random, in the middle of batches.

The short form kills two; `make spark-chaos` kills twenty (KEYORDER_SPARK_CHAOS), KEYORDER_SEED chooses which and when.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest
from keyorder import TopicAdmin
from keyorder.connector import clock
from keyorder.connector.log_offsets import LogOffsets
from support.cluster import KafkaUnderTest
from support.spark_driver import SparkDriver, delivered, faults, read_topic

KILLS = int(os.environ.get("KEYORDER_SPARK_CHAOS", "0"))
ROWS = 4_000  # in a batch: enough for a kill to find it half written


class Run:
    """One query over many drivers, on a topic whose layout changes between kills."""

    def __init__(self, kafka: KafkaUnderTest, topic: str, folder: Path, replicas: int) -> None:
        self.random = Random(int(os.environ.get("KEYORDER_SEED", "1")))
        self.config, self.topic = kafka.client_config(), topic
        self._admin = TopicAdmin(self.config)
        durable = {"min.insync.replicas": str(max(1, replicas - 1))}
        self._admin.create(topic, 3, replication_factor=replicas, config=durable)
        self._spec = {"folder": str(folder), "servers": kafka.bootstrap_servers, "topic": topic, "rows": ROWS}
        if replicas == 1:  # the next change waits out the leases of workers that were killed
            self._spec["options"] = {
                "keyorder.lease.ms": "15000",
                "keyorder.lease.renew.interval.ms": "1000",
                "kafka.delivery.timeout.ms": "10000",
            }
        self._offsets = LogOffsets(self.config)
        self.kills: list[str] = []
        self.finished = -1
        self.driver = self._start()

    def restart(self) -> None:
        """The next driver, on the same checkpoint."""
        self.finished = max(self.finished, self.driver.finished)
        self.driver = self._start()

    def await_middle(self) -> None:
        """Return when a random part of a batch's rows has been written since now."""
        before, wanted = self._written(), self.random.randrange(1, ROWS)
        deadline = clock.now() + 600
        while self._written() - before < wanted:
            assert clock.now() < deadline, "nothing is written"
            if not self.driver.alive:
                self.restart()
            time.sleep(0.005)

    def resize(self) -> None:
        """Grow or shrink beneath the query."""
        count = self.random.randrange(2, 8)
        now = self._admin.timeline(self.topic).newest.count
        (self._admin.expand if count > now else self._admin.shrink)(self.topic, count)

    def judge(self) -> None:
        """Let the query end, and judge what a reader of committed records finds."""
        self.driver.await_batch(max(self.finished, self.driver.finished) + 2)
        self.finished = self.driver.finished
        self.driver.stop()
        records = read_topic(self.config, self.topic)
        values = delivered(self.config, self.topic, len(records))
        found = faults(values)
        kinds = {kind: self.kills.count(kind) for kind in sorted(set(self.kills))}
        epochs = self._admin.timeline(self.topic).newest.number
        print(f"{kinds}, {epochs} layouts, {self.finished + 1} batches, {len(records)} rows: {found}")
        assert found == {"lost": 0, "doubled": 0, "reordered": 0}
        assert min(max(each) for each in values.values()) >= (self.finished + 1) * ROWS - 20

    def close(self) -> None:
        """Leave nothing running."""
        if self.driver.alive:
            self.driver.kill()
        self._offsets.close()

    def _start(self) -> SparkDriver:
        driver = SparkDriver(self._spec)
        driver.await_batch(self.finished + 1)
        return driver

    def _written(self) -> int:
        count = self._admin.timeline(self.topic).highest_count
        return sum(self._offsets.high_watermarks([(self.topic, p) for p in range(count)], 30.0).values())


@pytest.mark.timeout(1200 + 90 * KILLS)
@pytest.mark.skipif(not KILLS, reason="make spark-chaos: tests/streaming/sink/test_sink.py has the short form")
def test_random_kills_of_workers_and_drivers(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """In the middle of batches and between changes of the layout: nothing lost, doubled, or out of order."""
    run = Run(kafka, topic_name, tmp_path, 1)
    try:
        while len(run.kills) < KILLS:
            run.await_middle()
            if run.random.random() < 0.5:
                run.driver.kill()
                run.kills.append("driver")
                run.restart()
            elif run.driver.kill_worker(run.random):
                run.kills.append("worker")
            if len(run.kills) % 4 == 0:
                run.resize()
        run.judge()
    finally:
        run.close()


@pytest.mark.timeout(1200 + 90 * KILLS)
@pytest.mark.skipif(not KILLS, reason="make spark-chaos")
def test_a_broker_of_three_killed_in_mid_batch(kafka3: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """One after the other, each coming back before the next goes; a worker is killed while one is away."""
    run = Run(kafka3, topic_name, tmp_path, 3)
    try:
        for turn in range(max(3, KILLS // 4)):
            run.await_middle()
            broker = 1 + run.random.randrange(3)
            kafka3.kill_broker(broker)
            run.kills.append("broker")
            if turn % 2 and run.driver.kill_worker(run.random):
                run.kills.append("worker")
            run.await_middle()
            kafka3.start_broker(broker)
            _await_full_isr(kafka3)
        run.judge()
    finally:
        run.close()


def _await_full_isr(kafka: KafkaUnderTest) -> None:
    """Two brokers away at once are more than two of three replicas can bear."""
    admin = kafka.admin()
    deadline = clock.now() + 180
    while True:
        topics = admin.list_topics(timeout=120).topics.values()
        behind = [p for topic in topics for p in topic.partitions.values() if len(p.isrs) < len(p.replicas)]
        if not behind:
            return
        assert clock.now() < deadline, behind
        time.sleep(0.1)
