"""Where a consumer group starts reading, decided from what it has committed. Pure: offsets in, a plan out.

- *birth*: no commit on any partition. One commit for all partitions makes the group, at a consistent cut.
- *migrating*: commits, but none of ours: a stock group. First partitions without a commit follow `auto.offset.reset`,
  later ones begin at their log start.
- *resuming*: from then on a partition without a commit is one that was made since: it begins at its log start, whatever
  `auto.offset.reset` says, or records written before it was discovered would be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

from ..errors import GroupResetError, NoOffsetError
from ..numbers import number_of
from ..timeline import Timeline
from .ahead import Ahead, decode_ahead
from .gate import Gates, consistent_starts

_PREFIX = "ko1:"
# Offsets by name, as in the client library; rd_kafka_offset_tail(n) is _TAIL - n.
_BEGINNING, _END, _TAIL = -2, -1, -2000


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's committed offset of one partition, and the highest epoch that was flushed before it (None: not ours).

    ahead: what was processed beyond the offset, if anything was. note: the application's own metadata.
    """

    offset: int
    epoch: int | None
    ahead: Ahead | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Where one partition starts, and the epoch that the group's commit there proves as flushed.

    committed: the group's offset, None for none. end: where its log ends. ahead: what an earlier owner has processed beyond
    the start. note: the application's metadata of that commit.
    """

    partition: int
    offset: int
    committed: int | None
    epoch: int
    end: int
    ahead: Ahead | None = None
    note: str = ""

    def at(self, wanted: int, log: tuple[int, int]) -> Start:
        """The application says where. log: (log start, end)."""
        return replace(self, offset=resolved(wanted, *log), ahead=None)


class GroupState(Enum):
    """What a group's commits say of its past."""

    BIRTH = "BIRTH"
    MIGRATING = "MIGRATING"
    RESUMING = "RESUMING"


def metadata_of(epoch: int, note: str = "", ahead: str = "") -> str:
    """The metadata string of every commit: an offset alone does not prove that the application has flushed.

    note: the application's own metadata, which `note_of` gives back. ahead: as `encode_ahead` made it.
    """
    ours = f"{_PREFIX}{epoch}+{ahead}" if ahead else f"{_PREFIX}{epoch}"
    return f"{ours};{note}" if note else ours


def note_of(metadata: str | None) -> str:
    """The application's own metadata of a commit, "" without any; all of it where the commit is not ours."""
    if epoch_of(metadata) is None or metadata is None:
        return metadata or ""
    return metadata.partition(";")[2]


def epoch_of(metadata: str | None) -> int | None:
    """The epoch in a commit's metadata, or None for any other text."""
    if metadata is None or not metadata.startswith(_PREFIX):
        return None
    number = metadata.removeprefix(_PREFIX).split(";", 1)[0].split("+", 1)[0]
    return number_of(number)


def ahead_text_of(metadata: str | None) -> str:
    """What a commit says of the records beyond its offset, as `encode_ahead` made it; "" for nothing."""
    if metadata is None or epoch_of(metadata) is None:
        return ""
    return metadata.split(";", 1)[0].partition("+")[2]


def ahead_of(metadata: str | None, offset: int) -> Ahead | None:
    """What a commit of `offset` says of the records beyond it."""
    ahead = ahead_text_of(metadata)
    return decode_ahead(ahead, offset) if ahead else None


def state_of(commits: Mapping[int, Commit]) -> GroupState:
    """What the commits of all partitions say of the group."""
    if not commits:
        return GroupState.BIRTH
    ours = any(commit.epoch is not None for commit in commits.values())
    return GroupState.RESUMING if ours else GroupState.MIGRATING


def founded(timeline: Timeline, commits: Mapping[int, Commit]) -> bool:
    """Whether members other than the owner of partition 0 may start: all first partitions show a commit."""
    return all(p in commits for p in range(timeline.first_count))


def initial_offsets(
    group: str,
    timeline: Timeline,
    commits: Mapping[int, Commit],
    log_starts: Mapping[int, int],
    log_ends: Mapping[int, int],
    from_latest: bool | None,
) -> dict[int, int]:
    """The offsets that the owner of partition 0 commits for *all* partitions, in one request.

    from_latest: `auto.offset.reset`; None stands for `error`. The timeline must have been read to its end after
    `log_ends` were taken.

    Raises NoOffsetError when there is no such offset and the policy is `error`; GroupResetError as `checked`.
    """
    state = state_of(commits)
    check_consistent(group, timeline, commits)
    starts: dict[int, int] = {}
    without: list[int] = []
    for p in log_starts:
        commit = commits.get(p)
        if commit is not None:
            starts[p] = checked(group, timeline.topic, p, commit.offset, log_starts[p], log_ends[p])
            if from_latest is None and is_gone(timeline, p, commit.offset, log_starts[p]):
                without.append(p)
        elif state is GroupState.RESUMING or (state is GroupState.MIGRATING and p >= timeline.first_count):
            starts[p] = log_starts[p]
        elif from_latest is None:
            without.append(p)
        else:
            starts[p] = log_ends[p] if from_latest else log_starts[p]
    if without:
        raise NoOffsetError(group, timeline.topic, tuple(without))
    if state is GroupState.RESUMING or not timeline.ordered:
        return starts
    clipped = consistent_starts(Gates(timeline), {**dict.fromkeys(range(timeline.highest_count), 0), **starts})
    # What a group has committed is its own word; only what was chosen here may lie behind a closed gate.
    return {p: starts[p] if p in commits else offset for p, offset in clipped.items()}


def checked(group: str, topic: str, partition: int, offset: int, log_start: int, log_end: int) -> int:
    """A committed offset as a start: below the log start is the log start, above the end is an error.

    The broker accepts a commit above the end; reading on from there would skip records unseen.
    """
    if offset > log_end:
        raise GroupResetError(
            group, topic, f"partition {partition} is committed at {offset}, its log ends at {log_end}"
        )
    return max(offset, log_start)


def start_of(group: str, place: tuple[str, int], commit: Commit | None, log_start: int, log_end: int) -> Start:
    """Where a partition starts by what the group has committed. Raises as `checked`."""
    topic, p = place
    if commit is None:
        return Start(p, log_start, None, -1, log_end)
    offset = checked(group, topic, p, commit.offset, log_start, log_end)
    epoch = -1 if commit.epoch is None else commit.epoch
    return Start(p, offset, commit.offset, epoch, log_end, commit.ahead, commit.note)


def resolved(offset: int, log_start: int, log_end: int) -> int:
    """An offset that the application gave as a number: the client library's names for begin, end and tail are negative."""
    if offset >= 0:
        return offset
    if offset == _BEGINNING:
        return log_start
    return log_end if offset == _END else max(log_start, log_end + offset - _TAIL)


def is_gone(timeline: Timeline, partition: int, offset: int, log_start: int) -> bool:
    """Whether what was to be read next has been deleted. Not of a retired partition: it is emptied of what groups have read."""
    return offset < log_start and timeline.mode(partition).readable


def check_consistent(group: str, timeline: Timeline, commits: Mapping[int, Commit]) -> None:
    """Stop when an origin lost its commit while the group is already past its gate: it would be read again, too late.

    A commit whose epoch is older than the gate was made by a member that did not know the gate yet, or found it closed:
    it passed `begins` with records of keys that never moved, and the origin may never have had a commit.
    """
    if not timeline.ordered:
        return
    for gate in Gates(timeline).all():
        past = commits.get(gate.partition)
        if past is None or past.offset <= gate.begins or (past.epoch is not None and past.epoch < gate.epoch):
            continue
        for q, ends in gate.origins:
            if ends > 0 and q not in commits:
                raise GroupResetError(
                    group,
                    timeline.topic,
                    f"partition {gate.partition} is past epoch {gate.epoch}, but its origin {q} has no commit",
                )


def flushed_epoch(timeline: Timeline, partition: int, position: int) -> int:
    """The newest epoch whose cuts of `partition`, and all earlier ones, lie at or below `position`."""
    flushed = timeline.epochs[0].number
    for epoch in timeline.epochs[1:]:
        if epoch.ends.get(partition, 0) > position:
            break
        flushed = epoch.number
    return flushed


def proven_epoch(commit: Commit | None) -> float:
    """The newest epoch whose flush a commit proves. Without a commit there is nothing to flush: every epoch's."""
    if commit is None:
        return inf
    return -1 if commit.epoch is None else commit.epoch


def proven_position(timeline: Timeline, partition: int, commit: Commit | None) -> int:
    """The committed offset, held below the first cut whose flush the commit does not prove."""
    if commit is None:
        return 0
    known = -1 if commit.epoch is None else commit.epoch
    for epoch in timeline.epochs[1:]:
        if epoch.number > known and partition in epoch.ends:
            return min(commit.offset, epoch.ends[partition] - 1)
    return commit.offset
