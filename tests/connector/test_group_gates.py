"""Gates as a group stands before them, judged from its commits alone; and reading those commits from a broker."""

from __future__ import annotations

from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.group_gates import GateNeed, GroupOffsets, group_gates
from keyorder.partitioner.gates.starts import Commit
from keyorder.partitioner.timeline import Timeline
from support.cluster import KafkaUnderTest
from support.dumb import timeline_of

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
        assert producer.flush(30) == 0
    group = {**config, "group.id": f"g-{topic_name}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        messages = consumer.consume(5, 30)
        assert len(messages) == 5
        consumer.commit(message=messages[-1], asynchronous=False)
    admin.expand(topic_name, 2)

    offsets = GroupOffsets(kafka.admin(), kafka.bootstrap_servers)
    found = offsets.of_topic(topic_name)
    assert found == {f"g-{topic_name}": {0: Commit(5, 0)}}
    assert offsets.committed(["nobody"], topic_name) == {"nobody": {}}
    (gate,) = group_gates(admin.timeline(topic_name), found[f"g-{topic_name}"])
    assert (gate.partition, gate.open, gate.blockers) == (1, False, (GateNeed(0, 20, 5),))
