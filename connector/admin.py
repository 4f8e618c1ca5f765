"""TopicAdmin: topics under management, and their changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import uniform
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not re-exported

from ..partitioner.change import ChangeTerms
from ..partitioner.errors import (
    BrokerUnreachableError,
    ConfigError,
    ControllerFencedError,
    CountError,
    KafkaOperationError,
    LayoutError,
    UnmanagedTopicError,
)
from ..partitioner.layout import Layout, same_routing
from ..partitioner.members import WriterSet
from ..partitioner.records import Lease, Ready, timeline_key
from ..partitioner.timeline import DEFAULT_VIEW_AGE_S, Drain, Epoch, OpenChange, Retirement, Timeline
from . import clock
from .compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, blank_header, chosen_strategy
from .config import boolean, connection_of, milliseconds, split
from .control_reader import ControlMessage, ControlReader, readable
from .control_topics import Slot, all_writer_slots, ensure, existing, timeline_slot
from .controller import Change, Progress, TopologyController
from .draining import DEFAULT_DELAY_MS, DELAY, ENABLE, Drainer, DrainStep
from .kafka_errors import translate
from .metadata import identify, patiently, wait_for_partitions
from .rehoming import RehomingPlan, RehomingTerms
from .timeline_writer import TimelineWriter, UnknownResultError

VIEW_AGE = "keyorder.view.age.ms"
_LOGGER = logging.getLogger("keyorder.admin")


@dataclass(frozen=True, slots=True)
class WriterDescription:
    """A live writer: its id, its incarnation, the topics that it writes."""

    writer: str
    incarnation: int
    topics: tuple[str, ...]
    transactional: bool


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What is known of a managed topic.

    layout: initial and active count. partitions: how many exist physically, retired ones included.
    epochs: every committed layout with its cuts. change: the open attempt, if there is one.
    retired: the partitions that are no longer written, with their mode and whether they were emptied.
    """

    topic: str
    topic_id: str
    layout: Layout
    partitions: int
    ordered: bool
    epochs: tuple[Epoch, ...]
    change: OpenChange | None
    settings: Mapping[str, str] = field(default_factory=dict)
    writers: tuple[WriterDescription, ...] = ()
    retired: tuple[Drain, ...] = ()


class TopicAdmin:
    """Creates, adopts, describes and resizes topics.

    config: one dict of dotted names, as for confluent-kafka's AdminClient; `bootstrap.servers` is required.
    progress: called with the name of each step of a change.

    Raises ConfigError for a missing or unknown setting.
    """

    def __init__(self, config: Mapping[str, Any], progress: Progress | None = None) -> None:
        _, theirs = split(config, {}, "a TopicAdmin")
        self._config = theirs
        self._bootstrap = str(theirs.get("bootstrap.servers"))
        self._admin = AdminClient(connection_of(theirs))
        self._progress = progress

    def __enter__(self) -> TopicAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is kept open between calls; here so that it can be used like any client."""

    def create(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        initial_partition_count: int | None = None,
        timeout: float = 30.0,
    ) -> TopicDescription:
        """Create a topic and bring it under management at once.

        replication_factor: the cluster's default when None. config: the topic's; `enable.ordered.delivery`,
        `keyorder.view.age.ms` (the longest that a reader may go without a look at the control topic),
        `compaction.strategy` and `compaction.strategy.header` are kept in the control topic, the rest goes to Kafka.
        initial_partition_count: the lowest count it may ever have; `partitions` when None.

        Raises LayoutError, ConfigError, NotAuthorizedError, BrokerUnreachableError, KafkaOperationError (it exists).
        """
        initial = partitions if initial_partition_count is None else initial_partition_count
        layout = Layout(initial, partitions)
        ours, theirs = split_topic_config(config or {})
        ensure(self._admin, self._bootstrap, timeout)
        wanted = NewTopic(topic, partitions, replication_factor if replication_factor else -1, config=theirs)
        try:
            self._admin.create_topics([wanted], operation_timeout=timeout)[topic].result(timeout)
        except KafkaException as raised:
            raise translate(raised.args[0], "create", f"topic {topic}", self._bootstrap) from raised
        except TimeoutError as raised:
            raise BrokerUnreachableError(self._bootstrap, f"create topic {topic}") from raised
        wait_for_partitions(self._admin, topic, partitions, self._bootstrap, timeout)
        # Just made: a timeline under its name can only be that of a topic that was deleted.
        self._adopt(topic, layout, ours, timeout, again=True)
        return self.describe(topic)

    def adopt(
        self,
        topic: str,
        timeout: float = 30.0,
        again: bool = False,
        initial_partition_count: int | None = None,
    ) -> TopicDescription:
        """Bring an existing topic under management at its present count. Does nothing when it is already.

        initial_partition_count: a lower one than the present count, where it places every key alike: 12 partitions may
        be taken as 12, 6 or 3, and may later shrink that far. The present count when None.
        again: the topic was deleted and created anew; its old timeline is replaced by a new one.
        Raises LayoutError for an initial count that would move keys, IdentityMismatchError when it was and `again` is
        not given, TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
        """
        count = identify(self._admin, topic, self._bootstrap, timeout).partitions
        layout = None if initial_partition_count is None else same_routing(initial_partition_count, count)
        ensure(self._admin, self._bootstrap, timeout)
        self._adopt(topic, layout, {}, timeout, again)
        return self.describe(topic)

    def expand(self, topic: str, count: int, timeout: float = 120.0) -> Change:
        """Grow to `count` partitions. The same call again resumes a killed change.

        timeout: seconds until it is given up, with the layout as it was. Raises CountError for a count below the
        present one, UnmanagedTopicError, WriterLateError, TruncationError, ControllerFencedError and Kafka's own.
        """
        timeline = self.timeline(topic)
        if count < timeline.newest.count:
            raise CountError(topic, timeline.newest.count, count, "expand only grows, use shrink for a lower count")
        return TopologyController(self._config, topic, self._progress).change(count, ChangeTerms(timeout=timeout))

    def shrink(
        self,
        topic: str,
        count: int,
        immediate: bool = False,
        wait_for_groups: Sequence[str] = (),
        timeout: float = 120.0,
    ) -> Change:
        """Go down to `count` partitions, not below the initial count. The same call again resumes a killed change.

        The partitions from `count` on are retired: nobody writes them any more, groups read them to their ends, and a
        controller empties them after `delete.topic.partition.interval.delay.ms` and when `wait_for_groups` have
        processed them. A stock cluster cannot remove them; a later growth uses them again.
        immediate: no delay (groups are waited for all the same).

        Raises as `expand`; CountError for a count above the present one or below the initial one.
        """
        timeline = self.timeline(topic)
        if count > timeline.newest.count:
            raise CountError(topic, timeline.newest.count, count, "shrink only retires, use expand for a higher count")
        retirement = Retirement(immediate, tuple(wait_for_groups))
        controller = TopologyController(self._config, topic, self._progress)
        return controller.change(count, ChangeTerms(timeout=timeout), retirement)

    def delete_partitions(self, topic: str, total_count: int, immediate: bool = False) -> Change:
        """KIP-694's deletePartitions: `shrink`, by the KIP's name. Raises as `shrink`."""
        return self.shrink(topic, total_count, immediate=immediate)

    def drain(
        self, topic: str, drainer: Drainer | None = None, rehoming: RehomingTerms | None = None
    ) -> list[DrainStep]:
        """Empty what may be emptied of the topic's retired partitions now, and say what the others wait for.

        drainer: keeps how long each has been retired, over several calls; a new one counts from this call.
        rehoming: lets the surviving values of a compacted topic go to their keys' present homes; without it its retired
        partitions are kept. The same call again resumes one that was killed. Raises as `expand`, and ScanOutdatedError.
        """
        return (drainer or Drainer(self._config)).turn(self.timeline(topic), rehoming)

    def rehoming_plans(self, topic: str) -> list[RehomingPlan]:
        """What re-homing would do to each retired partition of a compacted topic; reads their logs, changes nothing."""
        return Drainer(self._config).plans(self.timeline(topic))

    def timeline(self, topic: str) -> Timeline:
        """The topic's timeline as it is now.

        Raises UnmanagedTopicError, TopicNotFoundError, IdentityMismatchError (deleted and created again).
        """
        identity = identify(self._admin, topic, self._bootstrap)
        timeline = self.managed(topic)
        if timeline is None:
            raise UnmanagedTopicError(topic)
        timeline.check_identity(identity.topic_id, identity.cluster_id)
        return timeline

    def managed(self, topic: str) -> Timeline | None:
        """The topic's timeline, or None when it has none."""
        if not existing(self._admin, self._bootstrap):
            return None
        newest: Timeline | None = None
        for message in self._read([timeline_slot(topic)]):
            if isinstance(message.record, Timeline) and message.record.topic == topic:
                newest = message.record
        return newest

    def topics(self) -> dict[str, Timeline]:
        """Every managed topic by name."""
        if not existing(self._admin, self._bootstrap):
            return {}
        slots = [(timeline_slot("")[0], p) for p in range(len(all_writer_slots()))]
        records = (message.record for message in self._read(slots))
        return {r.topic: r for r in records if isinstance(r, Timeline)}

    def describe(self, topic: str) -> TopicDescription:
        """The topic as it is now. Raises as `timeline`."""
        timeline = self.timeline(topic)
        identity = identify(self._admin, topic, self._bootstrap)
        return TopicDescription(
            topic=topic,
            topic_id=timeline.topic_id,
            layout=timeline.layout,
            partitions=identity.partitions,
            ordered=timeline.ordered,
            epochs=timeline.epochs,
            change=timeline.change,
            settings=dict(timeline.settings),
            writers=tuple(self._writers(topic)),
            retired=timeline.drains,
        )

    def _read(self, slots: list[Slot]) -> list[ControlMessage]:
        return patiently(lambda: readable(self._config, slots, 10.0), 20.0)

    def _writers(self, topic: str) -> list[WriterDescription]:
        members = WriterSet()
        for message in self._read(all_writer_slots()):
            if isinstance(message.record, Lease | Ready):
                members.apply(message.record, message.offset, clock.now())
        return [
            WriterDescription(
                m.lease.writer, m.incarnation, m.lease.topics, transactional=m.lease.transactional_id is not None
            )
            for m in members.live(topic)
        ]

    def _adopt(
        self, topic: str, layout: Layout | None, settings: Mapping[str, str], timeout: float, again: bool
    ) -> None:
        deadline = clock.now() + timeout
        while True:
            writer = TimelineWriter(self._config, topic, timeout)
            reader = ControlReader(self._config, fetch_wait_ms=50)
            try:
                if self._adopt_once(topic, layout, settings, writer, reader, deadline, again):
                    return
            except (UnknownResultError, BrokerUnreachableError, KafkaOperationError, ControllerFencedError) as error:
                if not error.retriable or clock.now() >= deadline:
                    raise
                # Adopters that fence each other take turns: whoever comes second reads the first's timeline.
                time.sleep(uniform(0.05, 0.5))
            finally:
                writer.close()
                reader.close()

    def _adopt_once(
        self,
        topic: str,
        layout: Layout | None,
        settings: Mapping[str, str],
        writer: TimelineWriter,
        reader: ControlReader,
        deadline: float,
        again: bool,
    ) -> bool:
        """One try under the topic's transactional id. Two adopters agree: the second reads the first's timeline."""
        writer.start()
        reader.add([timeline_slot(topic)])
        identity = identify(self._admin, topic, self._bootstrap)
        found = [m.record for m in reader.read_to_end() if m.key == timeline_key(topic)]
        if found and isinstance(found[-1], Timeline):
            stale = found[-1].topic_id != identity.topic_id and again
            if not stale:
                found[-1].check_identity(identity.topic_id, identity.cluster_id)
                return True
        layout = layout or Layout(identity.partitions, identity.partitions)
        ordered = settings.get("enable.ordered.delivery", "true").lower() != "false"
        view_age = milliseconds(settings, VIEW_AGE, round(DEFAULT_VIEW_AGE_S * 1000))
        timeline = Timeline(
            topic=topic,
            topic_id=identity.topic_id,
            cluster_id=identity.cluster_id,
            initial=layout.initial,
            epochs=(Epoch(0, layout.count, committed_at_ms=clock.wall_ms()),),
            ordered=ordered,
            view_age_s=view_age,
            settings={k: v for k, v in settings.items() if k not in ("enable.ordered.delivery", VIEW_AGE)},
        )
        writer.write(timeline, "adopt")
        # A transaction is decided before its markers are written: "committed" is not "visible" yet.
        reader.await_message(lambda message: message.key == timeline_key(topic), deadline - clock.now())
        physical = identify(self._admin, topic, self._bootstrap).partitions
        if physical != layout.count:
            raise LayoutError(
                f"topic {topic!r} went from {layout.count} to {physical} partitions while it was adopted: "
                f"run `keyorder topics expand --topic {topic} --partitions {physical}` to make the new ones part of it"
            )
        return True


_OUR_TOPIC_SETTINGS = (
    ENABLE,
    DELAY,
    "enable.ordered.delivery",
    VIEW_AGE,
    STRATEGY_CONFIG,
    HEADER_CONFIG,
)


def split_topic_config(config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(what the control topic keeps, what Kafka keeps) of a topic's settings. Raises ConfigError for ours that make no sense."""
    ours = {k: str(v) for k, v in config.items() if k in _OUR_TOPIC_SETTINGS}
    theirs = {k: str(v) for k, v in config.items() if k not in _OUR_TOPIC_SETTINGS}
    ordered = ours.get("enable.ordered.delivery", "true").lower()
    if ordered not in ("true", "false"):
        raise ConfigError("enable.ordered.delivery", f"{ordered!r} is neither true nor false", "write true or false")
    boolean(ours, ENABLE, False)
    milliseconds(ours, DELAY, DEFAULT_DELAY_MS)
    milliseconds(ours, VIEW_AGE, round(DEFAULT_VIEW_AGE_S * 1000))
    chosen_strategy(ours)
    if blank_header(ours):
        _LOGGER.warning("%s=header without %s acts as offset: name the header", STRATEGY_CONFIG, HEADER_CONFIG)
    return ours, theirs
