"""The marker topic is shared by all queries of a cluster: what one of them left open keeps the others for a moment only."""

from __future__ import annotations

import uuid
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from keyorder.partitioner.records.control_records import MARKER_TOPIC
from keyorder.streaming.sink.markers import (
    Marker,
    MarkerReader,
    encode_marker,
    ensure_marker_topic,
    marker_slot,
)
from keyorder.streaming.sink.task import transactional_id
from support.cluster import KafkaUnderTest


def marked(kafka: KafkaUnderTest, slot: str) -> Producer:
    """A task that has written its marker and stopped before the commit."""
    settings = {"transactional.id": transactional_id(slot), "transaction.timeout.ms": 300_000}
    producer = Producer({**kafka.client_config(), **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(MARKER_TOPIC, encode_marker(Marker(1, 1, "a")), slot.encode(), marker_slot(slot)[1])
    assert producer.flush(120) == 0
    return producer


def beside(slot: str) -> str:
    """A task of another query whose markers lie in the same partition."""
    while True:
        other = f"{uuid.uuid4()}/0"
        if marker_slot(other) == marker_slot(slot):
            return other


@pytest.fixture
def slot(kafka: KafkaUnderTest) -> str:
    """That of a new task."""
    ensure_marker_topic(kafka.client_config())
    return f"{uuid.uuid4()}/0"


def test_a_transaction_that_a_killed_task_left_open_is_ended(kafka: KafkaUnderTest, slot: str) -> None:
    """By the first that waits for it; the broker would end it after the transaction's timeout, which is 300 s by default."""
    killed = marked(kafka, slot)
    with closing(MarkerReader(kafka.client_config(), patience=1.0)) as reader:
        assert reader.last(beside(slot), 240) is None
        with pytest.raises(KafkaException) as caught:
            killed.commit_transaction(60)
        assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        assert reader.last(slot, 240) is None


def test_a_transaction_that_goes_on_is_waited_for(kafka: KafkaUnderTest, slot: str) -> None:
    """A marker lies open for the time of a commit in any case."""
    alive = marked(kafka, slot)
    with closing(MarkerReader(kafka.client_config(), patience=600.0)) as reader:
        other = marked(kafka, beside(slot))
        other.abort_transaction(60)
        alive.commit_transaction(60)
        assert reader.last(slot, 240) == Marker(1, 1, "a")
