"""A source and two sinks on three distributed workers, a writer beside them, and the judgement of what they did."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, committed_values, group_settings, until
from support.connect_workers import WorkerGroup
from support.postgres import Postgres

_PLUGINS = "support.connect_plugins:CounterSource,support.connect_plugins:JournalSink"
_TASKS = {"src": 2, "sql": 3, "log": 2}
_KEYS = 60


class Writer(threading.Thread):
    """Counts upwards per key, about 250 records a second, until told to stop. `last` is the truth."""

    def __init__(self, config: Mapping[str, str], topic: str) -> None:
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
                    key = f"k{rng.randrange(_KEYS)}"
                    self.last[key] += 1
                    producer.produce(self._topic, str(self.last[key]), key, on_delivery=self._delivered)
                producer.poll(0)
                self._done.wait(0.02)

    def finish(self) -> dict[str, int]:
        self._done.set()
        self.join(120)
        assert not self.is_alive()
        assert not self.failed, self.failed[:3]
        return dict(self.last)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)


def disorder(lines: Sequence[str]) -> list[str]:
    """Where a key's numbers jump ahead: each is the next one, or a repetition from some point on after a crash."""
    highest: dict[str, int] = defaultdict(lambda: -1)
    before: dict[str, int] = {}
    found = []
    for line in lines:
        key, number = line.split()[0], int(line.split()[1])
        if number != before.get(key, -1) + 1 and not (number <= highest[key] and number <= before[key]):
            found.append(f"{key}: {before.get(key)} then {number}")
        before[key], highest[key] = number, max(highest[key], number)
    return found


def without_late_puts(lines: Sequence[str], woken: Mapping[int, int]) -> list[str]:
    """The journal without the put in which a stopped process stood: it may end when the process is woken.

    woken: how many lines there were when a process was, by its id. Nothing else of the tasks that it had is left out.
    """
    known, late = set(), dict[str, str]()
    for at, line in enumerate(lines):
        process, task, put = line.split()[2].split(".")
        first = woken.get(int(process), len(lines))
        if at < first:
            known.add(task + process)
        elif task + process in known:
            late.setdefault(task + process, put)
    return [x for x in lines if (w := x.split()[2].split("."))[2] != late.get(w[1] + w[0])]


class ChaosRun:
    """Use as a context manager: workers are running then. `begin`, then do harm, then `finish`.

    replicas: of all topics; 3 where brokers are killed.
    """

    def __init__(self, kafka: KafkaUnderTest, name: str, folder: Path, postgres: Postgres, replicas: int = 1) -> None:
        self._kafka, self._name, self._postgres, self._replicas = kafka, name, postgres, replicas
        self._admin = TopicAdmin(kafka.client_config())
        self._counted, self._table = f"{name}-counted", f"t{abs(hash(name))}"
        self.journal = folder / "journal"
        self._writer = Writer(kafka.client_config(), name)
        self._woken: dict[int, int] = {}
        settings = group_settings(kafka, name) | {
            "plugin.classes": _PLUGINS,
            "exactly.once.source.support": "enabled",
        }
        settings |= {key: str(replicas) for key in settings if key.endswith("replication.factor")}
        self.workers = WorkerGroup(settings, folder, 3)

    def __enter__(self) -> ChaosRun:
        self._admin.create(self._name, 4, self._replicas, config={"keyorder.view.age.ms": "400"})
        self._admin.create(self._counted, 3, self._replicas)
        self.workers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.__exit__()

    def begin(self) -> None:
        """Make the connectors, write, and return when all tasks run."""
        connectors = {
            "src": {"connector.class": "CounterSource", "topic": self._counted},
            "sql": {
                "connector.class": "SqlSink",
                "topics": self._name,
                "connection.url": self._postgres.url,
                "table.name.format": self._table,
            },
            "log": {"connector.class": "JournalSink", "topics": self._name, "file": str(self.journal)},
        }
        for word, config in connectors.items():
            config["tasks.max"] = str(_TASKS[word])
            self.workers.rests[0].ok("POST", "/connectors", {"name": f"{self._name}-{word}", "config": config})
        self._writer.start()
        self.all_run(self.workers.rests[0])

    def all_run(self, rest: RestClient) -> None:
        """Wait until every task runs."""
        for word, tasks in _TASKS.items():
            rest.running(f"{self._name}-{word}", tasks)

    def tasks(self, rest: RestClient) -> list[tuple[str, str, str]]:
        """(connector's word, state, worker) of every task."""
        return [
            (word, task["state"], task["worker_id"])
            for word in _TASKS
            for task in rest.ok("GET", f"/connectors/{self._name}-{word}/status")["tasks"]
        ]

    def resize(self, count: int) -> None:
        """Grow or shrink the topic."""
        grows = count > self._admin.timeline(self._name).newest.count
        (self._admin.expand if grows else self._admin.shrink)(self._name, count)

    def goes_on(self) -> None:
        """Wait until something more is put."""
        seen = self.journal.stat().st_size
        until(lambda: self.journal.stat().st_size > seen, lambda: f"the journal goes on: {self._logs()}")

    def wakes(self, process: int) -> None:
        """A stopped process is about to go on."""
        self._woken[process] = len(self.journal.read_text().splitlines())

    def finish(self) -> dict[str, Any]:
        """Nothing lost, nothing out of order, the source's records once each. Returns figures."""
        truth = self._writer.finish()
        rest = self.workers.rests[0]
        query = f"SELECT key, value FROM {self._table}"
        until(
            lambda: {k: int(n) for k, n in self._postgres.rows(query)} == truth,
            lambda: f"{rest.ok('GET', f'/connectors/{self._name}-sql/status')} {self._logs()}",
            120,
        )

        def journaled() -> bool:
            last: dict[str, int] = {}
            for line in self.journal.read_text().splitlines():
                key, number = line.split()[:2]
                last[key] = max(int(number), last.get(key, -1))
            return last == truth

        until(journaled, "the journal has everything")
        self.all_run(rest)
        source = f"{self._name}-src"
        rest.ok("PUT", f"/connectors/{source}/stop")
        until(lambda: rest.states(source) == ("STOPPED", []), "the source has stopped")
        for number in range(3):
            assert self.workers.stop(number) == 0, self.workers.log(number)
        lines = self.journal.read_text().splitlines()
        assert disorder(without_late_puts(lines, self._woken)) == []
        return {"records": sum(n + 1 for n in truth.values()), "puts": len(lines), "counted": self._counted_once()}

    def _counted_once(self) -> dict[str, int]:
        by_task: dict[str, list[int]] = defaultdict(list)
        for value in committed_values(self._kafka, self._counted):
            task, number = value.split()
            by_task[task].append(int(number))
        assert set(by_task) == {"0", "1"}
        for numbers in by_task.values():
            assert sorted(numbers) == list(range(len(numbers)))
        return {task: len(numbers) for task, numbers in by_task.items()}

    def _logs(self) -> str:
        return "\n".join(self.workers.log(number) for number in range(3))
