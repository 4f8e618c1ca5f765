"""Assignment by hand before, under and after a subscription: what is read, refused and told. Both clients at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.groups import group_config, send

PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}
EACH = 10


class Program:
    """A consumer and two topics of two partitions with ten records each. heard: what it saw, in order."""

    def __init__(self, kind: Any, kafka: KafkaUnderTest, name: str, settings: dict[str, object]) -> None:
        self.topics = (f"{name}-t", f"{name}-u")
        self.heard: list[object] = []
        self.eager = settings == PROTOCOLS["eager"]
        self.consumer = kind(group_config(kafka, f"{name}-{kind.__name__}") | settings)
        self._kafka = kafka

    def places(self, which: int, *partitions: int) -> list[TopicPartition]:
        """Of the first topic or the second: both partitions unless some are named."""
        return [TopicPartition(self.topics[which], p, OFFSET_BEGINNING) for p in partitions or (0, 1)]

    def call(self, name: str, *arguments: object, **callbacks: object) -> None:
        """Call a method, and hear how it ends."""
        try:
            getattr(self.consumer, name)(*arguments, **callbacks)
            self.heard.append(name)
        except KafkaException as refused:
            self.heard.append((name, refused.args[0].name()))

    def subscribe(self, *which: int) -> None:
        """To these of the topics."""
        told = {
            name: lambda _, places, name=name: self.heard.append(
                (name, sorted((place.topic[-1], place.partition) for place in places))
            )
            for name in ("on_assign", "on_revoke")
        }
        self.call("subscribe", [self.topics[n] for n in which], **told)

    def read(self, *topics: int) -> None:
        """All records of these topics, from the beginning, and nothing else."""
        wanted = Counter({self.topics[n]: EACH for n in topics})
        found: Counter[str] = Counter()
        deadline = time.monotonic() + 120
        while found != wanted:
            assert time.monotonic() < deadline, f"{found} of {wanted} after {self.heard}"
            message = self.consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                found[str(message.topic())] += 1
                assert found <= wanted, f"{found} of {wanted}"
        self.heard.append(("read", topics))

    def until(self, name: str) -> None:
        """Poll until the callback has been called."""
        deadline = time.monotonic() + 120
        while not any(told[0] == name for told in self.heard if isinstance(told, tuple)):
            assert time.monotonic() < deadline, self.heard
            self.consumer.poll(0.2)


def unassigned_then_subscribed(program: Program) -> None:
    program.call("assign", program.places(0))
    program.read(0)
    program.call("unassign")
    program.subscribe(1)
    program.read(1)


def assigned_twice_then_subscribed(program: Program) -> None:
    program.call("assign", program.places(0, 0))
    program.call("assign", program.places(0))
    program.read(0)
    program.call("incremental_unassign", program.places(0))
    program.subscribe(1)
    program.read(1)


def more_under_a_subscription(program: Program) -> None:
    program.subscribe(0)
    program.read(0)
    program.call("incremental_assign", program.places(1))
    if not program.eager:
        program.read(1)


def a_partition_that_others_would_begin(program: Program) -> None:
    """Not the one whose owner makes the group's first commits."""
    program.subscribe(0)
    program.read(0)
    program.call("incremental_assign", program.places(1, 1))
    if not program.eager:
        assert program.consumer.poll(60).topic() == program.topics[1]


def less_under_a_subscription(program: Program) -> None:
    program.subscribe(0)
    program.read(0)
    program.call("incremental_unassign", program.places(0))


def others_under_a_subscription(program: Program) -> None:
    program.subscribe(0)
    program.read(0)
    program.call("assign", program.places(1))
    if program.eager:
        program.read(1)


def nothing_under_a_subscription(program: Program) -> None:
    program.subscribe(0)
    program.read(0)
    program.call("unassign")


def assigned_before_the_revocation_is_served(program: Program) -> None:
    program.subscribe(0)
    program.read(0)
    program.call("unsubscribe")
    program.call("assign", program.places(1))


def assigned_after_the_revocation(program: Program) -> None:
    program.subscribe(0)
    program.read(0)
    program.call("unsubscribe")
    program.until("on_revoke")
    program.call("assign", program.places(0))
    program.call("incremental_assign", program.places(0))
    program.read(0)
    program.call("unassign")


def a_new_topic_after_the_revocation(program: Program) -> None:
    """Of which the group has committed nothing yet."""
    program.subscribe(0)
    program.read(0)
    program.call("unsubscribe")
    program.until("on_revoke")
    program.call("assign" if program.eager else "incremental_assign", program.places(1))
    program.read(1)


def subscribed_again(program: Program) -> None:
    program.subscribe(0)
    program.read(0)
    program.call("unsubscribe")
    program.subscribe(1)
    program.read(1)


def subscribed_to_nothing(program: Program) -> None:
    program.call("assign", program.places(0))
    program.subscribe()
    program.read(0)


SEQUENCES = [
    unassigned_then_subscribed,
    assigned_twice_then_subscribed,
    more_under_a_subscription,
    a_partition_that_others_would_begin,
    less_under_a_subscription,
    others_under_a_subscription,
    nothing_under_a_subscription,
    assigned_before_the_revocation_is_served,
    assigned_after_the_revocation,
    a_new_topic_after_the_revocation,
    subscribed_again,
    subscribed_to_nothing,
]


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.__name__)
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_a_program_that_assigns_and_subscribes(
    kafka: KafkaUnderTest, topic_name: str, protocol: str, sequence: Callable[[Program], None]
) -> None:
    """In whatever order: the same records, refusals and callbacks, and close() returns."""
    programs = [Program(kind, kafka, topic_name, PROTOCOLS[protocol]) for kind in (Consumer, OrderedConsumer)]
    for topic in programs[0].topics:
        TopicAdmin(kafka.client_config()).create(topic, 2)
        send(kafka, topic, *((f"k{n}", f"{n}") for n in range(EACH)))
    for program in programs:
        sequence(program)
        program.call("close")
    stock, ours = (program.heard for program in programs)
    assert ours == stock
