"""A consumer group's coordinator: who owns which partition, and what was committed, as the broker keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from keyorder.connector.verify.events import Kind
from keyorder.partitioner.gates.starts import Commit, ahead_of, epoch_of
from simulation.cluster import Cluster
from simulation.world import World

if TYPE_CHECKING:
    from simulation.member import Member

SESSION_TIMEOUT = 6.0


class Group:
    """gate_keys: single keys wait, not partitions. from_latest: where the group begins."""

    def __init__(self, world: World, cluster: Cluster, name: str, gate_keys: bool, from_latest: bool) -> None:
        self.world, self.cluster, self.name = world, cluster, name
        self.gate_keys, self.from_latest = gate_keys, from_latest
        self.members: list[Member] = []
        self.owners: dict[int, Member] = {}
        self.commits: dict[int, tuple[int, str]] = {}
        self.starts: dict[int, int] = {}
        self.delivered: set[tuple[int, int]] = set()
        self.evicted: Callable[[Group], None] = lambda _: None
        self._moving: set[int] = set()
        self._generation = 0
        self._rebalancing = False
        self._again = False

    def committed(self) -> dict[int, Commit]:
        """Every commit, as an answer of the broker says it."""
        return {
            p: Commit(offset, epoch_of(metadata), ahead_of(metadata, offset))
            for p, (offset, metadata) in self.commits.items()
        }

    def commit(self, member: Member, places: dict[int, tuple[int, str]]) -> bool:
        """The broker takes what any live member commits, also backwards. False: it was evicted."""
        if member not in self.members:
            return False
        self.commits.update(places)
        return True

    def done(self) -> bool:
        """Every partition is processed to its end."""
        ends = enumerate(self.cluster.partitions)
        return not self._moving and all(self.commits.get(p, (0, ""))[0] == len(log.rows) for p, log in ends)

    def rebalance(self) -> None:
        """Deal the partitions anew. Members give up what goes to others; the silent ones are evicted after a while."""
        if self._rebalancing:
            self._again = True
            return
        self._rebalancing = True
        live = [m for m in self.members if m.alive]
        wanted: dict[int, Member] = {}
        if live:
            shift = self.world.rng.randrange(len(live))
            wanted = {p: live[(p + shift) % len(live)] for p in range(len(self.cluster.partitions))}
        eager = self.world.random() < 0.3
        moved = {p for p, owner in self.owners.items() if eager or wanted.get(p) is not owner}
        self._moving = set(moved)
        for member in list(self.members):
            gives = [p for p in moved if self.owners.get(p) is member]
            if gives:
                self._tell(member, member.give_up, gives)
        self._generation += 1
        self.world.after(SESSION_TIMEOUT, self._evict, moved, self._generation)
        self._dealt(wanted)

    def _tell(self, member: Member, call: Callable[[list[int]], None], partitions: list[int]) -> None:
        """What the coordinator says to one member keeps its order."""
        member.told_at = max(member.told_at, self.world.now + self.world.delay())
        self.world.at(member.told_at, member.run, call, partitions)

    def given_up(self, member: Member, partition: int) -> None:
        """A member has let go of a partition in good order."""
        if self.owners.get(partition) is member:
            del self.owners[partition]
            self._moving.discard(partition)

    def _evict(self, moved: set[int], generation: int) -> None:
        for p in sorted(moved) if generation == self._generation else ():
            owner = self.owners.get(p)
            if owner is not None and p in self._moving:
                self.remove(owner)
                self.evicted(self)

    def remove(self, member: Member) -> None:
        """It is dead, or silent for too long: whatever it does later is refused."""
        if member in self.members:
            self.members.remove(member)
            if member.alive:
                member.die()
            self.world.record(Kind.CRASH, member.name, self.name)
        for p in [p for p, owner in self.owners.items() if owner is member]:
            del self.owners[p]
            self._moving.discard(p)

    def _dealt(self, wanted: dict[int, Member]) -> None:
        if self._moving:
            self.world.after(0.05, self._dealt, wanted)
            return
        self._rebalancing = False
        if self._again or any(not m.alive for m in wanted.values()):
            self._again = False
            self.rebalance()
            return
        for member in self.members:
            takes = [p for p, owner in wanted.items() if owner is member and self.owners.get(p) is not member]
            for p in takes:
                self.owners[p] = member
            if takes:
                self._tell(member, member.take, takes)
