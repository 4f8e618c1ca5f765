"""A compacted topic as a table, on a real broker."""

from __future__ import annotations

from confluent_kafka import Consumer
from keyorder import OrderedProducer
from keyorder.connector.connect.runtime.kafka_log import KafkaLog
from support.cluster import KafkaUnderTest
from support.connect_rig import until


def test_a_key_has_one_partition_whoever_writes_it(kafka: KafkaUnderTest, topic_name: str) -> None:
    """An exactly-once task writes its offsets beside the worker: in two partitions, a reset might be read before them."""
    table: dict[str, bytes | None] = {}
    log = KafkaLog(kafka.client_config(), topic_name, 25, 1, table.__setitem__)
    log.open()
    keys = [f"[connector,{i}]" for i in range(30)]
    with OrderedProducer(kafka.client_config()) as producer:
        for key in keys:
            producer.produce(topic_name, b"1", key)
    log.write(dict.fromkeys(keys))
    log.read_to_end()
    log.close()
    assert table == dict.fromkeys(keys)

    places: dict[str, set[int]] = {}
    reader = Consumer({**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"})
    reader.subscribe([topic_name])

    def read() -> bool:
        for message in reader.consume(100, 0.1):
            key, partition = message.key(), message.partition()
            assert isinstance(key, bytes)
            assert partition is not None
            places.setdefault(key.decode(), set()).add(partition)
            count.append(partition)
        return len(count) == 2 * len(keys)

    count: list[int] = []
    until(read, lambda: f"all is read, not {len(count)}")
    reader.close()
    assert [key for key, found in places.items() if len(found) > 1] == []
