"""Three distributed workers that are killed, stand still, or lose a broker, while the topic grows and shrinks.

Each test ends with the same judgement: rows in PostgreSQL equal the truth, each key was put in order, and the exactly-once
source repeats nothing. `make connect-chaos` is the long form.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import KafkaUnderTest
from support.connect_chaos import ChaosRun, disorder, without_late_puts
from support.connect_rig import until
from support.postgres import Postgres

KILLS = int(os.environ.get("KEYORDER_CONNECT_KILLS", "2"))
STANDSTILLS, BROKERS = max(1, KILLS // 3), min(3, max(1, KILLS // 3))
SEED = int(os.environ.get("KEYORDER_SEED", "7"))
SIZES = [9, 5, 8, 4, 11, 6, 7, 5, 10, 4]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL."""
    started = Postgres()
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("numbers", "wrong"), [("0 1 2 1 2 3", 0), ("0 2 1", 1), ("1", 1), ("0 1 2 0 2", 1), ("0 1 1 2", 0), ("0 1 3", 1)]
)
def test_the_check_of_order_sees_disorder(numbers: str, wrong: int) -> None:
    """Repetitions from some point on pass, jumps ahead do not."""
    lines = [line for i, n in enumerate(numbers.split()) for line in (f"k {n}", f"other {i}")]
    assert len(disorder(lines)) == wrong


def test_the_check_of_order_leaves_out_one_put_of_a_woken_task() -> None:
    """Of each task that the process had, and no more of it; a task that begins there later is judged in full."""
    lines = ["a 0 9.1.1", "b 0 7.1.1", "b 0 9.1.2", "c 0 9.1.2", "a 1 9.1.3", "b 1 9.2.1"]
    assert without_late_puts(lines, {}) == lines
    assert without_late_puts(lines, {9: 2}) == [lines[0], lines[1], lines[4], lines[5]]


@pytest.mark.timeout(900)
def test_kills_growth_and_shrink(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, postgres: Postgres) -> None:
    """SIGKILL, whatever a worker is doing, the one that leads included."""
    rng = random.Random(SEED)
    with ChaosRun(kafka, topic_name, tmp_path, postgres) as run:
        run.begin()
        for number in range(KILLS):
            victim = rng.randrange(3)
            run.workers.kill(victim)
            run.resize(SIZES[number % len(SIZES)])
            run.workers.start(victim)
            run.goes_on()
        print({"seed": SEED, "kills": KILLS, **run.finish()})


@pytest.mark.timeout(900)
def test_a_worker_that_stands_still_past_its_session(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, postgres: Postgres
) -> None:
    """SIGSTOP until its tasks run elsewhere, then SIGCONT: what it still had in hand is fenced, and it works again."""
    with ChaosRun(kafka, topic_name, tmp_path, postgres) as run:
        run.begin()
        rests = run.workers.rests
        for number in range(STANDSTILLS):
            # One that runs a source task, so that there is a transaction to fence.
            of_source = next(worker for word, _, worker in run.tasks(rests[0]) if word == "src")
            victim = next(i for i, rest in enumerate(rests) if rest.worker_id == of_source)
            other = rests[(victim + 1) % 3]
            run.workers.stand_still(victim)
            until(
                lambda o=other, v=of_source: all(s == "RUNNING" and w != v for _, s, w in run.tasks(o)),
                "its tasks run elsewhere",
            )
            run.resize(SIZES[number % len(SIZES)])
            run.goes_on()
            run.wakes(run.workers.pid(victim))
            run.workers.go_on(victim)
            until(lambda o=other, v=of_source: any(w == v for _, _, w in run.tasks(o)), "it has tasks again")
            run.all_run(other)
            run.goes_on()
            log = run.workers.log(victim)
            assert "fenced by a newer" in log or "a newer process joined" in log, log
        print({"standstills": STANDSTILLS, **run.finish()})


@pytest.mark.timeout(900)
def test_a_broker_of_three_is_killed(
    kafka3: KafkaUnderTest, topic_name: str, tmp_path: Path, postgres: Postgres
) -> None:
    """One after the other, each coming back before the next goes; the topic changes while one is away."""
    with ChaosRun(kafka3, topic_name, tmp_path, postgres, replicas=3) as run:
        run.begin()
        for number in range(BROKERS):
            broker = 1 + (SEED + number) % 3
            kafka3.kill_broker(broker)
            try:
                run.goes_on()
                run.resize(SIZES[number])
                run.goes_on()
            finally:
                kafka3.start_broker(broker)
            run.goes_on()
        print({"seed": SEED, "brokers": BROKERS, **run.finish()})
