"""A look at all managed topics every so often, on a thread of its own: what metrics are made from.

A scrape never asks the cluster: it would take as long as the slowest broker, and once for each who scrapes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException

from ...partitioner.errors import KeyorderError, OrderError
from .. import clock
from ..log_offsets import LogOffsets
from ..operations.change_status import ChangeStatus
from ..operations.description import GroupDescription, TopicDescription
from ..operations.overview import Overview

_LOG = logging.getLogger("keyorder.admin")
GateName = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Look:
    """The managed topics at one moment.

    at_ms: the wall clock's milliseconds when it was complete. topics: by name. unreadable: topics whose timelines cannot be
    read, and why. changes: the open ones, by topic. ends: the high watermark of each (topic, partition), starts: the log start
    of those that a group has not committed. open_since: when the open attempt of a topic was first seen in its phase,
    closed_since: when a gate, (group, topic, partition, epoch), was first seen closed; seconds of connector.clock.
    """

    at_ms: int
    topics: tuple[TopicDescription, ...] = ()
    unreadable: Mapping[str, OrderError] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    open_since: Mapping[tuple[str, int, str], float] = field(default_factory=dict)
    closed_since: Mapping[GateName, float] = field(default_factory=dict)
    changes: Mapping[str, ChangeStatus] = field(default_factory=dict)
    starts: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def lag(self, topic: str, group: GroupDescription) -> int:
        """Offsets of the topic up to its ends that the group has not committed."""
        # A partition without a commit of a group that has others was made since: all that it holds is unread.
        new = {p: at for (name, p), at in self.starts.items() if name == topic and p not in group.committed}
        ends = ((self.ends.get((topic, p)), at) for p, at in {**new, **group.committed}.items())
        return sum(max(0, end - at) for end, at in ends if end is not None)


class ClusterWatch:
    """Looks every `every` seconds at these topics, or at all managed ones. Thread-safe; `close` it.

    A look that fails is counted, and the last good one stays.
    """

    def __init__(self, config: Mapping[str, Any], topics: Collection[str] = (), every: float = 15.0) -> None:
        self._overview, self._offsets = Overview(config), LogOffsets(config)
        self._topics, self._every = frozenset(topics), every
        self._stop = threading.Event()
        self._last = Look(0)
        self._failures = 0
        self._problem = ""
        self._turns = 0
        self._turned = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="keyorder-metrics", daemon=True)
        self._thread.start()

    @property
    def last(self) -> Look:
        """The newest look that succeeded; one at 0 ms before the first."""
        return self._last

    @property
    def failures(self) -> int:
        """How many looks failed."""
        return self._failures

    @property
    def problem(self) -> str:
        """Why the newest look failed; empty when it succeeded."""
        return self._problem

    def wait(self, turns: int, timeout: float) -> int:
        """Wait until more looks than `turns` have ended, well or not, or for `timeout` seconds, or for `close`. How many have."""
        with self._turned:
            self._turned.wait_for(lambda: self._turns > turns or self._stop.is_set(), timeout)
            return self._turns

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._stop.is_set()

    def close(self) -> None:
        """End the thread and release its clients."""
        self._stop.set()
        with self._turned:
            self._turned.notify_all()
        self._thread.join()
        self._overview.close()
        self._offsets.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._last, self._problem = self._look(), ""
            except (KeyorderError, KafkaException) as error:
                self._failed(str(error))
            except Exception as error:  # a mistake of ours: without looks all would go on to look well
                if self._problem != repr(error):
                    _LOG.exception("a look at the cluster failed")
                self._failed(repr(error))
            with self._turned:
                self._turns += 1
                self._turned.notify_all()
            self._stop.wait(self._every)

    def _failed(self, problem: str) -> None:
        self._failures += 1
        self._problem = problem

    def _look(self) -> Look:
        topics = tuple(t for t in self._overview.look() if not self._topics or t.topic in self._topics)
        read = {(t.topic, p) for t in topics for group in t.groups for p in group.committed}
        new = {(t.topic, p) for t in topics for g in t.groups for p in range(t.partitions) if p not in g.committed}
        ends = self._offsets.high_watermarks(read | new) if read | new else {}
        starts = self._offsets.earliest(new) if new else {}
        now = clock.now()
        attempts = [(t.topic, t.change.epoch, t.change.phase.value) for t in topics if t.change is not None]
        closed = [(g.group, t.topic, gate.partition, gate.epoch) for t in topics for g in t.groups for gate in g.closed]
        unreadable = {t: why for t, why in self._overview.unreadable.items() if not self._topics or t in self._topics}
        return Look(
            clock.wall_ms(),
            topics,
            unreadable,
            ends,
            {attempt: self._last.open_since.get(attempt, now) for attempt in attempts},
            {gate: self._last.closed_since.get(gate, now) for gate in closed},
            {t.topic: self._overview.change_status(t.topic) for t in topics if t.change is not None},
            starts,
        )
