"""TopicAdmin: topics under management, and their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from dataclasses import replace
from types import TracebackType
from typing import Any, overload

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not re-exported

from ..partitioner.adoption import KeySample
from ..partitioner.changes.terms import ChangeTerms
from ..partitioner.epochs import Retirement
from ..partitioner.errors import (
    BrokerUnreachableError,
    ConfigError,
    CountError,
    KeyorderError,
    NotAuthorizedError,
    OrderError,
    ReleasedTopicError,
    UnmanagedTopicError,
)
from ..partitioner.hashing import DEFAULT_HASH
from ..partitioner.layout import Layout, same_routing
from ..partitioner.timeline import Timeline
from . import clock
from .config import JUST_MADE, split
from .control.control_topics import ensure, existing
from .control.rights import require_controller, require_new
from .control.timeline_edit import ChangeOpenError, edit
from .group_gates import GroupOffsets
from .kafka_errors import translate
from .metadata import identify, is_compacted, once_known, wait_for_partitions, wait_until_gone
from .operations import notices
from .operations.aborting import Abort, abort
from .operations.adopting import Adoption, look
from .operations.change_status import ChangeStatus, DrainStatus, change_status, drain_status
from .operations.control_state import ControlState
from .operations.description import TopicDescription, described
from .operations.forecast import ChangeForecast, ForcedDrain
from .operations.lookup import timeline_now, timelines_now
from .operations.notices import Notice
from .operations.outcomes import DeletePartitions, DeletePartitionsResult, outcomes, refused
from .operations.planning import Planner
from .operations.releasing import Release, Releasing
from .operations.stray_scan import scan
from .operations.topic_settings import altered, settings_of_existing, split_topic_config
from .refusals import ClusterAdmin
from .topology.controller import TopologyController
from .topology.draining import Drainer, DrainStep, require_switch
from .topology.rehoming import RehomingPlan, RehomingTerms
from .topology.results import Change, Progress

_SCAN_TIMEOUT = 10.0


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
        self._admin = ClusterAdmin(theirs)
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
        hash: str = DEFAULT_HASH,
    ) -> TopicDescription:
        """Create a topic and bring it under management at once.

        replication_factor: the cluster's default when None. config: the topic's; `enable.ordered.delivery`,
        `keyorder.view.age.ms` (the longest that a reader may go without a look at the control topic),
        `compaction.strategy` and `compaction.strategy.header` are kept in the control topic, the rest goes to Kafka.
        initial_partition_count: the lowest count it may ever have; `partitions` when None.
        hash: by which its keys are placed, `murmur2`, `crc32` or `fnv1a`: that of the stock producers that write it too.

        Raises LayoutError, ConfigError, NotAuthorizedError, BrokerUnreachableError, KafkaOperationError (it exists).
        """
        initial = partitions if initial_partition_count is None else initial_partition_count
        layout = Layout(initial, partitions, hash)
        ours, theirs = split_topic_config(config or {})
        ensure(self._admin, self._bootstrap, timeout)
        require_controller(self._admin, self._bootstrap)
        require_new(self._admin, self._bootstrap, topic)
        wanted = NewTopic(topic, partitions, replication_factor if replication_factor else -1, config=theirs)
        try:
            self._admin.create_topics([wanted], operation_timeout=timeout)[topic].result(timeout)
        except KafkaException as raised:
            raise translate(raised.args[0], "create", f"topic {topic}", self._bootstrap) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(self._bootstrap, f"create topic {topic}") from raised
        wait_for_partitions(self._admin, topic, partitions, self._bootstrap, timeout)
        # Just made: a timeline under its name can only be that of a topic that was deleted.
        Adoption(self._config, self._admin, topic, layout, ours, again=True, hash=hash, new=True).run(timeout)
        return self._describe_new(topic, timeout)

    def delete(self, topic: str, timeout: float = 30.0) -> None:
        """Delete a topic and its records, and wait until the cluster no longer shows it.

        Its timeline stays in the control topic under the old topic id, where nobody takes it for a later topic's.
        Raises TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError, KafkaOperationError.
        """
        deadline = clock.now() + timeout
        try:
            self._admin.delete_topics([topic], request_timeout=timeout)[topic].result(timeout + 1)
        except KafkaException as raised:
            raise translate(raised.args[0], "delete", f"topic {topic}", self._bootstrap) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(self._bootstrap, f"delete topic {topic}") from raised
        wait_until_gone(self._admin, topic, self._bootstrap, max(0.0, deadline - clock.now()))

    def adopt(
        self,
        topic: str,
        timeout: float = 30.0,
        again: bool = False,
        initial_partition_count: int | None = None,
        hash: str | None = None,
        accept_misplaced: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Bring an existing topic under management at its present count. Does nothing when it is already.

        Some of its newest and oldest records are read first: it is adopted under the hash that explains all of them, the
        default where several do or none is there. The description's `sample` says what they showed.

        initial_partition_count: a lower one than the present count, where it places every key alike: 12 partitions may
        be taken as 12, 6 or 3, and may later shrink that far. The present count when None.
        again: the topic was deleted and created anew; its old timeline is replaced by a new one.
        hash: adopt it under this one alone. accept_misplaced: also where records lie elsewhere, under the hash that explains
        most; keys of such records may be read out of order. The topic's settings keep when, by whom, and the shares.

        config: settings that the control topic keeps, as for `create`; a topic that is managed already has to have them.

        Raises ConfigError for other settings (see `alter`), MisplacedKeysError where no hash explains the records,
        OrphanedTopicError where they are an OrderedProducer's, LayoutError for an initial count that would move keys or
        another hash than the topic has, IdentityMismatchError when it was made anew and `again` is not given,
        TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
        """
        count = identify(self._admin, topic, self._bootstrap, timeout, just_made=min(timeout, JUST_MADE)).partitions
        ours = settings_of_existing(config or {})
        layout = None if initial_partition_count is None else same_routing(initial_partition_count, count)
        ensure(self._admin, self._bootstrap, timeout)
        require_controller(self._admin, self._bootstrap)
        adoption = Adoption(
            self._config, self._admin, topic, layout, ours, again=again, hash=hash, accept_misplaced=accept_misplaced
        )
        adoption.run(timeout)
        found = self._describe_new(topic, timeout)
        timeline = self.timeline(topic)
        if altered(timeline, ours) != timeline:
            raise ConfigError("config", f"topic {topic!r} is managed already, with other settings", "use `alter`")
        return replace(found, sample=adoption.sample)

    def alter(self, topic: str, config: Mapping[str, str]) -> TopicDescription:
        """Change settings that the control topic keeps; those that are not named stay. Clients go by them at once.

        config: `enable.ordered.delivery`, `keyorder.view.age.ms` (which can only be raised), `delete.topic.partition.enable`,
        `delete.topic.partition.interval.delay.ms`.
        Raises ConfigError for others, ChangeOpenError while the layout is being changed, and as `timeline`.
        """
        ours = settings_of_existing(config)
        altered(self._under_management(topic), ours)  # refused before anybody is fenced
        require_controller(self._admin, self._bootstrap)
        edit(self._config, topic, lambda timeline: altered(timeline, ours))
        return self.describe(topic, groups=())

    def release(self, topic: str, dry_run: bool = False, timeout: float = 60.0) -> Release:
        """Give the topic back to stock clients, where they keep its keys in order; `adopt` takes it back.

        It has to be at a count at which stock producers of its hash place keys as keyorder does, with no open change, no
        live OrderedProducer, and no group before a closed gate. Its timeline stays, for ordered readers of older records.
        Afterwards an OrderedProducer, `expand`, `shrink`, `drain` and `alter` refuse the topic, and no controller looks
        after it. dry_run: change nothing, and answer with all obstacles. timeout: seconds for the leases of killed writers.

        Raises NotReleasableError with all obstacles, NotAuthorizedError, ControllerFencedError, and as `timeline`.
        """
        timeline = self.timeline(topic)
        if not dry_run:
            require_controller(self._admin, self._bootstrap)
        return Releasing(self._config, self._admin, timeline).run(dry_run, timeout)

    def sample(self, topic: str, timeout: float = 20.0) -> KeySample:
        """What the newest and oldest records of a topic show of its hash, as `adopt` would look at them; changes nothing.

        Raises TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
        """
        return look(self._config, topic, identify(self._admin, topic, self._bootstrap).partitions, timeout)

    def plan(
        self,
        topic: str,
        count: int,
        groups: Sequence[str] | None = None,
        wait_for_groups: Sequence[str] = (),
        immediate: bool = False,
        delay_ms: int | None = None,
        sample_s: float = 0.0,
        force: bool = False,
    ) -> ChangeForecast:
        """What going to `count` partitions would do; changes nothing.

        groups: whose backlog to tell, all that have committed offsets of the topic when None. sample_s: look twice, so
        many seconds apart, for the pace of groups and producers. The others are those of `shrink`.

        Raises LayoutError below the initial count, and as `timeline`.
        """
        retirement = Retirement(immediate, tuple(wait_for_groups), delay_ms, force)
        return Planner(self._config, self._admin).plan(self.timeline(topic), count, groups, retirement, sample_s)

    def expand(self, topic: str, count: int, timeout: float = 120.0) -> Change:
        """Grow to `count` partitions. The same call again resumes a killed change.

        It does not look whether producers without keyorder write the topic, which would break the order of keys that move:
        `plan` does, in `stock` and `warnings`.
        timeout: seconds until it is given up. Raises CountError for a count below the present one, ChangeOpenError while
        the topic goes to another count, UnmanagedTopicError, WriterLateError (writers were late, the layout is as it was;
        ChangeLateError: something else was), TruncationError, ControllerFencedError and Kafka's own.
        """
        timeline = self._under_management(topic)
        if count < timeline.newest.count:
            raise CountError(topic, timeline.newest.count, count, "expand only grows, use shrink for a lower count")
        return self._change(timeline, count, None, notices.of_change(timeline, count), timeout)

    def shrink(
        self,
        topic: str,
        count: int,
        immediate: bool = False,
        wait_for_groups: Sequence[str] = (),
        timeout: float = 120.0,
        delay_ms: int | None = None,
        force: bool = False,
    ) -> Change:
        """Go down to `count` partitions, not below the initial count. The same call again resumes a killed change.

        The partitions from `count` on are retired: nobody writes them any more, groups read them to their ends, and a
        controller empties them after the delay and when `wait_for_groups` have processed them. A stock cluster cannot
        remove them; a later growth uses them again.
        immediate: no delay (groups are waited for all the same). delay_ms: the delay of this shrink instead of the
        topic's `delete.topic.partition.interval.delay.ms`, 0 for none. force: no group is waited for; `forced_drain` says
        what that would lose. With one of these three a topic that has `count` partitions already keeps its layout, and
        what it retired and has not emptied yet is emptied by the new wishes. `delete.topic.partition.enable` guards them: where
        it is false they are refused.

        Raises as `expand`; ConfigError where the switch is off; CountError for a count above the present one or below the
        initial one.
        """
        timeline = self._under_management(topic)
        newest = timeline.newest
        if count > newest.count:
            raise CountError(topic, newest.count, count, "shrink only retires, use expand for a higher count")
        if count < timeline.initial:
            raise CountError(topic, newest.count, count, f"it cannot go below its initial {timeline.initial}")
        if delay_ms is not None and delay_ms < 0:
            raise ConfigError("delay_ms", f"{delay_ms} is negative", "give milliseconds, 0 for no delay")
        retirement = Retirement(immediate, tuple(wait_for_groups), delay_ms, force)
        if retirement.asked_for:
            require_switch(timeline)
        warnings = notices.of_change(timeline, count)
        warnings += notices.of_shrink(timeline, retirement, self._compacted(topic))
        if count == newest.count and timeline.change is None:
            changed = timeline
            if retirement.asked_for:
                changed = edit(self._config, topic, lambda t: t.retired_by(retirement))
            return Change(topic, newest.count, count, changed.newest.number, False, 0, warnings=tuple(warnings))
        return self._change(timeline, count, retirement, warnings, timeout)

    def forced_drain(self, topic: str, count: int, groups: Sequence[str] | None = None) -> ForcedDrain:
        """What a shrink to `count` with `force` would lose if it were emptied now, by group; changes nothing.

        Also counts partitions that earlier shrinks have retired and that are not emptied yet. Raises as `timeline`.
        """
        return Planner(self._config, self._admin).forced_drain(self.timeline(topic), count, groups)

    @overload
    def delete_partitions(
        self,
        topic: str,
        total_count: int,
        immediate: bool = False,
        delay_ms: int | None = None,
        wait_for_groups: Sequence[str] = (),
        timeout: float = 120.0,
    ) -> DeletePartitionsResult: ...

    @overload
    def delete_partitions(
        self, topic: Mapping[str, DeletePartitions], *, timeout: float = 120.0
    ) -> dict[str, DeletePartitionsResult]: ...

    def delete_partitions(
        self,
        topic: str | Mapping[str, DeletePartitions],
        total_count: int = 0,
        immediate: bool = False,
        delay_ms: int | None = None,
        wait_for_groups: Sequence[str] = (),
        timeout: float = 120.0,
    ) -> DeletePartitionsResult | dict[str, DeletePartitionsResult]:
        """KIP-694's deletePartitions: `shrink`, then empty what may be emptied now, with an outcome per partition.

        topic: one, or {topic: DeletePartitions} for several, one after another; then one that could not be shrunk does
        not raise: its answer has the error, and the others are shrunk all the same.
        A partition that could not be emptied does not raise: its outcome says why, and a controller tries it again.
        Raises as `shrink` where the one topic could not be shrunk.
        """
        if not isinstance(topic, str):
            answers: dict[str, DeletePartitionsResult] = {}
            for name, wish in topic.items():
                try:
                    answers[name] = self.delete_partitions(
                        name, wish.total_count, wish.immediate_delete, timeout=timeout
                    )
                except KeyorderError as error:
                    answers[name] = refused(name, error)
            return answers
        change = self.shrink(topic, total_count, immediate, wait_for_groups, timeout, delay_ms)
        steps = self.drain(topic)
        return DeletePartitionsResult(topic, change, outcomes(self.timeline(topic), steps))

    def drain(
        self, topic: str, drainer: Drainer | None = None, rehoming: RehomingTerms | None = None
    ) -> list[DrainStep]:
        """Empty what may be emptied of the topic's retired partitions now, and say what the others wait for.

        drainer: keeps how long each has been retired, over several calls; a new one counts from this call.
        rehoming: lets the surviving values of a compacted topic go to their keys' present homes; without it its retired
        partitions are kept. The same call again resumes one that was killed. Raises as `expand`, and ScanOutdatedError.
        """
        return (drainer or Drainer(self._config)).turn(self._under_management(topic), rehoming)

    def rehoming_plans(self, topic: str) -> list[RehomingPlan]:
        """What re-homing would do to each retired partition of a compacted topic; reads their logs, changes nothing."""
        return Drainer(self._config).plans(self.timeline(topic))

    def change_status(self, topic: str) -> ChangeStatus:
        """The topic's open change, who keeps it waiting, and the drains under way. Raises as `timeline`."""
        timeline = self.timeline(topic)
        state = ControlState(self._config, self._admin)
        try:
            state.refresh()
        finally:
            state.close()
        timeline = state.timelines.get(topic, timeline)
        return change_status(timeline, state, self._drains(timeline), clock.wall_ms())

    def abort(self, topic: str, timeout: float = 60.0) -> Abort:
        """Give the topic's open change up, whoever works on it; with nothing to abort it says so. Raises as `expand`."""
        self.timeline(topic)
        return abort(self._config, topic, timeout)

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

    def _under_management(self, topic: str) -> Timeline:
        """Its timeline, to be changed. Raises as `timeline`, and ReleasedTopicError."""
        timeline = self.timeline(topic)
        if timeline.released is not None:
            raise ReleasedTopicError(topic, timeline.released)
        return timeline

    def managed(self, topic: str) -> Timeline | None:
        """The topic's timeline, or None when it has none."""
        if not existing(self._admin, self._bootstrap):
            return None
        return timeline_now(self._config, topic)

    def topics(self, unreadable: dict[str, OrderError] | None = None) -> dict[str, Timeline]:
        """Every managed topic by name.

        unreadable: gets the errors of topics whose timeline cannot be read; without it one of them is raised:
        CorruptRecordError, RecordVersionError.
        """
        if not existing(self._admin, self._bootstrap):
            return {}
        found = timelines_now(self._config)
        if unreadable is not None:
            unreadable.update(found.unreadable)
        elif found.unreadable:
            raise found.unreadable[min(found.unreadable)]
        return found.by_topic

    def describe(self, topic: str, groups: Sequence[str] | None = None, records: int = 0) -> TopicDescription:
        """The topic as it is now. groups: whose gates to tell, all that have commits on it when None.

        records: how many of each partition's newest ones are looked at for strays and foreign writers, within 10 s; who
        may not read them is told so in `strays_problem`. Raises as `timeline`.
        """
        timeline = self.timeline(topic)
        identity = identify(self._admin, topic, self._bootstrap)
        offsets = GroupOffsets(self._config, self._admin)
        committed = offsets.of_topic(topic) if groups is None else offsets.committed(groups, topic)
        state = ControlState(self._config, self._admin)
        try:
            state.refresh()
        finally:
            state.close()
        found = described(state.timelines.get(topic, timeline), identity.partitions, state, committed)
        if not records:
            return found
        newest = state.timelines.get(topic, timeline)
        try:
            return replace(found, strays=tuple(scan(self._config, newest, found.partitions, records, _SCAN_TIMEOUT)))
        except NotAuthorizedError as error:
            return replace(found, strays_problem=str(error))

    def _describe_new(self, topic: str, timeout: float) -> TopicDescription:
        """`describe` of a topic that was just made, or deleted and made again: a broker hears of that late."""
        return once_known(lambda: self.describe(topic, groups=()), min(timeout, JUST_MADE))

    def _change(
        self, timeline: Timeline, count: int, retirement: Retirement | None, warnings: list[Notice], timeout: float
    ) -> Change:
        topic, open_change = timeline.topic, timeline.change
        if open_change is not None and open_change.slice is None and open_change.count != count:
            raise ChangeOpenError(topic, open_change)
        controller = TopologyController(self._config, topic, self._progress)
        change = controller.change(count, ChangeTerms(timeout=timeout), retirement)
        return replace(change, warnings=tuple(warnings))

    def _drains(self, timeline: Timeline) -> list[DrainStatus]:
        left = [drain for drain in timeline.drains if not drain.emptied]
        if not left:
            return [drain_status(timeline, drain, False, {}) for drain in timeline.drains]
        compacted = self._compacted(timeline.topic)
        named = sorted({group for drain in left for group in drain.retirement.groups})
        committed = GroupOffsets(self._config, self._admin).committed(named, timeline.topic)
        return [drain_status(timeline, drain, compacted, committed) for drain in timeline.drains]

    def _compacted(self, topic: str) -> bool:
        return is_compacted(self._admin, topic, self._bootstrap)
