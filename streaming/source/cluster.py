"""What the driver asks the cluster: which partitions there are, where they begin and end, which offsets fit a time."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import retry_if_exception, stop_after_attempt, wait_fixed

from ...connector import clock
from ...connector.attempts import Attempts
from ...connector.config import connection_of
from ...connector.kafka_errors import translate, translated
from ...connector.log_offsets import LogOffsets
from ...connector.refusals import ClusterAdmin
from ...partitioner.errors import BrokerUnreachableError, PeerError, TopicNotFoundError
from ...partitioner.gates.starts import flushed_epoch, metadata_of
from ...partitioner.records.control_records import INTERNAL_TOPICS
from ...partitioner.timeline import Timeline
from ..client_options import check_client
from .offsets import Place
from .options import SourceOptions
from .timelines import TimelineReader

T = TypeVar("T")
_LOG = logging.getLogger("keyorder.streaming")
_TIMEOUT = 10.0


class QueryCluster:
    """The cluster as one query's driver sees it. Opens its clients when they are needed. Used by one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._config = {"isolation.level": "read_uncommitted", **options.client}
        check_client(options.client, names=options.client_names)
        self._servers = str(options.client["bootstrap.servers"])
        self._admin: AdminClient | None = None
        self._asker: Consumer | None = None
        self._committer: Consumer | None = None
        self._offsets = LogOffsets(self._config)
        self._timelines = TimelineReader(self._config, options.commit_group)
        self._cluster_id = ""
        self._topic_ids: dict[str, str] = {}
        self._missing: list[Place] = []

    def places(self) -> set[Place]:
        """The partitions that the query reads now. Raises TopicNotFoundError for a topic that was named and is not there."""
        subscription = self._options.subscription
        if subscription.places:
            counts = self._describe({topic for topic, _ in subscription.places})
            found = {place for place in subscription.places if place[1] < counts.get(place[0], 0)}
            missing = sorted(set(subscription.places) - found)
            if not found:
                raise TopicNotFoundError(missing[0][0])
            if missing and missing != self._missing:
                # Spark's own source reads the others, too.
                _LOG.warning("assign: left out, since they do not exist: %s", ", ".join(f"{t}-{p}" for t, p in missing))
                self._missing = missing
            return found
        topics: Collection[str] = subscription.topics
        if subscription.pattern is not None:
            with translated("list", "topics", self._servers):
                names = self._patiently(lambda: self._admin_client().list_topics(timeout=_TIMEOUT).topics)
            topics = [t for t in names if t not in INTERNAL_TOPICS and re.search(subscription.pattern, t)]
        counts = self._describe(topics)
        for topic in subscription.topics:
            if topic not in counts:
                raise TopicNotFoundError(topic)
        return {(topic, p) for topic, count in counts.items() for p in range(count)}

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics, as last seen."""
        return self._topic_ids

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where each log ends for a reader of this isolation level."""
        committed_only = self._config["isolation.level"] == "read_committed"
        ask = self._offsets.stable_ends if committed_only else self._offsets.high_watermarks
        return self._patiently(lambda: ask(places, _TIMEOUT))

    def log_starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where each log begins."""
        return self._patiently(lambda: self._offsets.earliest(places, _TIMEOUT))

    def offsets_for_times(self, times: Mapping[Place, int]) -> dict[Place, int | None]:
        """The first offset at or after each time (ms); None where no record is that new."""
        wanted = [TopicPartition(t, p, time) for (t, p), time in times.items()]
        if not wanted:
            return {}

        def ask() -> list[TopicPartition]:
            deadline = clock.now() + _TIMEOUT
            while True:
                if self._asker is None:
                    # Without its level the client library looks for times among committed records alone.
                    own = {"isolation.level": self._config["isolation.level"], "group.id": "keyorder-spark-driver"}
                    self._asker = Consumer({**connection_of(self._config), **own})
                try:
                    found = self._asker.offsets_for_times(wanted, timeout=_TIMEOUT)
                    error = next((tp.error for tp in found if tp.error is not None), None)
                except KafkaException as raised:
                    found, error = [], raised.args[0]
                    if error.code() != KafkaError._UNKNOWN_PARTITION:
                        raise translate(error, "list the offsets of", "topics", self._servers) from raised
                if error is None:
                    return found
                # Its offset is then the time that was asked for. A partition that was made just now settles in a moment.
                self._asker.close()
                self._asker = None
                if clock.now() >= deadline:
                    raise translate(error, "list the offsets of", "topics", self._servers)
                threading.Event().wait(0.1)

        found = self._patiently(ask)
        return {(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in found}

    def timelines(self, topics: Collection[str]) -> dict[str, Timeline]:
        """The timelines of the managed ones, newer than this call. Ask for ends before. Raises IdentityMismatchError."""
        if not self._options.ordered:
            return {}
        return {topic: line for topic, line in self.known_timelines(topics).items() if line.ordered}

    def known_timelines(self, topics: Collection[str]) -> dict[str, Timeline]:
        """As `timelines`, of topics without gates, too."""
        found = self._timelines.look(topics, self._admin_client())
        for topic, timeline in found.items():
            if topic not in self._topic_ids:
                self._describe([topic])
            if topic in self._topic_ids:
                timeline.check_identity(self._topic_ids[topic], self._cluster())
        return found

    def waived(self, topics: Iterable[str]) -> dict[str, set[tuple[int, int]]]:
        """Gates that an operator let go for `keyorder.commit.group`."""
        return self._timelines.waived(topics)

    def commit(self, group: str, offsets: Mapping[Place, int], timelines: Mapping[str, Timeline]) -> None:
        """Show these offsets as the group's. Never read back: what fails is logged, and the query goes on."""
        places = []
        for (topic, partition), offset in offsets.items():
            timeline = timelines.get(topic)
            metadata = metadata_of(0 if timeline is None else flushed_epoch(timeline, partition, offset))
            places.append(TopicPartition(topic, partition, offset, metadata))
        try:
            if self._committer is None:
                own = {**connection_of(self._config), "group.id": group, "enable.auto.commit": False}
                self._committer = Consumer(own)
            self._committer.commit(offsets=places, asynchronous=False)
        except KafkaException as raised:
            error = translate(raised.args[0], "commit the offsets of", f"group {group}", self._servers)
            _LOG.warning("the query's offsets could not be shown in group %s: %s", group, error)

    def close(self) -> None:
        """Release the clients."""
        self._offsets.close()
        self._timelines.close()
        for client in (self._asker, self._committer):
            if client is not None:
                client.close()
        self._asker = self._committer = None

    def _describe(self, topics: Collection[str]) -> dict[str, int]:
        """Partition counts of those that exist; keeps their ids."""
        if not topics:
            return {}

        def ask() -> dict[str, int]:
            futures = self._admin_client().describe_topics(TopicCollection(list(topics)), request_timeout=_TIMEOUT)
            counts: dict[str, int] = {}
            for topic, future in futures.items():
                self._topic_ids.pop(topic, None)
                try:
                    described: Any = future.result(_TIMEOUT + 1)
                except KafkaException as raised:
                    if raised.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    raise translate(raised.args[0], "describe", f"topic {topic}", self._servers) from raised
                except FutureTimeout as raised:
                    raise BrokerUnreachableError(self._servers, f"describe topic {topic}") from raised
                self._topic_ids[topic] = str(described.topic_id)
                counts[topic] = len(described.partitions)
            return counts

        return self._patiently(ask)

    def _cluster(self) -> str:
        if not self._cluster_id:
            with translated("list", "topics", self._servers):
                # Not by a topic's name: a broker that creates topics by itself would make it.
                self._cluster_id = str(self._admin_client().list_topics(timeout=_TIMEOUT).cluster_id)
        return self._cluster_id

    def _admin_client(self) -> AdminClient:
        if self._admin is None:
            self._admin = ClusterAdmin(self._config)
        return self._admin

    def _patiently(self, call: Callable[[], T]) -> T:
        """As often as `fetchOffset.numRetries` says."""
        return Attempts(
            stop=stop_after_attempt(1 + self._options.fetch_retries),
            wait=wait_fixed(self._options.fetch_retry_interval),
            retry=retry_if_exception(lambda error: isinstance(error, PeerError) and error.retriable),
            reraise=True,
        )(call)
