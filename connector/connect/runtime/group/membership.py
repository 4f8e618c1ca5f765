"""Who works in the group and who leads it, by a Kafka consumer group over the config topic.

The topic has one partition: its owner leads. The group says who is there. Neither is a fence: what the leader writes is
fenced by its transactional id, and tasks by their consumer groups and transactional ids.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition

from .....partitioner.errors import NotAuthorizedError
from ....admin_link import AdminLink
from ....config import connection_of
from ....consuming import ending
from ....kafka_errors import translate

_LOG = logging.getLogger("keyorder.connect.group")


class Membership(ABC):
    """This worker's place in its group. member: its name there, another one for each start of a worker."""

    member: str

    @property
    @abstractmethod
    def leads(self) -> bool:
        """Whether this worker should lead."""

    @abstractmethod
    def members(self) -> set[str] | None:
        """Who is in the group; None while that cannot be said."""

    def check(self) -> None:  # noqa: B027
        """Raise what keeps this worker out of its group for good."""

    def leave(self) -> None:  # noqa: B027
        """Leave the group."""


class Alone(Membership):
    """A standalone worker."""

    def __init__(self, worker_id: str) -> None:
        self.member = worker_id

    @property
    def leads(self) -> bool:
        return True

    def members(self) -> set[str] | None:
        return {self.member}


class GroupMembership(Membership, threading.Thread):
    """A member of the workers' group, on a thread of its own, so that a slow connector does not cost the membership."""

    def __init__(
        self, config: Mapping[str, Any], group: str, topic: str, member: str, session_ms: int, beat_ms: int
    ) -> None:
        threading.Thread.__init__(self, name="connect-group", daemon=True)
        self.member, self._group = member, group
        own = {**connection_of(config), "client.id": member}
        self._consumer = Consumer(
            {
                **own,
                "group.id": group,
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": beat_ms,
                "max.poll.interval.ms": max(300_000, session_ms),
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "partition.assignment.strategy": "range",
            }
        )
        self._cluster = AdminLink(own)
        self._leads = False
        self._refused: NotAuthorizedError | None = None
        self._ending = threading.Event()
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self.start()

    @property
    def leads(self) -> bool:
        return self._leads

    def members(self) -> set[str] | None:
        try:
            found = self._cluster.describe_group(self._group, 5)
        except KafkaException as error:
            _LOG.warning("the group %s cannot be described: %s", self._group, error)
            return None
        if found.state != ConsumerGroupState.STABLE:
            return None
        return {member.client_id for member in found.members}

    def run(self) -> None:
        """The thread: poll, so that the membership lives."""
        while not self._ending.is_set():
            try:
                message = self._consumer.poll(0.2)
            except KafkaException as error:
                _LOG.warning("the group %s: %s", self._group, error)
                continue
            said = None if message is None else message.error()
            if said is not None:
                typed = translate(said, "join", f"group {self._group}")
                if isinstance(typed, NotAuthorizedError):
                    self._refused = typed
        ending.close(self._consumer)

    def check(self) -> None:
        if self._refused is not None:
            raise self._refused

    def leave(self) -> None:
        self._leads = False
        self._ending.set()
        self.join(10)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        if partitions:
            consumer.pause(partitions)
        self._leads = bool(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leads = False
        consumer.unassign()
