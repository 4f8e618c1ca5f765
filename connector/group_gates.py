"""Which gates are closed for a group at what it has committed, and reading what groups have committed.

Judged from outside: a commit is all that another process sees of a group. A member with callbacks asks for more than the
offset, namely the proof that the application has flushed; `GroupGate.proven` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ..partitioner.errors import BrokerUnreachableError
from ..partitioner.gates.gate import Gates
from ..partitioner.gates.starts import Commit, epoch_of, proven_epoch
from ..partitioner.timeline import Timeline
from .kafka_errors import translate

_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class GateNeed:
    """One offset that a gate asks of a group. Offsets are the next ones to read.

    needs: what has to be committed on `partition`. at: what is, 0 without a commit. missing: needs - at, 0 when reached.
    """

    partition: int
    needs: int
    at: int

    @property
    def missing(self) -> int:
        """How many offsets are left; transaction markers and compacted records count like records."""
        return max(0, self.needs - self.at)


@dataclass(frozen=True, slots=True)
class GroupGate:
    """One gate, judged for one group: what `partition` waits for from offset `begins` on.

    at: what the group has committed on `partition` itself. open: at the committed offsets, or `waived` by an operator.
    proven: also at the offsets whose flush is proven, which is what a member with callbacks asks for.
    origins: the gate's own origins, reached or not. blockers: what is left for a closed gate, older gates of the chain
    included; empty for an open one.
    """

    partition: int
    epoch: int
    begins: int
    at: int
    open: bool
    proven: bool
    waived: bool
    origins: tuple[GateNeed, ...]
    blockers: tuple[GateNeed, ...]

    @property
    def missing(self) -> int:
        """How many offsets the group has to process before the gate opens, over all blockers."""
        return sum(need.missing for need in self.blockers)


def group_gates(
    timeline: Timeline, committed: Mapping[int, Commit], waived: Collection[tuple[int, int]] = ()
) -> list[GroupGate]:
    """Every gate of the topic as this group stands before it, newest epoch first, then by partition.

    committed: the group's commits by partition. waived: (partition, epoch) of gates that an operator has let go for it.
    A topic whose ordered delivery is off has no gates.
    """

    def at(q: int) -> int:
        return committed[q].offset if q in committed else 0

    gates = Gates(timeline)
    opened = gates.open_now(at, waived)
    proven = gates.open_now(at, waived, lambda q: proven_epoch(committed.get(q)))
    found = []
    for gate in sorted(gates.all(), key=lambda gate: (-gate.epoch, gate.partition)):
        # One origin may be asked for twice along the chain; the higher offset says both.
        left: dict[int, int] = {}
        for q, ends in opened.blockers(gate):
            left[q] = max(ends, left.get(q, 0))
        found.append(
            GroupGate(
                partition=gate.partition,
                epoch=gate.epoch,
                begins=gate.begins,
                at=at(gate.partition),
                open=opened.is_open(gate),
                proven=proven.is_open(gate),
                waived=(gate.partition, gate.epoch) in waived,
                origins=tuple(GateNeed(q, ends, at(q)) for q, ends in sorted(gate.origins)),
                blockers=tuple(GateNeed(q, ends, at(q)) for q, ends in sorted(left.items())),
            )
        )
    return found


class GroupOffsets:
    """Reads committed offsets of groups through an admin client; joins nothing. Thread-safe as the client is."""

    def __init__(self, admin: AdminClient, bootstrap_servers: str, timeout: float = 10.0) -> None:
        self._admin, self._servers, self._timeout = admin, bootstrap_servers, timeout

    def groups(self) -> list[str]:
        """Every consumer group that this user may see, with or without members, by name.

        Raises BrokerUnreachableError, NotAuthorizedError, KafkaOperationError.
        """
        future = self._admin.list_consumer_groups(request_timeout=self._timeout)
        listed = self._answer(future, "list", "consumer groups")
        for error in listed.errors or ():
            raise translate(error.args[0], "list", "consumer groups", self._servers)
        return sorted(found.group_id for found in listed.valid)

    def committed(self, groups: Iterable[str], topic: str) -> dict[str, dict[int, Commit]]:
        """{group: {partition: its commit on `topic`}}. A group without any commit there has an empty map.

        Raises NotAuthorizedError (a group may not be described), BrokerUnreachableError, KafkaOperationError.
        """
        return {group: found.get(topic, {}) for group, found in self.on_topics(groups, {topic}).items()}

    def of_topic(self, topic: str) -> dict[str, dict[int, Commit]]:
        """`committed` of every group that has a commit on the topic. Raises as `groups` and `committed`."""
        return {group: commits for group, commits in self.committed(self.groups(), topic).items() if commits}

    def on_topics(self, groups: Iterable[str], topics: Collection[str]) -> dict[str, dict[str, dict[int, Commit]]]:
        """{group: {topic: {partition: its commit}}} in one request per group. Raises as `committed`."""
        waiting = list(dict.fromkeys(groups))
        found: dict[str, dict[str, dict[int, Commit]]] = {}
        while waiting:
            now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            asked = {
                group: self._admin.list_consumer_group_offsets(
                    # A pending transactional offset must not hide the others.
                    [ConsumerGroupTopicPartitions(group)],
                    require_stable=False,
                    request_timeout=self._timeout,
                )[group]
                for group in now
            }
            for group, future in asked.items():
                found[group] = self._commits(group, topics, future)
        return found

    def _commits(self, group: str, topics: Collection[str], future: Future[Any]) -> dict[str, dict[int, Commit]]:
        commits: dict[str, dict[int, Commit]] = {}
        try:
            answers: list[TopicPartition] = self._answer(
                future, "read the offsets of", f"group {group}"
            ).topic_partitions
        except _NoSuchGroup:
            return {}
        for answer in answers or []:
            if answer.topic not in topics:
                continue
            if answer.error is not None:
                raise translate(answer.error, "read the offsets of", f"group {group}", self._servers)
            if answer.offset >= 0:
                commits.setdefault(answer.topic, {})[answer.partition] = Commit(
                    answer.offset, epoch_of(answer.metadata)
                )
        return commits

    def _answer(self, future: Future[Any], operation: str, resource: str) -> Any:
        try:
            return future.result(self._timeout + 1)
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                raise _NoSuchGroup from raised
            raise translate(raised.args[0], operation, resource, self._servers) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(self._servers, f"{operation} {resource}") from raised


class _NoSuchGroup(Exception):
    """A group that was deleted since it was listed, or that never was: it has no commits."""
