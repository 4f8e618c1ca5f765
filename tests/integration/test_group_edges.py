"""Groups that are born between changes, lose their offsets, or are overtaken by retention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector import clock
from keyorder.partitioner.errors import GroupResetError
from keyorder.partitioner.timeline import Timeline
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_that, group_config, moving_key, read, send
from support.stock import with_open_transaction


def values(messages: list[Message]) -> list[bytes | str | None]:
    return [message.value() for message in messages]


def grown(kafka: KafkaUnderTest, topic: str, old: int = 1) -> str:
    """A topic of one partition, grown to two, with `old` records of a moved key before and one after."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic, 1, config=QUICK)
    key = moving_key(admin, topic, 2)
    send(kafka, topic, *((key, f"old{i}") for i in range(old)))
    admin.expand(topic, 2)
    send(kafka, topic, (key, "new"))
    return key


@pytest.mark.kip("K253-50", "C-09", "C-10")
def test_a_group_born_after_several_changes_reads_a_key_along_its_whole_way(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """1 -> 2 -> 4 -> 2: the oldest record first, though it lies in another partition than all that follow."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    layout = admin.describe(topic_name).layout
    key = next(k for k in (f"k{i}" for i in range(1000)) if [layout.resized(n).home(k) for n in (2, 4)] == [1, 3])
    for number, change in enumerate([None, lambda: admin.expand(topic_name, 2), lambda: admin.expand(topic_name, 4),
                                     lambda: admin.shrink(topic_name, 2)]):  # fmt: skip
        if change is not None:
            change()
        send(kafka, topic_name, (key, f"v{number}"))
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        assert [(m.partition(), m.value()) for m in read(consumer, 4)] == [
            (0, b"v0"), (1, b"v1"), (3, b"v2"), (1, b"v3"),
        ]  # fmt: skip


@pytest.mark.kip("C-11")
def test_offsets_that_expired_for_the_whole_group_are_a_new_birth(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Nothing is left of the group: it begins anew by auto.offset.reset. One origin alone is an error, until a reset."""
    grown(kafka, topic_name)
    for _ in range(2):
        with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
            consumer.subscribe([topic_name])
            assert values(read(consumer, 2)) == [b"old0", b"new"]
        cluster = kafka.admin()
        cluster.delete_consumer_groups([topic_name])[topic_name].result(120)

    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        read(consumer, 2)
    forget_origin(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    with pytest.raises(GroupResetError, match="groups reset"):
        read(consumer, 1)
    consumer.close()


def forget_origin(kafka: KafkaUnderTest, topic: str) -> None:
    """Leave a commit on the child alone, as if the origin's had expired."""
    cluster = kafka.admin()
    cluster.delete_consumer_groups([topic])[topic].result(120)
    client = Consumer(group_config(kafka, topic, enable_auto_commit=False))
    client.commit(offsets=[TopicPartition(topic, 1, 1, "ko1:1")], asynchronous=False)
    client.close()


@pytest.mark.kip("C-10")
def test_retention_that_overtakes_a_gate_lets_the_group_go_on(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The origin's records are gone before the group has read them: its owner goes on at the log start, and commits."""
    grown(kafka, topic_name, old=3)
    cut = TopicPartition(topic_name, 0, 3)
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.subscribe([topic_name])
    assert values(read(consumer, 1)) == [b"old0"]
    await_that(consumer, lambda: any("application" in g.reason or g.needs_offset == 3 for g in consumer.gates()))
    consumer.close()
    cluster = kafka.admin()
    cluster.delete_records([cut])[cut].result(120)

    again = OrderedConsumer(group_config(kafka, topic_name, auto_commit_interval_ms=100))
    again.subscribe([topic_name])
    assert values(read(again, 1)) == [b"new"]
    again.close()


@pytest.mark.kip("C-10")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("automatic", [True, False])
def test_retention_under_a_running_reader_lets_it_go_on(
    kafka: KafkaUnderTest, topic_name: str, strategy: str, automatic: bool
) -> None:
    """A position that is gone while the reader runs: it jumps to the log start, and the gate opens by what it commits.

    An application that commits by itself is asked for no more than what it was given.
    """
    grown(kafka, topic_name, old=3)
    places = [TopicPartition(topic_name, p, 0) for p in range(2)]
    settings = {
        "partition_assignment_strategy": strategy,
        "auto_commit_interval_ms": 100,
        "enable_auto_commit": automatic,
    }
    consumer = OrderedConsumer(group_config(kafka, topic_name, **settings))
    consumer.subscribe([topic_name])
    assert values(read(consumer, 1)) == [b"old0"]
    if not automatic:
        consumer.commit(asynchronous=False)
    consumer.pause(places[:1])
    cluster = kafka.admin()
    cut = TopicPartition(topic_name, 0, 3)
    cluster.delete_records([cut])[cut].result(120)
    consumer.seek(TopicPartition(topic_name, 0, 1))
    consumer.resume(places[:1])

    messages = await_that(consumer, lambda: consumer.position(places[1:])[0].offset == 1)

    assert values(messages)[-1] == b"new"
    assert set(values(messages[:-1])) <= {b"old1", b"old2"}  # what it had in memory
    assert consumer.gates() == []
    consumer.close()


@pytest.mark.kip("C-10", "C-11")
def test_partitions_that_came_and_went_while_nobody_could_own_them(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 -> 4 -> 2 while a member hangs, so that there is no rebalance: the new partitions never get a commit.

    The other member reads a record of a key that never moved behind the second cut, before its view knows of it, and
    commits that. The group goes on from there, and the records of the partition that was never owned come first.
    """
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    two, four = (admin.describe(topic_name).layout.resized(n) for n in (2, 4))
    moved = next(k for k in (f"k{i}" for i in range(1000)) if (two.home(k), four.home(k)) == (0, 2))
    stays = next(k for k in (f"k{i}" for i in range(1000)) if (two.home(k), four.home(k)) == (0, 0))
    config = group_config(kafka, topic_name, enable_auto_commit=False)
    hanging = Consumer({**config, "client.id": "b"})
    hanging.commit(offsets=[TopicPartition(topic_name, p, 0, "ko1:0") for p in range(2)], asynchronous=False)
    hanging.subscribe([topic_name])
    until_it_owns(hanging.poll, hanging, 2)
    member = OrderedConsumer({**config, "client.id": "a"})
    member.subscribe([topic_name])
    until_it_owns(lambda wait: (hanging.poll(wait), member.poll(wait)), member, 1)
    assert [p.partition for p in member.assignment()] == [0]
    view = member._view

    admin.expand(topic_name, 4)
    send(kafka, topic_name, (moved, "old"))
    await_that(member, lambda: view.view(topic_name, 2).timeline.newest.count == 4)
    unseen: list[Timeline] = []
    with monkeypatch.context() as patched:
        patched.setattr(view, "_take", unseen.append)  # a view may be behind for as long as its age allows
        admin.shrink(topic_name, 2)
        send(kafka, topic_name, (stays, "1"))
        (first,) = read(member, 1)
        member.commit(first, asynchronous=False)
    view._take(unseen[-1])
    await_that(member, lambda: [gate.waits_for for gate in member.gates()] == [2])
    member.commit(first, asynchronous=False)
    send(kafka, topic_name, (moved, "new"))
    assert member.poll(0.5) is None
    member.close()
    hanging.close()

    with OrderedConsumer(config) as heir:
        heir.subscribe([topic_name])
        assert values(read(heir, 1)) == [b"old"]
        heir.commit(asynchronous=False)
        assert values(read(heir, 1)) == [b"new"]


def until_it_owns(poll: Callable[[float], object], consumer: Any, partitions: int) -> None:
    """Poll until the consumer owns so many partitions."""
    deadline = clock.now() + 180
    while len(consumer.assignment()) != partitions:
        assert clock.now() < deadline, consumer.assignment()
        poll(0.1)


@pytest.mark.parametrize("level", ["read_committed", "READ_COMMITTED", " read_committed"])
def test_a_new_group_begins_before_the_transactions_that_are_open(
    kafka: KafkaUnderTest, topic_name: str, level: str
) -> None:
    """With `latest` at the end for a reader of committed records, however the client library lets that be written."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    producer = with_open_transaction(kafka, topic_name)
    config = group_config(kafka, topic_name, auto_offset_reset="latest", isolation_level=level)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])
        place = TopicPartition(topic_name, 0)
        await_that(consumer, lambda: consumer.committed([place], 120)[0].offset >= 0)
        assert consumer.committed([place], 120)[0].offset == 0
        producer.commit_transaction(120)
        assert values(read(consumer, 1)) == [b"open"]
