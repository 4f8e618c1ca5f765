"""A compacted topic as a table: written by key, read to its end (Kafka Connect's KafkaBasedLog)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AdminClient,
    NewTopic,
)

from ....partitioner.errors import BrokerUnreachableError, ConfigError, CorruptRecordError
from ... import clock
from ...config import REFILL, connection_of
from ...control.rights import require_write
from ...kafka_errors import ends_partition, translate, translated
from ...library_calls import shielded
from ...log_offsets import LogOffsets
from ...messages import offset_of, place_of
from ...metadata import cluster_metadata, patiently, topic_config, wait_for_partitions
from ...refusals import ClusterAdmin
from ..api.errors import ConnectError

Update = Callable[[str, bytes | None], None]
_TIMEOUT = 30.0
_OF_WRONG_SHAPES = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


class KafkaLog:
    """One internal topic. `apply` is called with each record, in order, on the thread that calls `poll` or `read_to_end`.

    Anybody with the right to may have written there. A record that `apply` cannot read (it raises what Python raises for values
    of the wrong shape) is a CorruptRecordError with its place and without its contents, in which secrets may stand. It is raised
    until a later record of its key stands in its place, or a null value.

    Thread-safe for writing; one thread at a time reads.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, partitions: int, replication: int, apply: Update) -> None:
        self.topic = topic
        self._config, self._apply = dict(connection_of(config)), apply
        self._servers = str(config.get("bootstrap.servers"))
        self._partitions, self._replication = partitions, replication
        self._lock = threading.RLock()
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._damaged: dict[bytes, CorruptRecordError] = {}
        self._offsets = LogOffsets(self._config)
        self._closed = False

    def open(self) -> None:
        """Make the topic if it is missing, check that it is compacted, begin to read. Raises ConfigError and kin."""
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        ensure_compacted(self._config, self._servers, self.topic, self._partitions, self._replication)
        self._consumer = Consumer(
            {
                **self._config,
                **REFILL,
                "group.id": "keyorder-connect-log",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
            }
        )
        with translated("describe", f"topic {self.topic}", self._servers):
            count = len(self._consumer.list_topics(self.topic, timeout=_TIMEOUT).topics[self.topic].partitions)
        self._next = {(self.topic, p): 0 for p in range(count)}
        self._consumer.assign([TopicPartition(t, p, 0) for t, p in self._next])

    def poll(self, timeout: float = 0.0) -> int:
        """Apply what has arrived. Returns how many records that was. Raises CorruptRecordError."""
        count = self._take(timeout)
        self._check()
        return count

    def _check(self) -> None:
        for damaged in self._damaged.values():
            raise damaged

    def _take(self, timeout: float) -> int:
        consumer = self._consumer
        if consumer is None:
            raise self._ended()
        first = consumer.poll(timeout)
        if first is None:
            return 0
        count = 0
        for message in [first, *consumer.consume(500, 0)]:
            error = message.error()
            if error is not None:
                if ends_partition(error, f"topic {self.topic}", self._servers):
                    self._next[place_of(message)] = max(self._next[place_of(message)], offset_of(message))
                continue
            self._next[place_of(message)] = offset_of(message) + 1
            key, value = message.key(), message.value()
            if key is not None:
                data = key.encode() if isinstance(key, str) else key
                self._apply_one(message, data, value.encode() if isinstance(value, str) else value)
                count += 1
        return count

    def _apply_one(self, message: Message, key: bytes, value: bytes | None) -> None:
        self._damaged.pop(key, None)
        try:
            self._apply(key.decode(), value)
        except _OF_WRONG_SHAPES as error:
            if value is not None:
                topic, partition = place_of(message)
                what = f"no record of a Connect worker ({type(error).__name__})"
                self._damaged[key] = CorruptRecordError(what, f"{topic}[{partition}]@{offset_of(message)}")

    def read_to_end(self, timeout: float = _TIMEOUT) -> None:
        """Apply all that is committed now. Raises BrokerUnreachableError after `timeout` seconds, CorruptRecordError."""
        with self._lock:
            if self._closed:
                raise self._ended()
            deadline = clock.now() + timeout
            ends = self._offsets.stable_ends(self._next, timeout)
            while any(self._next[place] < end for place, end in ends.items()):
                self._take(0.1)
                if clock.now() > deadline:
                    raise BrokerUnreachableError(self._servers, f"read topic {self.topic} to its end")
            self._check()

    def read_past(self, partition: int, offset: int, timeout: float = _TIMEOUT) -> None:
        """Apply all up to a record that was written: a transaction is decided before its markers let it be read."""
        deadline = clock.now() + timeout
        while self._next[self.topic, partition] <= offset:
            self.poll(0.1)
            if clock.now() > deadline:
                raise BrokerUnreachableError(self._servers, f"read topic {self.topic} up to its offset {offset}")

    def write(self, records: Mapping[str, bytes | None], timeout: float = _TIMEOUT) -> None:
        """Write records and wait for the broker. Raises the translated error of the first that failed."""
        failures: list[KafkaError] = []

        @shielded
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        with self._lock:
            if self._closed:
                raise self._ended()
            if self._producer is None:
                # One partition for a key, whoever writes it: exactly-once tasks write offsets with their own producer, and a
                # tombstone in another partition may be read before what it deletes.
                own = {"enable.idempotence": True, "linger.ms": 0, "partitioner": "murmur2_random"}
                self._producer = Producer({**self._config, **own})
            producer = self._producer
        for key, value in records.items():
            producer.produce(self.topic, value, key, on_delivery=delivered)
        if producer.flush(timeout):
            raise BrokerUnreachableError(self._servers, f"write to topic {self.topic}")
        if failures:
            raise translate(failures[0], "write", f"topic {self.topic}", self._servers)

    def close(self) -> None:
        """Release the clients, for good: who comes later is told so. May be called again."""
        with self._lock:
            self._closed = True
            consumer, self._consumer = self._consumer, None
            producer, self._producer = self._producer, None
            with ExitStack() as opened:
                opened.callback(self._offsets.close)
                if consumer is not None:
                    opened.callback(consumer.close)
                if producer is not None:
                    opened.callback(producer.flush, 5)

    def _ended(self) -> ConnectError:
        return ConnectError(f"the log of topic {self.topic} is closed: the worker or task that had opened it has ended")


def ensure_compacted(config: Mapping[str, Any], servers: str, topic: str, partitions: int, replication: int) -> None:
    """Make an internal topic, or see that the one that is there is compacted. Raises ConfigError if it is not."""
    admin = ClusterAdmin(config)
    cluster_metadata(admin, servers)
    make_topic(admin, servers, topic, partitions, replication, {"cleanup.policy": "compact"})
    found = patiently(lambda: topic_config(admin, topic, servers)["cleanup.policy"], _TIMEOUT)
    if found != "compact":
        raise ConfigError(f"cleanup.policy of {topic}", f"{found!r} deletes what the workers need", "set it to compact")
    require_write(admin, servers, topic, _TIMEOUT, read=True)  # a leader that may not write learns only of purges


def make_topic(
    admin: AdminClient, servers: str, topic: str, partitions: int, replication: int, config: Mapping[str, str]
) -> None:
    """Create a topic unless it is there, and wait for its leaders."""
    try:
        admin.create_topics([NewTopic(topic, partitions, replication, config=dict(config))])[topic].result(_TIMEOUT)
    except KafkaException as raised:
        if raised.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        if raised.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return  # it may be there all the same; reading it tells
        raise translate(raised.args[0], "create", f"topic {topic}", servers) from raised
    except FutureTimeout as raised:
        raise BrokerUnreachableError(servers, f"create topic {topic}") from raised
    wait_for_partitions(admin, topic, partitions, servers)
