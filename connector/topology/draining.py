"""Emptying retired partitions: ReadOnly, then None, then DeleteRecords exactly to the cut (KIP-694, mapped).

A job per retired partition and epoch, which blocks no change: a growth that uses the partition again calls it off. A
partition is emptied when it may be: deletion is switched on for the topic, the delay is
over, and the groups that the shrink named have processed everything below the cut, unless an operator forced it. Groups
that were not named may lose what they have not read; the plan of a shrink says so.

On a compacted topic its values are the only ones of their keys: they are re-homed first (`rehoming`), and their tombstones
take the place of DeleteRecords, which the broker refuses there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from ...partitioner.epochs import Drain, DrainState
from ...partitioner.errors import (
    BrokerUnreachableError,
    ConfigError,
    ConsentNeededError,
    KeyorderError,
    NotAuthorizedError,
)
from ...partitioner.modes import DELETE_ENABLE, Mode
from ...partitioner.timeline import Timeline
from .. import clock
from ..control.timeline_edit import ChangeOpenError, edit
from ..group_gates import GroupOffsets
from ..kafka_errors import translate
from ..log_offsets import LogOffsets
from ..metadata import topic_config
from ..refusals import ClusterAdmin
from ..settings import boolean, milliseconds
from .rehoming import Rehomer, RehomingPlan, RehomingTerms

ENABLE = DELETE_ENABLE
DELAY = "delete.topic.partition.interval.delay.ms"
DEFAULT_DELAY_MS = 300_000


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What was done, or what is waited for, with one retired partition. state: how far it is after this step."""

    topic: str
    partition: int
    done: bool
    what: str
    state: DrainState = DrainState.WAITING


def topic_delay_ms(timeline: Timeline) -> int:
    """The topic's own delay, in milliseconds: also how often its retired partitions are looked at."""
    return round(milliseconds(timeline.settings, DELAY, DEFAULT_DELAY_MS) * 1000)


def switched_on(timeline: Timeline) -> bool:
    """Whether retired partitions of the topic may be emptied at all (KIP-694's switch)."""
    return boolean(timeline.settings, ENABLE, False)


def require_switch(timeline: Timeline) -> None:
    """Raises ConfigError where the switch is off: nothing that a shrink asks for goes past it."""
    if not switched_on(timeline):
        raise ConfigError(
            ENABLE,
            f"it is false for {timeline.topic!r}, so a shrink may not ask for retired partitions to be emptied",
            f"switch it on with `keyorder topics alter --topic {timeline.topic} --config {ENABLE}=true`, or leave the wish out",
        )


def never_emptied(timeline: Timeline, drain: Drain, compacted: bool) -> str:
    """What keeps this partition from being emptied however long one waits; empty when nothing does."""
    if not switched_on(timeline):
        return f"{ENABLE} is false"
    if compacted:
        # Its surviving values are the only copies: readers keep reading them here.
        return (
            "its values to be re-homed (keyorder topics drain --rehome): a compacted topic's retired partition is kept"
        )
    return ""


def groups_behind(drain: Drain, committed: Mapping[str, int]) -> list[str]:
    """The named groups that have not processed it to its cut. committed: by group, 0 where nothing is."""
    if drain.retirement.forced:
        return []
    return [group for group in drain.retirement.groups if committed.get(group, 0) < drain.upto]


class Drainer:
    """Empties the retired partitions of one cluster's topics.

    A delay counts from the shrink's commit, by the wall clocks of whoever committed it and of this process, so it goes on
    over a restart. Where these disagree so much that the commit lies ahead, it counts from when this process first saw it.
    """

    def __init__(self, config: Mapping[str, Any], now: Callable[[], float] = clock.now) -> None:
        self._config, self._now = dict(config), now
        self._servers = str(config.get("bootstrap.servers"))
        self._admin = ClusterAdmin(config)
        self._offsets = GroupOffsets(config, self._admin)
        self._first_seen: dict[tuple[str, int, int], float] = {}

    def turn(self, timeline: Timeline, rehoming: RehomingTerms | None = None) -> list[DrainStep]:
        """Move each drain of the topic as far as it may go now. Raises Kafka's errors, ChangeOpenError.

        rehoming: how values of a compacted topic are re-homed; None leaves its retired partitions as they are. Raises
        ConsentNeededError where its policy has `delete` too and the terms do not allow that.
        A deletion that fails is noted in the timeline and tried again at the next turn; it does not keep others waiting.
        """
        gone = self._gone(timeline)
        steps = []
        for drain in timeline.drains:
            if drain.partition in gone:
                self._note(timeline.topic, drain, lambda t, p=drain.partition: t.drained(p, Mode.NONE, emptied=True))  # type: ignore[misc]
                what = f"empty already below {drain.upto}"
                steps.append(DrainStep(timeline.topic, drain.partition, True, what, DrainState.PURGED))
            elif not drain.emptied:
                steps.append(self._advance(timeline, drain, rehoming))
        return steps

    def due_in(self, timeline: Timeline) -> float:
        """Seconds until its retired partitions are to be looked at again: the topic's interval, or a delay that ends sooner."""
        interval = topic_delay_ms(timeline)
        left = [
            drain.retirement.delay(interval) - self._elapsed_ms(timeline, drain)
            for drain in timeline.drains
            if drain.state is DrainState.WAITING
        ]
        return min([interval, *(ms for ms in left if ms > 0)]) / 1000

    def _gone(self, timeline: Timeline) -> frozenset[int]:
        """The retired partitions that retention, or somebody's DeleteRecords, has emptied (KIP-253: start and end meet)."""
        left = [drain for drain in timeline.drains if not drain.emptied]
        try:
            if not left or "compact" in self._policy(timeline.topic):
                return frozenset()
        except NotAuthorizedError:
            return frozenset()  # who may not know the policy may not tell whether values are gone
        with closing(LogOffsets(self._config)) as offsets:
            starts = offsets.earliest([(timeline.topic, drain.partition) for drain in left])
        return frozenset(drain.partition for drain in left if starts[timeline.topic, drain.partition] >= drain.upto)

    def _elapsed_ms(self, timeline: Timeline, drain: Drain) -> int:
        seen = self._first_seen.setdefault((timeline.topic, drain.partition, drain.epoch), self._now())
        retired_at = next((e.committed_at_ms for e in timeline.epochs if e.number == drain.epoch), 0)
        by_wall = clock.wall_ms() - retired_at if retired_at else 0
        return max(by_wall, round((self._now() - seen) * 1000))

    def plans(self, timeline: Timeline) -> list[RehomingPlan]:
        """What the topic's retired partitions hold that would be re-homed. Changes nothing. Raises Kafka's errors."""
        if "compact" not in self._policy(timeline.topic):
            return []
        plans = []
        for drain in timeline.drains:
            if not drain.emptied:
                with closing(Rehomer(self._config, timeline, drain)) as rehomer:
                    plans.append(rehomer.plan())
        return plans

    def _advance(self, timeline: Timeline, drain: Drain, rehoming: RehomingTerms | None) -> DrainStep:
        topic, p, epoch = timeline.topic, drain.partition, drain.epoch
        if drain.mode is Mode.READ_ONLY:
            waiting = never_emptied(timeline, drain, False)
            policy = frozenset() if waiting else self._policy(topic)
            waiting = waiting or self._waits_for(timeline, drain, "compact" in policy and rehoming is None)
            if waiting:
                return DrainStep(topic, p, False, waiting)
            if "compact" in policy and rehoming is not None:
                return self._rehome(timeline, drain, policy, rehoming)
            # First nobody may read any more, then the records go: a reader never sees half of a deletion.
            self._note(topic, drain, lambda t: t.drained(p, Mode.NONE))
        try:
            self._empty(topic, drain)
        except KeyorderError as error:
            what = str(error)
            self._note(topic, drain, lambda t: t.purge_failed(p, what))
            return DrainStep(topic, p, False, f"another try: {what}", DrainState.PURGE_FAILED)
        self._note(topic, drain, lambda t: t.drained(p, Mode.NONE, emptied=True))
        self._first_seen.pop((topic, p, epoch), None)
        return DrainStep(topic, p, True, f"emptied below {drain.upto}", DrainState.PURGED)

    def _waits_for(self, timeline: Timeline, drain: Drain, kept: bool) -> str:
        never = never_emptied(timeline, drain, kept)
        if never:
            return never
        delay_ms = drain.retirement.delay(topic_delay_ms(timeline))
        elapsed_ms = self._elapsed_ms(timeline, drain)
        commits = self._offsets.committed(drain.retirement.groups, timeline.topic)
        positions = {g: found[drain.partition].offset for g, found in commits.items() if drain.partition in found}
        behind = groups_behind(drain, positions)
        if drain.mode.next(elapsed_ms, delay_ms, not behind) is Mode.NONE:
            return ""
        left = f"{(delay_ms - elapsed_ms) / 1000:.0f} s of its delay"
        return f"group {behind[0]} to reach {drain.upto}" if behind else left

    def _policy(self, topic: str) -> frozenset[str]:
        """The topic's `cleanup.policy`. Who may not know it may not empty anything: values could be the only ones."""
        config = topic_config(self._admin, topic, self._servers)
        return frozenset(word.strip() for word in config["cleanup.policy"].split(","))

    def _rehome(self, timeline: Timeline, drain: Drain, policy: frozenset[str], terms: RehomingTerms) -> DrainStep:
        topic, p, epoch = timeline.topic, drain.partition, drain.epoch
        if "delete" in policy and not terms.allow_delete_policy:
            raise ConsentNeededError(topic)
        if timeline.change is not None and timeline.change.slice is None:
            raise ChangeOpenError(topic, timeline.change)  # before its controller is fenced
        with closing(Rehomer(self._config, timeline, drain)) as rehomer:
            done = rehomer.run(terms)
        if done.called_off:
            return DrainStep(topic, p, True, "in use again: its values stay")
        if done.left:
            return DrainStep(topic, p, False, f"open transactions, in which {done.left} of its keys were written")
        edit(self._config, topic, lambda t: t.cleared(p, epoch))
        self._first_seen.pop((topic, p, epoch), None)
        foreign = f"; {done.foreign} records of keys that never lived here stay" if done.foreign else ""
        what = f"{done.copied} values re-homed, {done.cleared} keys cleared{foreign}"
        return DrainStep(topic, p, True, what, DrainState.PURGED)

    def _empty(self, topic: str, drain: Drain) -> None:
        """Delete exactly what lies below the cut; idempotent. Never to the end: a newer generation may begin there."""
        place = TopicPartition(topic, drain.partition, drain.upto)
        if drain.upto == 0:
            return
        try:
            self._admin.delete_records([place])[place].result(15)
        except KafkaException as raised:
            raise translate(raised.args[0], "delete records of", f"topic {topic}", self._servers) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(self._servers, f"delete records of topic {topic}") from raised

    def _note(self, topic: str, drain: Drain, change: Callable[[Timeline], Timeline]) -> None:
        """Write down how far it is, unless the partition has come into use again meanwhile."""
        p, epoch = drain.partition, drain.epoch
        edit(self._config, topic, lambda t: t if t.drain_of(p, epoch) is None else change(t))
