"""Committing positions: what the application has processed, with the epoch up to which it has flushed.

An offset alone does not prove that the flush ran, and a commit without metadata would erase the proof that an earlier
one made; so every commit carries `ko1:<epoch>`. The broker lets any live member commit any partition; only owned ones
are committed here, on the polling thread. None is on its way when a revocation has been handled, or the coordinator is
silent: the client library joins its group again only when the last one has been answered, so the next owner starts behind it.

What keyorder commits by itself holds up no poll: it is sent, and its answer comes in a later one. A proof's answer is asked
for behind it, on the same connection, since a gate may wait for it: where the coordinator is there, the turn has it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tenacity import retry_if_result, stop_after_delay, wait_fixed

from ...partitioner.errors import KeyorderError, NotAuthorizedError
from ...partitioner.gates.proofs import crosses, proof_due
from ...partitioner.gates.starts import ahead_text_of, epoch_of, flushed_epoch, metadata_of, note_of
from ...partitioner.timeline import Timeline
from .. import clock
from ..attempts import Attempts
from ..config import ConsumerSettings
from ..guarded_logger import GuardedLogger
from ..kafka_errors import COORDINATOR_MOVES, LOGIN_REFUSED, translate
from ..link.cluster_link import ClusterLink
from ..messages import Place
from .assignment import Assignment
from .callbacks import Callbacks
from .commit_notes import shown
from .commits_in_flight import CommitsInFlight
from .ending import is_silent
from .gates.gating import Gatekeeper
from .group_metadata import TransactionalOffsets
from .partition_state import PartitionState
from .records.strays import Strays
from .view import View

_LOG = GuardedLogger("keyorder.consumer")
# A quarter of the brokers' default offsets retention (offsets.retention.minutes, 7 days; one day is the lowest in use).
_IDLE_RECOMMIT = 6 * 3600.0
_REVOKE_PATIENCE = 3.0
_FIRST_QUESTION = 1.0
_LOOK_PATIENCE = 10.0
_ASK_AGAIN = 0.5
# How long a turn waits for what the coordinator has to say: at first, and after silences. Seconds.
_SOON, _LATE = 0.1, 5.0
# Whether something is to be proven hangs on all that moves, so it is looked at in every turn, as long as that costs little.
# After a look that took longer, t, the next one waits for _BRISK * t where the application has done something or a timeline has
# changed, and for _CALM * t where nothing tells of anything, but not for more than _AT_LEAST. For _EAGER * t where records wait
# at a gate for what the application has done, and there is nothing else to give it. Seconds.
_CHEAP, _EAGER, _BRISK, _CALM, _AT_LEAST = 0.0002, 2.0, 10.0, 50.0, 0.5
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._DESTROY, KafkaError._FATAL}
_PASSING = {
    *COORDINATOR_MOVES,
    *LOGIN_REFUSED,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._NO_OFFSET,
}


_NONE: Mapping[PartitionState, int] = {}


class _Outcome(Enum):
    """Of a commit of keyorder's own. AGAIN: passing trouble. GONE: the topics are, the membership, or this client.

    A client is gone when it is being closed, and after a fatal error, which the library's poll tells of.
    """

    DONE = "done"
    AGAIN = "again"
    GONE = "gone"


class Committer:
    """The commits of one consumer. stirred: `flush_and_prove` has not looked since there was news.

    acknowledged: how many offsets the broker has taken. given_up: nothing is committed any more, see `give_up_if_silent`.
    """

    def __init__(
        self,
        raw: Consumer,
        settings: ConsumerSettings,
        assignment: Assignment,
        callbacks: Callbacks,
        gates: Gatekeeper,
        strays: Strays,
        link: ClusterLink,
    ) -> None:
        self._raw, self._settings, self._assignment, self._callbacks = raw, settings, assignment, callbacks
        self._gates, self._strays, self._link = gates, strays, link
        self._next_commit = clock.now() + settings.auto_commit_interval
        self._next_idle = clock.now() + _IDLE_RECOMMIT
        self.transactions = TransactionalOffsets(settings, assignment, gates)
        self._ask_again_at = self._proved_at = self._proof_took = 0.0
        self._patience = _SOON
        self.stirred = self.given_up = self._closing = False
        self.acknowledged = 0
        self._in_flight: CommitsInFlight[PartitionState] = CommitsInFlight()

    def stir(self) -> None:
        """There is news by which a position may be proven: of the application, or of the topic. From any thread."""
        self.stirred = True

    @property
    def due_at(self) -> float:
        """When `periodic` has something to do."""
        return min(self._next_commit, self._next_idle) if self._settings.auto_commit else self._next_idle

    def await_dead_letters(self) -> None:
        """Before the application's offsets go: none may pass a dead letter that is not acknowledged. Raises as Strays.settle."""
        self._strays.settle()

    def periodic(self) -> None:
        """The automatic commit, and from time to time one of idle positions, so that they do not expire."""
        if self._strays.pending:
            return
        now = clock.now()
        if self._settings.auto_commit and now >= self._next_commit:
            self._next_commit = now + self._settings.auto_commit_interval
            for owned in self._assignment.owned.values():
                if owned.started:
                    self._settle_tail(owned)
            self._say([o for o in self._assignment.owned.values() if o.started and o.uncommitted])
        if now >= self._next_idle:
            self._next_idle = now + _IDLE_RECOMMIT
            self._say([o for o in self._assignment.owned.values() if o.commits.offset is not None])

    def give_up_if_silent(self, patience: float) -> bool:
        """Commit nothing more if the group's coordinator does not answer within `patience` seconds: nobody would answer that.

        True where it is so. Where nobody has anything to commit it is not asked.
        """
        self._closing = True
        owned = self._assignment.owned
        if self._assignment.fetching.manual:
            owned = {place: o for place, o in owned.items() if self._settings.auto_commit and o.uncommitted}
        place = next(iter([*owned, *self._in_flight.places()]), None)
        if place is not None and not self.given_up and self._is_silent(place, patience):
            self.given_up = True
            _LOG.warning(
                "close(): the coordinator of group %s has not answered for %g s; what was processed since the last commit is not "
                "committed, and is delivered again",
                self._settings.group,
                patience,
            )
        return self.given_up

    def _is_silent(self, place: Place, patience: float) -> bool:
        if not is_silent(self._raw, place, min(_FIRST_QUESTION, patience)):
            return False
        # Offsets of an open transaction keep the answer to a reader of what is committed back; these clients are none.
        try:
            self._link.commits.read([self._settings.group], [place], patience)
        except NotAuthorizedError:
            return False  # an answer too
        except KeyorderError:
            return True
        return False

    def ends_unheard(self, patience: float) -> bool:
        """Whether a commit is on its way that the coordinator does not answer: the library's close() would wait for that.

        patience: seconds, once nobody has been waited for.
        """
        place = next(iter(self._in_flight.places()), None)
        return place is not None and (self.given_up or is_silent(self._raw, place, patience))

    def arrived(self, error: KafkaError | None, results: list[TopicPartition]) -> None:
        """What became of an asynchronous commit. Inside the client library's poll: nothing is raised here."""
        ours = False
        for result in results:
            answered = self._in_flight.answered(result)
            if answered is None:
                continue
            owned, place = answered
            ours = ours or place is owned.commits.said
            if error is None and result.error is None:
                self._acknowledged(owned, place)
        if ours and error is not None and error.code() not in _PASSING | _GONE:
            self._callbacks.raises(self._translated(error))
        self._told(error, results)

    def prove_at(self, starved: bool) -> float:
        """When `flush_and_prove` looks again. Seconds of the clock."""
        if self._proof_took < _CHEAP:
            return 0.0
        times = _CALM if not self.stirred else _EAGER if starved and self._gates.busy else _BRISK
        return self._proved_at + min(times * self._proof_took, _AT_LEAST)

    def flush_and_prove(self, starved: bool = False) -> None:
        """Where a position has passed a cut: let the application flush, then commit the position with the epoch.

        Also commits the start of a partition that had no commit: from then on it counts as processed up to there. What a
        callback raises is raised after the client library's poll; its flush is not proven, and asked for again.

        starved: there is nothing to give the application now.
        """
        self._learn_unknown()
        began = clock.now()
        if began < self.prove_at(starved):
            return
        self.stirred = False
        due: dict[PartitionState, int] = {}
        views = {topic: self._assignment.view(topic) for topic in self._assignment.topics()}
        for owned in list(self._assignment.owned.values()):
            view = views[owned.topic]
            if not owned.started or owned.commits.settled_in is view.timeline:
                continue
            if (owned.commits.looked is None or owned.commits.looked != owned.progress(view)) and self._owes(
                owned, view
            ):
                due[owned] = owned.processed
        self._proved_at = clock.now()
        self._proof_took = self._proved_at - began
        # A plain commit would win over a pending transactional one: there the application's own commit proves. Once that has
        # ended, what lies behind the last record (markers, aborted records) is committed here: a gate may wait for it, and the
        # application has no offset to send.
        if due and not self.transactions.pending:
            self._prove(due)

    def _owes(self, owned: PartitionState, view: View) -> bool:
        """Whether a commit of this partition is due for what it says or proves."""
        timeline = view.timeline
        owned.commits.looked = None
        self._settle_tail(owned)
        flushed = self._ask_to_flush(owned, timeline)
        # What others can see decides, not what was done here once: a later commit may have carried an older epoch.
        owed = partial(proof_due, timeline, owned.partition, owned.acknowledged)
        newest = timeline.newest.number
        if owed(self._gates.proven_epoch(owned, owned.processed)):
            return True
        if owned.gates.flushed >= newest and not owed(newest):
            owned.commits.settled_in = timeline
        elif flushed and self._gates.current(owned.topic):
            owned.commits.looked = owned.progress(view)
        return False

    def confirms(self, owned: list[PartitionState]) -> bool:
        """Whether the group takes a commit of this member for these partitions; it says again what was said last.

        True without asking where there is no group to ask, or where the broker fences what is made of the records: in
        transactions. False, too, where the coordinator is silent: each time it is waited for twice as long.
        """
        if self._assignment.fetching.manual or self.transactions.used:
            return True
        said: dict[PartitionState, int] = {}
        notes: dict[PartitionState, str] = {}
        for o in owned:
            last = self._in_flight.last(o.place, o)
            if o.started and (last is not None or o.commits.offset is not None):
                said[o] = o.commits.offset or 0 if last is None else last.offset
                notes[o] = o.commits.note if last is None else note_of(last.metadata)
        if not said:
            return True
        if self.given_up or is_silent(self._raw, next(iter(said)).place, self._patience):
            self._patience = min(2 * self._patience, _LATE)
            return False
        self._patience = _SOON
        return self._attempt(said, notes) is _Outcome.DONE

    def on_revoke(self, owned: list[PartitionState]) -> None:
        """The last commit of partitions that are about to go. One that is not answered soon is left to the client library.

        It tries for as long as a session lasts, and on_commit hears of its end; no call waits for that.
        """
        sent = {o: last for o in owned if (last := self._in_flight.last(o.place, o)) is not None}
        outcome = _Outcome.DONE
        if sent and not self._settings.auto_commit:
            # Sent behind them on the same connection: when this one is answered, so are they.
            outcome = self._patiently(
                {o: last.offset for o, last in sent.items()}, {o: note_of(last.metadata) for o, last in sent.items()}
            )
        if self._settings.auto_commit and not self._strays.pending:
            for o in owned:
                if o.started:
                    self._settle_tail(o)
            due = [o for o in owned if o.started and (o.uncommitted or o in sent)]
            if due and not self.transactions.used:
                # The next owner starts where this commit says: passing trouble is worth waiting for.
                outcome = self._patiently({o: o.processed for o in due})
                if outcome is _Outcome.AGAIN and not self._closing:
                    self._send_own({o: o.processed for o in due})
        if outcome is not _Outcome.AGAIN or self._closing:
            for o in owned:
                self._in_flight.settle(o.place)

    def _patiently(
        self, offsets: dict[PartitionState, int], notes: dict[PartitionState, str] | None = None
    ) -> _Outcome:
        # In close() the library asks nothing more, and the coordinator has answered a moment ago.
        if not self._closing and is_silent(self._raw, next(iter(offsets)).place, _REVOKE_PATIENCE):
            return _Outcome.AGAIN
        outcome: _Outcome = Attempts(
            stop=stop_after_delay(_REVOKE_PATIENCE),
            wait=wait_fixed(0.1),
            retry=retry_if_result(lambda outcome: outcome is _Outcome.AGAIN),
            retry_error_callback=lambda state: _Outcome.AGAIN,
        )(self._attempt, offsets, notes)
        return outcome

    def _settle_tail(self, owned: PartitionState) -> None:
        """Pass a tail that shows no records, if all before it is done with."""
        owned.skip_tail()
        if self._settings.auto_commit and self._settings.auto_store:
            if not owned.unfinished:
                owned.done_with_all()
        elif owned.processed >= owned.record_end:
            owned.processed = owned.processed_up_to(owned.processed)

    def _ask_to_flush(self, owned: PartitionState, timeline: Timeline) -> bool:
        """KIP-253's onPartitionKeyMaybeRevoked, once the last record before a cut was returned. False when it raised."""
        passed = flushed_epoch(timeline, owned.partition, owned.processed if owned.unfinished else owned.returned)
        if passed <= owned.gates.flushed:
            return True
        listener = self._callbacks.listener
        if listener is not None and crosses(timeline, owned.partition, owned.gates.flushed, passed):
            place = TopicPartition(owned.topic, owned.partition)
            if not self._callbacks.guarded(lambda: listener.on_partition_key_maybe_revoked([place])):
                return False
        owned.gates.flushed = passed
        self._gates.moved(owned.topic)
        return True

    def _learn_unknown(self) -> None:
        """Ask the broker for positions whose transaction ended unknown; it answers when that one is decided."""
        asked = self.transactions.undecided()
        if not asked or clock.now() < self._ask_again_at:
            return
        self._ask_again_at = clock.now() + _ASK_AGAIN
        try:
            found = self._raw.committed([TopicPartition(*owned.place) for owned in asked], timeout=1.0)
        except KafkaException:
            return
        for owned, place in zip(asked, found, strict=True):
            if place.error is None:
                self.transactions.unknown.discard(owned)
                if place.offset >= 0:
                    owned.commits.learned(place.offset, epoch_of(place.metadata), note_of(place.metadata))
                    owned.processed = max(owned.processed, place.offset)
                    self._gates.moved(owned.topic)

    def begin_transactions(self) -> None:
        """The application may send this consumer's offsets by a producer from now on.

        A commit of keyorder's own that is still on its way would win over such an offset: it is waited for. Raises
        KafkaException where it is not answered.
        """
        if not self.transactions.used:
            own = {o: said.offset for o in self._assignment.owned.values() if (said := self._on_its_way(o)) is not None}
            if own and self._patiently(own) is _Outcome.AGAIN:
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, "the group's coordinator does not answer: call this again")
                )
        self.transactions.begin()

    def _say(self, owned: list[PartitionState]) -> None:
        """Commit positions, where nothing is on its way; no call waits for the answer."""
        if not self.transactions.used:
            self._send_own({o: o.processed for o in owned if self._in_flight.last(o.place, o) is None})

    def _prove(self, due: dict[PartitionState, int]) -> None:
        """Commit positions that nothing on its way proves; take the answer where it comes soon.

        Where offsets go through transactions nothing may be on its way when a call returns: there it is waited for.
        """
        if self.transactions.used:
            self._attempt(due)
            return
        sent = self._send_own({o: at for o, at in due.items() if not self._is_being_proven(o, at)})
        try:
            found = self._raw.committed([TopicPartition(*o.place) for o in sent], timeout=_SOON) if sent else []
        except KafkaException:
            return
        shown_now = {(place.topic, place.partition): place for place in found if place.error is None}
        for owned, place in sent.items():
            shown_here = shown_now.get(owned.place)
            if shown_here is not None and (shown_here.offset, shown_here.metadata) == (place.offset, place.metadata):
                self._in_flight.settle(owned.place)  # the library tells of the answer in a later poll
                self._acknowledged(owned, place)

    def _is_being_proven(self, owned: PartitionState, offset: int) -> bool:
        said = self._on_its_way(owned)
        return said is not None and (epoch_of(said.metadata) or 0) >= self._gates.proven_epoch(owned, offset)

    def _on_its_way(self, owned: PartitionState) -> TopicPartition | None:
        """What keyorder has committed of this partition by itself, and is not answered yet."""
        said = owned.commits.said
        return said if said is not None and self._in_flight.awaits(owned.place, said) else None

    def _send_own(self, offsets: dict[PartitionState, int]) -> dict[PartitionState, TopicPartition]:
        """Send a commit of keyorder's own. Returns what was sent; what is in passing trouble is sent again in a later turn."""
        if not offsets or self.given_up or self.expelled():
            return {}
        places = dict(zip(offsets, self._places(offsets, None), strict=True))
        try:
            self._raw.commit(offsets=list(places.values()), asynchronous=True)
        except KafkaException as raised:
            self._outcome_of(raised)
            return {}
        for owned, place in places.items():
            self._in_flight.add(owned, place)
            owned.commits.said = place
        return places

    def _outcome_of(self, raised: KafkaException) -> _Outcome:
        """AGAIN when the group or the coordinator is in passing trouble. Raises what is no trouble of that kind, translated."""
        code = raised.args[0].code()
        if code in _GONE:
            return _Outcome.GONE
        if code in _PASSING:
            return _Outcome.AGAIN
        raise self._translated(raised.args[0]) from raised

    def _translated(self, error: KafkaError) -> Exception:
        return translate(error, "commit the offsets of", f"group {self._settings.group}", self._link.servers)

    def _attempt(self, offsets: dict[PartitionState, int], notes: dict[PartitionState, str] | None = None) -> _Outcome:
        """Commit, and wait for the answer. AGAIN when the group or the coordinator is in passing trouble."""
        if self.given_up or self.expelled():
            return _Outcome.GONE
        try:
            results = self.commit(offsets, notes)
        except KafkaException as raised:
            return self._outcome_of(raised)
        codes = {result.error.code() for result in results if result.error is not None}
        if not codes:
            return _Outcome.DONE
        return _Outcome.GONE if codes == {KafkaError.UNKNOWN_TOPIC_OR_PART} else _Outcome.AGAIN

    def expelled(self) -> bool:
        """Whether the client library has left the group with this static member, and nobody has been told yet.

        After max.poll.interval.ms or a session without an answer it forgets its member id at once, and tells of the lost
        partitions in a later poll. For the broker a commit in between is another process under the same group.instance.id:
        it answers FENCED_INSTANCE_ID, which is fatal to the library. It would have joined again a moment later.
        """
        if not self._settings.static or self._assignment.fetching.manual:
            return False
        # Twice: between two answers the library looks at its timers, which may be due since the process stood still.
        return not self._raw.memberid() or not self._raw.memberid()

    def _places(
        self,
        offsets: dict[PartitionState, int],
        notes: dict[PartitionState, str] | None,
        epochs: Mapping[PartitionState, int] = _NONE,
    ) -> list[TopicPartition]:
        """As they are sent. notes: the application's metadata; None where it is keyorder that commits. epochs: leaders'."""
        places = []
        for owned, offset in offsets.items():
            if notes is not None:
                note = notes.get(owned, "")
            elif owned.commits.stored is not None and offset != owned.commits.offset:
                note = owned.commits.stored_note
            else:
                # The application's word of this position stands until it says another.
                note = owned.commits.note if offset == owned.commits.offset or not self._settings.auto_commit else ""
            metadata = metadata_of(max(self._gates.proven_epoch(owned, offset), 0), note, owned.ahead(offset))
            places.append(TopicPartition(owned.topic, owned.partition, offset, metadata, epochs.get(owned, -1)))
        return places

    def send(
        self,
        offsets: dict[PartitionState, int],
        notes: dict[PartitionState, str],
        epochs: Mapping[PartitionState, int],
        others: list[TopicPartition],
    ) -> None:
        """Commit without waiting, see `commit`; `arrived` is told what became of it."""
        places = self._places(offsets, notes, epochs)
        self._raw.commit(offsets=[*places, *others], asynchronous=True)
        for place, owned in zip(places, offsets, strict=True):
            self._in_flight.add(owned, place)

    def commit(
        self,
        offsets: dict[PartitionState, int],
        notes: dict[PartitionState, str] | None = None,
        told: bool = True,
        epochs: Mapping[PartitionState, int] = _NONE,
        others: Iterable[TopicPartition] = (),
    ) -> list[TopicPartition]:
        """Commit and wait for the broker. Returns its answer for each partition; raises KafkaException where it has none.

        notes: the application's metadata; None where it is keyorder that commits. told: whether on_commit hears of it: who
        waits for his own commit has its result. epochs: leaders'. others: of partitions that are nobody's here.
        """
        places = self._places(offsets, notes, epochs)
        try:
            results = self._raw.commit(offsets=[*places, *others], asynchronous=False) or []
        except KafkaException as raised:
            if told:
                self._told(raised.args[0], places)
            raise
        by_place = {(r.topic, r.partition): r for r in results}
        for place, owned in zip(places, offsets, strict=True):
            result = by_place.get(owned.place)
            if result is not None and result.error is None:
                self._in_flight.settle(owned.place)  # answered before this one, whatever they said
                self._acknowledged(owned, place)
        if told:
            self._told(None, results)
        return results

    def _acknowledged(self, owned: PartitionState, place: TopicPartition) -> None:
        if self._assignment.owned.get(owned.place) is owned:
            self.acknowledged += 1
            owned.commits.learned(place.offset, epoch_of(place.metadata), note_of(place.metadata))
            owned.commits.ahead = ahead_text_of(place.metadata)
            self._gates.moved(owned.topic)

    def _told(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """What on_commit raises is raised later: here it would pass for an error of the commit."""
        on_commit = self._settings.on_commit
        if on_commit is not None:
            self._callbacks.guarded(lambda: on_commit(error, shown(places)))
