"""Emptying retired partitions: ReadOnly, then None, then DeleteRecords exactly to the cut (KIP-694, mapped).

A job per retired partition and epoch, which blocks no change: a growth that uses the partition again calls it off. A
partition is emptied when it may be: deletion is switched on for the topic (or this shrink said `immediate`), the delay is
over, and the groups that the shrink named have processed everything below the cut. Groups that were not named may lose
what they have not read; the plan of a shrink says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ..partitioner.modes import Mode
from ..partitioner.timeline import Drain, Timeline
from . import clock
from .config import boolean, connection_of, milliseconds
from .kafka_errors import translate
from .metadata import is_compacted
from .timeline_edit import edit

ENABLE = "delete.topic.partition.enable"
DELAY = "delete.topic.partition.interval.delay.ms"
DEFAULT_DELAY_MS = 300_000


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What was done, or what is waited for, with one retired partition."""

    topic: str
    partition: int
    done: bool
    what: str


class Drainer:
    """Empties the retired partitions of one cluster's topics. The delay counts from when this process first saw them.

    No clock of another machine is asked, so a controller that restarts waits anew: longer, never shorter.
    """

    def __init__(self, config: Mapping[str, Any], now: Callable[[], float] = clock.now) -> None:
        self._config, self._now = dict(config), now
        self._admin = AdminClient(connection_of(config))
        self._first_seen: dict[tuple[str, int, int], float] = {}

    def turn(self, timeline: Timeline) -> list[DrainStep]:
        """Move each drain of the topic as far as it may go now. Raises Kafka's errors, ChangeOpenError."""
        steps = []
        for drain in timeline.drains:
            if not drain.emptied:
                steps.append(self._advance(timeline, drain))
        return steps

    def _advance(self, timeline: Timeline, drain: Drain) -> DrainStep:
        topic, p = timeline.topic, drain.partition
        if drain.mode is Mode.READ_ONLY:
            waiting = self._waits_for(timeline, drain)
            if waiting:
                return DrainStep(topic, p, False, waiting)
            # First nobody may read any more, then the records go: a reader never sees half of a deletion.
            edit(self._config, topic, lambda t: t.drained(p, Mode.NONE) if _still_retired(t, p, drain.epoch) else t)
        return self._empty(topic, drain)

    def _waits_for(self, timeline: Timeline, drain: Drain) -> str:
        immediate = drain.retirement.immediate
        if not (immediate or boolean(timeline.settings, ENABLE, False)):
            return f"{ENABLE} is false"
        if is_compacted(self._admin, timeline.topic, str(self._config.get("bootstrap.servers"))):
            # Its surviving values are the only copies: readers keep reading them here.
            return "its values to be re-homed: a compacted topic's retired partition is kept"
        key = (timeline.topic, drain.partition, drain.epoch)
        seen = self._first_seen.setdefault(key, self._now())
        delay = 0.0 if immediate else milliseconds(timeline.settings, DELAY, DEFAULT_DELAY_MS)
        left = seen + delay - self._now()
        behind = [g for g in drain.retirement.groups if self._position(g, timeline.topic, drain.partition) < drain.upto]
        mode = drain.mode.next(round((self._now() - seen) * 1000), round(delay * 1000), not behind)
        if mode is Mode.NONE:
            return ""
        return f"group {behind[0]} to reach {drain.upto}" if behind else f"{left:.0f} s of its delay"

    def _position(self, group: str, topic: str, partition: int) -> int:
        client = Consumer({**connection_of(self._config), "group.id": group, "isolation.level": "read_uncommitted"})
        try:
            (found,) = client.committed([TopicPartition(topic, partition)], timeout=10)
            return max(found.offset, 0)
        except KafkaException as raised:
            raise translate(raised.args[0], "read the offsets of", f"group {group}") from raised
        finally:
            client.close()

    def _empty(self, topic: str, drain: Drain) -> DrainStep:
        """Delete exactly what lies below the cut; idempotent. Never to the end: a newer generation may begin there."""
        place = TopicPartition(topic, drain.partition, drain.upto)
        try:
            if drain.upto > 0:
                self._admin.delete_records([place])[place].result(15)
        except KafkaException as raised:
            raise translate(raised.args[0], "delete records of", f"topic {topic}") from raised
        p, epoch = drain.partition, drain.epoch
        edit(
            self._config,
            topic,
            lambda t: t.drained(p, Mode.NONE, emptied=True) if _still_retired(t, p, epoch) else t,
        )
        return DrainStep(topic, drain.partition, True, f"emptied below {drain.upto}")


def _still_retired(timeline: Timeline, partition: int, epoch: int) -> bool:
    """Whether the generation that this job is for is still the retired one."""
    return any(d.partition == partition and d.epoch == epoch for d in timeline.drains)
