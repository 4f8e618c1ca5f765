"""GroupAdmin: consumer groups of managed topics, seen and steered from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from ...partitioner.errors import GroupNotFoundError, OrderError, UsageError
from ...partitioner.gates.gate import Gates
from ...partitioner.gates.starts import Commit
from ...partitioner.gates.waits import OriginFacts, Reason, why
from ...partitioner.records.control_records import Waiver
from ...partitioner.timeline import Timeline
from .. import clock
from ..admin import TopicAdmin
from ..admin_link import AdminLink
from ..config import split
from ..group_gates import GroupGate, GroupOffsets, group_gates
from ..kafka_errors import translate
from ..log_offsets import LogOffsets
from ..messages import Place
from ..refusals import ClusterAdmin
from .resetting import Reset, Target, reset
from .waiving import active_waivers, release

_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member of a group, as kafka-consumer-groups shows it."""

    member_id: str
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a topic for a group. Offsets are the next ones to read; None where there is none.

    epoch_flushed: the newest epoch that the commit proves as flushed, None for a commit of a stock client.
    gate: None, or the first closed gate of the partition.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int
    lag: int | None
    epoch_flushed: int | None
    owner: MemberInfo | None
    gate: GroupGate | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group: state and protocol type in Kafka's words, whether it has members, its partitions."""

    group: str
    state: str
    members: int
    partitions: tuple[PartitionStatus, ...]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group over all managed topics.

    lag: records between its commits and the ends of the logs, summed. closed_gates: how many it stands before.
    """

    group: str
    state: str
    members: int
    topics: tuple[str, ...]
    lag: int
    closed_gates: int


@dataclass(frozen=True, slots=True)
class ClosedGate:
    """A closed gate of a group and what it waits for at one origin."""

    group: str
    topic: str
    partition: int
    epoch: int
    begins: int
    waits_for: int
    needs_offset: int
    at_offset: int
    owner: str
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class _Described:
    """What of an admin client's description is used; a group that does not exist is a dead one."""

    state: ConsumerGroupState
    members: list[Any]

    def owners(self) -> dict[Place, MemberInfo]:
        """Who owns what."""
        return {
            (p.topic, p.partition): MemberInfo(m.member_id, m.client_id, m.host)
            for m in self.members
            for p in (m.assignment.topic_partitions if m.assignment is not None else ())
        }


class GroupAdmin:
    """Groups of managed topics.

    config: one dict of dotted names, as for confluent-kafka's AdminClient; `bootstrap.servers` is required.
    Rights: Describe on the group and its topics, Read on `_keyorder`; a release needs a controller's rights, a reset
    Read on the group. Raises ConfigError.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        _, theirs = split(config, {}, "a GroupAdmin")
        self._config = theirs
        self._bootstrap = str(theirs.get("bootstrap.servers"))
        self._admin, self._coordinators = ClusterAdmin(theirs), AdminLink(theirs)
        self._topics = TopicAdmin(theirs)
        self._offsets = GroupOffsets(theirs, self._admin, _TIMEOUT)

    def timeline(self, topic: str) -> Timeline:
        """The topic's timeline now. Raises as TopicAdmin.timeline."""
        return self._topics.timeline(topic)

    def describe(self, group: str, topic: str) -> GroupStatus:
        """The group on one managed topic.

        Raises UnmanagedTopicError, TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
        """
        timeline = self.timeline(topic)
        commits = self._committed(group, topic)
        found = self._describe(group)
        owners = found.owners()
        ends = self._logs(topic, range(self._topics.describe(topic, groups=()).partitions))
        gates: dict[int, GroupGate] = {}
        for gate in self._gates(timeline, group, commits):
            if not gate.open and (gate.partition not in gates or gate.begins < gates[gate.partition].begins):
                gates[gate.partition] = gate
        rows = []
        for (_, p), end in sorted(ends.items()):
            commit = commits.get(p)
            rows.append(
                PartitionStatus(
                    topic=topic,
                    partition=p,
                    current_offset=None if commit is None else commit.offset,
                    log_end_offset=end,
                    lag=None if commit is None else max(0, end - commit.offset),
                    epoch_flushed=None if commit is None else commit.epoch,
                    owner=owners.get((topic, p)),
                    gate=gates.get(p),
                )
            )
        return GroupStatus(group, _state_name(found.state), len(found.members), tuple(rows))

    def topics_of(self, group: str, unreadable: dict[str, OrderError]) -> list[str]:
        """The managed topics on which the group has committed something or owns a partition, by name.

        unreadable: gets the errors of those among them whose timeline cannot be read; they are not in the answer.
        """
        broken: dict[str, OrderError] = {}
        managed = self._topics.topics(broken)
        owned = {topic for topic, _ in self._describe(group).owners()}
        read = [topic for topic in sorted({*managed, *broken}) if topic in owned or self._committed(group, topic)]
        unreadable.update({topic: broken[topic] for topic in read if topic in broken})
        return [topic for topic in read if topic in managed]

    def groups(self, unreadable: dict[str, OrderError]) -> list[GroupSummary]:
        """Every group that has committed something on a managed topic, by name.

        unreadable: gets the errors of topics whose timeline cannot be read; groups are told without them.
        Raises NotAuthorizedError, BrokerUnreachableError.
        """
        managed = self._topics.topics(unreadable)
        found = []
        for group, by_topic in sorted(self._offsets.on_topics(self._offsets.groups(), managed).items()):
            if not by_topic:
                continue
            described = self._describe(group)
            closed = sum(
                not gate.open
                for topic, commits in by_topic.items()
                for gate in self._gates(managed[topic], group, commits)
            )
            lag = 0
            for topic, commits in by_topic.items():
                ends = self._logs(topic, list(commits))
                lag += sum(max(0, end - commits[p].offset) for (_, p), end in ends.items())
            found.append(
                GroupSummary(
                    group, _state_name(described.state), len(described.members), tuple(sorted(by_topic)), lag, closed
                )
            )
        return found

    def require(self, group: str) -> None:
        """Raises GroupNotFoundError for a group that the cluster does not know: a misspelt name is no empty answer."""
        if not self.knows(group):
            raise GroupNotFoundError(group)

    def knows(self, group: str) -> bool:
        """Whether the cluster has the group: it has members, or committed offsets."""
        return self._describe(group).state is not ConsumerGroupState.DEAD or group in self._offsets.groups()

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed something on the topic, by name."""
        return sorted(self._offsets.of_topic(topic))

    def closed_gates(self, topic: str, group: str) -> list[ClosedGate]:
        """Every closed gate of the group on the topic, origin by origin, with its reason. Raises as `describe`."""
        timeline = self.timeline(topic)
        gates = [g for g in self._gates(timeline, group, self._committed(group, topic)) if not g.open]
        if not gates:
            return []
        places = {(topic, need.partition) for gate in gates for need in gate.blockers}
        owners = {p: f"{m.member_id} ({m.client_id}, {m.host})" for p, m in self._describe(group).owners().items()}
        logs = LogOffsets(self._config)
        try:
            starts, stable = logs.earliest(places, _TIMEOUT), logs.stable_ends(places, _TIMEOUT)
            high = logs.high_watermarks(places, _TIMEOUT)
        finally:
            logs.close()
        found = []
        for gate in gates:
            for need in gate.blockers:
                q = (topic, need.partition)
                reason, detail = why(
                    OriginFacts(
                        topic=topic,
                        partition=need.partition,
                        needs=need.needs,
                        committed=need.at,
                        proven=need.at,
                        highest_committed=need.at,
                        owner=owners.get(q, ""),
                        log_start=starts[q],
                        stable_end=stable[q],
                        high_watermark=high[q],
                    )
                )
                found.append(
                    ClosedGate(
                        group, topic, gate.partition, gate.epoch, gate.begins, need.partition, need.needs, need.at,
                        owners.get(q, "nobody"), reason, detail,
                    )
                )  # fmt: skip
        return found

    def waivers(self, topic: str, group: str) -> list[Waiver]:
        """The waivers in force for this group. Raises as `timeline`."""
        return active_waivers(self._config, self.timeline(topic), group)

    def release(self, topic: str, group: str, partition: int, epoch: int, who: str, why_: str) -> Waiver:
        """Let one gate of one group open, on the record; whoever does it answers for the order.

        Keys that came to `partition` in `epoch` may be delivered before their older records.
        Raises UsageError (no such gate), ChangeOpenError, NotAuthorizedError, ControllerFencedError.
        """
        timeline = self.timeline(topic)
        if not any(g.partition == partition and g.epoch == epoch for g in Gates(timeline).of(partition)):
            known = ", ".join(f"{g.partition} in epoch {g.epoch}" for g in Gates(timeline).all()) or "none"
            raise UsageError(
                f"{topic!r} has no gate into partition {partition} in epoch {epoch}: its gates are {known}"
            )
        waiver = Waiver(topic, timeline.topic_id, group, epoch, partition, who, why_, clock.wall_ms())
        release(self._config, waiver)
        return waiver

    def reset(self, topic: str, group: str, target: Target, execute: bool = False) -> Reset:
        """Offsets for the whole topic at a consistent cut; committed only with `execute`. Raises as `resetting.reset`."""
        described = self._describe(group)
        return reset(self._config, self._admin, group, self.timeline(topic), target, execute, len(described.members))

    def _committed(self, group: str, topic: str) -> dict[int, Commit]:
        return self._offsets.committed([group], topic)[group]

    def _gates(self, timeline: Timeline, group: str, commits: Mapping[int, Commit]) -> list[GroupGate]:
        waived = [(w.partition, w.epoch) for w in active_waivers(self._config, timeline, group)]
        return group_gates(timeline, commits, waived)

    def _logs(self, topic: str, partitions: Iterable[int]) -> dict[Place, int]:
        logs = LogOffsets(self._config)
        try:
            return logs.high_watermarks([(topic, p) for p in partitions], _TIMEOUT)
        finally:
            logs.close()

    def _describe(self, group: str) -> _Described:
        try:
            found = self._coordinators.describe_group(group, _TIMEOUT)
            return _Described(found.state, list(found.members))
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return _Described(ConsumerGroupState.DEAD, [])
            raise translate(raised.args[0], "describe", f"group {group}", self._bootstrap) from raised


def _state_name(state: ConsumerGroupState) -> str:
    """As kafka-consumer-groups spells it: Stable, Empty, Dead, ..."""
    return "".join(word.capitalize() for word in state.name.split("_"))
