"""`enable.partition.eof`: who reads until all partitions have ended has all of their records."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest


@pytest.mark.parametrize("gate", ["partition", "key"])
def test_an_end_is_told_behind_the_records_that_wait(kafka: KafkaUnderTest, topic_name: str, gate: str) -> None:
    """Records behind a closed gate are fetched before it opens; the end of their partition comes after them."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)
    keys = [f"k{n}".encode() for n in range(20)]
    for count in (1, 2):
        if count > 1:
            admin.expand(topic_name, count)
        with OrderedProducer(kafka.client_config()) as producer:
            for key in keys:
                producer.produce(topic_name, str(count).encode(), key)
    config = {
        **kafka.client_config(),
        "group.id": f"{topic_name}-group",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "keyorder.gate": gate,
    }
    found: dict[int, list[int]] = {0: [], 1: []}
    ended: set[int] = set()
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])
        while ended != {0, 1}:
            message = consumer.poll(60)
            assert message is not None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if message.error() is None:
                found[partition].append(offset)
                ended.discard(partition)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                assert len(found[partition]) == offset, f"{offset - len(found[partition])} records come after the end"
                ended.add(partition)
            if ended == {0}:
                consumer.commit(asynchronous=False)
    assert sum(map(len, found.values())) == 2 * len(keys)
