"""Members with a group.instance.id that were taken for their twin, or have one, and what is left of them then."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.consuming.ending import has_failed
from keyorder.partitioner.gates import membership
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_that, group_config, grown, read, send
from support.holding import until

LIMIT = 120.0
# The broker forgets nobody while a test lasts; a heartbeat tells at once that there is a twin.
LONG = {"session_timeout_ms": 300_000, "max_poll_interval_ms": 300_000, "heartbeat_interval_ms": 100}


def ends(close: Callable[[], None]) -> bool:
    """Whether it returns. In a thread of its own, so that the test does end."""
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(LIMIT)
    return not closing.is_alive()


@pytest.mark.parametrize(
    ("strategy", "first"),
    [("range", "poll in doubt"), ("cooperative-sticky", "automatic commit"), ("cooperative-sticky", "commit")],
)
def test_a_member_that_was_away_for_too_long_joins_again(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, strategy: str, first: str
) -> None:
    """The library has forgotten its member id then, and a commit without one is a twin's: that would be its end."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{n}", f"v{n}") for n in range(20)))
    away = {"session_timeout_ms": 1_000, "max_poll_interval_ms": 1_000, "heartbeat_interval_ms": 300}
    heard: list[KafkaError | None] = []
    config = group_config(
        kafka,
        topic_name,
        group_instance_id="a",
        partition_assignment_strategy=strategy,
        auto_commit_interval_ms=1 if first == "automatic commit" else 600_000,
        **away,
    )
    config["on_commit"] = lambda error, places: heard.append(error)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])
        read(consumer, 5)

        until(lambda: consumer.memberid() is None, "max.poll.interval.ms")
        if first == "poll in doubt":
            monkeypatch.setattr(membership, "_SILENCE", 0.0)
        if first == "commit":
            with pytest.raises(KafkaException) as lost:
                consumer.commit(asynchronous=False)
            assert lost.value.args[0].code() == KafkaError._ASSIGNMENT_LOST
            heard.clear()
            consumer.commit()

        seen: set[bytes | None] = set()
        deadline = time.monotonic() + LIMIT
        while b"v19" not in seen:
            assert time.monotonic() < deadline, seen
            for message in consumer.consume(10, 0.1):
                error = message.error()
                assert error is None or error.code() == KafkaError._MAX_POLL_EXCEEDED, error
                seen.add(message.value())
        if first == "commit":
            assert heard[0] is not None
            assert heard[0].code() == KafkaError._ASSIGNMENT_LOST


class Member:
    """One with a group.instance.id, which is polled by the test alone."""

    def __init__(self, kafka: KafkaUnderTest, topic: str, strategy: str) -> None:
        self.topic, self._cluster = topic, kafka.admin()
        self._config = group_config(
            kafka,
            topic,
            group_instance_id="a",
            partition_assignment_strategy=strategy,
            enable_auto_commit=False,
            **LONG,
        )
        self.told: list[str] = []
        self.consumer = OrderedConsumer(self._config)
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self.told.append("assigned"),
            on_revoke=lambda _, partitions: self.told.append("revoked"),
            on_lost=lambda _, partitions: self.told.append("lost"),
        )
        self._others: list[Consumer] = []

    def fence(self) -> None:
        """Have its twin join. When this returns its client library knows, and nobody has polled it since."""
        twin = self._join(self._config)

        def fenced() -> bool:
            for other in self._others:
                other.poll(0.02)
            return bool(twin.assignment()) and has_failed(self.consumer._raw)

        until(fenced, "fenced")

    def meet_another(self) -> None:
        """Have another member join that the group waits for."""
        other = self._join({**self._config, "group.instance.id": "b"})

        def asked() -> bool:
            other.poll(0.02)
            group = self._described()
            # A cooperative one may be over between two looks: the other is a member then, and waits for partitions.
            return group.state is not ConsumerGroupState.STABLE or len(group.members) == 2

        until(asked, "a rebalance")

    def _join(self, config: dict[str, object]) -> Consumer:
        other = Consumer(config)
        self._others.append(other)
        other.subscribe([self.topic])
        return other

    def state(self) -> ConsumerGroupState:
        """Of the group."""
        return self._described().state

    def _described(self) -> ConsumerGroupDescription:
        return self._cluster.describe_consumer_groups([self.topic])[self.topic].result(LIMIT)

    def end(self) -> None:
        """Close the others."""
        for other in self._others:
            other.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("asked", ["to assign", "to revoke"])
def test_close_ends_with_a_rebalance_that_nobody_was_told_of(
    kafka: KafkaUnderTest, topic_name: str, strategy: str, asked: str
) -> None:
    """After a fatal error the library calls nobody in its close(), and waits for an answer all the same."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    member = Member(kafka, topic_name, strategy)
    if asked == "to assign":
        until(lambda: member.state() is ConsumerGroupState.STABLE, "joined without a poll")
    else:
        await_that(member.consumer, lambda: len(member.consumer.assignment()) == 2)
        member.meet_another()
    before = list(member.told)
    member.fence()

    assert ends(member.consumer.close)
    assert member.told == before
    member.end()


def test_one_that_is_dropped_ends_with_a_rebalance_that_nobody_was_told_of(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """Nobody has called close()."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    member = Member(kafka, topic_name, "cooperative-sticky")
    until(lambda: member.state() is ConsumerGroupState.STABLE, "joined without a poll")
    member.fence()
    dropped = weakref.ref(member.consumer)

    assert ends(lambda: delattr(member, "consumer"))
    assert dropped() is None
    assert member.told == []
    member.end()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_fenced_member_says_so_once_and_reads_nothing_more(
    kafka: KafkaUnderTest, topic_name: str, strategy: str
) -> None:
    """As the client library does: later calls wait for their time, and return nothing. What its twin reads it does not."""
    grown(kafka, topic_name)
    member = Member(kafka, topic_name, strategy)
    consumer = member.consumer
    read(consumer, 1)  # "new" waits behind a gate
    consumer.pause([TopicPartition(topic_name, 0)])
    send(kafka, topic_name, *((f"k{n}", f"v{n}") for n in range(20)))
    member.fence()

    said: list[Message] = []
    deadline = time.monotonic() + LIMIT
    while "lost" not in member.told:
        assert time.monotonic() < deadline
        said += consumer.consume(10, 0.05)
    for _ in range(10):
        said += consumer.consume(10, 0.05)

    codes = [error.code() for message in said if (error := message.error()) is not None]
    assert codes == [KafkaError._FATAL]
    assert consumer.assignment() == []
    with pytest.raises(KafkaException) as refused:
        consumer.commit(asynchronous=False)
    assert refused.value.args[0].code() == KafkaError._FATAL
    assert ends(consumer.close)
    assert member.told == ["assigned", "lost"]
    member.end()


def test_columns_tell_of_a_fatal_error_too(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It is no error for the callback alone: nothing would ever come again."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("k", "v"))
    member = Member(kafka, topic_name, "cooperative-sticky")
    rows, deadline = 0, time.monotonic() + LIMIT
    while not rows:
        assert time.monotonic() < deadline
        rows += member.consumer.consume_arrow(10, 0.1).num_rows
    member.fence()

    with pytest.raises(KafkaException) as fatal:
        until(lambda: member.consumer.consume_arrow(10, 0.1).num_rows > 0, "an error")
    assert fatal.value.args[0].code() == KafkaError._FATAL
    assert member.consumer.consume_arrow(10, 0.1).num_rows == 0
    assert ends(member.consumer.close)
    member.end()
