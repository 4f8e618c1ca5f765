"""Early release in a reader: which gates have been closed for long, what the scans found, whose records may go."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .early import EarlyRelease, Position, Scan, ScanEnded, Trail, trails
from .gate import Gate
from .gate_events import TopicView
from .gate_state import Place

# A gate that opens within this time is not worth a scan. Seconds.
PATIENCE = 0.2
# Held records are looked through no more often than this. Seconds.
_EVERY = 0.1


class _Topic:
    """The early release of one topic, and the trails of its gates as one view has them. wanted: the scan that was asked for."""

    __slots__ = ("release", "topic_id", "trails", "view", "wanted")

    def __init__(self, view: TopicView, limit: int) -> None:
        self.release, self.view = EarlyRelease(limit, view.timeline.hash), view
        self.topic_id = view.timeline.topic_id
        self.trails: Mapping[tuple[int, int], Trail] = {}
        self.wanted: Scan | None = None


class EarlyTopics:
    """The early release of all topics of one reader. limit: the most keys kept in memory for each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._topics: dict[str, _Topic] = {}
        self._looked: dict[Place, tuple[object, float]] = {}

    def look(
        self,
        topic: str,
        view: TopicView,
        closed: Collection[Gate],
        position: Position,
        scanned: ScanEnded | None,
        now: float,
    ) -> tuple[set[int], list[Scan | None]]:
        """Take in what a scan has found, and see which one is needed for these gates, which are closed and hold records.

        position: what the group has committed on a partition of the topic. Returns the partitions of which it has to be
        asked, and the scan that is wanted from now on (None for none), where it is another one than before.
        """
        state = self._topics.get(topic)
        if state is None or state.topic_id != view.timeline.topic_id:
            if not closed:
                return set(), []
            before = None if state is None else state.wanted
            state = self._topics[topic] = _Topic(view, self._limit)
            state.wanted = before  # of a topic of this name that was deleted
        names = {(gate.partition, gate.epoch) for gate in closed}
        if names != state.trails.keys() or state.view is not view:
            state.view, state.trails = view, trails(view.routing, closed)
        if scanned is not None:
            state.release.ended(scanned, now)
        state.release.want(state.trails, position, now)
        scan = state.release.scan
        another: list[Scan | None] = [] if scan is state.wanted else [scan]
        state.wanted = scan
        if not closed:
            del self._topics[topic]
        behind = set()
        for trail in state.trails.values():
            for q, span in trail.items():
                at = position(q)
                if at is None or at < span.until:
                    behind.add(q)
        return behind, another

    def keep(self, topics: Collection[str]) -> list[str]:
        """Forget the topics of which nothing is owned any more. Returns which those were."""
        gone = [known for known in self._topics if known not in topics]
        for topic in gone:
            del self._topics[topic]
        return gone

    def may_go(self, topic: str, key: bytes, gate: Gate, position: Position) -> bool:
        """Whether a record behind this closed gate may be returned, if nothing of its key waits before it."""
        state = self._topics.get(topic)
        trail = None if state is None else state.trails.get((gate.partition, gate.epoch))
        if state is None or trail is None:
            return False
        return state.release.may_go(state.view.routing.hash.of(key), trail, position)

    def moved(self, place: Place, position: Position, now: float) -> bool:
        """Whether more of a partition's held records may go than when this was last true."""
        topic, partition = place
        state = self._topics.get(topic)
        if state is None:
            self._looked.pop(place, None)
            return False
        found = [
            state.release.progress(trail, position) for (p, _), trail in sorted(state.trails.items()) if p == partition
        ]
        known, at = self._looked.get(place, (None, 0.0))
        if found == known or now - at < _EVERY:
            return False
        self._looked[place] = found, now
        return True

    def note(self, topic: str, gate: Gate, position: Position, read: int) -> str:
        """How far this is with a closed gate, for people. read: how many offsets the topic's scan has passed."""
        state = self._topics.get(topic)
        trail = None if state is None else state.trails.get((gate.partition, gate.epoch))
        if state is None or trail is None:
            return ""
        return state.release.note(trail, position, read)
