"""A consumer group's coordinator, classic protocol: members, generations, sessions, committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError
from simulation.shipped.broker import Cluster, Place, Transaction

Reply = Callable[..., None]


@dataclass(eq=False)
class Seat:
    """A member as the coordinator knows it."""

    member: str
    topics: list[str]
    owned: set[Place]
    session: float
    rebalance: float
    heard: float
    client: str
    joined: Reply | None = None
    synced: Reply | None = None
    assignment: set[Place] = field(default_factory=set)


class Group:
    """state: empty, joining, syncing or stable. committed_hook and
    refused_hook hear of every commit: (group, client or member, places)."""

    committed_hook: Callable[[str, str, dict[Place, tuple[int, str]]], None] = lambda group, client, places: None
    refused_hook: Callable[[str, str, dict[Place, tuple[int, str]]], None] = lambda group, member, places: None

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.state, self.generation, self.leader = "empty", 0, ""
        self.seats: dict[str, Seat] = {}
        self.offsets: dict[Place, tuple[int, str]] = {}
        self.pending: dict[Place, Transaction] = {}
        self.awaiting: list[Callable[[], None]] = []
        self._round = self._names = 0

    # Membership.

    def join(
        self,
        member: str,
        client: str,
        topics: list[str],
        owned: set[Place],
        session: float,
        rebalance: float,
        reply: Reply,
    ) -> None:
        """reply(error code or None, member, generation, leader?, {member: (topics, owned)} for the leader)."""
        now = self.cluster.scheduler.now
        self.cluster.scheduler.note("join", self.name, member, client, self.state)
        if member and member not in self.seats:
            reply(KafkaError.UNKNOWN_MEMBER_ID, "", -1, False, {})
            return
        if not member:
            self._names += 1
            member = f"{client}-{self.name}-{self._names}"
        seat = self.seats.get(member)
        if seat is None:
            seat = self.seats[member] = Seat(member, topics, owned, session, rebalance, now, client)
            self.cluster.scheduler.after(session, self._session_over, seat)
        seat.topics, seat.owned, seat.heard, seat.joined = topics, owned, now, reply
        if self.state != "joining":
            self._rebalance()
        else:
            self._look()

    def _rebalance(self) -> None:
        first = self.state == "empty"
        self.state = "joining"
        self._round += 1
        for seat in self.seats.values():
            if seat.synced is not None:
                seat.synced(KafkaError.REBALANCE_IN_PROGRESS, set())
                seat.synced = None
        longest = max((seat.rebalance for seat in self.seats.values()), default=0.0)
        self.cluster.scheduler.after(longest, self._rebalance_over, self._round)
        # Members that start together meet in the first round.
        self.cluster.scheduler.after(0.2 if first else 0.0, self._look)

    def _rebalance_over(self, number: int) -> None:
        if self.state == "joining" and self._round == number:
            for seat in [seat for seat in self.seats.values() if seat.joined is None]:
                self._remove(seat)
            self._look()

    def _look(self) -> None:
        if self.state != "joining" or any(seat.joined is None for seat in self.seats.values()):
            return
        if not self.seats:
            self.state = "empty"
            return
        self.generation += 1
        self.state = "syncing"
        self.leader = self.leader if self.leader in self.seats else next(iter(self.seats))
        self.cluster.scheduler.note("generation", self.name, self.generation, *self.seats)
        everybody = {m: (list(seat.topics), set(seat.owned)) for m, seat in self.seats.items()}
        for member, seat in self.seats.items():
            reply, seat.joined = seat.joined, None
            seat.heard = self.cluster.scheduler.now
            leads = member == self.leader
            assert reply is not None
            reply(None, member, self.generation, leads, everybody if leads else {})

    def sync(self, member: str, generation: int, plan: Mapping[str, set[Place]] | None, reply: Reply) -> None:
        """reply(error code or None, assignment)."""
        code = self._check(member, generation)
        if code is not None or self.state == "joining":
            reply(KafkaError.REBALANCE_IN_PROGRESS if code is None else code, set())
            return
        seat = self.seats[member]
        seat.heard = self.cluster.scheduler.now
        if self.state == "stable":
            reply(None, set(seat.assignment))
            return
        seat.synced = reply
        if plan is not None:
            self.state = "stable"
            for m, each in self.seats.items():
                each.assignment = set(plan.get(m, ()))
                if each.synced is not None:
                    each.synced(None, set(each.assignment))
                    each.synced = None

    def heartbeat(self, member: str, generation: int, reply: Reply) -> None:
        """reply(error code or None)."""
        code = self._check(member, generation)
        if code is None:
            self.seats[member].heard = self.cluster.scheduler.now
            code = KafkaError.REBALANCE_IN_PROGRESS if self.state == "joining" else None
        reply(code)

    def leave(self, member: str) -> None:
        """A member goes."""
        seat = self.seats.get(member)
        if seat is not None:
            self._remove(seat)

    def _remove(self, seat: Seat) -> None:
        if self.seats.pop(seat.member, None) is None:
            return
        self.cluster.scheduler.note("left", self.name, seat.member)
        if seat.joined is not None:
            seat.joined(KafkaError.UNKNOWN_MEMBER_ID, "", -1, False, {})
        if seat.synced is not None:
            seat.synced(KafkaError.UNKNOWN_MEMBER_ID, set())
        if not self.seats:
            self.state = "empty"
        elif self.state == "joining":
            self._look()
        else:
            self._rebalance()

    def _session_over(self, seat: Seat) -> None:
        if self.seats.get(seat.member) is not seat:
            return
        left = seat.heard + seat.session - self.cluster.scheduler.now
        if left > 0 or seat.joined is not None:
            self.cluster.scheduler.after(max(left, 1.0), self._session_over, seat)
        else:
            self._remove(seat)

    def _check(self, member: str, generation: int) -> int | None:
        if member not in self.seats:
            return int(KafkaError.UNKNOWN_MEMBER_ID)
        return None if generation == self.generation else int(KafkaError.ILLEGAL_GENERATION)

    # Offsets.

    def commit(
        self, member: str, generation: int, places: Mapping[Place, tuple[int, str]], reply: Callable[[int | None], None]
    ) -> None:
        """reply(error code or None). A client without a generation may commit while the group is empty."""
        code = self._may_commit(member, generation)
        if code is None:
            self.cluster.scheduler.note("commit", self.name, member, sorted(places.items()))
            self.offsets.update(places)
            for place in places:
                self.pending.pop(place, None)
            Group.committed_hook(self.name, self.seats[member].client if member in self.seats else "", dict(places))
        else:
            self.cluster.scheduler.note("refused", self.name, member, code, sorted(places.items()))
            Group.refused_hook(self.name, member, dict(places))
        reply(code)

    def _may_commit(self, member: str, generation: int) -> int | None:
        if generation < 0 and not self.seats:
            return None
        code = self._check(member, generation)
        if code is None:
            self.seats[member].heard = self.cluster.scheduler.now
            if self.state == "syncing":
                code = int(KafkaError.REBALANCE_IN_PROGRESS)
        return code

    def commit_in(
        self,
        transaction: Transaction,
        member: str,
        generation: int,
        places: Mapping[Place, tuple[int, str]],
        reply: Callable[[int | None], None],
    ) -> None:
        """Offsets that count when the transaction is committed."""
        code = self._may_commit(member, generation)
        if code is None:
            transaction.offsets.setdefault(self, {}).update(places)
            self.pending.update(dict.fromkeys(places, transaction))
        reply(code)

    def transaction_ended(self, transaction: Transaction, written: Callable[[], None]) -> None:
        """Its marker is here."""
        for place, committed in transaction.offsets[self].items():
            if self.pending.get(place) is transaction:
                del self.pending[place]
                if transaction.ended:
                    self.offsets[place] = committed
        written()
        awaiting, self.awaiting = self.awaiting, []
        for call in awaiting:
            call()

    def fetch_offsets(
        self, places: list[Place] | None, stable: bool, reply: Callable[[dict[Place, tuple[int, str]]], None]
    ) -> None:
        """What is committed; stable: only when no transaction may still change it."""
        asked = list(self.offsets) if places is None else places
        if stable and any(place in self.pending for place in asked):
            self.awaiting.append(lambda: self.fetch_offsets(places, stable, reply))
            return
        reply({place: self.offsets[place] for place in asked if place in self.offsets})


def deal(
    members: Mapping[str, tuple[list[str], set[Place]]], counts: Mapping[str, int], cooperative: bool
) -> dict[str, set[Place]]:
    """Who gets which partition. cooperative: everybody keeps what may stay, and what moves is free for a round."""
    plan: dict[str, set[Place]] = {m: set() for m in members}
    for topic in sorted({t for topics, _ in members.values() for t in topics}):
        subscribed = sorted(m for m, (topics, _) in members.items() if topic in topics)
        places = [(topic, p) for p in range(counts.get(topic, 0))]
        if not cooperative:
            each, more = divmod(len(places), len(subscribed))
            at = 0
            for n, member in enumerate(subscribed):
                take = each + (n < more)
                plan[member].update(places[at : at + take])
                at += take
            continue
        owner: dict[Any, str] = {}
        for member in subscribed:
            for place in sorted(members[member][1]):
                if place[0] == topic and place in places:
                    owner.setdefault(place, member)
        load = {m: [p for p in places if owner.get(p) == m] for m in subscribed}
        free = [p for p in places if p not in owner]
        for place in free:
            load[min(subscribed, key=lambda m: len(load[m]))].append(place)
        while max(map(len, load.values())) - min(map(len, load.values())) > 1:
            giver = max(subscribed, key=lambda m: len(load[m]))
            taker = min(subscribed, key=lambda m: len(load[m]))
            load[taker].append(load[giver].pop())
        for member, dealt in load.items():
            plan[member].update(p for p in dealt if owner.get(p, member) == member)
    return plan
