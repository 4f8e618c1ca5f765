"""A broker whose log cleaner is quick, and tests' ways to make it run and to see what it has left."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from keyorder import OrderedProducer
from keyorder.compaction.strategy import encode_version
from keyorder.connector.metadata import topic_config
from support.cluster import KafkaUnderTest

CLEANER = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}
# The lag holds the cleaner back until a test lets it go: so nothing depends on how quick the machine is.
HELD = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0001",
    "min.compaction.lag.ms": "3600000",
    "delete.retention.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}
# Compacted by the versions in a header.
HEADER = {**HELD, "compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}
ROLLER = b"\x00roller"


class Kept(NamedTuple):
    """One record as a plain reader sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def dump(kafka: KafkaUnderTest, topic: str) -> list[Kept]:
    """All that a plain reader finds, in the order of partitions and offsets; the roller's records are left out."""
    consumer = Consumer({**kafka.client_config(), "group.id": "dump", "enable.partition.eof": True})
    count = len(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
    found, ended = [], set()
    while len(ended) < count:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        elif message.key() != ROLLER:
            headers = tuple(message.headers() or ())
            found.append(
                Kept(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    headers,
                    message.timestamp()[1],
                )
            )
    consumer.close()
    return sorted(found)


def configure(kafka: KafkaUnderTest, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of the topic, and leave the others; returns when the broker shows them."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = kafka.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(120)
    shown = topic_config(admin, topic, kafka.bootstrap_servers)
    while any(shown[name] != value for name, value in settings.items()):
        time.sleep(0.02)
        shown = topic_config(admin, topic, kafka.bootstrap_servers)


def clean(kafka: KafkaUnderTest, topic: str, timeout: float = 60) -> list[Kept]:
    """Let the cleaner go, wait until it has left one record of each key in each partition, and hold it back again.

    Returns what it has left. Each turn writes a record of a key of its own per partition, which closes the segment.
    """
    configure(kafka, topic, {"min.compaction.lag.ms": "0"})
    producer = Producer(kafka.client_config())
    deadline = time.monotonic() + timeout
    while True:
        for p in range(len(producer.list_topics(topic, 30).topics[topic].partitions)):
            producer.produce(topic, b"", ROLLER, p)
        assert producer.flush(120) == 0
        kept = dump(kafka, topic)
        if len({(each.partition, each.key) for each in kept}) == len(kept):
            configure(kafka, topic, {"min.compaction.lag.ms": HELD["min.compaction.lag.ms"]})
            return kept
        assert time.monotonic() < deadline, f"the cleaner has left {len(kept)} records of {topic}"
        time.sleep(0.15)


def send_versions(kafka: KafkaUnderTest, topic: str, *records: tuple[str, str | None, int]) -> None:
    """(key, value, version in the header of HEADER), all acknowledged."""
    with OrderedProducer(kafka.client_config()) as producer:
        for key, value, version in records:
            producer.produce(topic, value, key, headers=[("v", encode_version(version))])
        assert producer.flush(120) == 0


def facts_of(state: Path) -> dict[str, str]:
    """What a state file says of itself, as somebody sees it who only looks."""
    with closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as database:
        return dict(database.execute("SELECT name, text FROM facts"))
