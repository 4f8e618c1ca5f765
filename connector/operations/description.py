"""A managed topic as it is now: layout, modes, writers, and the gates of each group at what it has committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...partitioner.adoption import KeySample
from ...partitioner.epochs import Drain, Epoch, OpenChange
from ...partitioner.gates.starts import Commit
from ...partitioner.layout import Layout
from ...partitioner.modes import Mode
from ...partitioner.timeline import Timeline
from ..group_gates import GroupGate, group_gates
from .control_state import ControlState
from .stray_scan import PartitionStrays


@dataclass(frozen=True, slots=True)
class WriterDescription:
    """A live writer: its id, its incarnation, the topics that it writes.

    lease_ms: how long it may be silent. renewed_at_ms: when it last said that it lives, by its own clock; None: unknown.
    unmanaged: those of its topics that have no timeline.
    """

    writer: str
    incarnation: int
    topics: tuple[str, ...]
    transactional: bool
    lease_ms: int = 0
    renewed_at_ms: int | None = None
    unmanaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group before the gates of one topic. closed: its closed gates, newest epoch first. gates: how many there are."""

    group: str
    committed: Mapping[int, int]
    closed: tuple[GroupGate, ...]
    gates: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What is known of a managed topic.

    layout: initial and active count. partitions: how many exist physically, retired ones included.
    epochs: every committed layout with its cuts. change: the open attempt, if there is one.
    modes: KIP-694's mode of every partition. retired: those that are no longer written, and how far their emptying is.
    groups: the groups that have committed offsets of it, with the gates that are closed for them.
    strays: what was found among the newest records of each partition, None when nobody looked; strays_problem: why not.
    sample: what an adoption has looked at to choose the hash; None when nothing was adopted.
    """

    topic: str
    topic_id: str
    layout: Layout
    partitions: int
    ordered: bool
    epochs: tuple[Epoch, ...]
    change: OpenChange | None
    settings: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[int, Mode] = field(default_factory=dict)
    writers: tuple[WriterDescription, ...] = ()
    retired: tuple[Drain, ...] = ()
    groups: tuple[GroupDescription, ...] = ()
    strays: tuple[PartitionStrays, ...] | None = None
    strays_problem: str = ""
    sample: KeySample | None = None


def described(
    timeline: Timeline, partitions: int, state: ControlState, committed: Mapping[str, Mapping[int, Commit]]
) -> TopicDescription:
    """The description from what was read. partitions: physical ones. committed: by group."""
    return TopicDescription(
        topic=timeline.topic,
        topic_id=timeline.topic_id,
        layout=timeline.layout,
        partitions=partitions,
        ordered=timeline.ordered,
        epochs=timeline.epochs,
        change=timeline.change,
        settings=dict(timeline.settings),
        modes={p: timeline.mode(p) for p in range(partitions)},
        writers=tuple(_writers(timeline.topic, state)),
        retired=timeline.drains,
        groups=tuple(_group(timeline, group, state, commits) for group, commits in sorted(committed.items())),
    )


def _writers(topic: str, state: ControlState) -> list[WriterDescription]:
    return [
        WriterDescription(
            writer=m.lease.writer,
            incarnation=m.incarnation,
            topics=m.lease.topics,
            transactional=m.lease.transactional_id is not None,
            lease_ms=m.lease.lease_ms,
            renewed_at_ms=state.renewed_at_ms(m),
            unmanaged=tuple(t for t in m.lease.topics if t not in state.timelines),
        )
        for m in state.writers(topic)
    ]


def _group(timeline: Timeline, group: str, state: ControlState, commits: Mapping[int, Commit]) -> GroupDescription:
    gates = group_gates(timeline, commits, state.waived(timeline, group))
    return GroupDescription(
        group=group,
        committed={p: commit.offset for p, commit in sorted(commits.items())},
        closed=tuple(gate for gate in gates if not gate.open),
        gates=len(gates),
    )
