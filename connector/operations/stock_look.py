"""Whether producers without keyorder write a topic: what its newest records show, and what comes in while nobody may."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...partitioner.errors import NotAuthorizedError
from ...partitioner.records.control_records import Lease, Ready
from ...partitioner.timeline import Timeline
from ...partitioner.writers.members import Member, WriterSet
from .. import clock
from ..control.control_reader import readable
from ..control.control_topics import all_writer_slots
from ..log_offsets import LogOffsets
from .stray_scan import scan

# Newest records of each partition that are looked at, and the seconds that it may take.
_LOOK, _LOOK_TIMEOUT = 100, 5.0
# How long the ends of a topic without a live OrderedProducer are watched, and how often, in seconds.
_WATCH, _GLANCE = 1.0, 0.1


@dataclass(frozen=True, slots=True)
class StockProducers:
    """What shows that producers without keyorder write a topic.

    records: theirs among the newest of each partition; None where this user may not read them. unaccounted: offsets that came
    in during a second in which no OrderedProducer was live; 0 when one was, since it may have written them.
    """

    records: int | None = 0
    unaccounted: int = 0

    @property
    def seen(self) -> str:
        """In words; empty when nothing shows one."""
        found = [f"{self.records} of the newest records are a stock producer's"] if self.records else []
        if self.unaccounted:
            found.append("records come in while no OrderedProducer writes it")
        return " and ".join(found)


NOBODY_SEEN = StockProducers()


class WriterLook:
    """One look at the leases of a topic's writers."""

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._writers, self._told = WriterSet(), set[tuple[str, int]]()
        for message in readable(config, all_writer_slots(), 20.0):
            record = message.record
            if isinstance(record, Lease | Ready):
                self._writers.apply(record, message.offset, clock.now())
            if isinstance(record, Lease) and topic in record.topics:
                self._told.add((record.nonce, record.sequence))

    @property
    def live(self) -> list[Member]:
        """The OrderedProducers that write it, killed ones until their leases are over."""
        return list(self._writers.live(self._topic))

    def same(self, earlier: WriterLook) -> bool:
        """Whether no OrderedProducer has come, gone or renewed its lease between the two."""
        return self._told <= earlier._told


def look(config: Mapping[str, Any], timeline: Timeline, partitions: int, writers: WriterLook) -> StockProducers:
    """What shows them in `partitions` partitions. writers: a look that was taken before. Raises BrokerUnreachableError."""
    records: int | None
    try:
        records = sum(p.strays + p.foreign for p in scan(config, timeline, partitions, _LOOK, _LOOK_TIMEOUT))
    except NotAuthorizedError:
        records = None
    unaccounted = 0 if writers.live else _came_in(config, timeline.topic, partitions)
    if unaccounted and not WriterLook(config, timeline.topic).same(writers):
        unaccounted = 0  # who came meanwhile may have written them
    return StockProducers(records, unaccounted)


def _came_in(config: Mapping[str, Any], topic: str, partitions: int) -> int:
    """By how much the ends grow: watched until they do, or for `_WATCH` seconds."""
    places = [(topic, p) for p in range(partitions)]
    logs, pause = LogOffsets(config), threading.Event()
    try:
        before, until = sum(logs.high_watermarks(places).values()), clock.now() + _WATCH
        while True:
            last = clock.now() >= until
            grown = sum(logs.high_watermarks(places).values()) - before
            if grown or last:
                return max(grown, 0)
            pause.wait(_GLANCE)
    finally:
        logs.close()
