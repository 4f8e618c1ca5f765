"""OrderedConsumer: confluent-kafka's Consumer, which delivers each key in order while the topic's count changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...partitioner.errors import ConfigError, UsageError
from ...partitioner.gates.starts import note_of
from .. import clock
from ..callbacks import wrapped
from ..config import connection_of, consumer_settings
from ..giving import Outbox
from ..messages import offset_of, place_of
from ..parcels import Item, items_of
from .committing import Committer
from .gating import Gatekeeper
from .group_metadata import GroupMetadata
from .listener import KeyRebalanceListener
from .membership import Membership
from .origins import OriginWatch
from .positions import GroupPositions
from .reading import Intake
from .starting import Starter
from .strays import StrayPolicy, Strays
from .view import ViewKeeper
from .waker import Waker

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ..arrow.consuming import ColumnSource

RebalanceCallback = Callable[[Any, list[TopicPartition]], None]
_BATCH = 500
_KEEPALIVE = 1.0


@dataclass(frozen=True, slots=True)
class Gate:
    """A closed gate of a partition that this member owns.

    waits_for: the origin partition; needs_offset: what the group has to commit there; at_offset: what it has.
    records_held: fetched and waiting in memory. since: seconds of the machine's clock. eta: seconds until it opens at the
    rate so far, None until a rate is known. owner: "this member", or the member that owns the origin with its client id
    and host, "nobody", or "another member" until that is known.
    reason, detail: what it waits for, as `partitioner.gates.waits.Reason` names it, and what to look at.
    """

    topic: str
    partition: int
    epoch: int
    waits_for: int
    needs_offset: int
    at_offset: int
    records_held: int
    since: float
    owner: str
    eta: float | None = None
    reason: str = ""
    detail: str = ""


class OrderedConsumer:
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
        committed_only = str(theirs.get("isolation.level", "read_committed")) == "read_committed"
        starter = Starter(self._raw, connection, self._settings.group, self._settings.start_at_latest, committed_only)
        self._members = Membership(self._raw, self._settings, self._view, starter)
        self._commits = Committer(self._raw, self._settings, self._members, bootstrap)
        self._origins = OriginWatch(connection, self._settings.group)
        self._gates = Gatekeeper(self._settings, self._members, self._positions, self._origins)
        policy = StrayPolicy(self._settings.strays)
        self._strays = Strays(connection, self._settings.group, policy, self._settings.dead_letter_topic)
        self._intake = Intake(self._settings, self._members, self._view, self._strays)
        self._members.before_revoke = self._before_revoke
        self._members.gates = self._gates
        self._members.commits = self._commits
        self._commits.strays = self._strays
        self._out = Outbox(self._members)
        self._intake.ready = self._gates.ready = self._out.ready
        self._members.before_fetch = lambda places: None
        self._arrow_options: dict[str, Any] = {
            "keyorder.arrow.native": self._settings.arrow_native,
            **wrapped({"error_cb": theirs.get("error_cb")}, lambda call: self._members.guarded(call)),
        }
        self._columns: ColumnSource | None = None
        self._columnar = False
        self._failure: Exception | None = None
        self._last_raw = clock.now()
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
        self._finish_returned()
        self._raw.unsubscribe()

    def poll(self, timeout: float = -1) -> Message | None:
        """The next record (or an error event), or None after `timeout` seconds (-1: wait)."""
        self._take(1, timeout)
        messages = self._out.messages()
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to `num_messages` records, as soon as there are that many or `timeout` seconds are over (-1: wait)."""
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        self._take(num_messages, timeout)
        return self._out.messages()

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
        if not self._columnar and not self._closed:
            self._become_columnar()
        self._take(max_rows, timeout, events=False)
        return batch_of_parcels(self._out.parcels())

    def put_back(self, messages: list[Message]) -> None:
        """Records that were returned, and that the application never saw: they come again with the next poll().

        Only those of the last call, in their order, and before any other call.
        """
        self._out.unseen.extend(messages)

    def gates(self) -> list[Gate]:
        """Each closed gate of this member's partitions, with what it waits for."""
        return [Gate(**facts) for facts in self._gates.closed()]

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

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As confluent_kafka.Consumer.committed, with the metadata that the application gave."""
        return [_with_own_note(place) for place in self._raw.committed(partitions, timeout)]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset behind the last record that was returned, per partition."""
        self._check_open()
        return [self._members.position(place) for place in partitions]

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Own exactly these partitions, without the group's assignor; inside on_assign: say where they start.

        poll() raises AssignmentError for a partition that waits for one that is not assigned.
        """
        self._check_open()
        self._strays.check()
        self._members.assign(partitions, replace=True)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Own these partitions too; inside on_assign: say where they start."""
        self._check_open()
        self._members.assign(partitions, replace=False)

    def unassign(self) -> None:
        """Own no partition any more. Inside on_revoke and on_lost keyorder does that by itself."""
        self._check_open()
        self._members.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Own these partitions no more. Inside on_revoke and on_lost keyorder does that by itself."""
        self._check_open()
        self._members.unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member owns, those behind closed gates included."""
        self._check_open()
        return [TopicPartition(t, p) for t, p in sorted(self._members.owned)]

    def seek(self, partition: TopicPartition) -> None:
        """Go on from another offset of an owned partition. A rewind closes the gates behind it again."""
        self._check_open()
        self._ready_without({(partition.topic, partition.partition)})
        self._members.seek(partition)
        self._positions.forget(partition.topic)
        self._gates.rearm(partition.topic)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no more records of these partitions until resume()."""
        self._check_open()
        self._members.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Undo pause()."""
        self._check_open()
        self._members.resume(partitions)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """As confluent_kafka.Consumer.get_watermark_offsets."""
        return self._raw.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """As confluent_kafka.Consumer.offsets_for_times."""
        return self._raw.offsets_for_times(partitions, timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """As confluent_kafka.Consumer.list_topics."""
        self._check_open()
        admin = self._members.starter.admin  # the consumer's own may not return while its group rebalances
        return admin.list_topics(topic, timeout) if topic is not None else admin.list_topics(timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """As confluent_kafka.Consumer.cluster_id."""
        return self._raw.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka.Consumer.set_sasl_credentials; for the clients beside it as well."""
        self._raw.set_sasl_credentials(username, password)
        for client in (self._view, self._positions, self._origins, self._members.starter, self._strays):
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

    def memberid(self) -> str:
        """As confluent_kafka.Consumer.memberid."""
        return self._raw.memberid()

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
                self._finish_returned()
            if self._columns is not None:
                self._columns.close()
            self._raw.close()
        finally:
            self._view.stop()
            self._positions.stop()
            self._origins.stop()
            self._strays.close()
            self._members.starter.close()

    def __enter__(self) -> OrderedConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, wanted: int, timeout: float | None, events: bool = True) -> None:
        """The engine: settle what was returned before, let in what may be delivered, wait for more in the outbox.

        A rebalance in between takes back what was already collected here for partitions that have gone.
        """
        self._check_open()
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        self._strays.settle()
        if self._out.unseen:
            self._out.again(wanted)
            return
        self._finish_returned()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        out = self._out
        out.begin()
        while True:
            self._collect(wanted, events)
            now = clock.now()
            enough = out.count >= wanted or (out.count and (wanted == 1 or (out.stopped and not events)))
            if enough and now - self._last_raw < _KEEPALIVE:
                return
            left = 0.0 if enough else self._patience(deadline, now)
            try:
                self._turn(wanted, left)
            except Exception as error:
                if not out.count:
                    raise
                # What was collected counts as returned: it goes out, and the error comes with the next call.
                self._failure = error
                return
            self._collect(wanted, events)
            if out.count >= wanted or (deadline is not None and clock.now() >= deadline):
                return

    def _collect(self, wanted: int, events: bool) -> None:
        event = self._out.collect(wanted, events)
        while event is not None:
            error = event.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            event = self._out.collect(wanted, events)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _turn(self, wanted: int, wait: float) -> None:
        if self._view.failure is not None:
            raise self._view.failure  # also where no record comes: an idle reader that cannot go on would seem well
        self._members.start_assigned()
        self._commits.flush_and_prove()
        self._gates.open_what_may()
        items: list[Item] = []
        if not self._intake.waiting:
            if self._columns is not None:
                items = self._columns.take(max(_BATCH, wanted), wait)
            else:
                first = self._raw.poll(wait)
                if first is not None:
                    items = items_of([first, *self._raw.consume(max(_BATCH, wanted) - 1, 0)])
        self._last_raw = clock.now()
        self._members.raise_pending()
        self._intake.take(items, self._last_raw)

    def _become_columnar(self) -> None:
        """From now on records are fetched as columns, where the C library's calls can be had."""
        from ..arrow.consuming import ColumnSource
        from ..arrow.library import native

        self._columnar = True
        self._columns = ColumnSource.of(self._raw, native(self._arrow_options), self._arrow_options.get("error_cb"))
        if self._columns is not None:
            # What waits in the client library or has not been judged yet is fetched again, as columns.
            self._out.drop_unjudged(self._intake.waiting)
            self._members.before_fetch = self._columns.route
            self._members.fetch_anew()

    def _patience(self, deadline: float | None, now: float) -> float:
        """How long the client library may block: short while a gate is closed or a change is near."""
        wait = 0.005 if self._gates.busy or self._members.busy else 0.05
        return wait if deadline is None else max(0.0, min(wait, deadline - now))

    def _finish_returned(self) -> None:
        """The application is back: what it was given last is processed, if it left that to us."""
        unseen = {place_of(message) for message in self._out.unseen}
        for place in self._out.touched - unseen:
            owned = self._members.owned.get(place)
            if owned is not None:
                owned.unfinished = False
                if self._settings.auto_store and self._settings.auto_commit:
                    owned.done_with_all()
        self._out.touched.clear()
        self._commits.periodic()

    def _before_revoke(self, places: set[tuple[str, int]]) -> None:
        self._ready_without(places)
        self._out.touched -= places

    def _ready_without(self, places: set[tuple[str, int]]) -> None:
        """Drop what the application has not seen: its new owner starts before it, or a seek left it behind."""
        self._out.drop(places, self._intake.waiting)

    def _timeline_changed(self, topic: str) -> None:
        """On the view's thread: let a classic member see new partitions. Only a look at *all* topics wakes it."""
        if not self._closed:
            self._waker.wake()


def _places(message: Message | None, offsets: list[TopicPartition] | None) -> list[TopicPartition]:
    if message is not None:
        return [TopicPartition(*place_of(message), offset_of(message) + 1)]
    return list(offsets or [])


def _with_own_note(place: TopicPartition) -> TopicPartition:
    note = note_of(place.metadata)
    if place.error is not None or note == place.metadata:
        return place
    return TopicPartition(place.topic, place.partition, place.offset, note)
