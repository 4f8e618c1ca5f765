"""Workers of a test: standalone ones in this process, and plugins that record what they are given."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, KafkaError, TopicPartition
from keyorder.connector import clock
from keyorder.connector.connect import ConfigDef, RetriableError, SinkConnector, SinkRecord, SinkTask
from keyorder.connector.connect.runtime.launch import Parts, standalone
from keyorder.connector.connect.runtime.operations.operations import Operations
from support.cluster import KafkaUnderTest

PATIENCE = 180.0


def until(condition: Callable[[], Any], what: str | Callable[[], str], patience: float = PATIENCE) -> Any:
    """The first true answer of `condition`; fails with `what` when there is none."""
    deadline = clock.now() + patience
    while True:
        found = condition()
        if found:
            return found
        assert clock.now() < deadline, f"not in {patience:.0f} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


def worker_settings(kafka: KafkaUnderTest, folder: Path, **more: str) -> dict[str, str]:
    """A standalone worker's properties."""
    return {
        **kafka.client_config(),
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(folder / "offsets.json"),
        "offset.flush.interval.ms": "300",
        "listeners": "",
        "plugin.classes": "support.connect_rig:MemorySink",
        "consumer.session.timeout.ms": "6000",
        "consumer.heartbeat.interval.ms": "1000",
        "consumer.fetch.wait.max.ms": "50",
        "internal.replication.factor": "1",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@contextmanager
def alone(settings: Mapping[str, str]) -> Iterator[Operations]:
    """A standalone worker in this process."""
    operations = standalone(Parts.of(settings, distributed=False), "")
    operations.herder.start()
    try:
        yield operations
    finally:
        operations.herder.stop()


def running(operations: Operations, name: str, tasks: int = 1) -> None:
    """Wait until that many tasks run."""

    def all_run() -> bool:
        states = [task["state"] for task in operations.status(name)["tasks"]]
        assert "FAILED" not in states, operations.status(name)
        return states == ["RUNNING"] * tasks

    until(all_run, f"{name} has {tasks} running tasks")


class MemorySink(SinkConnector):
    """Keeps what its tasks were given in `MemorySink.seen`, by connector; `bad` values are reported or fail.

    A `later` value is to be put again, as is all that was put with it, until it is among the good ones; `tried` has it then.
    """

    seen: dict[str, list[SinkRecord]] = {}
    tried: set[str] = set()
    flushed: dict[str, int] = {}
    good: set[str] = set()
    lock = threading.Lock()

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef()

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return MemoryTask

    def start(self, config: dict[str, str]) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{**self._config, "number": str(i)} for i in range(max_tasks)]

    @classmethod
    def values(cls, name: str, key: str | None = None) -> list[Any]:
        with cls.lock:
            return [r.value for r in cls.seen.get(name, []) if key is None or r.key == key]


class MemoryTask(SinkTask):
    """The task of MemorySink."""

    def start(self, config: dict[str, str]) -> None:
        self._name = config["name"]

    def put(self, records: Sequence[SinkRecord]) -> None:
        later = {value for r in records if (value := str(r.value)).startswith("later") and value not in MemorySink.good}
        if later:
            MemorySink.tried |= later
            self.context.timeout(0.05)
            raise RetriableError("not yet")
        for record in records:
            if str(record.value).startswith("bad") and record.value not in MemorySink.good:
                error = ValueError(f"no {record.value} here")
                if self.context.errant_record_reporter is None:
                    raise error
                self.context.errant_record_reporter.report(record, error)
                continue
            with MemorySink.lock:
                MemorySink.seen.setdefault(self._name, []).append(record)

    def flush(self, offsets: Mapping[tuple[str, int], int]) -> None:
        with MemorySink.lock:
            MemorySink.flushed[self._name] = len(MemorySink.seen.get(self._name, []))


def group_settings(kafka: KafkaUnderTest, name: str, **more: str) -> dict[str, str]:
    """A distributed worker's properties; workers of one `name` are one group."""
    return {
        **kafka.client_config(),
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "offset.storage.topic": f"{name}-offsets",
        "status.storage.topic": f"{name}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "3",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "1",
        "internal.replication.factor": "1",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.flush.interval.ms": "300",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "listeners": "http://127.0.0.1:0",
        "plugin.classes": "support.connect_rig:MemorySink",
        "consumer.session.timeout.ms": "6000",
        "consumer.heartbeat.interval.ms": "1000",
        "consumer.fetch.wait.max.ms": "50",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def sink(topic: str, **more: str) -> dict[str, str]:
    """The configuration of a MemorySink."""
    return {"connector.class": "MemorySink", "topics": topic, **more}


class RestClient:
    """A worker's REST, as a user of Kafka Connect calls it."""

    def __init__(self, url: str, **options: Any) -> None:
        self.http = httpx.Client(base_url=url, timeout=120.0, **options)
        self.worker_id = url.partition("://")[2]

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.request(method, path, json=body, **options)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer that must be a success."""
        found = self.settled(method, path, body)
        assert found.is_success, found.text
        return found.json() if found.content else None

    def settled(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The answer. A rebalance under way is waited for, as users do."""

        def answer() -> httpx.Response | None:
            found = self(method, path, body)
            return None if found.status_code == 409 and "momentarily" in found.text else found

        response: httpx.Response = until(answer, f"{method} {path} is answered")
        return response

    def states(self, name: str) -> tuple[str, list[str]]:
        """(the connector's state, its tasks')."""
        found = self("GET", f"/connectors/{name}/status")
        if found.status_code != 200:
            return "", []
        status = found.json()
        return status["connector"]["state"], [task["state"] for task in status["tasks"]]

    def running(self, name: str, tasks: int) -> None:
        """Wait until that many tasks run, and no other."""
        until(
            lambda: self.states(name) == ("RUNNING", ["RUNNING"] * tasks),
            lambda: f"{name} runs: {self.ok('GET', f'/connectors/{name}/status')}",
        )


def await_leader(url: str, **options: Any) -> None:
    """Return when the worker knows its group's leader: until then it says of what the leader does that it cannot now."""
    assert RestClient(url, **options).settled("DELETE", "/connectors/none-of-this-name").status_code == 404


def committed_values(kafka: KafkaUnderTest, topic: str) -> list[str]:
    """Every value that a read_committed consumer sees, partition by partition."""
    reader = Consumer(
        {**kafka.client_config(), "group.id": "eos", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    partitions = reader.list_topics(topic, timeout=120).topics[topic].partitions
    reader.assign([TopicPartition(topic, p, 0) for p in partitions])
    left, found = set(partitions), []
    while left:
        for message in reader.consume(500, 1.0):
            if message.error() is None:
                found.append(message.value().decode())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                left.discard(message.partition())
    reader.close()
    return found
