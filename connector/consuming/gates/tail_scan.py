"""Reading unread tails for early release (`partitioner.gates.early`): a thread with a reader of its own, beside the group's.

It begins with the first scan, and holds a client only while one runs. What it reads it reads as the group does: with the
same isolation, so that aborted records are none, and up to the cut, so that an open transaction below it is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ....partitioner.errors import KeyorderError, NotAuthorizedError
from ....partitioner.gates.early import Collector, Scan, ScanEnded, Tail
from ....partitioner.hashing import hash_named
from ...config import REFILL, connection_of
from ...kafka_errors import translate
from ...log_offsets import LogOffsets
from ...messages import key_of, offset_of, place_of
from ...metadata import topic_config
from ...refusals import ClusterAdmin
from ..background import BackgroundThread

_BATCH, _WAIT = 5_000, 0.2
_CUT_OFF = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class TailScanner(BackgroundThread):
    """Runs one scan after another. All methods but the thread's own are the polling thread's."""

    def __init__(self, config: Mapping[str, Any], group: str, isolation: str) -> None:
        super().__init__("keyorder-tails")
        self._config = connection_of(config)
        self._servers = str(config.get("bootstrap.servers"))
        self._reader = {
            "group.id": group,  # nothing is joined or committed
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            # Records that the log has lost must not be skipped unseen.
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 16_384,
            **REFILL,
        }
        self._scans: dict[str, Scan] = {}
        self._outcomes: dict[str, ScanEnded] = {}
        self._read: dict[str, int] = {}

    def want(self, topic: str, scan: Scan | None) -> None:
        """This scan and no other is wanted of a topic; one that runs already goes on."""
        known = self._scans.get(topic)
        if known is scan:
            return
        with self._wake:
            self._outcomes.pop(topic, None)
            self._read.pop(topic, None)
            if scan is None:
                self._scans.pop(topic, None)
            else:
                self._scans[topic] = scan
            self._wake.notify_all()
        if scan is not None:
            self.begin()

    def outcome(self, topic: str) -> ScanEnded | None:
        """What became of the topic's scan, None while it runs."""
        return self._outcomes.get(topic)

    def read(self, topic: str) -> int:
        """How many offsets the topic's scan has passed."""
        return self._read.get(topic, 0)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from now on; a scan that runs keeps its connections."""
        if "sasl.username" in self._config:
            self._config |= {"sasl.username": username, "sasl.password": password}

    def _due(self) -> tuple[str, Scan] | None:
        return next((job for job in self._scans.items() if job[0] not in self._outcomes), None)

    def run(self) -> None:
        """The thread."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._due() is not None)
                job = self._due()
            if self._stopping:
                return
            if job is not None:
                self._perform(*job)

    def _perform(self, topic: str, scan: Scan) -> None:
        try:
            tails = self._scan(topic, scan)
            outcome = ScanEnded(scan.number, tails)
        except KeyorderError as error:
            outcome = ScanEnded(scan.number, None, str(error), again=error.retriable)
        except KafkaException as raised:
            outcome = ScanEnded(scan.number, None, str(raised), again=True)
        except _NotProven as reason:
            outcome = ScanEnded(scan.number, None, str(reason))
        with self._wake:
            if self._scans.get(topic) is scan:
                self._outcomes[topic] = outcome

    def _scan(self, topic: str, scan: Scan) -> Mapping[int, Tail] | None:
        """Read all spans to their ends; None when nobody wants that any more."""
        self._check_policy(topic)
        offsets = LogOffsets(self._config)
        try:
            starts = offsets.earliest([(topic, q) for q in scan.spans])
        finally:
            offsets.close()
        collector = Collector(scan, {q: start for (_, q), start in starts.items()})
        consumer = Consumer({**self._config, **self._reader})
        try:
            if not self._collect(topic, scan, collector, consumer):
                return None
        finally:
            consumer.close()
        self._check_policy(topic)
        return collector.tails()

    def _check_policy(self, topic: str) -> None:
        """Refuse a log from which single records vanish: the owner of the origin may have in memory what is not in it."""
        try:
            policy = topic_config(ClusterAdmin(self._config), topic, self._servers).get("cleanup.policy", "")
        except NotAuthorizedError as refused:
            raise _NotProven(
                f"it takes the right DescribeConfigs on topic {topic} to know its cleanup.policy"
            ) from refused
        if "compact" in policy:
            raise _NotProven(
                f"topic {topic} has cleanup.policy={policy}: records that are not in its log may be in memory"
            )

    def _collect(self, topic: str, scan: Scan, collector: Collector, consumer: Consumer) -> bool:
        """Give the collector every record below the cuts; False when nobody wants that any more."""
        until = {q: span.until for q, span in scan.spans.items()}
        hash_of = hash_named(scan.hash).of
        at = dict(collector.starts)
        left = {q for q in until if at[q] < until[q]}
        begun = sum(at.values())
        if left:
            consumer.incremental_assign([TopicPartition(topic, q, at[q]) for q in sorted(left)])
        while left:
            if self._stopping or self._scans.get(topic) is not scan:
                return False
            first = consumer.poll(_WAIT)
            if first is None:
                continue
            for message in (first, *consumer.consume(_BATCH, 0)):
                q = place_of(message)[1]
                error = message.error()
                if error is None:
                    key, offset = key_of(message), offset_of(message)
                    if key is not None:
                        collector.add(q, hash_of(key), offset)
                    at[q] = offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    at[q] = max(at.get(q, 0), offset_of(message))
                elif error.code() in _CUT_OFF:
                    raise KafkaException(error)  # the log begins later now: from there, in a while
                elif not error.retriable():
                    raise translate(error, "read the unread tail of", f"topic {topic}", self._servers)
            self._read[topic] = sum(min(at[q], until[q]) for q in until) - begun
            done = {q for q in left if at[q] >= until[q]}
            if done:
                left -= done
                consumer.incremental_unassign([TopicPartition(topic, q) for q in sorted(done)])
        return True


class _NotProven(Exception):
    """A tail that shows nothing, however often it is read."""
