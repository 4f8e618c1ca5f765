"""Finding where newly assigned partitions start: the edge of `partitioner.gates.starts`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tenacity import RetryError, retry_if_result, stop_after_delay, wait_fixed

from ...partitioner.gates.starts import (
    Commit,
    ahead_of,
    epoch_of,
    metadata_of,
    note_of,
)
from ...partitioner.timeline import TopicIdentity
from ..attempts import Attempts
from ..kafka_errors import translate, translate_of_known
from ..link import ClusterLink
from ..messages import Place
from ..metadata import identities

_TIMEOUT = 10.0


class Starter:
    """Works out the starts of one group, through the consumer that owns the partitions."""

    def __init__(
        self, raw: Consumer, link: ClusterLink, group: str, from_latest: bool | None, committed_only: bool
    ) -> None:
        self.link, self._committed_only = link, committed_only
        self._raw, self._group, self._bootstrap, self._from_latest = raw, group, link.servers, from_latest

    def identities(self, topics: Collection[str], timeout: float = 2.0) -> dict[str, TopicIdentity]:
        """Which topics these are, and how many partitions they physically have.

        Topics that are not there, or may not be seen, are absent. Not asked through the consumer: that call has been seen not to
        return while the group rebalances. Not patient: whoever polls has other things to do, and asks again.
        Raises BrokerUnreachableError and kin.
        """
        return identities(self.link.admin.client, topics, self._bootstrap, timeout)

    def listed(self, topic: str, timeout: float) -> Any:
        """As Consumer.list_topics of one topic: a look that does not make it. Raises Kafka's own."""
        return self.link.offsets.listed(topic, timeout)

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

    def logs_reaching(self, at_least: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        """`logs`, asked again for a moment while one ends below this offset: a new leader's watermark catches up."""

        def short(logs: dict[Place, tuple[int, int]]) -> bool:
            return any(logs[place][1] < offset for place, offset in at_least.items())

        attempts = Attempts(stop=stop_after_delay(5.0), wait=wait_fixed(0.2), retry=retry_if_result(short))
        try:
            return attempts(self.logs, list(at_least))
        except RetryError as given_up:
            logs: dict[Place, tuple[int, int]] = given_up.last_attempt.result()
            return logs

    def commit(self, made: Mapping[str, Mapping[int, Commit]], alone: bool = False) -> None:
        """Commit offsets synchronously, of all partitions of all topics at once. alone: without a membership."""
        places = [
            TopicPartition(topic, p, c.offset, metadata_of(c.epoch or 0, c.note))
            for topic, some in made.items()
            for p, c in some.items()
        ]
        try:
            results = self._raw.commit(offsets=places, asynchronous=False) if places else []
        except KafkaException as raised:
            if not alone or raised.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                raise self._translated(raised, "commit the offsets of", f"group {self._group}") from raised
            results = []
            self._commit_as_nobody(places)
        for result in results or []:
            if result.error is not None:
                raise translate(result.error, "commit the offsets of", f"group {self._group}", self._bootstrap)

    def _commit_as_nobody(self, places: list[TopicPartition]) -> None:
        """When the client library has left its group it goes on to commit as the member that it was, and is refused."""
        try:
            self.link.admin.set_offsets(self._group, places, _TIMEOUT)
        except KafkaException as raised:
            raise self._translated(raised, "commit the offsets of", f"group {self._group}") from raised

    def _translated(self, raised: KafkaException, operation: str, resource: str) -> Exception:
        return translate_of_known(raised.args[0], operation, resource, self._bootstrap)  # the control topics were read
