"""A member of a consumer group: the real gates, starts and routes, driven as `OrderedConsumer` drives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from keyorder.connector.verify.events import Kind
from keyorder.partitioner.gates.ahead import Ahead, encode_ahead
from keyorder.partitioner.gates.gate import Gates, Opened
from keyorder.partitioner.gates.starts import (
    Commit,
    GroupState,
    checked,
    flushed_epoch,
    founded,
    initial_offsets,
    metadata_of,
    state_of,
)
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline
from simulation.cluster import TOPIC, Cluster, Cursor, Row
from simulation.group import Group
from simulation.world import Process, World

Places = dict[int, tuple[int, str]]


@dataclass
class PartitionState:
    """An owned partition. position: the oldest offset that is not processed. done: what is processed beyond it."""

    partition: int
    position: int
    committed: int | None
    inherited: Ahead | None
    cursor: Cursor | None = None
    done: set[int] = field(default_factory=set)
    queue: list[tuple[int, Row, float]] = field(default_factory=list)
    committed_metadata: str = ""

    def process(self, offset: int) -> None:
        """The application is done with one."""
        self.done.add(offset)
        while self.position in self.done:
            self.done.discard(self.position)
            self.position += 1


class Member(Process):
    """One life of a member. It processes one record at a time."""

    def __init__(self, world: World, cluster: Cluster, group: Group, name: str) -> None:
        super().__init__(world, name)
        # Some applications are slow, some commit seldom.
        self._work = world.rng.choice((0.01, 0.01, 0.1, 0.4))
        self._rest = world.rng.choice((0.4, 0.4, 3.0))
        self.strays = 0
        self.told_at = 0.0
        self._cluster, self._group = cluster, group
        self._owned: dict[int, PartitionState] = {}
        self._starting: set[int] = set()
        self._giving: list[int] = []
        self._going: set[int] = set()
        self._timeline: Timeline | None = None
        self._gates: Gates | None = None
        self._routing: Routing | None = None
        self._opened: Opened | None = None
        self._as_of = -inf
        self._looking = False
        self._others: dict[int, Commit] = {}
        self._asking = self._committing = self._initial_commit = False
        self._wire = self._answers = 0.0
        self._ownership = 0
        self._busy: int | None = None
        self._view = Cursor(self, cluster.timelines, self._take_timeline)
        self._view.lag = world.rng.choice((0.0, 0.0, 0.5, 2.0))
        self._tick()

    def die(self) -> None:
        """SIGKILL; the group hears of it when the session times out."""
        self.alive = False
        self._view.close()
        for owned in self._owned.values():
            if owned.cursor:
                owned.cursor.close()

    # Ownership.

    def take(self, partitions: list[int]) -> None:
        """The assignment: each partition begins when its start is known."""
        for p in partitions:
            self.world.record(Kind.ASSIGN, self.name, self._group.name, p)
            self._starting.add(p)
        self._look()

    def give_up(self, partitions: list[int]) -> None:
        """The revocation. It runs between two records, and ends with a commit of what is processed."""
        self._giving += partitions
        self.wake()

    def _give(self) -> None:
        giving, self._giving = self._giving, []
        self._going |= set(giving)
        owned = [self._owned[p] for p in giving if p in self._owned]
        self._send_commit(owned, lambda: self._gave(giving))

    def _gave(self, partitions: list[int]) -> None:
        self._going -= set(partitions)
        self._ownership += 1
        for p in partitions:
            owned = self._owned.pop(p, None)
            self._starting.discard(p)
            if owned is not None and owned.cursor is not None:
                owned.cursor.close()
            self.world.record(Kind.REVOKE, self.name, self._group.name, p)
            self._group.given_up(self, p)
        self._opened = None
        self.wake()

    def _start_what_may(self) -> None:
        """Ask for the group's commits; the owner of partition 0 makes its initial commit."""
        if self._starting and not self._asking:
            self._asking = True
            self.later(self.world.delay(), self._commits_came, self._group.committed(), set(self._starting))

    def _commits_came(self, commits: dict[int, Commit], starting: set[int]) -> None:
        self._asking = False
        assert self._timeline is not None
        if founded(self._timeline, commits):
            for p in sorted(starting & self._starting):
                if p in self._giving or p in self._going:
                    continue
                commit = self._group.committed().get(p)
                end = len(self._cluster.partitions[p].rows)
                offset = 0 if commit is None else checked(self._group.name, TOPIC, p, commit.offset, 0, end)
                self._begin(p, offset, commit)
        elif (
            0 in starting & self._starting
            and state_of(self._group.committed()) is GroupState.BIRTH
            and not self._initial_commit
        ):
            self._initial_commit = True
            self._list_ends({}, len(self._cluster.partitions), self._ownership)

    def _list_ends(self, ends: dict[int, int], count: int, ownership: int) -> None:
        """The ends of the logs, one after another; then the control topic's."""
        if len(ends) < count:
            p = len(ends)
            pause = self.world.delay() + 3 * self.world.random() ** 3
            self.later(pause, self._list_ends, {**ends, p: len(self._cluster.partitions[p].rows)}, count, ownership)
        else:
            self._view.look(lambda _: self._found(ends, ownership))

    def _found(self, ends: dict[int, int], ownership: int) -> None:
        assert self._timeline is not None
        starts = initial_offsets(
            self._group.name, self._timeline, {}, dict.fromkeys(ends, 0), ends, self._group.from_latest
        )
        metadata = metadata_of(self._timeline.newest.number)
        self._initial_commit = False
        places = {p: (offset, metadata) for p, offset in starts.items()}
        # The initial commit is made inside the poll: the member still owns partition 0 then.
        if self._ownership == ownership and self._group.commit(self, places):
            self._group.starts = dict(starts)

    def _begin(self, p: int, offset: int, commit: Commit | None) -> None:
        self._starting.discard(p)
        owned = self._owned[p] = PartitionState(
            p, offset, None if commit is None else commit.offset, None if commit is None else commit.ahead
        )
        owned.cursor = Cursor(self, self._cluster.partitions[p], lambda row, o: self._fetched(owned, row, o), offset)
        self._opened = None

    def _fetched(self, owned: PartitionState, row: Row, offset: int) -> None:
        owned.queue.append((offset, row, self.clock()))

    # The view.

    def _take_timeline(self, timeline: Timeline, _: int) -> None:
        if self._timeline is not None:
            self._timeline.check_successor(timeline)
        self._timeline = timeline
        self._routing = Routing(timeline, self._routing)
        self._gates = Gates(timeline)
        self._opened = None

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self._view.look(self._looked)

    def _looked(self, began: float) -> None:
        self._looking = False
        self._as_of = began
        self.wake()

    # The turn.

    def wake(self) -> None:
        """One turn, unless the application is inside a record."""
        if not self.alive or self._busy is not None or self._timeline is None:
            return
        if self._giving:
            self._give()
        for p in self.world.rng.sample(sorted(self._owned), len(self._owned)):
            owned = self._owned.get(p)
            if owned is not None and owned.queue and p not in self._going and self._next(owned):
                return

    def _next(self, owned: PartitionState) -> bool:
        """Deliver the partition's next record, if it may go."""
        assert self._timeline is not None
        assert self._routing is not None
        at = 0
        waiting: set[bytes] = set()
        while at < len(owned.queue):
            offset, row, fetched_at = owned.queue[at]
            if offset < owned.position or offset in owned.done:
                del owned.queue[at]
                continue
            if owned.inherited is not None and owned.inherited.covers(offset):
                owned.process(offset)
                continue
            if not self._judged(owned, offset, row, fetched_at):
                return False
            if offset >= self._limit(owned):
                if not self._group.gate_keys:
                    return False
                if row.key in waiting or not self._key_may_go(owned, offset, row):
                    waiting.add(row.key)
                    at += 1
                    continue
            del owned.queue[at]
            self._deliver(owned, offset, row)
            return True
        return False

    def _judged(self, owned: PartitionState, offset: int, row: Row, fetched_at: float) -> bool:
        """Whether the view is new enough to judge a record by it: its age, the hint, the hash."""
        assert self._timeline is not None
        assert self._routing is not None
        if self._as_of < fetched_at - self._timeline.view_age_s:
            self._look()
            return False
        stray = self._routing.is_stray(row.key, owned.partition, offset)
        if stray or row.hint > self._timeline.newest.number:
            if self._as_of < fetched_at:
                self._look()
                return False
            self.strays += stray
        return True

    def _limit(self, owned: PartitionState) -> float:
        gate = self._look_at_gates().first_closed(owned.partition)
        return inf if gate is None else gate.begins

    def _key_may_go(self, owned: PartitionState, offset: int, row: Row) -> bool:
        assert self._gates is not None
        assert self._routing is not None
        gate = self._gates.entry(self._routing.of(row.key).moves, owned.partition, offset)
        return gate is None or self._look_at_gates().is_open(gate)

    def _look_at_gates(self) -> Opened:
        if self._opened is None:
            assert self._gates is not None
            self._opened = self._gates.open_now(self.gate_position)
        return self._opened

    def gate_position(self, q: int) -> int:
        """What the group has committed, acknowledged by the broker."""
        owned = self._owned.get(q)
        if owned is not None:
            return owned.committed or 0
        commit = self._others.get(q)
        return 0 if commit is None else commit.offset

    def _deliver(self, owned: PartitionState, offset: int, row: Row) -> None:
        self._busy = offset
        self.world.record(Kind.DELIVER_START, self.name, self._group.name, owned.partition, offset, row.value)
        self.later(0.001 + self._work * self.world.random(), self._delivered, owned, offset, row)

    def _delivered(self, owned: PartitionState, offset: int, row: Row) -> None:
        self.world.record(Kind.DELIVER_END, self.name, self._group.name, owned.partition, offset, row.value)
        self._group.delivered.add((owned.partition, offset))
        self._busy = None
        before = owned.position
        owned.process(offset)
        assert self._timeline is not None
        reached = flushed_epoch(self._timeline, owned.partition, owned.position)
        if reached > flushed_epoch(self._timeline, owned.partition, before):
            # Somebody may wait for what lies below this cut.
            self.later(self.world.delay() + self._rest * self.world.random() / 2, self._commit)
        self.wake()

    # Commits.

    def _tick(self) -> None:
        """What a member does from time to time."""
        if self._timeline is not None:
            self._start_what_may()
            self._commit()
            if not self._asking and any(o.queue or o.position != o.committed for o in self._owned.values()):
                self._asking = True
                self.later(self.world.delay(), self._positions_came, self._group.committed())
        self.wake()
        self.later(self._rest, self._tick)

    def _positions_came(self, commits: dict[int, Commit]) -> None:
        self._asking = False
        self._others = commits
        self._opened = None
        self.wake()

    def _commit(self) -> None:
        due = [
            o
            for o in self._owned.values()
            if o.committed is None or self._place(o) != (o.committed, o.committed_metadata)
        ]
        # An application may commit one partition and not another.
        due = due if self.world.random() < 0.75 else self.world.rng.sample(due, min(1, len(due)))
        if due and not (self._committing or self._giving or self._going):
            self._committing = True
            self._send_commit(due, lambda: None)

    def _place(self, owned: PartitionState) -> tuple[int, str]:
        assert self._timeline is not None
        offset = int(min(owned.position, self._founded_below(owned)))
        ahead = ""
        upto = max(owned.done) + 1 if owned.done else owned.position
        before = owned.inherited
        # What an earlier owner had processed is carried on until it was passed.
        upto = upto if before is None else max(upto, before.upto)
        if self._group.gate_keys and upto > offset:
            pending = frozenset(
                o
                for o in range(offset, upto)
                if o >= owned.position and o not in owned.done and not (before is not None and before.covers(o))
            )
            ahead = encode_ahead(Ahead(upto, pending), offset)
        return offset, metadata_of(flushed_epoch(self._timeline, owned.partition, offset), ahead=ahead)

    def _founded_below(self, owned: PartitionState) -> float:
        """A position stays below a gate as long as an origin of it has no commit."""
        assert self._gates is not None
        if not self._group.gate_keys:
            return inf
        known = {p for p, o in self._owned.items() if o.committed is not None} | self._others.keys()
        unfounded = (g.begins for g in self._gates.of(owned.partition) if any(q not in known for q, _ in g.origins))
        return max(min(unfounded, default=inf), owned.committed or 0)

    def _send_commit(self, owned: list[PartitionState], then: Callable[[], None]) -> None:
        places = {o.partition: self._place(o) for o in owned}
        # One connection: commits and their answers keep their order.
        self._wire = max(self._wire, self.world.now + self.world.delay())
        self.world.at(self._wire, self._at_broker, owned, places, then)

    def _at_broker(self, owned: list[PartitionState], places: Places, then: Callable[[], None]) -> None:
        taken = self._group.commit(self, places)
        if taken and not self.alive:
            for p, (offset, _) in places.items():
                self.world.record(Kind.COMMIT_UNKNOWN, self.name, self._group.name, p, offset)
        self._answers = max(self._answers, self.world.now + self.world.delay())
        self.world.at(self._answers, self.run, self._committed, owned, places, taken, then)

    def _committed(self, owned: list[PartitionState], places: Places, taken: bool, then: Callable[[], None]) -> None:
        self._committing = False
        if taken:
            for each in owned:
                if self._owned.get(each.partition) is each:
                    each.committed, each.committed_metadata = places[each.partition]
                    self.world.record(Kind.COMMIT_OK, self.name, self._group.name, each.partition, each.committed)
        self._opened = None
        then()
        self.wake()
