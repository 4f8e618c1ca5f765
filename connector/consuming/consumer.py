"""OrderedConsumer: confluent-kafka's Consumer, which delivers each key in order while the topic's count changes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...partitioner.errors import ConfigError, UsageError
from ..callbacks import wrapped
from ..config import connection_of, consumer_settings
from ..messages import offset_of, place_of
from .cluster_queries import ClusterQueries
from .committing import Committer
from .delivery import Delivery
from .gates.early import EarlyReleases
from .gates.gate_status import Gate, GateStatus
from .gates.gating import Gatekeeper
from .gates.origins import OriginWatch
from .gates.positions import GroupPositions
from .group_metadata import GroupMetadata
from .listener import KeyRebalanceListener, hears_of_keys
from .membership import Membership, RebalanceCallback
from .partition_control import PartitionControl
from .records.strays import StrayPolicy, Strays
from .starting import Starter
from .view import ViewKeeper
from .waker import Waker

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class OrderedConsumer(PartitionControl, ClusterQueries):
    """A consumer of managed topics. Used as confluent_kafka.Consumer, with the same settings; one thread polls it.

    A partition into which keys have moved is read up to the first closed gate, and on when the group has processed and
    committed what lies before it in the origin. By default a record counts as processed when poll() or consume() is
    called again after it was returned; with `enable.auto.commit=false` when the application commits it, with
    `enable.auto.offset.store=false` when it stores it. An application that commits in batches has to do so on
    `on_partition_key_maybe_revoked` or on a time limit, or moved keys wait for it.

    Raises ConfigError for a missing `group.id` or a setting that order does not allow.
    """

    _members: Membership
    _commits: Committer

    def __init__(self, config: Mapping[str, Any], /, **kwargs: Any) -> None:
        self._settings, theirs = consumer_settings({**config, **kwargs} if kwargs else config)
        bootstrap = str(theirs.get("bootstrap.servers"))
        theirs["on_commit"] = lambda error, places: self._commits.arrived(error, places)
        self._raw = Consumer(wrapped(theirs, lambda call: self._members.guarded(call)))
        self._waker = Waker(self._raw)
        connection = connection_of(theirs)
        self._view = ViewKeeper(connection, self._settings.group, self._timeline_changed)
        self._positions = GroupPositions(connection, self._settings.group)
        isolation = str(theirs.get("isolation.level", "read_committed"))
        committed_only = isolation == "read_committed"
        starter = Starter(self._raw, connection, self._settings.group, self._settings.start_at_latest, committed_only)
        self._admin = starter.admin
        self._members = Membership(self._raw, self._settings, self._view, starter)
        self._commits = Committer(self._raw, self._settings, self._members, bootstrap)
        self._origins = OriginWatch(connection, self._settings.group)
        self._early = EarlyReleases(self._settings, connection, isolation) if self._settings.early_release else None
        self._gates = Gatekeeper(self._settings, self._members, self._positions, self._origins, self._early)
        self._status = GateStatus(self._settings, self._members, self._gates, self._positions, self._origins)
        policy = StrayPolicy(self._settings.strays)
        self._strays = Strays(connection, self._settings.group, policy, self._settings.dead_letter_topic)
        self._members.starts.gates = self._commits.gates = self._commits.transactions.gates = self._gates
        self._members.commits = self._commits
        self._commits.strays = self._strays
        options = {
            "keyorder.arrow.native": self._settings.arrow_native,
            **wrapped({"error_cb": theirs.get("error_cb")}, lambda call: self._members.guarded(call)),
        }
        self._delivery = Delivery(
            self._raw,
            self._settings,
            self._view,
            self._members,
            self._commits,
            self._gates,
            self._status,
            self._strays,
            options,
        )
        self._closed = False
        self._view.start()
        self._positions.start()

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        listener: KeyRebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics. Callbacks as in confluent_kafka, and KIP-253's through `listener`.

        A callback does not assign: keyorder does, when a partition may be read.
        """
        self._check_open()
        if not isinstance(topics, list):
            raise TypeError("expected list of topic unicode strings")
        for callback in (on_assign, on_revoke, on_lost):
            if callback is not None and not callable(callback):
                raise TypeError(f"expects a callable, not {callback!r}")
        if listener is not None and self._early is not None and hears_of_keys(listener):
            raise UsageError(
                "keyorder.gate.early.release=true returns moved keys before their old owner was asked to flush: leave it "
                "out, or on_partition_key_maybe_revoked and on_partition_key_assigned of the listener"
            )
        self._strays.check()
        for topic in topics:
            if topic == self._settings.dead_letter_topic:
                raise ConfigError("keyorder.strays.dead.letter.topic", f"{topic!r} is read here", "name another topic")
            if topic.startswith("^"):
                continue
            self._view.follow(topic)
        self._members.listen(self, listener, on_assign, on_revoke, on_lost)
        self._raw.subscribe(
            topics, on_assign=self._members.assigned, on_revoke=self._members.revoked, on_lost=self._members.lost
        )

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._check_open()
        self._delivery.finish_returned()
        self._raw.unsubscribe()

    def poll(self, timeout: float = -1) -> Message | None:
        """The next record (or an error event), or None after `timeout` seconds (-1: wait)."""
        self._deliver(1, timeout)
        messages = self._delivery.out.messages()
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to `num_messages` records, as soon as there are that many or `timeout` seconds are over (-1: wait)."""
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        self._deliver(num_messages, timeout)
        return self._delivery.out.messages()

    def consume_arrow(self, max_rows: int = 50_000, timeout: float = -1) -> RecordBatch:
        """Up to `max_rows` records as a pyarrow.RecordBatch, as soon as there are that many or `timeout` seconds are over.

        Columns: key, value, topic, partition, offset, timestamp, timestampType, headers, in the types of Spark's Kafka
        source (`keyorder.connector.arrow.schema.SCHEMA`); empty when nothing came. Everything holds as for consume(): a
        record counts as processed with the next call, gates hold, calls may be mixed. An error event raises KafkaException
        when the records before it have been returned; ends of partitions do not show. From the first call on records
        are fetched by the C library's own calls, unless `keyorder.arrow.native` is false or they cannot be had here.

        Raises ModuleNotFoundError without the extra `keyorder[arrow]`.
        """
        from ..arrow.parcels import batch_of_parcels

        if max_rows < 1:
            raise ValueError("max_rows must be positive")
        self._check_open()
        self._delivery.become_columnar()
        self._deliver(max_rows, timeout, events=False)
        return batch_of_parcels(self._delivery.out.parcels())

    def put_back(self, messages: list[Message]) -> None:
        """Records that were returned, and that the application never saw: they come again with the next poll().

        Only those of the last call, in their order, and before any other call.
        """
        self._delivery.out.unseen.extend(messages)

    def gates(self) -> list[Gate]:
        """Each closed gate of this member's partitions, with what it waits for."""
        return list(self._status.closed())

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark records as processed; the next automatic commit takes them. Needs enable.auto.offset.store=false."""
        self._check_open()
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        if self._settings.auto_store:
            text = "store_offsets needs enable.auto.offset.store=false: otherwise poll() stores by itself"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
        self._commits.store(_places(message, offsets))

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit a message's offset, the given offsets, or all that was returned (stored, where storing is manual).

        Every commit carries the group's epoch. With asynchronous=True this returns at once, and `on_commit` of the
        settings hears of the result in a later poll; otherwise the result is returned. Only partitions that this member
        owns: of any other the committed offset is another member's word.
        """
        self._check_open()
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        places = _places(message, offsets) if message is not None or offsets is not None else None
        return self._commits.by_application(places, asynchronous)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka.Consumer.set_sasl_credentials; for the clients beside it as well."""
        self._raw.set_sasl_credentials(username, password)
        for client in (self._view, self._positions, self._origins, self._members.starter, self._strays, self._early):
            if client is not None:
                client.set_sasl_credentials(username, password)

    def consumer_group_metadata(self) -> Any:
        """As confluent_kafka.Consumer.consumer_group_metadata; for OrderedProducer.send_offsets_to_transaction."""
        if self._settings.gate_keys:
            raise UsageError(
                "keyorder.gate=key delivers some records behind later offsets, and a transaction's offsets would pass them: "
                "set keyorder.gate=partition where offsets go through transactions"
            )
        self._commits.transactions.used = True
        return GroupMetadata(self._raw.consumer_group_metadata(), self._commits.transactions)

    def key_epoch(self, topic: str, key: bytes, partition: int, offset: int) -> int:
        """The epoch in which the key of the record at this place came to that partition; 0 if it never moved.

        (key_epoch, offset) is a version: it grows along the records of one key, across partitions.
        """
        return self._members.view(topic).routing.entered(key, partition, offset)

    def may_have(self, topic: str, key: bytes, partition: int) -> bool:
        """Whether the next record of a key would be delivered here: its home is owned and behind no closed gate.

        partition: where the key was seen last, which counts while the topic's layout has never changed.
        """
        view = self._members.view(topic)
        home = view.routing.of(key).home if view.managed and len(view.timeline.epochs) > 1 else partition
        owned = self._members.owned.get((topic, home))
        if owned is None or not owned.started or not self._gates.current(topic):
            return False
        return not any(gate.topic == topic and gate.partition == home for gate in self.gates())

    @property
    def strays(self) -> int:
        """Records found so far that were written against the timeline, by late or foreign writers.

        `keyorder.strays` says whether they were delivered or went to the dead-letter topic.
        """
        return self._strays.counts.total()

    def close(self) -> None:
        """Commit what was processed, leave the group, release everything.

        What was returned last counts as processed, unless an exception is on its way through the caller.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if sys.exc_info()[0] is None and self._view.failure is None:
                self._delivery.finish_returned()
            if self._delivery.columns is not None:
                self._delivery.columns.close()
            self._raw.close()
        finally:
            self._view.stop()
            self._positions.stop()
            self._origins.stop()
            if self._early is not None:
                self._early.stop()
            self._strays.close()
            self._members.starter.close()

    def __enter__(self) -> OrderedConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _deliver(self, wanted: int, timeout: float, events: bool = True) -> None:
        self._check_open()
        self._delivery.take(wanted, timeout, events)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _timeline_changed(self, topic: str) -> None:
        """On the view's thread: let a classic member see new partitions. Only a look at *all* topics wakes it."""
        if not self._closed:
            self._waker.wake()


def _places(message: Message | None, offsets: list[TopicPartition] | None) -> list[TopicPartition]:
    if message is not None:
        return [TopicPartition(*place_of(message), offset_of(message) + 1)]
    return list(offsets or [])
