"""Clocks that jump: the wall clock decides nothing, and a machine that slept counts its sleep."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from keyorder import TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.workload import Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "400"}
SHORT_LEASE = {
    "keyorder.lease.ms": 6_000,
    "keyorder.lease.renew.interval.ms": 1_000,
    "keyorder.lease.margin.ms": 500,
    "delivery.timeout.ms": 3_000,
}
# Grows a topic with a clock that goes on by two minutes at a step of the change; prints the count that it left, and the sleep.
SLEEPER = """
import json, sys
from keyorder import TopicAdmin
from keyorder.connector import clock
from keyorder.partitioner.errors import WriterLateError

config, topic, step = json.loads(sys.argv[1])
awake, slept = clock.now, 0.0
clock.now = lambda: awake() + slept

def sleep(name):
    global slept
    if name == step:
        slept = 130.0

try:
    after = TopicAdmin(config, sleep).expand(topic, 6, timeout=120).after
except WriterLateError:
    after = 4
print(json.dumps([after, slept]))
"""
YEARS_MS = 10 * 365 * 86_400_000


@pytest.mark.kip("K253-26")
def test_a_wall_clock_that_jumps_changes_nothing(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers', readers' and controller's wall clocks go ten years on and back with every look at them."""
    asked = 0

    def jumping() -> int:
        nonlocal asked
        asked += 1
        return YEARS_MS * (-1) ** asked

    with Workload(kafka, tmp_path, topic_name, config=QUICK) as run:
        run.consumer("c1", "g", wall_jumps_ms=YEARS_MS)
        run.consumer("c2", "g", wall_jumps_ms=YEARS_MS)
        run.writer("w1", rate=300, wall_jumps_ms=YEARS_MS)
        monkeypatch.setattr(clock, "wall_ms", jumping)
        change = TopicAdmin(kafka.client_config()).expand(topic_name, 6)
        monkeypatch.undo()

        assert asked > 0
        assert change.attempts == 1
        assert_in_order(run.finish())


@pytest.mark.kip("K253-26", "K253-36")
def test_writers_and_readers_that_slept_go_on_in_order(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Their clocks are a minute on at once, longer than any lease: the writer joins anew, the reader looks again."""
    with Workload(kafka, tmp_path, topic_name, config=QUICK) as run:
        readers = [run.consumer(name, "g", sleep_s=60) for name in ("c1", "c2")]
        slept = run.writer("w1", rate=300, sleep_s=60, config=SHORT_LEASE)
        run.writer("w2", rate=300, config=SHORT_LEASE)
        slept.expect_progress(run)
        slept.signal(signal.SIGUSR2)
        assert run.expand(6) == 0
        for reader in readers:
            reader.signal(signal.SIGUSR2)
        slept.signal(signal.SIGUSR2)
        assert run.expand(9) == 0

        assert_in_order(run.finish())


@pytest.mark.kip("K253-26", "K253-29")
@pytest.mark.parametrize("step", ["roll call", "collecting"])
def test_a_controller_that_slept_gives_up_with_a_typed_error_or_goes_on(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, step: str
) -> None:
    """Two minutes are gone at once in the midst of a change. The layout is the old or the new one; asked again it is new."""
    with Workload(kafka, tmp_path, topic_name, config=QUICK) as run:
        run.consumer("c1", "g")
        run.writer("w1", rate=300).expect_progress(run)
        # In a process of its own: a clock that slept never goes back, and the clients of this one would see it do so.
        arguments = json.dumps([kafka.client_config(), topic_name, step])
        controller = subprocess.run(
            [sys.executable, "-c", SLEEPER, arguments], capture_output=True, text=True, check=False
        )
        assert controller.returncode == 0, controller.stderr[-3000:]
        after, slept = json.loads(controller.stdout)

        assert slept
        assert run.count() == after
        assert run.admin.describe(topic_name).change is None
        assert run.expand(6) == 0
        assert_in_order(run.finish())
