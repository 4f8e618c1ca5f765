"""A member that stood still: what lies ready in it is not given out before the group has said that it is still one."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.partitioner.errors import KeyorderError
from keyorder.partitioner.gates import membership
from support.cluster import KafkaUnderTest
from support.groups import QUICK, group_config, read, send
from support.holding import until

# So that the library itself does not find out: a heartbeat is what tells it.
DEAF = {"session.timeout.ms": 300_000, "heartbeat.interval.ms": 200_000, "max.poll.interval.ms": 300_000}

# No heartbeat before the session is over: nobody tells the library.
SHORT = {"session.timeout.ms": 4_000, "heartbeat.interval.ms": 240_000, "max.poll.interval.ms": 300_000}


@pytest.mark.kip("K903-16", "C-10")
@pytest.mark.parametrize(("columns", "assigned"), [(False, False), (True, False), (False, True)])
def test_what_lies_ready_is_not_given_out_once_another_process_is_the_member(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, columns: bool, assigned: bool
) -> None:
    """The other one reads everything and commits; a record given out here now would be each key's last, and an old one."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{n}", f"v{n}") for n in range(50)))
    config = {**group_config(kafka, topic_name), **DEAF, "group.instance.id": "one"}
    consumer = OrderedConsumer(config)
    if assigned:  # by hand, before: that makes it no other member
        consumer.assign([TopicPartition(topic_name, 0, OFFSET_BEGINNING)])
        consumer.unassign()
    consumer.subscribe([topic_name])
    if columns:
        assert consumer.consume_arrow(1, 30).num_rows == 1
    else:
        read(consumer, 1)
    other = OrderedConsumer(config)
    other.subscribe([topic_name])
    read(other, 49)
    other.commit(asynchronous=False)

    monkeypatch.setattr(membership, "_SILENCE", 0.0)

    with pytest.raises(KeyorderError, match=r"(?i)fenced"):
        _ = consumer.consume_arrow(10, 5) if columns else consumer.poll(5)
    other.close()
    consumer.close()


@pytest.mark.parametrize(
    ("by", "strategy"), [("poll", "range"), ("columns", "cooperative-sticky"), ("commit", "range")]
)
def test_one_that_was_given_up_takes_nothing_back_from_an_empty_group(
    kafka: KafkaUnderTest, topic_name: str, by: str, strategy: str
) -> None:
    """Its session was over within five seconds; another member has read all since then, and left."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{n}", f"v{n}") for n in range(50)))
    config = group_config(kafka, topic_name, enable_auto_commit=False, partition_assignment_strategy=strategy)
    consumer = OrderedConsumer({**config, **SHORT})
    consumer.subscribe([topic_name])
    first = read(consumer, 1)[0]
    cluster = kafka.admin()
    until(lambda: _state(cluster, topic_name) is ConsumerGroupState.EMPTY, "the end of its session")
    with OrderedConsumer(config) as other:
        other.subscribe([topic_name])
        assert [m.value() for m in read(other, 50)][-1] == b"v49"
        other.commit(asynchronous=False)
    send(kafka, topic_name, ("k0", "new"))

    if by == "commit":
        with pytest.raises(KafkaException) as refused:
            consumer.commit(first, asynchronous=False)
        assert refused.value.args[0].code() in (KafkaError._ASSIGNMENT_LOST, KafkaError.UNKNOWN_MEMBER_ID)
    if by == "columns":
        table = consumer.consume_arrow(1, 120)
        assert table.column("value").to_pylist() == [b"new"]
    else:
        assert [m.value() for m in read(consumer, 1)] == [b"new"]
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_loss_that_waits_is_told_before_columns_begin(kafka: KafkaUnderTest, topic_name: str, strategy: str) -> None:
    """The first consume_arrow() lets all be fetched anew: to the library that would answer the loss that it has not told."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{n}", f"v{n}") for n in range(50)))
    config = group_config(kafka, topic_name, enable_auto_commit=False, partition_assignment_strategy=strategy)
    told: list[str] = []
    with OrderedConsumer({**config, **SHORT}) as consumer:
        subscribe(consumer, topic_name, told)
        read(consumer, 1)
        until(lambda: not consumer.memberid(), "the library's own look at its session")
        with OrderedConsumer(config) as other:
            other.subscribe([topic_name])
            read(other, 50)
            other.commit(asynchronous=False)
        send(kafka, topic_name, ("k0", "new"))

        assert consumer.consume_arrow(1, 120).column("value").to_pylist() == [b"new"]
        assert told == ["lost"]


def test_a_revocation_that_waits_is_told_before_columns_begin(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What the application has processed is committed before another member has the partition."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    send(kafka, topic_name, *((f"k{n}", f"v{n}") for n in range(100)))
    config = group_config(kafka, topic_name, partition_assignment_strategy="cooperative-sticky")
    told: list[str] = []
    cluster = kafka.admin()
    values: list[bytes | None] = []
    with OrderedConsumer({**config, "heartbeat.interval.ms": 100}) as consumer, OrderedConsumer(config) as other:
        subscribe(consumer, topic_name, told)
        values += [m.value() for m in read(consumer, 60)]
        other.subscribe([topic_name])

        def has_to_give() -> bool:
            values.extend(m.value() for m in other.consume(10, 0.1) if m.error() is None)
            dealt = [len(m.assignment.topic_partitions) for m in _group(cluster, topic_name).members]
            return sorted(dealt) == [0, 1]

        until(has_to_give, "a revocation that waits in the library")

        def read_by_both() -> bool:
            values.extend(consumer.consume_arrow(100, 0.1).column("value").to_pylist())
            values.extend(m.value() for m in other.consume(100, 0.1) if m.error() is None)
            return len(values) >= 100

        until(read_by_both, "all records")
        assert sorted(values) == sorted(f"v{n}".encode() for n in range(100))
        assert told == ["revoked"]


def subscribe(consumer: OrderedConsumer, topic: str, told: list[str]) -> None:
    """told: gets a word for each loss of partitions."""
    consumer.subscribe(
        [topic],
        on_revoke=lambda _, partitions: told.append("revoked"),
        on_lost=lambda _, partitions: told.append("lost"),
    )


def _group(cluster: AdminClient, group: str) -> ConsumerGroupDescription:
    described: ConsumerGroupDescription = cluster.describe_consumer_groups([group])[group].result(60)
    return described


def _state(cluster: AdminClient, group: str) -> ConsumerGroupState:
    state: ConsumerGroupState = _group(cluster, group).state
    return state


def test_a_member_that_took_its_time_goes_on(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The confirmation commits nothing that the application has not: a successor begins where it would have begun."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{n}", f"v{n}") for n in range(20)))
    monkeypatch.setattr(membership, "_SILENCE", 0.0)
    config = group_config(kafka, topic_name, enable_auto_commit=False)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])
        first = read(consumer, 5)
        consumer.commit(first[2], asynchronous=False)

        assert [m.value() for m in read(consumer, 15)] == [f"v{n}".encode() for n in range(5, 20)]

    with OrderedConsumer(config) as successor:
        successor.subscribe([topic_name])
        (again,) = read(successor, 1)
        assert again.value() == b"v3"


def test_without_a_group_there_is_nobody_to_ask(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions assigned by hand belong to whoever assigned them."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("k", "v1"), ("k", "v2"))
    monkeypatch.setattr(membership, "_SILENCE", 0.0)
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.assign([TopicPartition(topic_name, 0, OFFSET_BEGINNING)])

        assert [m.value() for m in read(consumer, 2)] == [b"v1", b"v2"]


def test_a_growth_while_nobody_polled_repeats_nothing(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebalance comes with the question to the group: what was returned before is committed by then."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{n}", "old") for n in range(20)))
    monkeypatch.setattr(membership, "_SILENCE", 0.0)
    with OrderedConsumer(group_config(kafka, topic_name, auto_commit_interval_ms=600_000)) as consumer:
        consumer.subscribe([topic_name])
        read(consumer, 20)
        admin.expand(topic_name, 2)
        send(kafka, topic_name, *((f"k{n}", "new") for n in range(20)))
        assert [m.value() for m in read(consumer, 20)] == [b"new"] * 20
