"""A wedge has a name within seconds, and an operator can let its gate go."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.consuming.gates.gate_status import Gate
from keyorder.partitioner.errors import AssignmentError
from support.cluster import KafkaUnderTest
from support.groups import QUICK, group_config, grown, moving_key, read, send


def await_gate(consumer: OrderedConsumer, wanted: Callable[[Gate], bool], timeout: float = 120.0) -> Gate:
    """Poll until a closed gate looks like that."""
    deadline = time.monotonic() + timeout
    while True:
        assert consumer.poll(0.05) is None
        for gate in consumer.gates():
            if wanted(gate):
                return gate
        assert time.monotonic() < deadline, f"never; gates: {consumer.gates()}"


@pytest.mark.kip("C-11", "K253-54")
def test_an_application_that_never_commits_is_named(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Reason, sentence, owner: nobody has to guess what the gate waits for."""
    grown(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.subscribe([topic_name])
    read(consumer, 1)

    gate = await_gate(consumer, lambda g: "application" in g.reason)

    assert (gate.waits_for, gate.needs_offset, gate.at_offset, gate.owner) == (0, 1, 0, "this member")
    assert f"its own commit of {topic_name}[0] to 1" in gate.detail
    consumer.close()


@pytest.mark.kip("C-11")
def test_an_origin_without_an_owner_is_named(kafka: KafkaUnderTest, topic_name: str) -> None:
    """assign() of the child alone is refused; once its origin was unassigned, nobody owns it. A commit opens the gate."""
    grown(kafka, topic_name)
    stock = Consumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.assign([TopicPartition(topic_name, 1)])
    with pytest.raises(AssignmentError, match="without partition 0"):
        read(consumer, 1)
    consumer.assign([TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)])
    read(consumer, 1)
    consumer.incremental_unassign([TopicPartition(topic_name, 0)])

    gate = await_gate(consumer, lambda g: g.owner == "nobody")

    assert gate.reason == "origin without an owner"
    stock.commit(offsets=[TopicPartition(topic_name, 0, 1, "ko1:1")], asynchronous=False)
    assert [m.value() for m in read(consumer, 1)] == [b"new"]
    stock.close()
    consumer.close()


@pytest.mark.kip("C-10")
def test_an_open_transaction_in_the_origin_is_named(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What it hides may be the key's last record: the gate stays shut, and opens when the transaction ends."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    stock = Producer({**kafka.client_config(), "transactional.id": topic_name, "partitioner": "murmur2_random"})
    stock.init_transactions(20)
    stock.begin_transaction()
    stock.produce(topic_name, b"pending", key, 0)
    stock.flush(120)
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new"))
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])

    gate = await_gate(consumer, lambda g: g.reason == "open transaction in the origin")

    assert gate.waits_for == 0
    stock.commit_transaction(20)
    assert [m.value() for m in read(consumer, 2)] == [b"pending", b"new"]
    consumer.close()


@pytest.mark.kip("C-11")
def test_a_commit_that_goes_back_is_named(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The broker lets any client set any offset; whoever waits for it sees that it went back, and from where."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    send(kafka, topic_name, *((key, f"old{i}") for i in range(5)))
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new"))
    stock = Consumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.assign([TopicPartition(topic_name, p) for p in range(2)])
    read(consumer, 3)
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 3)], asynchronous=False)
    consumer.incremental_unassign([TopicPartition(topic_name, 0)])
    await_gate(consumer, lambda g: g.at_offset == 3)

    stock.commit(offsets=[TopicPartition(topic_name, 0, 1, "ko1:0")], asynchronous=False)
    gate = await_gate(consumer, lambda g: g.reason == "the committed offset was rewound")

    assert "from 3 to 1" in gate.detail
    stock.close()
    consumer.close()
