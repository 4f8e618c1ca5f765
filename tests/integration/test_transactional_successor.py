"""A transactional process that died, and the one that took its place: a change must not fence the living one."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.control.control_topics import writer_slot
from keyorder.partitioner.records.control_records import Lease, LeaseState, encode_lease, lease_key
from keyorder.partitioner.writers.lease import Standing
from support.cluster import KafkaUnderTest
from support.holding import until

QUICK = {"keyorder.view.age.ms": "400"}


def left_by_a_dead_process(kafka: KafkaUnderTest, topic: str, transactional_id: str) -> None:
    """The lease that a process leaves behind which is killed after it took the id, joined and wrote."""
    writer = f"dead-{topic}"
    config = {**kafka.client_config(), "transactional.id": transactional_id}
    with Producer(config) as taken:
        taken.init_transactions(20)
    lease = Lease(writer, f"dead-{topic}", LeaseState.JOIN, None, 1_000, 1, (topic,), transactional_id, 60_000)
    with Producer(kafka.client_config()) as producer:
        slot, partition = writer_slot(writer, transactional_id)
        producer.produce(slot, encode_lease(lease), lease_key(writer, lease.nonce), partition)
        assert producer.flush(120) == 0


def write(producer: OrderedProducer, topic: str, keys: range) -> None:
    """One transaction."""
    producer.begin_transaction()
    for key in keys:
        producer.produce(topic, b"v", f"key {key}")
    producer.commit_transaction(30)


@pytest.mark.kip("K903-01")
def test_a_change_expels_the_dead_and_leaves_the_successor_its_id(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The successor wrote under the id after it had joined: that fences whoever had it before, and no change has to."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    left_by_a_dead_process(kafka, topic_name, topic_name)
    with OrderedProducer({**kafka.client_config(), "transactional.id": topic_name}) as producer:
        producer.init_transactions(20)
        write(producer, topic_name, range(20))
        change = admin.expand(topic_name, 4)
        assert any(step.name.startswith("expelled") for step in change.steps)
        write(producer, topic_name, range(20))


@pytest.mark.kip("K903-01")
def test_a_change_leaves_an_idle_successor_its_id(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It has taken the id and written nothing yet: its lease says how far the log of leases went before it took it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    left_by_a_dead_process(kafka, topic_name, topic_name)
    with OrderedProducer({**kafka.client_config(), "transactional.id": topic_name}) as producer:
        producer.init_transactions(20)
        until(lambda: producer._writer.lease.standing is Standing.LIVE)
        change = admin.expand(topic_name, 4)
        assert any(step.name.startswith("expelled") for step in change.steps)
        write(producer, topic_name, range(20))


def test_a_successor_that_has_proven_nothing_is_no_proof(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Nobody knows which of the two took the id last: the change takes it from both, and the living one is told."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    with OrderedProducer({**kafka.client_config(), "transactional.id": topic_name}) as producer:
        producer.init_transactions(20)
        left_by_a_dead_process(kafka, topic_name, topic_name)
        with pytest.raises(KafkaException) as raised:
            write(producer, topic_name, range(20))
        assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    admin.expand(topic_name, 4)


def test_nobody_joins_before_it_has_taken_its_id(kafka: KafkaUnderTest, topic_name: str) -> None:
    """As the stock client refuses to write before init_transactions(); a lease from before it would prove the wrong order."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    with OrderedProducer({**kafka.client_config(), "transactional.id": topic_name}) as producer:
        with pytest.raises(KafkaException) as raised:
            producer.produce(topic_name, b"v", b"k")
        assert raised.value.args[0].code() == KafkaError._STATE
        producer.init_transactions(20)
        write(producer, topic_name, range(2))
