"""The client library's side of a group: joining, heartbeats, rebalance callbacks inside the poll."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, TopicPartition
from simulation.shipped.broker import Link, Place, on_process
from simulation.shipped.coordinator import Group, deal

if TYPE_CHECKING:
    from simulation.shipped.consumer import Consumer

Callback = Callable[[Any, list[TopicPartition]], None]


@dataclass(eq=False)
class Revocation:
    """What is taken away and was not told of yet. places: the partitions, by what is owned then; None where it is over.

    ended: told or answered, whichever comes first. answered: what it was when the application answered without having heard.
    """

    places: Callable[[], set[Place] | None]
    lost: bool
    ended: Callable[[], None]
    answered: set[Place] | None = None


class Membership:
    """round: raised by whatever makes answers that are on their way meaningless. polled_at: when the application was here.

    going: what a callback that has not returned takes away.
    """

    def __init__(self, client: Consumer) -> None:
        self._client = client
        get = client.config.get
        self._session = int(get("session.timeout.ms", 45_000)) / 1000
        self._interval = int(get("heartbeat.interval.ms", 3_000)) / 1000
        self._most_quiet = int(get("max.poll.interval.ms", 300_000)) / 1000
        self._refresh = int(get("topic.metadata.refresh.interval.ms", 300_000)) / 1000
        self._cooperative = "cooperative" in str(get("partition.assignment.strategy", ""))
        self.member, self.generation = "", -1
        self.owned: set[Place] = set()
        self.going: set[Place] = set()
        self._topics: list[str] = []
        self._callbacks: tuple[Callback | None, ...] = (None, None, None)
        self._link = Link(client.cluster, client.process)
        self._round = 0
        self._leads = self._joining = self._revoking = self._telling = False
        self._untold: Revocation | None = None
        self._counts: dict[str, int] = {}
        self.polled_at = 0.0
        self._gone_quiet = self._postponed = False

    @property
    def _group(self) -> Group:
        return self._client.cluster.group(str(self._client.config["group.id"]))

    @property
    def _scheduler(self) -> Any:
        return self._client.cluster.scheduler

    @property
    def subscribed(self) -> bool:
        """Whether there is a subscription."""
        return bool(self._topics)

    def subscribe(self, topics: list[str], *callbacks: Callback | None) -> None:
        """Join; a membership that is there stays one."""
        begins = not self._topics
        if topics == self._topics:
            self._callbacks = callbacks
            self._postponed = self._joining or self._revoking
            if not self._postponed:
                self._join_for_these()
            return
        self._topics, self._callbacks = list(topics), callbacks
        if begins:
            self._round += 1
            self.polled_at = self._scheduler.now
            self._heartbeat(self._round)
            self._look(self._round)
        self._join()

    def unsubscribe(self) -> None:
        """Leave; the revocation is heard of in the next poll."""
        if not self._topics:
            return
        self._topics = []
        self._round += 1
        owned = set(self.owned)
        self._leave()
        if owned:
            self._announce(Revocation(lambda: set(owned), False, lambda: None))

    def changed(self, gives_back: bool) -> None:
        """The application changes what is assigned. As the real one, where that is outside of a callback:

        a loss that waits to be told is forgotten to be one. What gives back is taken for the answer to a revocation that waits.
        """
        untold = self._untold
        if untold is None or self._telling:
            return
        untold.lost = False
        if gives_back and untold.answered is None:
            untold.answered = (untold.places() or set()) & self.owned
            self._scheduler.note("answered before told", self.member, sorted(untold.answered))
            self.owned -= untold.answered
            untold.ended()

    def _announce(self, revocation: Revocation) -> None:
        """Tell it in the next poll."""
        self._untold = revocation

        def tell() -> None:
            if self._untold is revocation:
                self._untold = None
            if revocation.answered is not None:
                self._call_away(revocation.answered, revocation.lost)
                return
            places = revocation.places()
            try:
                if places is not None:
                    self._take_away(places, revocation.lost)
            finally:
                revocation.ended()

        self._client.event(tell)

    def close(self) -> None:
        """Leave; the revocation is heard of now."""
        if self._topics:
            self._topics = []
            self._round += 1
            if self.owned:
                self._take_away(set(self.owned), lost=False)
            self._leave()

    def _leave(self) -> None:
        member, group = self.member, self._group
        self._joining = False
        if member:
            self._link.ask(lambda reply: group.leave(member), lambda: None)
        # The generation stays: with it, a commit in between is nobody's, and refused. Without, an empty group would take it.
        self.member, self._leads = "", False

    # Joining.

    def _join(self) -> None:
        if not self._topics or self._joining:
            return
        self._joining = True
        self._round += 1
        number, client = self._round, self._client
        group, member, owned = self._group, self.member, set(self.owned) if self._cooperative else set()
        name = str(client.config.get("client.id", "client"))
        self._link.ask(
            lambda reply: group.join(member, name, list(self._topics), owned, self._session, self._most_quiet, reply),
            lambda *answer: self._joined(number, *answer),
        )
        self._heartbeat(number)
        self._look(number)

    def _joined(
        self,
        number: int,
        code: int | None,
        member: str,
        generation: int,
        leads: bool,
        everybody: dict[str, tuple[list[str], set[Place]]],
    ) -> None:
        if number != self._round:
            if code is None and member != self.member and not self._joining:
                group = self._group
                self._link.ask(lambda reply: group.leave(member), lambda: None)
            return
        if code is not None:
            self._lost(code)
            return
        self.member, self.generation, self._leads = member, generation, leads
        plan = None
        if leads:
            topics = self._client.cluster.topics
            self._counts = {t: len(topics[t].logs) for ts, _ in everybody.values() for t in ts if t in topics}
            plan = deal(everybody, self._counts, self._cooperative)
        group = self._group
        self._link.ask(
            lambda reply: group.sync(member, generation, plan, reply), lambda *answer: self._synced(number, *answer)
        )

    def _synced(self, number: int, code: int | None, assignment: set[Place]) -> None:
        if number != self._round:
            return
        self._joining = False
        if code == KafkaError.REBALANCE_IN_PROGRESS:
            self._again()
        elif code is not None:
            self._lost(code)
        elif self._cooperative:
            gone, new = self.owned - assignment, assignment - self.owned
            if gone:
                self._revoke(number, gone, new)
            else:
                self._client.event(lambda: self._give(number, new))
        else:
            self._client.event(lambda: self._give(number, assignment))

    def _revoke(self, number: int, gone: set[Place], new: set[Place]) -> None:
        def ended() -> None:
            if number == self._round and new and revocation.answered is None:
                self._give(number, new)
            if number == self._round:
                self._join()

        revocation = Revocation(lambda: set(gone) if number == self._round else None, False, ended)
        self._announce(revocation)

    def _give(self, number: int, places: set[Place]) -> None:
        if number != self._round or not self._topics:
            return
        client = self._client
        self.owned |= places
        self._scheduler.note("assigned", self.member, sorted(places))
        partitions = [TopicPartition(*place) for place in sorted(places)]
        client.changed, self._telling = False, True
        try:
            if self._callbacks[0] is not None:
                self._callbacks[0](client, partitions)
        finally:
            self._telling = False
        if not client.changed:
            (client.incremental_assign if self._cooperative else client.assign)(partitions)
        if self._postponed:
            self._postponed = False
            self._join_for_these()

    def _join_for_these(self) -> None:
        """The same topics were subscribed to again: an eager member joins in any case."""
        if self._cooperative:
            self.look_for_partitions()
        else:
            self._again()

    def _take_away(self, places: set[Place], lost: bool) -> None:
        """The callback, on the polling thread."""
        places &= self.owned
        if not places and self._cooperative:
            return
        self._call_away(places, lost)

    def _call_away(self, places: set[Place], lost: bool) -> None:
        client = self._client
        self._scheduler.note("lost" if lost else "revoked", self.member, sorted(places))
        partitions = [TopicPartition(*place) for place in sorted(places)]
        client.changed, self.going, self._telling = False, places, True
        callback = self._callbacks[2] if lost and self._callbacks[2] is not None else self._callbacks[1]
        try:
            if callback is not None:
                callback(client, partitions)
        finally:
            self.owned, self.going, self._telling = self.owned - places, set(), False
        if not client.changed:
            if self._cooperative:
                here = [p for p in partitions if (p.topic, p.partition) in client.fetchers]
                client.incremental_unassign(here)
            else:
                client.unassign()

    def _again(self) -> None:
        """The group rebalances: an eager member gives all up first."""
        if self._cooperative or not self.owned:
            self._join()
        elif not self._revoking:
            self._revoking = True
            number = self._round

            def ended() -> None:
                self._revoking = False
                if number == self._round:
                    self._join()

            self._announce(Revocation(lambda: set(self.owned) if number == self._round else None, False, ended))

    def _lost(self, code: int) -> None:
        """The coordinator does not know this member any more. What is forgotten is what it has called wrong, no more."""
        self._round += 1
        number = self._round
        self._leads = self._joining = False
        if code == KafkaError.UNKNOWN_MEMBER_ID:
            self.member = ""
        elif code == KafkaError.ILLEGAL_GENERATION:
            self.generation = -1

        def ended() -> None:
            self._revoking = False
            if number == self._round:
                self._join()

        def gone() -> None:
            self._announce(Revocation(lambda: set(self.owned) or None, True, ended))

        def later() -> None:
            """An assignment that was on its way may have come meanwhile: whoever polls is told that it is lost."""
            if self.owned:
                gone()
            else:
                ended()

        if self.owned:
            gone()
        else:
            self._scheduler.after(0.1, on_process, self._client.process, later)

    # What runs beside the poll.

    def _heartbeat(self, number: int) -> None:
        if number != self._round or not self._topics or self._client.closed:
            return
        scheduler = self._scheduler
        if scheduler.now - self.polled_at > self._most_quiet and self.member and not self._gone_quiet:
            self._quiet()
            return
        if self.member and not self._joining:
            group, member, generation = self._group, self.member, self.generation
            self._link.ask(
                lambda reply: group.heartbeat(member, generation, reply), lambda code: self._beat(number, code)
            )
        scheduler.after(self._interval, on_process, self._client.process, self._heartbeat, number)

    def _quiet(self) -> None:
        """max.poll.interval.ms is over: out, until the application is back."""
        self._round += 1
        self._leave()
        self._gone_quiet, self._revoking = True, False
        number, owned = self._round, set(self.owned)

        def back() -> None:
            # It joins again when it has lost what it had, not before: else it would claim that it owns it.
            self._gone_quiet = False
            if number == self._round:
                self._join()

        self._announce(Revocation(lambda: set(owned), True, back))
        error = KafkaError(KafkaError._MAX_POLL_EXCEEDED)
        self._scheduler.note("quiet", Message(error=error).error())

    def _beat(self, number: int, code: int | None) -> None:
        if number != self._round or self._joining:
            return
        if code == KafkaError.REBALANCE_IN_PROGRESS:
            self._again()
        elif code is not None:
            self._lost(code)

    def _look(self, number: int) -> None:
        if number != self._round or not self._topics or self._client.closed:
            return
        self.look_for_partitions()
        if number == self._round and self._refresh > 0:
            self._scheduler.after(self._refresh, on_process, self._client.process, self._look, number)

    def look_for_partitions(self) -> None:
        """The leader lets the group rebalance when a topic has more partitions than it dealt."""
        if not self._leads or self._joining or not self._topics:
            return
        topics = self._client.cluster.topics
        if any(len(topics[t].logs) != count for t, count in self._counts.items() if t in topics):
            self._again()
