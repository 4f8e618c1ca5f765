"""Finding where newly assigned partitions start: the edge of `partitioner.gates.starts`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tenacity import RetryError, retry_if_result, stop_after_delay, wait_fixed

from ...partitioner.errors import KeyorderError
from ...partitioner.gates.ahead import Ahead
from ...partitioner.gates.starts import (
    Commit,
    GroupState,
    ahead_of,
    check_consistent,
    checked,
    epoch_of,
    flushed_epoch,
    founded,
    initial_offsets,
    metadata_of,
    note_of,
    state_of,
)
from ...partitioner.timeline import Timeline
from ..attempts import Attempts
from ..kafka_errors import translate, translated
from ..link import ClusterLink
from ..messages import Place
from ..metadata import topic_ids

_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where one partition starts, and the epoch that the group's commit there proves as flushed.

    end: where its log ends. ahead: what an earlier owner has processed beyond it. note: the application's metadata of that
    commit.
    """

    partition: int
    offset: int
    committed: int | None
    epoch: int
    end: int
    ahead: Ahead | None = None
    note: str = ""


class Starter:
    """Works out the starts of one group, through the consumer that owns the partitions."""

    def __init__(
        self, raw: Consumer, link: ClusterLink, group: str, from_latest: bool | None, committed_only: bool
    ) -> None:
        self.link, self._committed_only = link, committed_only
        self._raw, self._group, self._bootstrap, self._from_latest = raw, group, link.servers, from_latest

    def counts(self, topics: Collection[str], timeout: float = 2.0) -> tuple[dict[str, int], str]:
        """How many partitions these topics physically have, and the cluster's id.

        Topics that are not there, or may not be seen, are absent. Not asked through the consumer: that call has been seen not to
        return while the group rebalances. Of all topics: an admin client's list_topics(topic) makes the topic, on a broker that
        creates topics by itself. Raises BrokerUnreachableError and kin.
        """
        with translated("list", "topics", self._bootstrap):
            cluster = self.link.admin.client.list_topics(timeout=timeout)
        listed = cluster.topics
        counts = {t: len(listed[t].partitions) for t in topics if t in listed and listed[t].error is None}
        return counts, str(cluster.cluster_id)

    def listed(self, topic: str, timeout: float) -> Any:
        """As Consumer.list_topics of one topic: a look that does not make it. Raises Kafka's own."""
        return self.link.offsets.listed(topic, timeout)

    def misidentified(self, timelines: Collection[Timeline], cluster_id: str) -> dict[str, KeyorderError]:
        """By topic, why its timeline is that of another topic of this name, or that it is not there.

        Not patient: whoever polls has other things to do, and asks again. Raises BrokerUnreachableError.
        """
        wrong: dict[str, KeyorderError] = {}
        found = topic_ids(self.link.admin.client, [t.topic for t in timelines], self._bootstrap, timeout=2.0)
        for timeline in timelines:
            topic_id = found[timeline.topic]
            try:
                if isinstance(topic_id, KeyorderError):
                    raise topic_id
                timeline.check_identity(topic_id, cluster_id)
            except KeyorderError as error:
                wrong[timeline.topic] = error
        return wrong

    def committed(self, partitions: Iterable[Place]) -> dict[str, dict[int, Commit]]:
        """The group's commits, by topic and partition; partitions without one are absent.

        Raises also for one partition whose answer is an error: taken for "no commit", it would begin at its log start.
        """
        places = [TopicPartition(*place) for place in partitions]
        try:
            answers = self._raw.committed(places, timeout=_TIMEOUT) if places else []
        except KafkaException as raised:
            raise self._translated(raised, "read the offsets of", f"group {self._group}") from raised
        found: dict[str, dict[int, Commit]] = {place.topic: {} for place in places}
        for a in answers:
            if a.error is not None:
                raise translate(a.error, "read the offsets of", f"group {self._group}", self._bootstrap)
            if a.offset >= 0:
                commit = Commit(a.offset, epoch_of(a.metadata), ahead_of(a.metadata, a.offset), note_of(a.metadata))
                found[a.topic][a.partition] = commit
        return found

    def log(self, topic: str, partition: int) -> tuple[int, int]:
        """(log start, end as this consumer may read it) of one partition, asked of its leader."""
        return self.logs([(topic, partition)])[topic, partition]

    def logs(self, partitions: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """`log` of several partitions, in one request per leader."""
        places = list(partitions)
        offsets = self.link.offsets
        starts = offsets.earliest(places, _TIMEOUT)
        ends = (offsets.stable_ends if self._committed_only else offsets.high_watermarks)(places, _TIMEOUT)
        return {place: (starts[place], ends[place]) for place in places}

    def waits_for_founder(self, timeline: Timeline, commits: dict[int, Commit], owned: set[int]) -> bool:
        """Whether another member has to make the group first: the owner of partition 0 alone does it."""
        return not founded(timeline, commits) and 0 not in owned

    def needs_initial_commit(self, timeline: Timeline, commits: dict[int, Commit]) -> bool:
        """Whether the owner of partition 0 has to make (or stamp) the group."""
        return state_of(commits) is not GroupState.RESUMING or not founded(timeline, commits)

    def founding(
        self, timeline: Timeline, commits: Mapping[int, Commit], logs: Mapping[int, tuple[int, int]]
    ) -> dict[int, int]:
        """The offsets that make the group, of all partitions of a topic. Raises GroupResetError.

        `timeline` must have been read to its end after `logs` were taken.
        """
        return initial_offsets(
            self._group,
            timeline,
            commits,
            {p: start for p, (start, _) in logs.items()},
            {p: end for p, (_, end) in logs.items()},
            self._from_latest,
        )

    def commit(
        self, topics: Collection[tuple[Timeline, Mapping[int, Commit], Mapping[int, int]]]
    ) -> dict[str, dict[int, Commit]]:
        """Commit offsets synchronously, for all partitions of all topics at once. Returns what was committed, by topic.

        topics: of each its timeline, what is committed now, and the offsets. Each goes with the newest epoch that it
        proves, and with the application's note.
        """
        made: dict[str, dict[int, Commit]] = {}
        for timeline, commits, offsets in topics:
            notes = {p: commit.note for p, commit in commits.items()}
            made[timeline.topic] = {
                p: Commit(o, flushed_epoch(timeline, p, o), note=notes.get(p, "")) for p, o in offsets.items()
            }
        places = [
            TopicPartition(topic, p, c.offset, metadata_of(c.epoch or 0, c.note))
            for topic, some in made.items()
            for p, c in some.items()
        ]
        try:
            results = self._raw.commit(offsets=places, asynchronous=False) if places else []
        except KafkaException as raised:
            raise self._translated(raised, "commit the offsets of", f"group {self._group}") from raised
        for result in results or []:
            if result.error is not None:
                raise translate(result.error, "commit the offsets of", f"group {self._group}", self._bootstrap)
        return made

    def starts(
        self,
        topics: Collection[tuple[Timeline, Mapping[int, Commit], Collection[int]]],
        known: Mapping[Place, tuple[int, int]],
    ) -> tuple[dict[str, list[Start]], dict[str, KeyorderError]]:
        """Where partitions start, by topic; and of the others why their commits cannot be gone by (GroupResetError).

        topics: of each its timeline, what is committed, and the partitions that start. known: logs that were just asked for.
        """
        wanted = {(t.topic, p): commits.get(p) for t, commits, owned in topics for p in owned}
        logs = {**known, **self._logs_reaching({place: c for place, c in wanted.items() if place not in known})}
        found: dict[str, list[Start]] = {}
        errors: dict[str, KeyorderError] = {}
        for timeline, commits, owned in topics:
            try:
                check_consistent(self._group, timeline, commits)
                found[timeline.topic] = [
                    self._start((timeline.topic, p), commits.get(p), *logs[timeline.topic, p]) for p in owned
                ]
            except KeyorderError as error:
                errors[timeline.topic] = error
        return found, errors

    def _start(self, place: Place, commit: Commit | None, low: int, high: int) -> Start:
        topic, p = place
        if commit is None:
            return Start(p, low, None, -1, high)
        offset = checked(self._group, topic, p, commit.offset, low, high)
        epoch = -1 if commit.epoch is None else commit.epoch
        return Start(p, offset, commit.offset, epoch, high, commit.ahead, commit.note)

    def _logs_reaching(self, commits: Mapping[Place, Commit | None]) -> dict[Place, tuple[int, int]]:
        """`logs`, asked again for a moment while one ends below its commit: a new leader's watermark catches up."""

        def short(logs: dict[Place, tuple[int, int]]) -> bool:
            return any(commit is not None and logs[place][1] < commit.offset for place, commit in commits.items())

        attempts = Attempts(stop=stop_after_delay(5.0), wait=wait_fixed(0.2), retry=retry_if_result(short))
        try:
            return attempts(self.logs, list(commits))
        except RetryError as given_up:
            logs: dict[Place, tuple[int, int]] = given_up.last_attempt.result()
            return logs

    def _translated(self, raised: KafkaException, operation: str, resource: str) -> Exception:
        return translate(raised.args[0], operation, resource, self._bootstrap)
