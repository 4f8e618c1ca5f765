"""What a supervisor sees and does on a real cluster: timelines followed, loads measured, changes carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ...partitioner.changes.scaling_policy import Load, Policy
from ...partitioner.epochs import OpenChange
from ...partitioner.errors import ControllerFencedError, OrderError, StockWritersError
from ...partitioner.records.control_records import CONTROL_TOPIC
from ...partitioner.timeline import Timeline
from .. import clock
from ..admin import TopicAdmin
from ..control.control_reader import ControlReader
from ..control.control_topics import PARTITIONS, existing
from ..control.timelines import Timelines
from ..kafka_errors import meant, translate
from ..metadata import cluster_metadata, identify
from ..operations.stock_look import WriterLook, look
from ..refusals import ClusterAdmin
from .load import LoadMeter
from .results import Change, Progress

_NAMES_AGE = 5.0
_CONSENT = "set accept_stock_writers = true for it in the policy"


@contextmanager
def typed_errors(topic: str, bootstrap_servers: str) -> Iterator[None]:
    """Whatever a change raises leaves as one of keyorder's errors.

    The client library raises a fatal error, such as being fenced, in the middle of a flush; a delivery callback that
    runs then turns it into a SystemError, with the fatal error as its cause.
    """
    try:
        yield
    except KafkaException as raised:
        raise translate(raised.args[0], "change", f"topic {topic}", bootstrap_servers) from raised
    except SystemError as raised:
        error = meant(raised)
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise ControllerFencedError(topic) from raised
        raise translate(error, "change", f"topic {topic}", bootstrap_servers) from raised


class SupervisedCluster:
    """The `Cluster` of a supervisor. `resume` and `resize` may be called from other threads; `close` it.

    timeout: seconds that each change may take. progress: called with the steps of changes, from their threads.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float = 120.0, progress: Progress | None = None) -> None:
        self._config, self._timeout, self._progress = dict(config), timeout, progress
        self._servers = str(config.get("bootstrap.servers"))
        self._admin = ClusterAdmin(config)
        self._meter = LoadMeter(config)
        self._reader: ControlReader | None = None
        self._found = Timelines()
        self._names: frozenset[str] = frozenset()
        self._asked_for = 0
        self._names_at = float("-inf")

    def timelines(self) -> Mapping[str, Timeline]:
        """Every managed topic that exists; those that cannot be read are in `unreadable`, with the error.

        Raises as ControlReader, and BrokerUnreachableError.
        """
        try:
            return self._read()
        except KafkaException as raised:
            self._forget_reader()
            raise translate(raised.args[0], "read", "the control topics", self._servers) from raised
        except Exception:
            self._forget_reader()
            raise

    @property
    def unreadable(self) -> Mapping[str, OrderError]:
        """Why these topics' timelines could not be read at the last look."""
        return self._found.unreadable

    def measure(self, timeline: Timeline, policy: Policy) -> Load | None:
        """The topic's load since the last sample, None before `policy.sample_s` have passed."""
        sizes = policy.max_bytes_per_s is not None
        count, partitions = timeline.newest.count, timeline.highest_count
        return self._meter.measure(timeline.topic, count, partitions, policy.sample_s, policy.groups, sizes)

    def forget(self, topic: str) -> None:
        """Begin measuring this topic anew."""
        self._meter.forget(topic)

    def resume(self, topic: str, change: OpenChange) -> Change:
        """Finish an open change, as whoever began it had asked for it."""
        retirement = change.retirement
        with typed_errors(topic, self._servers), TopicAdmin(self._config, self._progress) as admin:
            if change.count >= admin.timeline(topic).newest.count:
                return admin.expand(topic, change.count, timeout=self._timeout)
            return admin.shrink(
                topic,
                change.count,
                retirement.immediate,
                retirement.groups,
                timeout=self._timeout,
                delay_ms=retirement.delay_ms,
                force=retirement.forced,
            )

    def resize(self, topic: str, current: int, count: int, policy: Policy) -> Change:
        """Grow or shrink, unless the topic no longer has `current` partitions: somebody else has decided meanwhile.

        policy: has the groups that must have read what a shrink retires before it is emptied, and whether stock producers
        are accepted. Raises StockWritersError where they are not and write the topic, or where that cannot be told: nobody
        is there to read a warning.
        """
        with typed_errors(topic, self._servers), TopicAdmin(self._config, self._progress) as admin:
            timeline = admin.timeline(topic)
            newest = timeline.newest
            if newest.count != current:
                return Change(topic, newest.count, newest.count, newest.number, changed=False, attempts=0)
            if not policy.accept_stock_writers:
                self._refuse_stock_writers(timeline)
            if count >= current:
                return admin.expand(topic, count, timeout=self._timeout)
            return admin.shrink(topic, count, wait_for_groups=policy.groups, timeout=self._timeout)

    def _refuse_stock_writers(self, timeline: Timeline) -> None:
        partitions = identify(self._admin, timeline.topic, self._servers).partitions
        stock = look(self._config, timeline, partitions, WriterLook(self._config, timeline.topic))
        if stock.seen or stock.records is None:
            unknown = "this user may not read its newest records, so whether a stock producer writes it is unknown"
            raise StockWritersError(timeline.topic, stock.seen or unknown, _CONSENT)

    def close(self) -> None:
        """Release the clients."""
        self._forget_reader()
        self._meter.close()

    def _read(self) -> Mapping[str, Timeline]:
        if self._reader is None:
            if not existing(self._admin, self._servers):
                return {}
            self._reader = ControlReader(self._config, fetch_wait_ms=200)
            self._reader.interested = lambda key: key.startswith(b"timeline:")
            self._reader.add([(CONTROL_TOPIC, p) for p in range(PARTITIONS)])
        for message in self._reader.read_to_end():
            self._found.take(message)
        if clock.now() - self._names_at >= _NAMES_AGE or len(self._found.by_topic) > self._asked_for:
            # The timeline of a topic outlives it.
            self._names = frozenset(cluster_metadata(self._admin, self._servers).topics)
            self._names_at, self._asked_for = clock.now(), len(self._found.by_topic)
        return {topic: timeline for topic, timeline in self._found.by_topic.items() if topic in self._names}

    def _forget_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
