"""For tests of plugins: a real broker, a worker with the plugins, records in and out.

with LocalConnect(MySink) as connect:
    connect.run("sink", MySink, {"topics": "t"})
    connect.send("t", [("key", "value")])
    connect.wait_until_put("sink", "t")
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ...partitioner.errors import PeerError, UsageError
from .. import clock
from ..admin import TopicAdmin
from ..kafka_errors import ends_partition
from ..local.cluster import LocalCluster
from ..log_offsets import LogOffsets
from ..producing.producer import OrderedProducer
from .api.connector import Connector
from .runtime.clients import group_of
from .runtime.launch import Parts, standalone
from .runtime.operations.operations import Operations

_LOOK = 0.05


class LocalConnect:
    """A standalone worker in this process, with a broker of its own; use as a context manager.

    plugins: classes of connectors, transforms, predicates, converters that are not installed. bootstrap_servers: a broker
    that runs already, instead. settings: more settings of the worker. timeout: seconds for each thing that is waited for.
    """

    def __init__(
        self,
        *plugins: type,
        bootstrap_servers: str | None = None,
        settings: Mapping[str, str] = {},
        timeout: float = 120.0,
    ) -> None:
        self._plugins, self._servers, self._settings = plugins, bootstrap_servers, dict(settings)
        self.timeout = timeout
        self._stack = ExitStack()
        self._operations: Operations | None = None

    @property
    def operations(self) -> Operations:
        """What the REST of the worker does: create, status, offsets and so on."""
        if self._operations is None:
            raise UsageError("the worker does not run: use LocalConnect as a context manager")
        return self._operations

    @property
    def client_config(self) -> dict[str, str]:
        """Settings for clients of one's own."""
        assert self._servers is not None
        return {"bootstrap.servers": self._servers}

    def __enter__(self) -> LocalConnect:
        with ExitStack() as stack:
            if self._servers is None:
                self._servers = stack.enter_context(LocalCluster()).bootstrap_servers
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyorder-connect-")))
            text = "org.apache.kafka.connect.storage.StringConverter"
            settings = {
                **self.client_config,
                "key.converter": text,
                "value.converter": text,
                "offset.storage.file.filename": str(folder / "offsets.json"),
                "offset.flush.interval.ms": "300",
                "internal.replication.factor": "1",
                "listeners": "",
                "plugin.classes": ",".join(f"{kind.__module__}:{kind.__name__}" for kind in self._plugins),
                **self._settings,
            }
            self._operations = standalone(Parts.of(settings, distributed=False), "")
            self._operations.herder.start()
            stack.callback(self._operations.herder.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, name: str, connector: type[Connector] | str, config: Mapping[str, str]) -> None:
        """Start a connector, or give it another configuration; return when its tasks run.

        Raises BadRequestError for settings that it refuses, PeerError with the trace of a task that has failed.
        """
        kind = connector if isinstance(connector, str) else connector.__name__
        self.operations.put_config(name, {**config, "connector.class": kind})
        self.wait(lambda: self._runs(name), f"connector {name} runs")

    def _runs(self, name: str) -> bool:
        status = self.operations.status(name)
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                raise PeerError(f"connector {name} has failed: {part.get('trace')}")
        return bool(status["tasks"]) and all(task["state"] == "RUNNING" for task in status["tasks"])

    def topic(self, name: str, partitions: int = 1) -> None:
        """Make a topic, or let it grow to that many partitions while everything runs."""
        admin = TopicAdmin(self.client_config)
        if admin.managed(name) is None:
            admin.create(name, partitions, 1)
        else:
            admin.expand(name, partitions)

    def send(self, topic: str, records: Iterable[tuple[Any, Any]]) -> None:
        """Write (key, value) pairs of text or bytes; return when they are acknowledged."""
        with OrderedProducer(self.client_config) as producer:
            for key, value in records:
                producer.produce(topic, value, key)

    def records(self, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
        """The (key, value) pairs of a topic, each key's in order of its partition, once there are `count` of them."""
        found: list[tuple[bytes | None, bytes | None]] = []

        def enough() -> bool:
            found[:] = self._read(topic)
            return len(found) >= count

        self.wait(enough, lambda: f"{topic} has {count} records; it has {len(found)}")
        return found

    def wait_until_put(self, name: str, topic: str) -> None:
        """Return when a sink connector has put and flushed all that the topic holds by now."""
        offsets = LogOffsets(self.client_config)
        try:
            ends = offsets.high_watermarks([(topic, p) for p in self._partitions(topic)])
        finally:
            offsets.close()
        due = {place: end for place, end in ends.items() if end}

        def done() -> bool:
            self._runs(name)
            at = {
                (entry["partition"]["kafka_topic"], entry["partition"]["kafka_partition"]): entry["offset"][
                    "kafka_offset"
                ]
                for entry in self.operations.offsets(name)["offsets"]
            }
            return all(at.get(place, 0) >= end for place, end in due.items())

        self.wait(done, f"group {group_of(name)} has committed all of {topic}")

    def wait(self, condition: Callable[[], Any], what: str | Callable[[], str]) -> None:
        """Return when a condition holds. Raises TimeoutError with `what` after `timeout` seconds."""
        deadline = clock.now() + self.timeout
        while not condition():
            if clock.now() > deadline:
                raise TimeoutError(f"not in {self.timeout:.0f} s: {what if isinstance(what, str) else what()}")
            time.sleep(_LOOK)

    def _partitions(self, topic: str) -> list[int]:
        reader = Consumer({**self.client_config, "group.id": "keyorder-connect-testing"})
        try:
            return sorted(reader.list_topics(topic, timeout=10).topics[topic].partitions)
        finally:
            reader.close()

    def _read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        found: list[tuple[bytes | None, bytes | None]] = []
        left = set(self._partitions(topic))
        own = {"group.id": "keyorder-connect-testing", "enable.auto.commit": False, "enable.partition.eof": True}
        reader = Consumer({**self.client_config, **own})
        try:
            reader.assign([TopicPartition(topic, p, 0) for p in left])
            while left:
                for message in reader.consume(500, 1.0):
                    error = message.error()
                    if error is None:
                        found.append((message.key(), message.value()))
                    elif ends_partition(error, f"topic {topic}"):
                        left.discard(message.partition())
        finally:
            reader.close()
        return found
