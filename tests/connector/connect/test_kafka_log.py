"""A compacted topic as a table, on a real broker."""

from __future__ import annotations

import json
import traceback

import pytest
from confluent_kafka import Consumer
from keyorder import OrderedProducer
from keyorder.connector.connect.runtime.kafka_log import KafkaLog
from keyorder.partitioner.errors import CorruptRecordError
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


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\xff", b"{}"), (b"c", b"secret"), (b"c", b"[" * 100_000), (b"c", b"[]"), (b"c", b'{"properties": Infinity}')],
    ids=["key", "no JSON", "deep", "no object", "no text"],
)
def test_a_record_that_is_not_a_worker_s_stops_it_until_it_is_replaced(
    kafka: KafkaUnderTest, topic_name: str, key: bytes, value: bytes
) -> None:
    """A typed error with the place and nothing of the contents, again and again; a null value ends it, also in a new log."""
    table: dict[str, str] = {}

    def apply(name: str, data: bytes | None) -> None:
        if data is not None:
            table[name] = json.loads(data)["properties"].strip()

    def opened() -> KafkaLog:
        made = KafkaLog(kafka.client_config(), topic_name, 1, 1, apply)
        made.open()
        return made

    log = opened()
    log.write({"a": b'{"properties": "1"}'})
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, value, key)
        producer.produce(topic_name, b'{"properties": "2"}', "b")
    for each in (log, log, opened()):
        with pytest.raises(CorruptRecordError) as damaged:
            each.read_to_end()
        assert damaged.value.where.startswith(f"{topic_name}[0]@")
        assert "secret" not in "".join(traceback.format_exception(damaged.value))
        with pytest.raises(CorruptRecordError):
            each.poll()
        if each is not log:
            each.close()
    assert table == {"a": "1", "b": "2"}

    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, None, key)
    anew = opened()
    for each in (log, anew):
        each.read_to_end()
        each.close()
