"""Finding where newly assigned partitions start: the edge of `partitioner.gates.starts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

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
    founding_offsets,
    metadata_of,
    note_of,
    state_of,
)
from ...partitioner.timeline import Timeline
from ..config import connection_of
from ..kafka_errors import translate
from ..log_offsets import LogOffsets
from ..metadata import identify

_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where one partition starts, and the epoch that the group's commit there proves as flushed.

    ahead: what an earlier owner has processed beyond it. note: the application's metadata of that commit.
    """

    partition: int
    offset: int
    committed: int | None
    epoch: int
    ahead: Ahead | None = None
    note: str = ""


class Starter:
    """Works out the starts of one group, through the consumer that owns the partitions."""

    def __init__(
        self, raw: Consumer, config: Mapping[str, Any], group: str, from_latest: bool | None, committed_only: bool
    ) -> None:
        bootstrap_servers = str(config.get("bootstrap.servers"))
        self._offsets, self._committed_only = LogOffsets(config), committed_only
        self.admin = AdminClient(connection_of(config))
        self._raw, self._group, self._bootstrap, self._from_latest = raw, group, bootstrap_servers, from_latest

    def close(self) -> None:
        """Release what was opened for asking."""
        self._offsets.close()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from now on."""
        self.admin.set_sasl_credentials(username, password)
        self._offsets.set_sasl_credentials(username, password)

    def check_identity(self, timeline: Timeline) -> None:
        """Stop where the timeline is that of another topic of this name. Raises IdentityMismatchError, Kafka's own.

        Not patient: whoever polls has other things to do, and asks again.
        """
        found = identify(self.admin, timeline.topic, self._bootstrap, timeout=2.0, patience=0.0)
        timeline.check_identity(found.topic_id, found.cluster_id)

    def committed(self, topic: str, partitions: Iterable[int]) -> dict[int, Commit]:
        """The group's commits, by partition; partitions without one are absent.

        Raises also for one partition whose answer is an error: taken for "no commit", it would begin at its log start.
        """
        places = [TopicPartition(topic, p) for p in partitions]
        try:
            answers = self._raw.committed(places, timeout=_TIMEOUT)
        except KafkaException as raised:
            raise self._translated(raised, "read the offsets of", f"group {self._group}") from raised
        for answer in answers:
            if answer.error is not None:
                raise translate(answer.error, "read the offsets of", f"group {self._group}", self._bootstrap)
        return {
            a.partition: Commit(a.offset, epoch_of(a.metadata), ahead_of(a.metadata, a.offset), note_of(a.metadata))
            for a in answers
            if a.offset >= 0
        }

    def log(self, topic: str, partition: int) -> tuple[int, int]:
        """(log start, end as this consumer may read it) of one partition, asked of its leader."""
        return self.logs(topic, [partition])[partition]

    def logs(self, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """`log` of several partitions, in one request per leader."""
        places = [(topic, p) for p in partitions]
        starts = self._offsets.earliest(places, _TIMEOUT)
        ends = (self._offsets.stable_ends if self._committed_only else self._offsets.high_watermarks)(places, _TIMEOUT)
        return {p: (starts[topic, p], ends[topic, p]) for _, p in places}

    def waits_for_founder(self, timeline: Timeline, commits: dict[int, Commit], owned: set[int]) -> bool:
        """Whether another member has to make the group first: the owner of partition 0 alone does it."""
        return not founded(timeline, commits) and 0 not in owned

    def needs_founding(self, timeline: Timeline, commits: dict[int, Commit]) -> bool:
        """Whether the owner of partition 0 has to make (or stamp) the group."""
        return state_of(commits) is not GroupState.RESUMING or not founded(timeline, commits)

    def found(
        self, timeline: Timeline, commits: dict[int, Commit], logs: dict[int, tuple[int, int]]
    ) -> dict[int, Commit]:
        """Make the group: one commit for all partitions, with our metadata. Returns the group's commits after it.

        `timeline` must have been read to its end after `logs` were taken.
        """
        offsets = founding_offsets(
            self._group,
            timeline,
            commits,
            {p: start for p, (start, _) in logs.items()},
            {p: end for p, (_, end) in logs.items()},
            self._from_latest,
        )
        return self.commit(timeline, offsets, {p: commit.note for p, commit in commits.items()})

    def commit(self, timeline: Timeline, offsets: dict[int, int], notes: Mapping[int, str]) -> dict[int, Commit]:
        """Commit these offsets synchronously, each with the newest epoch that it proves, and the notes of the application."""
        made = {p: Commit(o, flushed_epoch(timeline, p, o), note=notes.get(p, "")) for p, o in offsets.items()}
        places = [
            TopicPartition(timeline.topic, p, c.offset, metadata_of(c.epoch or 0, c.note)) for p, c in made.items()
        ]
        try:
            results = self._raw.commit(offsets=places, asynchronous=False)
        except KafkaException as raised:
            raise self._translated(raised, "commit the offsets of", f"group {self._group}") from raised
        for result in results or []:
            if result.error is not None:
                raise translate(result.error, "commit the offsets of", f"group {self._group}", self._bootstrap)
        return made

    def starts(self, timeline: Timeline, commits: dict[int, Commit], owned: Iterable[int]) -> list[Start]:
        """Where the owned partitions start. Raises GroupResetError for commits that contradict each other."""
        check_consistent(self._group, timeline, commits)
        owned = list(owned)
        logs = self._logs_reaching(timeline.topic, owned, commits)
        found: list[Start] = []
        for p in owned:
            commit = commits.get(p)
            low, high = logs[p]
            if commit is None:
                found.append(Start(p, low, None, -1))
            else:
                offset = checked(self._group, timeline.topic, p, commit.offset, low, high)
                epoch = -1 if commit.epoch is None else commit.epoch
                found.append(Start(p, offset, commit.offset, epoch, commit.ahead, commit.note))
        return found

    def _logs_reaching(
        self, topic: str, partitions: list[int], commits: dict[int, Commit]
    ) -> dict[int, tuple[int, int]]:
        """`logs`, asked again for a moment while one ends below its commit: a new leader's watermark catches up."""

        def short(logs: dict[int, tuple[int, int]]) -> bool:
            return any(p in commits and logs[p][1] < commits[p].offset for p in partitions)

        attempts = Retrying(stop=stop_after_delay(5.0), wait=wait_fixed(0.2), retry=retry_if_result(short))
        try:
            return attempts(self.logs, topic, partitions)
        except RetryError as given_up:
            logs: dict[int, tuple[int, int]] = given_up.last_attempt.result()
            return logs

    def _translated(self, raised: KafkaException, operation: str, resource: str) -> Exception:
        return translate(raised.args[0], operation, resource, self._bootstrap)
