"""Gates as a group stands before them, judged from its commits alone; and reading those commits from a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.group_commits import GroupCommits
from keyorder.connector.group_gates import GateNeed, GroupOffsets, group_gates
from keyorder.partitioner.errors import BrokerUnreachableError
from keyorder.partitioner.gates.starts import Commit
from keyorder.partitioner.timeline import Timeline
from support.cluster import KafkaUnderTest
from support.dumb import timeline_of
from support.spark_source import create

# 1 -> 2 -> 4; nothing was ever written to partition 1 before its keys went on to 3.
CHAIN = timeline_of(1, [(2, {0: 10}, {1: 0}), (4, {0: 15, 1: 0}, {2: 0, 3: 0})])


def test_a_closed_gate_names_what_it_needs_along_its_chain() -> None:
    """Gate (3, 2) asks nothing of partition 1, and still waits for what partition 1 waits for."""
    gates = group_gates(CHAIN, {0: Commit(4, 0)})

    assert [(g.epoch, g.partition, g.open) for g in gates] == [(2, 2, False), (2, 3, False), (1, 1, False)]
    assert gates[0].blockers == (GateNeed(0, 15, 4),)
    assert gates[1].origins == (GateNeed(1, 0, 0),)
    assert gates[1].blockers == (GateNeed(0, 10, 4),)
    assert [g.missing for g in gates] == [11, 6, 6]


def test_an_offset_opens_a_gate_and_its_epoch_proves_the_flush() -> None:
    """With the offset alone a member with callbacks still waits; with the epoch in the commit it does not."""
    reached = group_gates(CHAIN, {0: Commit(15, 0), 1: Commit(0, 2)})
    assert [(g.open, g.proven, g.blockers) for g in reached] == [(True, False, ())] * 3
    proven = group_gates(CHAIN, {0: Commit(15, 2), 1: Commit(0, 2)})
    assert [(g.open, g.proven) for g in proven] == [(True, True)] * 3


def test_a_waiver_opens_its_gate_and_those_that_wait_for_it() -> None:
    """For the group that it was given to; the others of the topic stay closed."""
    gates = {(g.partition, g.epoch): g for g in group_gates(CHAIN, {}, waived={(1, 1)})}
    assert [gates[1, 1].open, gates[1, 1].waived, gates[3, 2].open, gates[3, 2].waived] == [True, True, True, False]
    assert not gates[2, 2].open


def test_no_gates_where_ordered_delivery_is_off() -> None:
    """Nothing waits there."""
    off = Timeline("t", "i", "c", CHAIN.initial, CHAIN.epochs, ordered=False)
    assert group_gates(off, {}) == []


def test_commits_of_groups_are_read_with_their_epochs(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Of all groups with commits on the topic, or of those that are named, whether they exist or not."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config={"keyorder.view.age.ms": "300"})
    with OrderedProducer(config) as producer:
        for number in range(20):
            producer.produce(topic_name, b"v", f"k{number}")
        assert producer.flush(120) == 0
    group = {**config, "group.id": f"g-{topic_name}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        messages = consumer.consume(5, 30)
        assert len(messages) == 5
        consumer.commit(message=messages[-1], asynchronous=False)
    admin.expand(topic_name, 2)

    offsets = GroupOffsets(config, kafka.admin())
    found = offsets.of_topic(topic_name)
    assert found == {f"g-{topic_name}": {0: Commit(5, 0)}}
    assert offsets.committed(["nobody"], topic_name) == {"nobody": {}}
    (gate,) = group_gates(admin.timeline(topic_name), found[f"g-{topic_name}"])
    assert (gate.partition, gate.open, gate.blockers) == (1, False, (GateNeed(0, 20, 5),))


def test_commits_of_many_groups_are_read_at_once(kafka: KafkaUnderTest, topic_name: str) -> None:
    """More groups than are asked at the same time; some of them unknown, one without a name, as old simple consumers have."""
    config = kafka.client_config()
    admin = kafka.admin()
    create(kafka, topic_name, 2)
    groups = [f"{topic_name}-{n}" for n in range(40)]
    for n, group in enumerate(groups):
        places = [TopicPartition(topic_name, p, n) for p in range(2 if n % 2 else 0)]
        if places:
            wanted = [ConsumerGroupTopicPartitions(group, places)]
            admin.alter_consumer_group_offsets(wanted)[group].result(120)

    commits = GroupCommits(config, keep=3)
    try:
        for _ in range(2):
            found = commits.read([*groups, ""], [(topic_name, 0), (topic_name, 1)], 60.0)
            assert list(found) == [*groups, ""]
            for n, group in enumerate(groups):
                expected = {(topic_name, p): Commit(n, None) for p in range(2)} if n % 2 else {}
                assert found[group] == expected
        assert commits.read(groups[:1], []) == {groups[0]: {}}
    finally:
        commits.close()


def test_a_pending_transactional_offset_hides_nothing(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What was committed before is told, without waiting for the transaction's end."""
    config = kafka.client_config()
    create(kafka, topic_name, 1)
    group = f"g-{topic_name}"
    consumer = Consumer({**config, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 3)], asynchronous=False)
    producer = Producer({**config, "transactional.id": topic_name})
    producer.init_transactions(60)
    producer.begin_transaction()
    offsets = [TopicPartition(topic_name, 0, 9)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)

    offsets_of = GroupOffsets(config, kafka.admin())
    assert offsets_of.committed([group], topic_name) == {group: {0: Commit(3, None)}}
    producer.commit_transaction(60)
    consumer.close()


def test_a_cluster_that_does_not_answer_is_unreachable() -> None:
    """Of however many groups: one typed error, when the time is over."""
    commits = GroupCommits({"bootstrap.servers": "127.0.0.1:1"})
    for groups in (["a"], [f"g{n}" for n in range(20)]):
        with pytest.raises(BrokerUnreachableError, match="read the offsets of group"):
            commits.read(groups, [("t", 0)], 0.3)
