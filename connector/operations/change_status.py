"""How far an open change is, who keeps it waiting, and what becomes of the partitions that were retired.

The decisions are the controller's alone; here they are told from outside, from the control topics. Ages compare clocks of
several machines, so they are right as far as those clocks agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ...partitioner.epochs import ChangePhase, Drain, DrainState, OpenChange
from ...partitioner.gates.starts import Commit
from ...partitioner.layout import Layout
from ...partitioner.timeline import Timeline
from ..topology.draining import groups_behind, never_emptied, topic_delay_ms
from .control_state import ControlState

# What a controller may need beside the deadline to give an attempt up; after that nobody is at work.
_SLACK_MS = 10_000


class Answer(str, Enum):
    """What a writer has answered to an open change."""

    READY = "ready"  # to PREPARE: it holds the moving keys
    HOLDING = "not ready"  # PREPARE asked for READY, and it has not come
    PRESENT = "present"  # to PLAN: it lives
    SILENT = "silent"  # PLAN asked for a sign of life, and none has come
    LEASE_OVER = "lease over"  # silent for longer than its lease: it will be excluded


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """One live writer under an open change. renewed_at_ms: when it was last heard of, by its own clock."""

    writer: str
    incarnation: int
    transactional: bool
    answer: Answer
    renewed_at_ms: int | None
    lease_ms: int

    @property
    def late(self) -> bool:
        """Whether the change waits for it."""
        return self.answer in (Answer.HOLDING, Answer.SILENT, Answer.LEASE_OVER)


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """A retired partition on its way to being emptied.

    due_at_ms: the earliest time, by the controller's clock; a controller that began later empties it later. None: not as
    things are. waits_for: in words, empty when nothing is in the way. behind: {named group: offsets left to the cut}.
    """

    drain: Drain
    delay_ms: int
    due_at_ms: int | None
    waits_for: str
    behind: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ChangeStatus:
    """The topic's open change, if there is one, and the drains under way.

    since_ms: when the open change was last moved on. deadline_at_ms: when its PREPARE is given up at the latest.
    stalled: whether that passed so long ago that nobody can be at work; None where that cannot be told.
    """

    topic: str
    layout: Layout
    epoch: int
    change: OpenChange | None
    since_ms: int | None
    deadline_at_ms: int | None
    stalled: bool | None
    writers: tuple[WriterProgress, ...]
    next_step: str
    drains: tuple[DrainStatus, ...]

    @property
    def late(self) -> tuple[str, ...]:
        """The writers that the change waits for."""
        return tuple(w.writer for w in self.writers if w.late)


def change_status(timeline: Timeline, state: ControlState, drains: Sequence[DrainStatus], now_ms: int) -> ChangeStatus:
    """The state of the topic's change at `now_ms` of the wall clock."""
    change, since = timeline.change, state.written_at.get(timeline.topic)
    deadline = None
    stalled = None
    if change is not None and change.phase is ChangePhase.PREPARE and since is not None and change.deadline_ms:
        deadline = since + change.deadline_ms
        stalled = now_ms > deadline + _SLACK_MS
    writers = () if change is None else tuple(_progress(timeline.topic, change, since, state, now_ms))
    return ChangeStatus(
        topic=timeline.topic,
        layout=timeline.layout,
        epoch=timeline.newest.number,
        change=change,
        since_ms=None if change is None else since,
        deadline_at_ms=deadline,
        stalled=stalled,
        writers=writers,
        next_step=next_step(timeline.topic, change, [_late(w, now_ms, deadline) for w in writers if w.late], stalled),
        drains=tuple(drains),
    )


def _late(writer: WriterProgress, now_ms: int, deadline_ms: int | None) -> str:
    """Its name, since when it is waited for, and how long at most."""
    heard = writer.renewed_at_ms
    said = [] if heard is None else [f"last heard of {max(0, now_ms - heard) / 1000:.0f} s ago"]
    until = deadline_ms if writer.answer is Answer.HOLDING else None if heard is None else heard + writer.lease_ms
    if until is not None:
        said.append(f"at most {max(0, until - now_ms) / 1000:.0f} s more")
    return f"{writer.writer} ({', '.join(said)})" if said else writer.writer


def next_step(topic: str, change: OpenChange | None, late: Sequence[str], stalled: bool | None) -> str:
    """What happens next, or what to do, in a sentence; empty without an open change."""
    if change is None:
        return ""
    if stalled:
        return (
            "nobody works on it: ask for the same count again to resume it, or give it up with "
            f"`keyorder change abort --topic {topic}`"
        )
    names = ", ".join(late)
    if change.phase is ChangePhase.PLAN:
        if late:
            return f"waiting for a lease renewal of {names}; a writer whose lease runs out is expelled"
        return "every writer has renewed its lease: next, they are asked to hold the keys that move"
    if late:
        return f"waiting for READY from {names}; at the deadline this attempt is given up and the next one begins"
    return "every writer is READY: next, the cuts are read and the new layout is committed"


def drain_status(
    timeline: Timeline, drain: Drain, compacted: bool, committed: Mapping[str, Mapping[int, Commit]]
) -> DrainStatus:
    """What one retired partition waits for. committed: of the groups that its shrink named."""
    p = drain.partition
    delay_ms = drain.retirement.delay(topic_delay_ms(timeline))
    positions = {g: found[p].offset for g, found in committed.items() if p in found}
    late = groups_behind(drain, positions)
    behind = {group: drain.upto - positions.get(group, 0) for group in late}
    if drain.state is not DrainState.WAITING:
        what = {DrainState.PURGED: "", DrainState.PURGING: "its records are being deleted"}
        return DrainStatus(drain, delay_ms, None, what.get(drain.state, f"another try: {drain.error}"), {})
    never = never_emptied(timeline, drain, compacted)
    if never:
        return DrainStatus(drain, delay_ms, None, never, behind)
    retired_at = next((e.committed_at_ms for e in timeline.epochs if e.number == drain.epoch), 0)
    waits = f"group {late[0]} to reach {drain.upto}" if late else "its delay, and a controller"
    return DrainStatus(drain, delay_ms, retired_at + delay_ms, waits, behind)


def _progress(
    topic: str, change: OpenChange, since: int | None, state: ControlState, now_ms: int
) -> list[WriterProgress]:
    found = []
    for member in state.writers(topic):
        lease, heard = member.lease, state.renewed_at_ms(member)
        over = heard is not None and now_ms > heard + lease.lease_ms
        if state.is_ready(member, topic, change.epoch):
            answer = Answer.READY
        elif over:
            answer = Answer.LEASE_OVER
        elif change.phase is ChangePhase.PREPARE:
            answer = Answer.HOLDING
        else:
            answer = Answer.SILENT if heard is None or since is None or heard < since else Answer.PRESENT
        found.append(
            WriterProgress(
                lease.writer, member.incarnation, lease.transactional_id is not None, answer, heard, lease.lease_ms
            )
        )
    return found
