"""OrderedConsumer: confluent-kafka's Consumer, which delivers each key in order while the topic's count changes."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, Message, cimpl

from ...partitioner.errors import ConfigError, UsageError
from .. import clock
from ..callbacks import wrapped
from ..config import chosen, connection_of, consumer_settings, given
from ..extras import needs_extra
from ..figures import ConsumerFigures, shown
from ..forked import not_freed_in_children
from ..guarded_logger import passing
from ..interruptible import take_each
from ..link import ClusterLink
from ..never_made import never_made
from ..weakly import weakly
from . import ending
from .application_commits import ApplicationCommits
from .assignment import Assignment
from .callbacks import Callbacks, RebalanceCallback
from .callers import Callers, Serial, alone
from .cluster_queries import ClusterQueries
from .commit_calls import CommitCalls
from .committing import Committer
from .delivery import Delivery
from .gates.gate_status import Gate, GateStatus
from .gates.gating import Gatekeeper
from .gates.origins import OriginWatch
from .gates.positions import GroupPositions
from .gates.tail_scan import TailScanner
from .listener import KeyRebalanceListener, hears_of_keys
from .membership import Membership
from .metadata_refresher import MetadataRefresher
from .partition_control import PartitionControl
from .records.batches import Item
from .records.delivery_buffer import NOTHING, DeliveryBuffer, Receipt
from .records.strays import StrayPolicy, Strays
from .starting import Starter
from .view import ViewKeeper

if TYPE_CHECKING:
    from pyarrow import RecordBatch

R = TypeVar("R")
# How many records one call collects for the calls of poll() that follow.
_RUN = 500
# Seconds for a coordinator that does not answer: in close(), and where a consumer is dropped without it.
_CLOSE_PATIENCE, _DROP_PATIENCE = 15.0, 3.0
# What a method looks at first.
_PARTS = frozenset({"_callers", "_delivery", "_out", "_raw", "_settings"})
# Without a global lock other threads run anywhere: there poll() takes its turn for every record.
_RUNS: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


class OrderedConsumer(  # type: ignore[misc]  # one signature of commit() for their six
    CommitCalls, PartitionControl, ClusterQueries, Serial, cimpl.Consumer
):
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

    # A Consumer by type alone, as OrderedProducer is a Producer: what poll() reads has a slot.
    __slots__ = ("__dict__", "__weakref__", "_callers", "_close_later", "_closed", "_delivery", "_out")

    _members: Membership
    _commits: Committer

    def __new__(cls, *_: Any, **__: Any) -> OrderedConsumer:
        """Not usable before `__init__`, and says so."""
        made = super().__new__(cls)
        never_made(made, _PARTS, "Consumer closed")
        made._closed = True
        return made

    def __init__(self, config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> None:
        self._settings, theirs = consumer_settings(given(config, kwargs))
        # Nothing below holds the consumer itself, so that one that is dropped is freed, and leaves its group, at once.
        commits: Committer
        assignment: Assignment
        callbacks = self._callbacks = Callbacks()
        theirs["on_commit"] = lambda error, places: commits.arrived(error, places)
        if callable(theirs.get("stats_cb")):
            told = theirs["stats_cb"]
            theirs["stats_cb"] = lambda text: assignment.statistics.tell(told, text)
        self._callers = Callers()
        self._closed = True  # until there is something to close: what follows may raise
        self._closing = self._close_later = False
        self._raw = Consumer(wrapped(passing(theirs), callbacks.told_event))
        self._refresher = MetadataRefresher(self._raw)
        connection = connection_of(theirs)
        self._link = ClusterLink(connection)
        self._view = ViewKeeper(self._link, self._settings.group, weakly(self._timeline_changed))
        self._positions = GroupPositions(self._link, self._settings.group)
        isolation = chosen(theirs, "isolation.level", "read_committed")
        committed_only = isolation == "read_committed"
        starter = self._starter = Starter(
            self._raw, self._link, self._settings.group, self._settings.start_at_latest, committed_only
        )
        assignment = self._assignment = Assignment(self._raw, self._settings, self._view)
        self._origins = OriginWatch(self._link, self._settings.group)
        group, early = self._settings.group, self._settings.early_release
        self._early = TailScanner(connection, group, isolation) if early else None
        self._gates = Gatekeeper(
            self._settings, self._assignment, callbacks, self._positions, self._origins, self._early
        )
        self._status = GateStatus(self._settings, self._assignment, self._gates, self._positions, self._origins)
        policy = StrayPolicy(self._settings.strays)
        self._strays = Strays(connection, self._settings.group, policy, self._settings.dead_letter_topic)
        commits = self._commits = Committer(
            self._raw, self._settings, self._assignment, callbacks, self._gates, self._strays, self._link
        )
        self._application_commits = ApplicationCommits(self._raw, self._settings, self._assignment, commits)
        self._members = Membership(self._settings, self._assignment, callbacks, starter, self._gates, self._commits)
        options = {
            "keyorder.arrow.native": self._settings.arrow_native,
            **wrapped({"error_cb": theirs.get("error_cb")}, callbacks.told_event),
        }
        self._delivery = Delivery(
            self._raw,
            self._settings,
            self._assignment,
            callbacks,
            self._members,
            starter,
            self._commits,
            self._gates,
            self._status,
            self._strays,
            options,
            weakly(self._between),
        )
        self._out = self._assignment.out
        self._closed = False
        # Threads do not keep a consumer that nobody has any more; without it they end.
        others = (self._early, self._members.overlooked, self._members.growth)
        threads = [self._view, self._positions, self._origins, *(each for each in others if each is not None)]
        self._dropped = weakref.finalize(self, _end, [*(thread.retire for thread in threads), self._link.release])
        self._dropped.atexit = False
        not_freed_in_children(self)
        self._stop_showing = shown(self, self._settings.metrics_at)
        self._view.start()

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
        topics = [str(topic) for topic in topics]
        self._strays.check()
        for topic in topics:
            if topic and topic == self._settings.dead_letter_topic:
                raise ConfigError("keyorder.strays.dead.letter.topic", f"{topic!r} is read here", "name another topic")
            if not topic or topic.startswith("^"):
                continue  # of no name the library says what it thinks of it
            self._view.follow(topic)
        self._callbacks.follow(self, listener, on_assign, on_revoke, on_lost)
        self._members.subscribe(topics)

    @alone
    def unsubscribe(self) -> None:
        """Leave the group."""
        self._begin()
        self._delivery.finish_returned()
        self._members.unsubscribe()

    def __repr__(self) -> str:
        return f"<OrderedConsumer of group {self._settings.group}{', closed' if self._closed else ''}>"

    def poll(self, timeout: float = -1) -> Message | None:
        """The next record (or an error event), or None after `timeout` seconds (-1: wait)."""
        run = self._out.run
        if run is not None and clock.now() < run.until:
            # CPython looks at signals and lets other threads run after calls, at the start of functions and where it jumps.
            # There is none of it from here to the return: a record is counted as returned, once, exactly when it is.
            i = run.next
            if i < run.end:
                message = run.messages[i]
                run.next = i + 1
                return message
        return self._poll(timeout, run is not None)

    def _poll(self, timeout: float, was_open: bool) -> Message | None:
        """poll() where no run goes on. was_open: a handler of a signal that came meanwhile may have closed it."""
        if not _RUNS:
            messages = self._taken(1, timeout, True, _messages)
            return messages[0] if messages else None
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        while not (was_open and self._closed):
            if not self.prepare(timeout):
                break
            message = self.given()
            if message is not None:
                return message
            # Another thread was faster, or it has ended the run.
            was_open = True
            timeout = -1 if deadline is None else max(0.0, deadline - clock.now())
        return None

    def prepare(self, timeout: float) -> bool:
        """poll() in two steps: wait until `given` has something. False when nothing came in time."""
        return bool(self._run(1, timeout, True, self._delivery.offer, _RUN))

    def given(self, ahead: bool = True) -> Message | None:
        """What poll() would return without waiting; None where it would have to do more. ahead: `prepare` was called."""
        run = self._out.run
        if run is not None and (ahead or clock.now() < run.until):
            i = run.next  # as in poll(): no call and no jump from here on
            if i < run.end:
                message = run.messages[i]
                run.next = i + 1
                return message
        return None

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
        with needs_extra("arrow"):
            from ..arrow.batches import arrow_batch_of

        if max_rows < 1:
            raise ValueError("max_rows must be positive")
        taken = self._taken(max_rows, timeout, False, lambda out: arrow_batch_of(out.batches()))
        return arrow_batch_of([]) if taken is None else taken

    @alone
    def gates(self) -> list[Gate]:
        """Each closed gate of this member's partitions, with what it waits for."""
        self._delivery.book()
        return list(self._status.closed())

    def figures(self) -> ConsumerFigures:
        """What it holds and knows now, for metrics; see `keyorder.metrics`. Any thread may ask, and nobody is waited for."""
        now, shut, owned = clock.now(), dict(self._gates.shut), dict(self._assignment.owned)
        topics = {topic for topic, _ in owned}
        timelines = {topic: self._view.timeline(topic) for topic in topics}
        return ConsumerFigures(
            group=self._settings.group,
            gates={topic: sum(place[0] == topic for place in shut) for topic in topics},
            gate_ages={
                topic: max((now - since for place, since in shut.items() if place[0] == topic), default=0.0)
                for topic in topics
            },
            held={topic: sum(len(each.held) for place, each in owned.items() if place[0] == topic) for topic in topics},
            epochs={topic: known.newest.number for topic, known in timelines.items() if known is not None},
            view_ages={topic: age for topic in topics if (age := now - self._view.as_of(topic)) < float("inf")},
            misplaced={**dict.fromkeys(topics, 0), **self._strays.by_topic()},
            commits=self._commits.acknowledged,
            gate_times=self._gates.durations,
        )

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka.Consumer.set_sasl_credentials; for the clients beside it as well."""
        self._raw.set_sasl_credentials(username, password)
        for client in (self._link, self._strays, self._early):
            if client is not None:
                client.set_sasl_credentials(username, password)

    @alone
    def key_epoch(self, topic: str, key: bytes, partition: int, offset: int) -> int:
        """The epoch in which the key of the record at this place came to that partition; 0 if it never moved.

        (key_epoch, offset) is a version: it grows along the records of one key, across partitions.
        """
        return self._assignment.view(topic).routing.entered(key, partition, offset)

    @alone
    def may_have(self, topic: str, key: bytes, partition: int) -> bool:
        """Whether the next record of a key would be delivered here: its home is owned and behind no closed gate.

        partition: where the key was seen last, which counts while the topic's layout has never changed.
        """
        view = self._assignment.view(topic)
        home = view.routing.of(key).home if view.managed and len(view.timeline.epochs) > 1 else partition
        owned = self._assignment.owned.get((topic, home))
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
        Raises what a callback has raised meanwhile, when everything is released.
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
            self._delivery.settle()
            if processed and self._view.failure is None:
                self._delivery.note_processed()
            self._members.leave(_CLOSE_PATIENCE)
        finally:
            watches = (self._members.overlooked, self._members.growth)
            threads = [
                thread
                for thread in (self._view, self._positions, self._origins, self._early, *watches)
                if thread is not None
            ]
            take_each(
                [
                    self._close_columns,
                    self._close_raw,
                    self._close_raw,  # if the first was broken off
                    self._dropped.detach,
                    self._stop_showing,
                    *(thread.retire for thread in threads),  # all of them before the first is waited for
                    *(thread.stop for thread in threads),
                    self._strays.close,
                    self._link.close,
                    self._link.close,  # as above
                ]
            )
        self._callbacks.raise_pending(closing=True)

    def _close_columns(self) -> None:
        if self._delivery.columns is not None:
            self._delivery.columns.close()

    def _close_raw(self) -> None:
        if not self._closed:
            self._end_raw()
            self._closed = True

    def _end_raw(self) -> None:
        if self._commits.ends_unheard(_DROP_PATIENCE):
            ending.let_go(self._raw)
        else:
            ending.close(self._raw)

    def __del__(self) -> None:
        # The client library's own end of a consumer that is not closed waits for ever where a rebalance has just been answered.
        if not getattr(self, "_closed", True):
            self._members.abandon()
            self._close_columns()
            self._end_raw()

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

    def _taken(self, wanted: int, timeout: float, events: bool, result: Callable[[DeliveryBuffer], R]) -> R | None:
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

    def _run(
        self, wanted: int, timeout: float | None, events: bool, result: Callable[[], R], room: int = 0
    ) -> R | None:
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
            self._delivery.take(wanted, timeout, events, room)
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
        self._delivery.settle()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _timeline_changed(self, topic: str) -> None:
        """On the view's thread: a new epoch may be provable, and a classic member has to see new partitions."""
        if not self._closed:
            self._commits.stir()
            timeline = self._view.timeline(topic)
            if timeline is not None and timeline.change is not None:
                self._positions.expect((topic, 0))
            if not self._members.watch_growth():
                self._refresher.wake()


def _messages(out: DeliveryBuffer) -> list[Message]:
    return out.messages()


def _end(threads: list[Callable[[], None]]) -> None:
    for end in threads:
        end()
