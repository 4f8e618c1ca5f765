"""Early release in a consumer: which gates have been closed for long, what the scans found, whose records may go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ....partitioner.gates.early import EarlyRelease, Position, Trail, trails
from ....partitioner.gates.gate import Gate
from ... import clock
from ...config import ConsumerSettings
from ...messages import Place
from ..view import View
from .tail_scan import TailScanner

# A gate that opens within this time is not worth a scan. Seconds.
PATIENCE = 0.2
# Held records are looked through no more often than this. Seconds.
_EVERY = 0.1


class _Topic:
    """The early release of one topic, and the trails of its gates as one view has them."""

    __slots__ = ("release", "topic_id", "trails", "view")

    def __init__(self, view: View, limit: int) -> None:
        self.release, self.view = EarlyRelease(limit, view.timeline.hash), view
        self.topic_id = view.timeline.topic_id
        self.trails: Mapping[tuple[int, int], Trail] = {}


class EarlyReleases:
    """The early release of one consumer. Used by the polling thread alone; the scans run on a thread of their own."""

    def __init__(self, settings: ConsumerSettings, config: Mapping[str, Any], isolation: str) -> None:
        self._limit = settings.early_release_keys
        self._scanner = TailScanner(config, settings.group, isolation)
        self._topics: dict[str, _Topic] = {}
        self._looked: dict[Place, tuple[object, float]] = {}
        self.set_sasl_credentials, self.stop = self._scanner.set_sasl_credentials, self._scanner.stop
        self.retire = self._scanner.retire

    def look(self, topic: str, view: View, closed: Collection[Gate], position: Position) -> set[int]:
        """Take in what scans have found, and begin those that are needed for these gates, which are closed and hold records.

        position: what the group has committed on a partition of the topic. Returns the partitions of which it has to be
        asked.
        """
        state = self._topics.get(topic)
        if state is None or state.topic_id != view.timeline.topic_id:
            if not closed:
                return set()
            state = self._topics[topic] = _Topic(view, self._limit)
        names = {(gate.partition, gate.epoch) for gate in closed}
        if names != state.trails.keys() or state.view is not view:
            state.view, state.trails = view, trails(view.routing, closed)
        outcome = self._scanner.outcome(topic)
        if outcome is not None:
            if outcome.tails is not None:
                state.release.done(outcome.number, outcome.tails)
            else:
                state.release.failed(outcome.number, outcome.problem, clock.now(), outcome.again)
        state.release.want(state.trails, position, clock.now())
        self._scanner.want(topic, state.release.scan)
        if not closed:
            del self._topics[topic]
        behind = set()
        for trail in state.trails.values():
            for q, span in trail.items():
                at = position(q)
                if at is None or at < span.until:
                    behind.add(q)
        return behind

    def keep(self, topics: Collection[str]) -> None:
        """Forget the topics of which nothing is owned any more."""
        for topic in [known for known in self._topics if known not in topics]:
            self._scanner.want(topic, None)
            del self._topics[topic]

    def may_go(self, topic: str, key: bytes, gate: Gate, position: Position) -> bool:
        """Whether a record behind this closed gate may be returned, if nothing of its key waits before it."""
        state = self._topics.get(topic)
        trail = None if state is None else state.trails.get((gate.partition, gate.epoch))
        if state is None or trail is None:
            return False
        return state.release.may_go(state.view.routing.hash.of(key), trail, position)

    def moved(self, place: Place, position: Position) -> bool:
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
        now = clock.now()
        if found == known or now - at < _EVERY:
            return False
        self._looked[place] = found, now
        return True

    def note(self, topic: str, gate: Gate, position: Position) -> str:
        """How far this is with a closed gate, for people."""
        state = self._topics.get(topic)
        trail = None if state is None else state.trails.get((gate.partition, gate.epoch))
        if state is None or trail is None:
            return ""
        return state.release.note(trail, position, self._scanner.read(topic))
