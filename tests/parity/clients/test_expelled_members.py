"""A member that the group has given up: what a program hears, in which order, and what it may still do. Both clients at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.groups import group_config, send

KINDS = (Consumer, OrderedConsumer)
PROTOCOLS = {
    "eager": {"session.timeout.ms": 6_000, "partition.assignment.strategy": "range"},
    "cooperative": {"session.timeout.ms": 6_000, "partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}


class Member:
    """The only one of its group. heard: everything that it was told, in order."""

    def __init__(self, kind: Any, kafka: KafkaUnderTest, topic: str, settings: dict[str, Any], callbacks: list[str]):
        self.place = TopicPartition(topic, 0)
        config = group_config(kafka, f"{topic}-{kind.__name__}", enable_auto_commit=False, max_poll_interval_ms=6_500)
        self.heard: list[Any] = []
        self.consumer = kind(config | settings)
        told = {name: lambda _, places, name=name: self._told(name, places) for name in callbacks}
        self.consumer.subscribe([topic], **told)

    def _told(self, name: str, places: list[TopicPartition]) -> None:
        self.heard.append((name, [place.partition for place in places]))
        if name != "on_assign":
            self.heard += self.state()

    def state(self) -> list[Any]:
        """What a program can ask, and whether it can commit what it has processed."""
        return [
            [place.offset for place in self.consumer.assignment()],
            [place.offset for place in self.consumer.position([self.place])],
            self._code(lambda: self.consumer.commit(asynchronous=False)),
        ]

    def _code(self, call: Callable[[], object]) -> object:
        try:
            return call() and None
        except KafkaException as refused:
            return refused.args[0].name()

    def poll(self) -> None:
        """Until something is told or returned."""
        deadline, before = time.monotonic() + 120, len(self.heard)
        while len(self.heard) == before:
            assert time.monotonic() < deadline
            message = self.consumer.poll(0.2)
            if message is not None:
                error = message.error()
                self.heard.append(message.offset() if error is None else (error.name(), message.topic()))

    def read(self) -> None:
        """Until a record is returned."""
        while not self.heard or not isinstance(self.heard[-1], int):
            self.poll()


@pytest.mark.parametrize("callbacks", [["on_assign", "on_revoke"], ["on_assign", "on_revoke", "on_lost"]], ids=len)
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_a_program_that_did_not_poll_for_too_long(
    kafka: KafkaUnderTest, topic_name: str, protocol: str, callbacks: list[str]
) -> None:
    """First the error, then on_lost, or on_revoke where there is none; nothing can be committed; then it is a member again."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    send(kafka, topic_name, *(("k", f"{n}") for n in range(10)))
    members = [Member(kind, kafka, topic_name, PROTOCOLS[protocol], callbacks) for kind in KINDS]
    for member in members:
        member.read()
    time.sleep(8)  # what is tested is time that passes
    for member in members:
        member.heard.append("away")
        member.heard += member.state()
        member.poll()
        member.heard += member.state()
        member.poll()
        member.read()
        member.consumer.close()
    stock, ours = (member.heard for member in members)
    assert ours == stock
    gone = stock.index(("_MAX_POLL_EXCEEDED", None))
    assert stock[gone + 4][0] == callbacks[-1]
    assert "_ASSIGNMENT_LOST" in stock[gone:]
