"""Three distributed workers, killed at random while the topic grows and shrinks.

`make connect-chaos` is the long form: ten kills.
"""

from __future__ import annotations

import os
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.connect_rig import committed_values, group_settings, until
from support.connect_workers import WorkerGroup
from support.postgres import Postgres

KILLS = int(os.environ.get("KEYORDER_CONNECT_KILLS", "2"))
SEED = int(os.environ.get("KEYORDER_SEED", "7"))
PLUGINS = "support.connect_plugins:CounterSource,support.connect_plugins:JournalSink"
KEYS = 60


class Writer(threading.Thread):
    """Counts upwards per key, about 250 records a second, until told to stop. `last` is the truth."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        super().__init__(daemon=True)
        self._config, self._topic = config, topic
        self.last: dict[str, int] = defaultdict(lambda: -1)
        self.failed: list[Any] = []
        self._done = threading.Event()

    def run(self) -> None:
        rng = random.Random(1)
        with OrderedProducer({**self._config, "linger.ms": 5}) as producer:
            while not self._done.is_set():
                for _ in range(5):
                    key = f"k{rng.randrange(KEYS)}"
                    self.last[key] += 1
                    producer.produce(self._topic, str(self.last[key]), key, on_delivery=self._delivered)
                producer.poll(0)
                self._done.wait(0.02)

    def finish(self) -> dict[str, int]:
        self._done.set()
        self.join(60)
        assert not self.is_alive()
        assert not self.failed, self.failed[:3]
        return dict(self.last)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL."""
    started = Postgres()
    yield started
    started.stop()


def disorder(journal: Path) -> list[str]:
    """Where a key's numbers jump ahead: each is the next one, or a repetition from some point on after a crash."""
    highest: dict[str, int] = defaultdict(lambda: -1)
    before: dict[str, int] = {}
    found = []
    for line in journal.read_text().splitlines():
        key, number = line.split()[0], int(line.split()[1])
        if number != before.get(key, -1) + 1 and not (number <= highest[key] and number <= before[key]):
            found.append(f"{key}: {before.get(key)} then {number}")
        before[key], highest[key] = number, max(highest[key], number)
    return found


@pytest.mark.parametrize(
    ("numbers", "wrong"), [("0 1 2 1 2 3", 0), ("0 2 1", 1), ("1", 1), ("0 1 2 0 2", 1), ("0 1 1 2", 0), ("0 1 3", 1)]
)
def test_the_check_of_order_sees_disorder(tmp_path: Path, numbers: str, wrong: int) -> None:
    """Repetitions from some point on pass, jumps ahead do not."""
    (tmp_path / "journal").write_text("".join(f"k {n}\nother {i}\n" for i, n in enumerate(numbers.split())))
    assert len(disorder(tmp_path / "journal")) == wrong


@pytest.mark.timeout(900)
def test_kills_growth_and_shrink(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, postgres: Postgres) -> None:
    """Rows in PostgreSQL equal the truth, each key was put in order, and the exactly-once source repeats nothing."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, config={"keyorder.view.age.ms": "400"})
    counted, table, journal = f"{topic_name}-counted", f"t{abs(hash(topic_name))}", tmp_path / "journal"
    admin.create(counted, 3)
    settings = group_settings(kafka, topic_name) | {
        "plugin.classes": PLUGINS,
        "exactly.once.source.support": "enabled",
    }
    rng = random.Random(SEED)
    sizes = [9, 5, 8, 4, 11, 6, 7, 5, 10, 4]
    with WorkerGroup(settings, tmp_path, 3) as workers:
        rest = workers.rests[0]
        connectors = {
            "src": {"connector.class": "CounterSource", "topic": counted, "tasks.max": "2"},
            "sql": {
                "connector.class": "SqlSink",
                "topics": topic_name,
                "tasks.max": "3",
                "connection.url": postgres.url,
                "table.name.format": table,
            },
            "log": {"connector.class": "JournalSink", "topics": topic_name, "tasks.max": "2", "file": str(journal)},
        }
        for name, config in connectors.items():
            rest.ok("POST", "/connectors", {"name": f"{topic_name}-{name}", "config": config})
        writer = Writer(kafka.client_config(), topic_name)
        writer.start()
        for name, tasks in (("src", 2), ("sql", 3), ("log", 2)):
            rest.running(f"{topic_name}-{name}", tasks)
        for number in range(KILLS):
            victim = rng.randrange(3)
            workers.kill(victim)
            size = sizes[number % len(sizes)]
            (admin.expand if size > admin.timeline(topic_name).newest.count else admin.shrink)(topic_name, size)
            workers.start(victim)
            seen = journal.stat().st_size
            until(lambda s=seen: journal.stat().st_size > s, "the journal goes on")
        truth = writer.finish()
        rest = workers.rests[0]
        until(
            lambda: {k: int(n) for k, n in postgres.rows(f"SELECT key, value FROM {table}")} == truth,
            lambda: f"{rest.ok('GET', f'/connectors/{topic_name}-sql/status')} {workers.log(0)}",
            120,
        )

        def journaled() -> bool:
            lines = (line.split() for line in journal.read_text().splitlines())
            last: dict[str, int] = {}
            for key, number in lines:
                last[key] = max(int(number), last.get(key, -1))
            return last == truth

        until(journaled, "the journal has everything")
        rest.running(f"{topic_name}-src", 2)
        rest.ok("PUT", f"/connectors/{topic_name}-src/stop")
        until(lambda: rest.states(f"{topic_name}-src") == ("STOPPED", []), "the source has stopped")
        for number in range(3):
            assert workers.stop(number) == 0, workers.log(number)

    assert disorder(journal) == []
    by_task: dict[str, list[int]] = defaultdict(list)
    for value in committed_values(kafka, counted):
        task, number = value.split()
        by_task[task].append(int(number))
    assert set(by_task) == {"0", "1"}
    for numbers in by_task.values():
        assert sorted(numbers) == list(range(len(numbers)))
    print(
        {
            "records": sum(n + 1 for n in truth.values()),
            "seed": SEED,
            "kills": KILLS,
            "counted": {t: len(n) for t, n in by_task.items()},
        }
    )
