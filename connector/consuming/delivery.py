"""The consumer's turn of work: settle what was returned before, let in what may be delivered, wait for more.

An exception may come at any line (`progress`). Each section that it would leave half done says so first, and the next call
begins with what that takes: to fetch again from where the intake stands, or from where the application stands, or to
join the group anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from .. import clock
from ..config import ConsumerSettings
from ..interruptible import raise_lost
from .assignment import Assignment
from .callbacks import Callbacks
from .committing import Committer
from .gates.gate_status import GateStatus
from .gates.gating import Gatekeeper
from .membership import Membership
from .membership_check import MembershipCheck
from .patience import Patience
from .progress import Phase, Progress
from .records.batches import items_of
from .records.delivery_buffer import tells_of_no_position
from .records.reading import Intake
from .records.strays import Strays
from .starting import Starter

if TYPE_CHECKING:
    from ..arrow.consuming import ColumnSource

_BATCH = 500
_LARGE = 20_000
# The library is polled at least this often, whatever waits. Seconds.
_KEEPALIVE = 1.0
# Why nothing can go on is told again when a call has waited so long in vain. Seconds.
_TELL_AGAIN = 1.0


class Delivery:
    """Carries records from the client library to the delivery buffer of one consumer. Used by one thread at a time.

    out: what may be returned, and what the application was given. columns: where records come as columns, their source.
    options: what the source of columns needs to know. between: called between two turns, lets other threads in; False when
    the call has to end.
    """

    def __init__(
        self,
        raw: Consumer,
        settings: ConsumerSettings,
        assignment: Assignment,
        callbacks: Callbacks,
        members: Membership,
        starter: Starter,
        commits: Committer,
        gates: Gatekeeper,
        status: GateStatus,
        strays: Strays,
        options: Mapping[str, Any],
        between: Callable[[], bool | None],
    ) -> None:
        self._raw, self._settings, self._assignment, self._members = raw, settings, assignment, members
        self._view, self._fetching, self._callbacks = assignment.views, assignment.fetching, callbacks
        self._commits, self._gates, self._status, self._strays = commits, gates, status, strays
        self._options, self._between = options, between
        self._progress = Progress()
        self._intake = Intake(settings, assignment, members, starter, gates, strays, self._progress)
        self.out = assignment.out
        self.columns: ColumnSource | None = None
        self._columnar = False
        self._failure: Exception | None = None
        self._last_raw = clock.now()
        self._idle = False  # the library had nothing to hand over when it was polled last
        self._waits = Patience()
        self._membership_check = MembershipCheck(assignment, commits, settings.silence)

    def take(self, wanted: int, timeout: float | None, events: bool = True, room: int = 0) -> None:
        """The engine: settle what was returned before, let in what may be delivered, wait for more in the delivery buffer.

        room: how many are collected where more than `wanted` are there. A rebalance in between takes back what was already
        collected here for partitions that have gone.
        """
        room = max(room, wanted)
        began = clock.now()
        deadline = None if timeout is None or timeout < 0 else began + timeout
        tell_at = began + _TELL_AGAIN if deadline is None else min(deadline, began + _TELL_AGAIN)
        self._begin()
        self._strays.settle()
        self.note_processed()  # a rebalance may come while the group is asked
        if not self._confirmed(wanted, deadline, events):
            return
        self._commits.periodic()
        self._join_for_overlooked()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        out = self.out
        while True:
            self._collect(room, events)
            now = clock.now()
            enough = out.count >= wanted or (out.count and (wanted == 1 or (out.stopped and not events)))
            if enough and now - self._last_raw < _KEEPALIVE:
                return
            left = 0.0 if enough else self._patience(deadline, now)
            before = out.count
            try:
                self._turn(wanted, left)
                if clock.now() >= tell_at:
                    self._members.stopped.raise_if_all()
            except Exception as error:
                if not out.count or self._progress.phase is not Phase.REST:
                    raise
                # What was collected counts as returned: it goes out, and the error comes with the next call.
                self._failure = error
                return
            if not self._confirmed(wanted, deadline, events):
                return
            self._collect(room, events)
            if out.count >= wanted or (deadline is not None and clock.now() >= deadline):
                return
            # What would come next may wait for the application to process what this call has: it has to get that first.
            if out.count == before and out.count and self._gates.wait_for(out.places()):
                return
            if not self._pause():
                return

    def offer(self) -> bool:
        """Leave what `take` has collected to the next calls of poll(). False when it is nothing.

        They do nothing else meanwhile: what is due in every call ends the run. With an error that is to come with the next
        call it ends with its first record.
        """
        most = 1 if self._failure is not None or self._strays.pending else self.out.count
        return self.out.offer(most, min(self._last_raw + _KEEPALIVE, self._commits.due_at))

    def settle(self) -> None:
        """The application is back, with a call that may change what is given out: the run is over."""
        self.out.end()
        self.book()
        self.out.take_back()

    def book(self) -> None:
        """The application is back, with whatever call: what it was given last has been returned."""
        self.out.book(self._finished)

    def finish_returned(self) -> None:
        """The application is back for more: what it was given last is processed, if it left that to us."""
        self.note_processed()
        self._commits.periodic()

    def note_processed(self) -> None:
        """What the application was given last is processed, if it left that to us."""
        self.book()
        self._finished()

    def _finished(self) -> None:
        if self.out.returned:
            self._commits.stir()
        for place in self.out.returned:
            owned = self._assignment.owned.get(place)
            if owned is not None:
                owned.unfinished = False
                if self._settings.auto_store and self._settings.auto_commit:
                    owned.done_with_all()
        self.out.returned.clear()

    def move(self, change: Callable[[], None]) -> None:
        """Do what changes positions or queues. Inside a callback the turn around it says what an exception leaves."""
        before = self._progress.phase
        self._progress.phase = max(Phase.MOVING, before)
        change()
        self._progress.phase = before

    # -- turns -----------------------------------------------------------------------------------------------------

    def _confirmed(self, wanted: int, deadline: float | None, events: bool) -> bool:
        """After a standstill no record is given out before the group has said whose it is.

        False when the time is over, or an event has come that says more: it is collected, and what else there is waits. The
        library tells that max.poll.interval.ms is over before it takes the partitions away, and so the application hears it.
        """
        check = self._membership_check
        check.look(clock.now())
        if self._settings.classic:  # a member of the other kind that has left could commit as nobody
            check.ask(clock.now())
        wait = 0.0  # what the library says first may be there
        while check.in_doubt:
            self._turn(wanted, wait, in_doubt=True)
            self._begin()
            if self.out.event_first():
                self._collect(1, events)
                return False
            now = clock.now()
            check.look(now)
            if not check.in_doubt or check.settle(now):
                break
            if not self._pause() or (deadline is not None and now >= deadline):
                return False
            wait = self._patience(deadline, now)
        return True

    def _pause(self) -> bool:
        """Between two turns: let other threads in, with everything in its place. False when the call has to end."""
        self._begin()
        if not self._between():
            return False
        self._begin()
        return True

    def _begin(self) -> None:
        """Whatever the last call has left: book it, or take it back."""
        self.settle()
        self._recover()
        self._progress.phase = Phase.MOVING
        self.out.begin()
        self._progress.phase = Phase.REST

    def _collect(self, wanted: int, events: bool) -> None:
        event = self._collected(wanted, events)
        while event is not None:
            error = event.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            event = self._collected(wanted, events)

    def _collected(self, wanted: int, events: bool) -> Message | None:
        self._progress.phase = Phase.MOVING
        event = self.out.collect(wanted, events)
        self._progress.phase = Phase.REST
        return event

    def _turn(self, wanted: int, wait: float, in_doubt: bool = False) -> None:
        """in_doubt: only hear the library. To begin a partition would let it forget that a loss which waits there is one."""
        if self._view.failure is not None:
            raise self._view.failure  # also where no record comes: an idle reader that cannot go on would seem well
        self.move(self._members.stopped.look)
        if self._fetching.due:
            self._fetch_anew()
        if not in_doubt:
            self._members.starts.find()
            self._commits.flush_and_prove(self._starved)
            self._progress.phase = Phase.MOVING
            self._gates.open_what_may()
            self._progress.phase = Phase.REST
        self._status.explain()
        # What a gate has let go must not wait for a record that follows.
        self._fetch(wanted, 0.0 if self.out.ready else wait)
        self._members.see_growth()  # behind the poll: a revocation that waited there was told of
        self._intake.sort()
        if self._intake.saw_end():
            self._commits.stir()
        self._callbacks.raise_pending()

    def _fetch(self, wanted: int, wait: float) -> None:
        """Let the client library hand over what it has, into the intake, and call its callbacks."""
        fetching = self._fetching
        now = clock.now()
        if fetching.silent(now):
            self.move(fetching.begin_anew)
        if fetching.may_stand_still(now):
            self.move(lambda: fetching.tell_again(self._idle))
        if not self.out.waiting:
            if fetching.standing_still:
                self.move(fetching.go_on)
        elif now - self._last_raw < _KEEPALIVE:
            return
        else:
            # The library has to be polled, or the group gives this member up. Nothing more is to come of it meanwhile.
            if not fetching.standing_still:
                self.move(fetching.stand_still)
            wait = 0.0
        # Large calls are filled exactly: what is left over would be cut and joined again in every later call.
        most = _BATCH if wanted <= _BATCH else max(1, wanted - self.out.count)
        if self.out.count >= wanted:
            # The library is polled to stay in the group: what a slow application has not asked for stays there.
            most = 1
        elif clock.now() < self._intake.foreign_until:
            most = max(most, _LARGE)
        self._membership_check.served(clock.now())
        self._progress.phase = Phase.LIBRARY
        if self.columns is not None:
            items = self.columns.take(most, wait)
        else:
            try:
                # Not consume(most, wait): below 200 ms it waits the whole time, even when records are there.
                first = self._raw.poll(clock.blocking(wait))
                # Behind an event the library may take partitions away: the application hears of the event before.
                goes_on = first is not None and most > 1 and not tells_of_no_position(first)
                more = self._raw.consume(most - 1, 0) if goes_on else []
            except SystemError as error:
                raise_lost(error)
            items = [] if first is None else items_of([first, *more])
        self._last_raw = clock.now()
        self._idle = not items
        if items:
            self._intake.take(items, self._last_raw)
            self._waits.came(self._last_raw)
        self._progress.phase = Phase.REST
        self._membership_check.served(self._last_raw)

    def _fetch_anew(self) -> None:
        """Give everything back to the client library and begin anew, as `Fetching` has found due.

        A rebalance that waits there is told before, as what it is. One that comes in between is answered by what is given back.
        """
        fetching = self._fetching
        self.move(fetching.stand_still)
        self._hear()
        self.move(fetching.give_back)
        self._hear()
        self.move(fetching.begin_all)

    def _hear(self) -> None:
        """Let the client library tell all that it has to tell, callbacks as well.

        Records, and what is said of positions, are dropped: they come again with what is fetched anew.
        """
        self._membership_check.served(clock.now())
        self._progress.phase = Phase.LIBRARY
        told: list[Message] = []
        try:
            while (message := self._raw.poll(0)) is not None:
                if tells_of_no_position(message):
                    told.append(message)
        except SystemError as error:
            raise_lost(error)
        self._last_raw = clock.now()
        if told:
            self._intake.take(items_of(told), self._last_raw)
        self._progress.phase = Phase.REST
        self._membership_check.served(self._last_raw)

    def _recover(self) -> None:
        """Go on after an exception that has left something half done."""
        phase = self._progress.phase
        if phase is Phase.REST:
            return
        fetching = self._fetching
        # The binding drops the traceback of a callback that raises: an exception does not show that it cut a rebalance short.
        if self._members.rebalancing or (phase is Phase.LIBRARY and not fetching.as_assigned()):
            phase = Phase.REBALANCE
        if phase is Phase.LIBRARY:
            # Only what is missing: to fetch everything again would never end under a signal every 20 ms.
            thrown_away = fetching.thrown_away(self.columns is not None and self.columns.in_hand)
            self.out.drop_unjudged({owned.place for owned in thrown_away})
            if thrown_away:
                fetching.begin_anew()
        else:
            self.out.drop_all()
            for owned in self._assignment.owned.values():
                if owned.started:
                    owned.begin_again()
            self._gates.begin_again()
            if phase is Phase.REBALANCE:
                self._members.join_again()
            fetching.begin_anew()
        self._progress.phase = Phase.REST

    def _join_for_overlooked(self) -> None:
        """Join the group anew where it has left partitions to nobody."""
        overlooked = self._members.overlooked
        if overlooked is not None and overlooked.found:
            self._progress.phase = Phase.REBALANCE
            overlooked.joining()
            self._begin()

    def become_columnar(self) -> None:
        """From now on records are fetched as columns, where the C library's calls can be had."""
        from ..arrow.consuming import ColumnSource
        from ..arrow.library import native

        if self._columnar:
            return
        self._columnar = True
        self.columns = ColumnSource.of(self._raw, native(self._options), self._options.get("error_cb"))
        if self.columns is not None:
            self._fetching.tell_before(self.columns.route)
            # What waits in the client library or has not been judged yet is fetched again, as columns.
            self._recover()
            self._progress.phase = Phase.MOVING
            self.out.drop_unjudged(set(self._assignment.owned))
            self._fetching.begin_anew()
            self._progress.phase = Phase.REST

    @property
    def _starved(self) -> bool:
        """Whether there is nothing to give the application: the library had nothing, and no gate has let anything go."""
        return self._idle and not self.out.ready

    def _patience(self, deadline: float | None, now: float) -> float:
        """How long the client library may block: short while a gate is closed or a change is near."""
        wait = self._waits.wait([*self._gates.awaited(), *self._members.awaited()], now)
        if self._commits.stirred and (due := self._commits.prove_at(self._starved)) > now:
            wait = min(wait, due - now)  # a proof may be owed that others wait for
        return wait if deadline is None else max(0.0, min(wait, deadline - now))
