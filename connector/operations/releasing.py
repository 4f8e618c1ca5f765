"""Giving a topic back to stock clients: what stands against it, and the word in the timeline that says so.

The timeline stays, with a mark that says when and by whom: ordered readers go on finding the order of older records in it,
while nothing writes or changes the topic through keyorder any more. The mark is written first and the writers are looked at
afterwards: a producer that joins looks at the timeline after its join, so that one of the two sees the other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient

from ...partitioner.errors import NotReleasableError, UnmanagedTopicError
from ...partitioner.records.control_records import Lease
from ...partitioner.timeline import Timeline
from .. import clock
from ..control.timeline_edit import edit
from ..group_gates import GroupOffsets
from ..metadata import identify, is_compacted
from .adopting import when_and_who
from .control_state import ControlState
from .description import described
from .notices import stock_right

_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a topic under management. code: for programs: change, count, compacted, writer, gate."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Release:
    """What came of it. released: when and by whom, None where nothing was done.

    changed: False for a dry run, and for a topic that was released before. obstacles: of a dry run; none, or nothing is
    done. warnings: what stock clients do not keep, in sentences.
    """

    topic: str
    partitions: int
    hash: str
    released: str | None
    changed: bool
    obstacles: tuple[Obstacle, ...] = ()
    warnings: tuple[str, ...] = ()


def obstacles(
    timeline: Timeline,
    physical: int,
    compacted: bool,
    writers: Sequence[str] = (),
    closed: Mapping[str, Sequence[int]] | None = None,
) -> list[Obstacle]:
    """What could put keys out of order once stock clients take the topic over; all of it, not the first one alone.

    physical: partitions that exist. writers: ids of live OrderedProducers. closed: {group: partitions with a closed gate}.
    """
    topic, layout = timeline.topic, timeline.layout
    found: list[Obstacle] = []
    if timeline.change is not None:
        text = (
            f"its layout is being changed to {timeline.change.count} partitions: finish it, or `keyorder change abort`"
        )
        found.append(Obstacle("change", text))
    if not stock_right(layout, physical):
        right = layout.initial
        while right < physical:
            right *= 2
        text = (
            f"{layout.count} of its {physical} partitions are in use, where stock producers place some keys elsewhere: grow "
            f"it to {right} first (`keyorder topics expand --topic {topic} --partitions {right}`)"
        )
        found.append(Obstacle("count", text))
    if compacted and moved(timeline):
        found.append(
            Obstacle(
                "compacted",
                "it is compacted and its keys have moved: values that stock producers replace or delete stay behind in earlier "
                "partitions, where nobody clears them any more; copy it into a new topic instead (docs/connect-migrate.md)",
            )
        )
    for writer in writers:
        found.append(Obstacle("writer", f"the OrderedProducer {writer!r} writes it: close it, or wait for its lease"))
    for group, partitions in sorted((closed or {}).items()):
        gates = ", ".join(map(str, sorted(set(partitions))))
        text = f"group {group!r} has a closed gate at partition {gates}: let it read on first (`keyorder gates list`)"
        found.append(Obstacle("gate", text))
    return found


def moved(timeline: Timeline) -> bool:
    """Whether the topic has ever been changed."""
    return len(timeline.epochs) > 1 or timeline.folded is not None


def warnings(timeline: Timeline) -> tuple[str, ...]:
    """What is true of the topic afterwards."""
    if not moved(timeline):
        return ()
    return (
        f"A stock group that reads {timeline.topic} from before its last change sees keys that moved out of order: records from "
        "before that lie in other partitions. An ordered group reads them in order.",
    )


class Releasing:
    """One topic's. Each method takes a fresh look."""

    def __init__(self, config: Mapping[str, Any], admin: AdminClient, timeline: Timeline) -> None:
        self._config, self._admin, self._timeline = config, admin, timeline
        self._topic, self._servers = timeline.topic, str(config.get("bootstrap.servers"))
        self._state = ControlState(config, admin)
        self._pause = threading.Event()

    def run(self, dry_run: bool, timeout: float) -> Release:
        """Release the topic, or only say what stands against it. Raises NotReleasableError, and as `edit`.

        timeout: seconds to wait for the leases of writers that do not answer any more.
        """
        deadline = clock.now() + timeout
        try:
            timeline, found = self._look()
            if dry_run:
                return self._result(timeline, False, found)
            timeline, found = self._outwaited(timeline, found, deadline)
            if found:
                raise self._refused(found)
            if timeline.released is not None:
                return self._result(timeline, False)
            edit(self._config, self._topic, lambda now: self._marked(now, timeline))
            timeline, found = self._outwaited(*self._look(), deadline)
            if found:
                edit(self._config, self._topic, Timeline.taken_back)
                raise self._refused(found)
            return self._result(timeline, True)
        finally:
            self._state.close()

    def _outwaited(self, timeline: Timeline, found: list[Obstacle], deadline: float) -> tuple[Timeline, list[Obstacle]]:
        """Wait where silent writers are all that is in the way, since the lease of one that was killed runs out; look again."""
        if not found or any(each.code != "writer" for each in found):
            return timeline, found
        first = {writer.nonce: writer.sequence for writer in self._writers()}
        while (left := self._writers()) and clock.now() < deadline:
            if any(writer.sequence > first.get(writer.nonce, -1) for writer in left):
                break  # it lives
            self._pause.wait(_BETWEEN_LOOKS)
            self._state.refresh()
        return self._look()

    def _writers(self) -> list[Lease]:
        return [m.lease for m in self._state.writers(self._topic) if clock.now() < m.ends_at]

    def _look(self) -> tuple[Timeline, list[Obstacle]]:
        self._state.refresh()
        timeline = self._state.timelines.get(self._topic)
        if timeline is None:
            raise UnmanagedTopicError(self._topic)
        physical = identify(self._admin, self._topic, self._servers).partitions
        committed = GroupOffsets(self._config, self._admin).of_topic(self._topic)
        seen = described(timeline, physical, self._state, committed)
        writers = [lease.writer for lease in self._writers()]
        if timeline.released is not None and self._timeline.released is not None:
            # Released before: what stock clients do to it since is their own affair.
            return timeline, obstacles(timeline, timeline.newest.count, False, writers)
        compacted = is_compacted(self._admin, self._topic, self._servers)
        closed = {each.group: [gate.partition for gate in each.closed] for each in seen.groups if each.closed}
        return timeline, obstacles(timeline, physical, compacted, writers, closed)

    def _marked(self, now: Timeline, seen: Timeline) -> Timeline:
        if now.newest.number != seen.newest.number:
            raise self._refused([Obstacle("change", "it was changed just now: look again")])
        return now.given_back(when_and_who())

    def _refused(self, found: Sequence[Obstacle]) -> NotReleasableError:
        return NotReleasableError(self._topic, tuple(each.text for each in found))

    def _result(self, timeline: Timeline, changed: bool, found: Sequence[Obstacle] = ()) -> Release:
        return Release(
            self._topic,
            timeline.newest.count,
            timeline.hash,
            timeline.released,
            changed,
            tuple(found),
            warnings(timeline),
        )
