"""Holding partitions at their closed gates, and letting them go on when the group's positions open them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Any

from confluent_kafka import Message, TopicPartition

from ..partitioner.gate import Opened
from ..partitioner.modes import Mode
from ..partitioner.starts import Commit, proven_position
from . import clock
from .config import ConsumerSettings
from .membership import Membership
from .messages import Place, offset_of
from .owned import Owned
from .positions import GroupPositions
from .view import View


class Gatekeeper:
    """The gates of one consumer's partitions."""

    ready: deque[Message]

    def __init__(self, settings: ConsumerSettings, members: Membership, positions: GroupPositions) -> None:
        self._settings, self._members, self._positions = settings, members, positions
        self._judged: dict[str, View] = {}
        self._announced: dict[Place, int] = {}
        self._closed: dict[Place, float] = {}
        self._looked_at = 0.0

    @property
    def busy(self) -> bool:
        """Whether a gate of ours is closed."""
        return bool(self._closed)

    def changed(self, topic: str) -> None:
        """Partitions were started: judge the topic anew."""
        self._judged.pop(topic, None)

    def rearm(self, topic: str) -> None:
        """A position went back: gates behind it may have closed."""
        self._judged.pop(topic, None)

    def current(self, topic: str) -> bool:
        """Whether the newest timeline of the topic has been judged."""
        return self._judged.get(topic) is self._members.view(topic)

    def open_what_may(self) -> None:
        """Judge the gates of every topic whose timeline or positions may have changed."""
        waited: set[Place] = set()
        for topic in self._members.topics():
            view = self._members.view(topic)
            if self._judged.get(topic) is view and not any(place[0] == topic for place in self._closed):
                continue
            self._judged[topic] = view
            waited |= self._judge(topic, view)
        self._closed = {place: since for place, since in self._closed.items() if place in self._members.owned}
        if waited or not self._closed:
            self._positions.watch(waited)
        if self._positions.failure is not None:
            raise self._positions.failure

    def closed(self) -> Iterator[dict[str, Any]]:
        """The facts of each closed gate, origin by origin."""
        for (topic, partition), since in sorted(self._closed.items()):
            owned = self._members.owned.get((topic, partition))
            opened = self._opened(topic, self._members.view(topic))
            gate = opened.first_closed(partition)
            if owned is None or gate is None:
                continue
            for q, needed in sorted(opened.blockers(gate)):
                yield {
                    "topic": topic,
                    "partition": partition,
                    "epoch": gate.epoch,
                    "waits_for": q,
                    "needs_offset": needed,
                    "at_offset": self._position(topic, q),
                    "records_held": len(owned.held),
                    "since": since,
                    "owner": "this member" if (topic, q) in self._members.owned else "another member",
                }

    def _judge(self, topic: str, view: View) -> set[Place]:
        """Set the limits of one topic's partitions. Returns the places whose positions other members have to raise."""
        opened = self._opened(topic, view)
        waited: set[Place] = set()
        to_fetch: list[Owned] = []
        ordered = self._settings.ordered and view.timeline.ordered
        for owned in [o for o in self._members.owned.values() if o.topic == topic and o.started]:
            gate = opened.first_closed(owned.partition) if ordered else None
            owned.limit = inf if gate is None else gate.begins
            if view.timeline.mode(owned.partition) is Mode.NONE:
                # KIP-694: nobody reads it any more. What lies below the cut is being deleted; above it are only strays.
                owned.limit = min(owned.limit, view.timeline.cut_of_retired(owned.partition))
            if gate is None:
                self._closed.pop(owned.place, None)
            else:
                self._closed.setdefault(owned.place, clock.now())
                waited |= {(topic, q) for q, _ in opened.blockers(gate) if (topic, q) not in self._members.owned}
            self._announce(owned, view, opened)
            self._let_go(owned)
            if not owned.fetching and owned.fetched < owned.limit:
                to_fetch.append(owned)
        if to_fetch:
            self._members.fetch(to_fetch)
        return waited

    def _opened(self, topic: str, view: View) -> Opened:
        return view.gates.open_now(lambda q: self._position(topic, q), self._members.views.waived(topic))

    def _position(self, topic: str, q: int) -> int:
        """What the group has committed on `q`, acknowledged; with callbacks only as far as the flush is proven."""
        owned = self._members.owned.get((topic, q))
        commit: Commit | None
        if owned is not None and owned.started:
            # A seek backwards leaves the commit where it was; what lies between is not processed any more.
            acknowledged = None if owned.committed is None else min(owned.committed, owned.processed)
            commit = None if acknowledged is None else Commit(acknowledged, owned.committed_epoch)
        else:
            commit = self._positions.get(topic, q)
        if self._members.listener is not None:
            return proven_position(self._members.view(topic).timeline, q, commit)
        return 0 if commit is None else commit.offset

    def _announce(self, owned: Owned, view: View, opened: Opened) -> None:
        """KIP-253's onPartitionKeyAssigned: once per opened gate, before the first record behind it."""
        if self._members.listener is None:
            return
        for gate in view.gates.of(owned.partition):
            known = self._announced.get(owned.place, -1)
            if gate.epoch > known and gate.begins >= owned.returned and opened.is_open(gate):
                self._announced[owned.place] = gate.epoch
                self._members.listener.on_partition_key_assigned([TopicPartition(owned.topic, owned.partition)])

    def _let_go(self, owned: Owned) -> None:
        """Held records below the limit may be returned."""
        while owned.held and offset_of(owned.held[0]) < owned.limit:
            self.ready.append(owned.held.popleft())
            owned.queued += 1
        if owned.paused_for_hold and not owned.held:
            owned.paused_for_hold = False
            if not owned.paused_by_user:
                self._members.raw.resume([TopicPartition(owned.topic, owned.partition)])
