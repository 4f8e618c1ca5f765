"""OrderedConsumer: confluent-kafka's Consumer, which delivers each key in order while the topic's count changes."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...partitioner.errors import ConfigError, UsageError
from .. import clock
from ..callbacks import wrapped
from ..config import connection_of, consumer_settings
from ..messages import offset_of, place_of
from .callers import Callers, Serial, alone
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
from .records.outbox import NOTHING, Outbox, Receipt
from .records.parcels import Item
from .records.strays import StrayPolicy, Strays
from .starting import Starter
from .view import ViewKeeper
from .waker import Waker

if TYPE_CHECKING:
    from pyarrow import RecordBatch

R = TypeVar("R")


class OrderedConsumer(PartitionControl, ClusterQueries, Serial):
    """A consumer of managed topics. Used as confluent_kafka.Consumer, with the same settings.

    A partition into which keys have moved is read up to the first closed gate, and on when the group has processed and
    committed what lies before it in the origin. By default a record counts as processed when poll() or consume() is
    called again after it was returned; with `enable.auto.commit=false` when the application commits it, with
    `enable.auto.offset.store=false` when it stores it. An application that commits in batches has to do so on
    `on_partition_key_maybe_revoked` or on a time limit, or moved keys wait for it.

    Any thread may call it: calls take turns, and a poll lets the others in while it waits. An exception that ends a call,
    such as a signal handler's, loses nothing: what the call would have returned comes with the next one.

    Raises ConfigError for a missing `group.id` or a setting that order does not allow.
    """

    _members: Membership
    _commits: Committer

    def __init__(self, config: Mapping[str, Any], /, **kwargs: Any) -> None:
        self._settings, theirs = consumer_settings({**config, **kwargs} if kwargs else config)
        bootstrap = str(theirs.get("bootstrap.servers"))
        theirs["on_commit"] = lambda error, places: self._commits.arrived(error, places)
        self._callers = Callers()
        self._closed = self._closing = self._close_later = False
        self._raw = Consumer(wrapped(theirs, lambda call: self._members.guarded(call)))
        self._waker = Waker(self._raw)
        connection = connection_of(theirs)
        self._view = ViewKeeper(connection, self._settings.group, _weakly(self._timeline_changed))
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
            self._between,
        )
        # Threads do not keep a consumer that nobody has any more; without it they end.
        others = (self._early, self._members.overlooked)
        threads = [self._view, self._positions, self._origins, *(each for each in others if each is not None)]
        self._dropped = weakref.finalize(self, _end, [thread.retire for thread in threads])
        self._dropped.atexit = False
        self._view.start()
        self._positions.start()

    @alone
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
        self._begin()
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
        self._members.subscribe(topics, self, listener, on_assign, on_revoke, on_lost)

    @alone
    def unsubscribe(self) -> None:
        """Leave the group."""
        self._begin()
        self._delivery.finish_returned()
        self._members.unsubscribe()

    def poll(self, timeout: float = -1) -> Message | None:
        """The next record (or an error event), or None after `timeout` seconds (-1: wait)."""
        messages = self._taken(1, timeout, True, _messages)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to `num_messages` records, as soon as there are that many or `timeout` seconds are over (-1: wait)."""
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return self._taken(num_messages, timeout, True, _messages) or []

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
        taken = self._taken(max_rows, timeout, False, lambda out: batch_of_parcels(out.parcels()))
        return batch_of_parcels([]) if taken is None else taken

    @alone
    def gates(self) -> list[Gate]:
        """Each closed gate of this member's partitions, with what it waits for."""
        return list(self._status.closed())

    @alone
    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark records as processed; the next automatic commit takes them. Needs enable.auto.offset.store=false."""
        self._begin()
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        if self._settings.auto_store:
            text = "store_offsets needs enable.auto.offset.store=false: otherwise poll() stores by itself"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
        self._commits.store(_places(message, offsets))

    @alone
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
        self._begin()
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

    @alone
    def key_epoch(self, topic: str, key: bytes, partition: int, offset: int) -> int:
        """The epoch in which the key of the record at this place came to that partition; 0 if it never moved.

        (key_epoch, offset) is a version: it grows along the records of one key, across partitions.
        """
        return self._members.view(topic).routing.entered(key, partition, offset)

    @alone
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

        What was returned last counts as processed, unless an exception is on its way through the caller. Inside a callback,
        or in a signal handler that has interrupted a call of this consumer, it is closed as soon as that call has ended.
        """
        if self._closed:
            return
        self._closing = True
        if self._callers.inside:
            self._close_later = True
            return
        self._close(sys.exc_info()[0] is None)

    @alone
    def _close(self, processed: bool) -> None:
        if self._closed:
            return
        try:
            try:
                if processed and self._view.failure is None:
                    self._delivery.note_processed()
                self._members.leave()
            finally:
                if self._delivery.columns is not None:
                    self._delivery.columns.close()
                self._raw.close()
                self._closed = True
        finally:
            self._dropped.detach()
            self._view.stop()
            self._positions.stop()
            self._origins.stop()
            for thread in (self._early, self._members.overlooked):
                if thread is not None:
                    thread.stop()
            self._strays.close()
            self._members.starter.close()

    def __enter__(self) -> OrderedConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, num_messages: int, timeout: float) -> tuple[list[Message], Receipt]:
        """As consume(), in two steps: until `accept` is called with the receipt, the records come again with the next call."""
        out = self._delivery.out
        found = self._run(num_messages, timeout, True, lambda: (_messages(out), out.receipt()))
        return ([], NOTHING) if found is None else found

    def accept(self, receipt: Receipt) -> None:
        """What take() returned is the application's now. To be called before any other call of the consumer."""
        if receipt is not NOTHING:
            self._delivery.out.last = receipt

    @property
    def turns(self) -> int:
        """Who takes turns here, for `callers.lent`."""
        return id(self._callers)

    def _taken(self, wanted: int, timeout: float, events: bool, result: Callable[[Outbox], R]) -> R | None:
        """What one call returns; None for nothing. An exception at any line leaves it to the next call."""
        out = self._delivery.out
        collected: list[Item] = []
        receipt = NOTHING

        def returned() -> R:
            nonlocal collected, receipt
            assert isinstance(out.last, list)
            taken = result(out)
            collected, receipt = out.last, out.receipt()
            out.last = receipt
            return taken

        try:
            return self._run(wanted, timeout, events, returned)
        except BaseException:
            # A signal's exception came between that line and this one: the application does not get them.
            if out.last is receipt and receipt is not NOTHING:
                out.last = collected
            raise

    def _run(self, wanted: int, timeout: float | None, events: bool, result: Callable[[], R]) -> R | None:
        callers = self._callers
        if callers.inside:
            raise RuntimeError("a callback cannot poll: the poll that has called it waits for it")
        me = threading.get_ident()
        began = clock.now()
        try:
            if not callers.enter(-1 if timeout is None or timeout < 0 else min(timeout, threading.TIMEOUT_MAX)):
                return None
            self._check_open()
            if timeout is not None and timeout > 0:
                timeout = max(0.0, timeout - (clock.now() - began))
            if not events:
                self._delivery.become_columnar()
            self._delivery.take(wanted, timeout, events)
            return None if self._close_later else result()
        finally:
            if callers.owner == me:
                callers.owner = 0
            try:
                callers.release()
            except RuntimeError:
                pass  # an exception came before the turn
            if self._close_later:
                self._left()

    def _between(self) -> bool:
        """Between two turns of a call. False when it has to end."""
        self._callers.let_others_in()
        if self._closing and not self._close_later:
            raise RuntimeError("Consumer closed")
        return not self._close_later

    def _left(self) -> None:
        if self._close_later and not self._closed:
            self._close(False)

    def _begin(self) -> None:
        self._check_open()
        self._delivery.book()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _timeline_changed(self, topic: str) -> None:
        """On the view's thread: let a classic member see new partitions. Only a look at *all* topics wakes it."""
        if not self._closed:
            self._waker.wake()


def _messages(out: Outbox) -> list[Message]:
    return out.messages()


def _weakly(method: Callable[[str], None]) -> Callable[[str], None]:
    """The method, as long as its object is there."""
    reference = weakref.WeakMethod(method)

    def call(topic: str) -> None:
        found = reference()
        if found is not None:
            found(topic)

    return call


def _end(threads: list[Callable[[], None]]) -> None:
    for end in threads:
        end()


def _places(message: Message | None, offsets: list[TopicPartition] | None) -> list[TopicPartition]:
    if message is None:
        return list(offsets or [])
    if message.error() is not None or message.offset() is None or offset_of(message) < 0:
        text = "a message with an error says nothing of what was processed"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
    return [TopicPartition(*place_of(message), offset_of(message) + 1)]
