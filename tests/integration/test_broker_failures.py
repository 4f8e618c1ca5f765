"""Three brokers, one of which dies while the topic grows."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from support.cluster import KafkaUnderTest
from support.workload import Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "400", "min.insync.replicas": "2"}


def await_full_isr(kafka: KafkaUnderTest) -> None:
    """Return when every replica is in sync again: two brokers down at once are more than two of three can bear."""
    admin = kafka.admin()
    deadline = time.monotonic() + 60
    while True:
        found = admin.list_topics(timeout=10).topics
        behind = [
            (name, p.id, p.isrs)
            for name, topic in found.items()
            for p in topic.partitions.values()
            if len(p.isrs) < len(p.replicas)
        ]
        if not behind:
            return
        assert time.monotonic() < deadline, behind
        time.sleep(0.1)


@pytest.mark.kip("K253-01", "K903-16")
def test_growth_while_brokers_are_killed_one_after_another(
    kafka3: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Each broker is killed during a change and comes back; writers, group and controller go on, in order."""
    with Workload(kafka3, tmp_path, topic_name, replication_factor=3, config=QUICK) as run:
        run.consumer("c1", "g")
        run.consumer("c2", "g")
        run.writer("w1", rate=400, seed=1)
        run.writer("w2", rate=400, seed=2)
        for broker, count in ((1, 6), (2, 9), (3, 12)):
            killer = threading.Timer(0.8, kafka3.kill_broker, [broker])
            killer.start()
            assert run.expand(count) == 0, "a change has to survive one broker"
            killer.join()
            kafka3.start_broker(broker)
            await_full_isr(kafka3)

        verdict = run.finish()

        assert_in_order(verdict)
        assert verdict.keys_moved > 100
