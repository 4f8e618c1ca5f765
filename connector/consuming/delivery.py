"""The consumer's turn of work: settle what was returned before, let in what may be delivered, wait for more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from .. import clock
from ..config import ConsumerSettings
from ..messages import Place, place_of
from .committing import Committer
from .gates.gate_status import GateStatus
from .gates.gating import Gatekeeper
from .membership import Membership
from .records.outbox import Outbox
from .records.parcels import Item, items_of
from .records.reading import Intake
from .records.strays import Strays
from .standstill import Standstill
from .view import ViewKeeper

if TYPE_CHECKING:
    from ..arrow.consuming import ColumnSource

_BATCH = 500
_KEEPALIVE = 1.0


class Delivery:
    """Carries records from the client library to the outbox of one consumer. Used by the polling thread alone.

    out: what may be returned, and what the application was given. columns: where records come as columns, their source.
    options: what the source of columns needs to know.
    """

    def __init__(
        self,
        raw: Consumer,
        settings: ConsumerSettings,
        view: ViewKeeper,
        members: Membership,
        commits: Committer,
        gates: Gatekeeper,
        status: GateStatus,
        strays: Strays,
        options: Mapping[str, Any],
    ) -> None:
        self._raw, self._settings, self._view, self._members = raw, settings, view, members
        self._commits, self._gates, self._status, self._strays = commits, gates, status, strays
        self._options = options
        self._intake = Intake(settings, members, view, gates, strays)
        self.out = Outbox(members)
        self._intake.ready = gates.ready = self.out.ready
        members.before_revoke = self._before_revoke
        members.fetching.before_fetch = lambda places: None
        self.columns: ColumnSource | None = None
        self._columnar = False
        self._failure: Exception | None = None
        self._last_raw = clock.now()
        self._standstill = Standstill(members, commits)

    def take(self, wanted: int, timeout: float | None, events: bool = True) -> None:
        """The engine: settle what was returned before, let in what may be delivered, wait for more in the outbox.

        A rebalance in between takes back what was already collected here for partitions that have gone.
        """
        deadline = None if timeout is None or timeout < 0 else clock.now() + timeout
        self._strays.settle()
        self.out.begin()
        if not self._confirmed(wanted, deadline):
            return
        if self.out.unseen:
            self.out.again(wanted)
            return
        self.finish_returned()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        out = self.out
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
            # What this call has collected already cannot be put back: it waits with the rest.
            if not self._confirmed(wanted, None if out.count else deadline):
                return
            self._collect(wanted, events)
            if out.count >= wanted or (deadline is not None and clock.now() >= deadline):
                return

    def _confirmed(self, wanted: int, deadline: float | None) -> bool:
        """After a standstill nothing is given out before the group has said whose it is. False when the time is over."""
        self._standstill.look(clock.now())
        while self._standstill.in_doubt and not self._standstill.settle(clock.now()):
            now = clock.now()
            if deadline is not None and now >= deadline:
                return False
            self._turn(wanted, self._patience(deadline, now))
            self._standstill.look(clock.now())
        return True

    def _collect(self, wanted: int, events: bool) -> None:
        event = self.out.collect(wanted, events)
        while event is not None:
            error = event.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            event = self.out.collect(wanted, events)

    def _turn(self, wanted: int, wait: float) -> None:
        if self._view.failure is not None:
            raise self._view.failure  # also where no record comes: an idle reader that cannot go on would seem well
        self._members.starts.find()
        self._commits.flush_and_prove()
        self._gates.open_what_may()
        self._status.explain()
        items: list[Item] = []
        if not self._intake.waiting:
            # Large calls are filled exactly: what is left over would be cut and joined again in every later call.
            most = _BATCH if wanted <= _BATCH else max(1, wanted - self.out.count)
            if self.columns is not None:
                items = self.columns.take(most, wait)
            else:
                first = self._raw.poll(wait)
                if first is not None:
                    items = items_of([first, *self._raw.consume(most - 1, 0)])
        self._last_raw = clock.now()
        self._members.raise_pending()
        self._intake.take(items, self._last_raw)

    def become_columnar(self) -> None:
        """From now on records are fetched as columns, where the C library's calls can be had."""
        from ..arrow.consuming import ColumnSource
        from ..arrow.library import native

        if self._columnar:
            return
        self._columnar = True
        self.columns = ColumnSource.of(self._raw, native(self._options), self._options.get("error_cb"))
        if self.columns is not None:
            # What waits in the client library or has not been judged yet is fetched again, as columns.
            self.out.drop_unjudged(self._intake.waiting)
            self._members.fetching.before_fetch = self.columns.route
            self._members.fetching.begin_anew()

    def _patience(self, deadline: float | None, now: float) -> float:
        """How long the client library may block: short while a gate is closed or a change is near."""
        wait = 0.005 if self._gates.busy or self._members.busy else 0.05
        return wait if deadline is None else max(0.0, min(wait, deadline - now))

    def finish_returned(self) -> None:
        """The application is back: what it was given last is processed, if it left that to us."""
        unseen = {place_of(message) for message in self.out.unseen}
        for place in self.out.touched - unseen:
            owned = self._members.owned.get(place)
            if owned is not None:
                owned.unfinished = False
                if self._settings.auto_store and self._settings.auto_commit:
                    owned.done_with_all()
        self.out.touched.clear()
        self._commits.periodic()

    def _before_revoke(self, places: set[Place]) -> None:
        self.drop(places)
        self.out.touched -= places

    def drop(self, places: set[Place]) -> None:
        """Drop what the application has not seen: its new owner starts before it, or a seek left it behind."""
        self.out.drop(places, self._intake.waiting)
