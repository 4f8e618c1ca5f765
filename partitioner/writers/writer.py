"""The writer: one producer's side of the control topics, as a step machine: `step(event, now) -> actions`.

It joins under a lease, renews it, follows the timelines of its topics, and answers each PREPARE with READY once nothing of
the moving keys can reach their old homes. `Standing` says where it is; ARCHITECTURE.md has the table.

The driver tells it what it has read and carries its actions out in order. Whatever hands records to the client library asks
`sends` first, under the same lock as `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from ..epochs import ChangePhase
from ..errors import IneligibleWriterError, KeyorderError, OrderError, ReleasedTopicError, UnmanagedTopicError
from ..records.control_records import Ready
from ..routing import Route
from ..timeline import Timeline
from .events import (
    Action,
    Admitted,
    CheckLogs,
    Ended,
    EpochSeen,
    Event,
    Fail,
    Failed,
    FailTopic,
    FindPartitions,
    LeaseLapsed,
    LeaseRead,
    Leaving,
    Look,
    Looked,
    NotWritten,
    PartitionsFound,
    Refused,
    Tick,
    TimelineRead,
    TookId,
    Unreachable,
    Wanted,
    WriteLease,
    WriteReady,
)
from .lease import LeaseKeeper, LeaseTerms, Standing
from .proof import Proof
from .sending import R, TopicSending

_NEVER = float("-inf")
# How long the driver may wait for the next control record: nothing to do, something soon, records to be settled. Seconds.
_IDLE, _SOON, _NOW = 0.1, 0.01, 0.003
# How long the last callbacks are kept at hand.
_CALLBACKS_SECONDS = 1.0
# Actions that wait for a broker's answer.
_QUESTIONS = Look, CheckLogs, FindPartitions


class Writer(Generic[R]):
    """The state of one writer. Not thread-safe: its owner holds a lock around every call.

    writer_id: under which it joins; no two live writers have the same. new_nonce: names a join like no other.
    topics: those that may be written, with what they send and hold. send_until: records go out before it.
    failure: what stopped this writer. failures: what stopped it for single topics; the others go on.
    """

    def __init__(
        self,
        writer_id: str,
        terms: LeaseTerms,
        new_nonce: Callable[[], str],
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 0,
    ) -> None:
        self.writer_id, self.transactional_id, self._new_nonce = writer_id, transactional_id, new_nonce
        self.lease = LeaseKeeper(writer_id, terms, transactional_id, transaction_timeout_ms)
        self.topics: dict[str, TopicSending[R]] = {}
        self.send_until = _NEVER
        self.failure: KeyorderError | None = None
        self.failures: dict[str, KeyorderError] = {}
        self._proof = Proof(self.lease)
        # Whether somebody waits for the topic to be admitted.
        self._wanted: dict[str, bool] = {}
        self._timelines: dict[str, Timeline] = {}
        self._pending: dict[str, TimelineRead] = {}
        self._looks = 0
        self._looking: Look | None = None
        # What the lease named when the logs were read to their ends under it. None: not under this join.
        self._looked: frozenset[str] | None = None
        self._check_due = False
        self._roll_called: dict[str, int] = {}
        self._partitions: dict[str, int] = {}
        self._callbacks_kept_until = _NEVER
        self._handlers: dict[type[Any], Callable[[Any, float], list[Action]]] = {
            Wanted: self._on_wanted,
            TookId: self._on_took_id,
            TimelineRead: self._on_timeline,
            LeaseRead: self._on_lease,
            Looked: self._on_looked,
            Unreachable: self._on_unreachable,
            PartitionsFound: self._on_partitions,
            NotWritten: self._on_not_written,
            Failed: self._on_failed,
            Tick: self._on_tick,
            Leaving: self._on_leaving,
            Ended: self._on_ended,
        }

    def step(self, event: Event, now: float) -> list[Action]:
        """Take in an event at `now`, seconds of a clock that counts through suspend. Returns what is to be done, in order."""
        return self._handlers[type(event)](event, now)

    @property
    def wanted(self) -> list[str]:
        """The topics whose timelines are followed."""
        return list(self._wanted)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do: no topic was used, and no transactional id is held."""
        return not self._wanted and self.lease.took_id_after < 0

    @property
    def settling(self) -> bool:
        """Whether it waits for the fate of records on their way: delivery reports are to be served before each Tick."""
        lost = self.lease.standing in (Standing.OUT, Standing.LAPSED)
        return lost or any(
            sending.preparing and not sending.answered and topic not in self.failures
            for topic, sending in self.topics.items()
        )

    @property
    def patience(self) -> float:
        """Seconds until the next Tick, if nothing arrives before."""
        if self.lease.standing in (Standing.OUT, Standing.LAPSED):
            return _SOON
        if self.settling:
            return _NOW
        held = any(sending.held and not sending.preparing for sending in self.topics.values())
        return _SOON if held or any(self._wanted.values()) or self._looking is not None else _IDLE

    def check(self, topic: str | None = None) -> None:
        """Raise what has stopped this writer, or has stopped it for the topic."""
        if self.failure is not None:
            raise self.failure
        if topic is not None and topic in self.failures:
            raise self.failures[topic]

    def sends(
        self, sending: TopicSending[R], key: bytes | None, route: Route | None, now: float, explicit: int | None = None
    ) -> bool:
        """Whether a record may be handed over now; else it has to be held.

        route: of its key; None where the application has placed it itself, at `explicit`, or it has no key.
        Without a lease every record waits, not those of moving keys alone: which keys move now is not known here.
        """
        if now >= self.send_until or (explicit is not None and sending.retiring(explicit)):
            return False
        return not sending.must_wait(key, route)

    # -- events ----------------------------------------------------------------------------------------------------

    def _on_wanted(self, event: Wanted, _: float) -> list[Action]:
        self._wanted[event.topic] = True
        return []

    def _on_took_id(self, event: TookId, _: float) -> list[Action]:
        """From now on it has a lease, whether it writes or not: by that a change knows that it need not take the id from it
        to be sure of those who had it before."""
        self.lease.took_id_after = event.log_end
        return []

    def _on_timeline(self, event: TimelineRead, now: float) -> list[Action]:
        if event.topic in self._wanted:
            return [*self._take_pending(event.topic, now), *self._take_timeline(event, now)]
        self._pending[event.topic] = event  # somebody else's, and not looked into; it may be wanted later
        return []

    def _on_lease(self, event: LeaseRead, now: float) -> list[Action]:
        if event.lease.identity != (self.writer_id, self.transactional_id):
            return []
        self.lease.read(event.lease, event.offset, now)
        if self.lease.standing is Standing.SUPERSEDED:
            return [Fail(IneligibleWriterError(self.writer_id, "a newer process joined under this id"))]
        return self._lapse() if self.lease.standing is Standing.LAPSED else []

    def _on_looked(self, event: Looked, _: float) -> list[Action]:
        if self._looking is None or self._looking.number != event.number:
            return []  # it belongs to a join that has lapsed since, or to one that named other topics
        self._looked, self._looking = self._looking.topics, None
        self._follow_lease()
        return self._admit()

    def _on_unreachable(self, _: Unreachable, __: float) -> list[Action]:
        """The lease goes on by its own rules, and what cannot be proven is not sent."""
        self._looking = None
        return []

    def _on_partitions(self, event: PartitionsFound, _: float) -> list[Action]:
        self._partitions[event.topic] = event.count
        return []

    def _on_not_written(self, event: NotWritten, _: float) -> list[Action]:
        """A lost JOIN is given up for a new one, a lost renewal is followed by the next. Nobody else says a lost READY."""
        if isinstance(event.action, WriteLease):
            self.lease.lost_join()
        elif (sending := self.topics.get(event.action.ready.topic)) is not None:
            sending.lost_ready(event.action.ready.epoch)
        return []

    def _on_failed(self, event: Failed, _: float) -> list[Action]:
        self.failure, self.send_until = event.error, _NEVER
        return [Refused(topic, event.error) for topic in self._answered()]

    def _on_tick(self, _: Tick, now: float) -> list[Action]:
        actions: list[Action] = []
        for topic in self.wanted:
            actions += self._take_pending(topic, now)
        actions += self._keep_lease(now)
        actions += self._admit()
        for topic, sending in self.topics.items():
            if topic not in self.failures:
                actions += self._answer(topic, sending, now)
        if now >= self._callbacks_kept_until:
            self._callbacks_kept_until = now + _CALLBACKS_SECONDS
            for sending in self.topics.values():
                sending.forget_callbacks()
        # A broker may be away for the seconds that a question takes: a READY that others wait for does not wait for it.
        return sorted(actions, key=lambda action: isinstance(action, _QUESTIONS))

    def _on_leaving(self, _: Leaving, now: float) -> list[Action]:
        """The end of the lease is written only if nothing can reach a broker any more.

        A change counts a writer that has left as one with nothing on its way; else the lease runs out by itself.
        """
        self.send_until = _NEVER
        clear = self._clear(now)
        lease = self.lease.leave(now)
        return [WriteLease(lease)] if lease is not None and clear else []

    def _on_ended(self, _: Ended, __: float) -> list[Action]:
        self.send_until = _NEVER
        return []

    # -- timelines -------------------------------------------------------------------------------------------------

    def _take_pending(self, topic: str, now: float) -> list[Action]:
        pending = self._pending.pop(topic, None)
        return [] if pending is None else self._take_timeline(pending, now)

    def _take_timeline(self, event: TimelineRead, now: float) -> list[Action]:
        """One topic's trouble is that topic's: the others go on."""
        topic = event.topic
        if topic in self.failures:
            return []
        try:
            timeline = event.source.record
            if not isinstance(timeline, Timeline):
                return []
            if topic in self.topics:
                self.topics[topic].apply(timeline, now)
        except OrderError as error:
            return self._fail_topic(topic, error)
        known, self._timelines[topic] = self._timelines.get(topic), timeline
        if known is None or known.newest.number == timeline.newest.number:
            return []
        return [EpochSeen(timeline, known)]

    def _fail_topic(self, topic: str, error: KeyorderError) -> list[Action]:
        self.failures[topic] = error
        if topic in self.topics:
            self.topics[topic].shut_fast_path()
        if topic in self._wanted:
            self._wanted[topic] = False
        return [FailTopic(topic, error)]

    # -- the lease -------------------------------------------------------------------------------------------------

    def _keep_lease(self, now: float) -> list[Action]:
        self.lease.tick(now)
        standing = self.lease.standing
        if standing is Standing.LIVE:
            return self._keep_live(now)
        if standing is not Standing.OUT and standing is not Standing.LAPSED:
            return []
        lapsed = self._lapse()
        if not self._clear(now):
            return lapsed
        self._proof.joining(self.topics)
        for sending in self.topics.values():
            sending.forget_ready()  # what was said under another join is no answer of this one
        return [*lapsed, WriteLease(self.lease.join(self._new_nonce(), self._leased(now), now))]

    def _lapse(self) -> list[Action]:
        sent = self.send_until > _NEVER
        self.send_until = _NEVER
        self._looking = self._looked = None
        return [LeaseLapsed()] if sent else []

    def _keep_live(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self.transactional_id and not self.lease.proven:
            self._proof.look(self.topics)
        renewal = self.lease.renew(now, self._leased(now), due=self._roll_call())
        if renewal is not None:
            actions.append(WriteLease(renewal))
            self._check_due = True
        actions += self._look(now)
        self._follow_lease()
        return actions

    def _follow_lease(self) -> None:
        """Send as long as the lease allows, once the logs were read to their ends under this join."""
        if self._looked is not None:
            self.send_until = self.lease.send_until

    def _look(self, now: float) -> list[Action]:
        """After its JOIN (or a longer list of topics) was read back, a writer reads `_keyorder` to its end before it sends.

        The controller looks at the writers after it has read its PREPARE back; so one of the two sees the other.
        """
        named = self.lease.confirmed
        if self._looked is not None:
            self._looked &= named
        if self._looking is not None and not self._looking.topics <= named:
            self._looking = (
                None  # the lease does not name one of them any more: no answer of before counts for it later
            )
        if self._looking is None and self._looked != named:
            self._looks += 1
            self._looking = Look(self._looks, named)
            return [self._looking]
        if self._looking is None and self._check_due:
            # With each renewal: a control topic that was made again has no record that would tell. Nothing waits for it.
            self._check_due = False
            return [CheckLogs(named, now - self.lease.terms.renew_interval / 2)]
        return []

    def _roll_call(self) -> bool:
        """Whether a new PLAN asks the writers of one of our topics to show that they live."""
        called = False
        for topic, timeline in self._timelines.items():
            change = timeline.change
            if change is not None and topic in self._wanted and self._roll_called.get(topic) != change.epoch:
                self._roll_called[topic] = change.epoch
                called = True
        return called

    def _leased(self, now: float) -> list[str]:
        """What the lease names: changes of these wait for this writer."""
        return [
            topic
            for topic in self._wanted
            if topic not in self.failures or (topic in self.topics and not self.topics[topic].settled(now))
        ]

    def _clear(self, now: float) -> bool:
        return all(sending.settled(now) for sending in self.topics.values())

    # -- admission and READY ---------------------------------------------------------------------------------------

    def _admit(self) -> list[Action]:
        """Let those go on who wait for a topic that the lease names, and that was looked at since."""
        looked = self._looked or frozenset()
        actions: list[Action] = []
        for topic in [topic for topic, waits in self._wanted.items() if waits and topic in looked]:
            timeline = self._timelines.get(topic)
            self._wanted[topic] = False
            if topic in self.failures:
                actions.append(Refused(topic, self.failures[topic]))
            elif timeline is None or timeline.released is not None:
                del self._wanted[topic]
                # Whoever asks again has it adopted, maybe: what was read before does not answer that.
                self._looked = looked = looked - {topic}
                released = None if timeline is None else timeline.released
                actions.append(
                    Refused(
                        topic, UnmanagedTopicError(topic) if released is None else ReleasedTopicError(topic, released)
                    )
                )
            else:
                if topic not in self.topics:
                    self.topics[topic] = TopicSending(timeline)
                actions.append(Admitted(topic))
        return actions

    def _answered(self) -> list[str]:
        """The topics that somebody waits for; from now on nobody does."""
        waiting = [topic for topic, waits in self._wanted.items() if waits]
        self._wanted.update(dict.fromkeys(waiting, False))
        return waiting

    def _answer(self, topic: str, sending: TopicSending[R], now: float) -> list[Action]:
        """READY for an attempt whose moving keys are held and resolved, and whose partitions the client library knows.

        It is asked for them from PLAN on, so that a release does not wait for its next refresh.
        """
        change = sending.timeline.change
        if change is None:
            return []
        if self._partitions.get(topic, 0) < change.count:
            return [FindPartitions(topic)]
        if change.phase is not ChangePhase.PREPARE or sending.answered or self.lease.standing is not Standing.LIVE:
            return []
        epoch = sending.ready_epoch(now)
        if epoch is None:
            return []
        sending.said_ready(epoch)
        nonce = self.lease.nonce
        return [WriteReady(Ready(topic, self.writer_id, nonce, epoch, sending.acknowledged_origins()))]
