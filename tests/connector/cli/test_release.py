"""`topics release` and back again, on a real broker."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.partitioner.errors import MisplacedKeysError, NotReleasableError, ReleasedTopicError
from support.cluster import KafkaUnderTest
from support.commands import Command
from support.holding import log_values

KEYS = [f"k{i}" for i in range(20)]


def commit(kafka: KafkaUnderTest, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit for a group without members."""
    wanted = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(group, wanted)]
    client = kafka.admin()
    client.alter_consumer_group_offsets(request, request_timeout=120)[group].result(120)


def test_a_topic_is_released_and_taken_back(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command, caplog: pytest.LogCaptureFixture
) -> None:
    """Each obstacle is told until it is gone. Stock producers go on, ordered groups read all in order, `adopt` takes back."""
    config, topic = kafka.client_config(), topic_name
    caplog.set_level(logging.INFO, "keyorder")
    admin = TopicAdmin(config)
    admin.create(topic, 1, config={"keyorder.view.age.ms": "300"})
    with OrderedProducer(config) as producer:
        for key in KEYS:
            producer.produce(topic, "0", key)
        producer.flush()
        admin.expand(topic, 3)
        for key in KEYS:
            producer.produce(topic, "1", key)
        producer.flush()
        group = f"{topic}-late"
        commit(kafka, group, topic, {0: 1})
        dry = keyorder("topics", "release", "--topic", topic, "--dry-run")
        assert (dry.code, {each["code"] for each in dry.document["obstacles"]}) == (3, {"count", "writer", "gate"})
        text = keyorder("topics", "release", "--topic", topic, "--dry-run", output="table")
        assert (text.code, "would stay under management" in text.out) == (3, True)
        refused = keyorder("topics", "release", "--topic", topic)
        assert (refused.code, refused.error["type"]) == (3, "NotReleasableError")
        admin.expand(topic, 4)
        commit(kafka, group, topic, dict.fromkeys(range(4), 1_000))
        with pytest.raises(NotReleasableError, match="OrderedProducer"):
            admin.release(topic)
        assert admin.timeline(topic).released is None

    told = {(r.name, r.getMessage().partition("; ")[0]) for r in caplog.records}
    assert ("keyorder.producer", f"{topic}: epoch 1 is in force, 1 to 3 partitions") in told
    (changed,) = [text for name, text in told if name == "keyorder.controller" and "from 1 to 3 partitions" in text]
    assert "epoch 1" in changed
    free = keyorder("topics", "release", "--topic", topic, "--dry-run")
    assert (free.code, free.document["obstacles"], free.document["released"]) == (0, [], None)
    done = admin.release(topic)
    assert (done.changed, done.partitions, done.obstacles) == (True, 4, ())
    assert done.released is not None
    assert not admin.release(topic).changed
    (listed,) = [t for t in keyorder("topics", "list").document["topics"] if t["topic"] == topic]
    assert listed["released"] == done.released
    with pytest.raises(ReleasedTopicError):
        admin.expand(topic, 8)
    with OrderedProducer(config) as producer, pytest.raises(ReleasedTopicError, match="topics adopt"):
        producer.produce(topic, "2", "k0")

    stock = Producer({**config, "partitioner": "murmur2_random"})
    for key in KEYS:
        stock.produce(topic, "2", key)
    assert stock.flush(120) == 0
    read: dict[bytes, list[bytes]] = {}
    reader = {**config, "group.id": f"{topic}-new", "auto.offset.reset": "earliest"}
    with OrderedConsumer(reader) as consumer:
        consumer.subscribe([topic])
        while sum(map(len, read.values())) < 3 * len(KEYS):
            for message in consumer.consume(100, 1.0):
                assert message.error() is None
                read.setdefault(bytes(message.key()), []).append(bytes(message.value()))
        assert consumer.strays == 0
    assert all(values == [b"0", b"1", b"2"] for values in read.values())

    assert keyorder("topics", "adopt", "--topic", topic).document["adopted"] is True
    assert admin.timeline(topic).released is None
    assert admin.expand(topic, 5).changed


def test_what_was_written_elsewhere_meanwhile_keeps_it_released(kafka: KafkaUnderTest, topic_name: str) -> None:
    """By a stock producer of another hash: `adopt` says so, and takes the topic back by an operator's word alone."""
    config, topic = kafka.client_config(), topic_name
    admin = TopicAdmin(config)
    admin.create(topic, 4)
    admin.release(topic)
    stock = Producer({**config, "partitioner": "consistent"})
    for key in KEYS:
        stock.produce(topic, "0", key)
    assert stock.flush(120) == 0
    assert sum(len(log_values(kafka, topic, p)) for p in range(4)) == len(KEYS)

    with pytest.raises(MisplacedKeysError):
        admin.adopt(topic)
    assert admin.timeline(topic).released is not None
    admin.adopt(topic, accept_misplaced=True)
    assert admin.timeline(topic).released is None
