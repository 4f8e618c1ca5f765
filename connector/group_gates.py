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

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ..partitioner.errors import BrokerUnreachableError
from ..partitioner.gates.gate import Gates
from ..partitioner.gates.starts import Commit, proven_epoch
from ..partitioner.timeline import Timeline
from .group_commits import GroupCommits
from .kafka_errors import translate
from .messages import Place
from .metadata import partition_counts


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
    """Reads committed offsets of groups; joins nothing. Thread-safe; `close` it if it keeps clients.

    config: settings of a client; only those of the connection are used. keep: as of `GroupCommits`.
    """

    def __init__(self, config: Mapping[str, Any], admin: AdminClient, timeout: float = 10.0, keep: int = 0) -> None:
        self._admin, self._servers, self._timeout = admin, str(config.get("bootstrap.servers")), timeout
        self._commits = GroupCommits(config, keep)

    def close(self) -> None:
        """Release the clients that are kept."""
        self._commits.close()

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
        """{group: {topic: {partition: its commit}}} in one request per group. Raises as `committed`.

        Nothing is committed on a topic that is not there, or that this user may not see.
        """
        asked = list(groups)
        found: dict[str, dict[str, dict[int, Commit]]] = {}
        for group, commits in self._commits.read(asked, self._places(topics) if asked else [], self._timeout).items():
            by_topic = found[group] = {}
            for (topic, partition), commit in commits.items():
                by_topic.setdefault(topic, {})[partition] = commit
        return found

    def _places(self, topics: Collection[str]) -> list[Place]:
        counts = partition_counts(self._admin, topics, self._servers, self._timeout)
        return [(topic, partition) for topic, count in counts.items() for partition in range(count)]

    def _answer(self, future: Future[Any], operation: str, resource: str) -> Any:
        try:
            return future.result(self._timeout + 1)
        except KafkaException as raised:
            raise translate(raised.args[0], operation, resource, self._servers) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(self._servers, f"{operation} {resource}") from raised
