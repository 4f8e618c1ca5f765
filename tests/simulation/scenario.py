"""One history: writers, groups and changes of one seed, with whatever goes wrong, until all is written and read."""

from __future__ import annotations

from dataclasses import dataclass

from keyorder.connector.verify.events import encode_value
from keyorder.connector.verify.topology import Epoch, Topology, locate
from keyorder.connector.verify.verdict import Verdict, judge
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.errors import ControllerFencedError
from keyorder.partitioner.hashing import HASHES
from keyorder.partitioner.timeline import Timeline
from simulation.cluster import LATE, Cluster
from simulation.controller import Controller
from simulation.group import Group
from simulation.member import Member
from simulation.themes import THEMES
from simulation.world import World
from simulation.writer import WriterProcess

PATIENCE = 1500.0  # simulated seconds in which everything has to be over


@dataclass
class Outcome:
    """verdict: the history checker's. over: all was written and read in time. faults: how often each struck."""

    seed: int
    verdict: Verdict
    over: bool
    changes: int
    strays: int
    holes: int
    faults: dict[str, int]

    @property
    def good(self) -> bool:
        """Nothing lost, reordered or stuck, and no stray."""
        return self.verdict.valid and self.over and not self.strays and not self.holes

    def __str__(self) -> str:
        head = f"SEED={self.seed}: over={self.over} strays={self.strays} holes={self.holes} {self.faults}"
        return f"{head}\n{self.verdict.summary()}"


class Scenario:
    """The cast of one history."""

    def __init__(self, seed: int, lying: bool = False) -> None:
        self.seed, self.lying = seed, lying
        self.theme = theme = THEMES[seed % len(THEMES)]
        self.world = world = World(seed)
        rng = world.rng
        self.initial = rng.choice((1, 1, 2, 2, 3, 4))
        self.cluster = Cluster(world, self.initial, seed, tuple(HASHES)[seed // len(THEMES) % len(HASHES)])
        # Busy keys, since an order needs two records; some keys never move.
        self.keys = [f"k{n}" for n in rng.sample(range(64), rng.randrange(4, 10))]
        self.to_change = rng.randrange(2, 6)
        self.to_write = rng.randrange(*theme.records)
        self.pace = rng.choice((0.02, 0.1, 0.4))
        self.joins: list[str] = []
        self.sequences: dict[str, dict[str, int]] = {f"w{n}": {} for n in range(rng.randrange(1, 4))}
        self.writers = {name: self._writer(name) for name in self.sequences}
        self.groups = [
            Group(world, self.cluster, f"g{n}", rng.random() < theme.gate_keys, n == 1)
            for n in range(rng.randrange(1, 3))
        ]
        self._names = self._others = 0
        self.others: list[WriterProcess] = []
        self.last_write = 0.0
        self.departed: list[Member] = []
        for group in self.groups:
            group.evicted = lambda group: self.world.after(3 * self.world.random(), self._join, group)
            # Some groups begin when much has changed already: gates lie closed one behind the other.
            begin = 60 * world.random() if rng.random() < theme.late else 0.0
            begin = 5 + 10 * world.random() if group.from_latest else begin
            world.after(begin, self._begin, group, rng.randrange(1, 4))
        self.controller: Controller | None = None
        self.cluster.timelines.written = self._in_the_middle
        world.after(2 + 5 * world.random(), self._change)
        world.after(1.0, self._produce)
        world.after(1.0, self._trouble)
        world.after(1.0, self._metadata, 0)

    def run(self) -> Outcome:
        """Let it happen, and judge it."""
        self.world.run(self._over, PATIENCE)
        over = self._over()
        timeline = self.cluster.timeline
        epochs = [Epoch(e.number, e.count, e.ends, e.begins) for e in timeline.epochs]
        rows = [
            (p, offset, row.key, encode_value("", row.value.writer, row.value.key, row.value.seq), row.hint or None)
            for p, log in enumerate(self.cluster.partitions)
            for offset, row in enumerate(log.rows)
        ]
        topology = Topology(self.initial, epochs, timeline.hash)
        verdict = judge(
            self.world.history.finish(),
            rows,
            topology,
            quiesced=over,
            starts={group.name: group.starts for group in self.groups},
        )
        members = [m for group in self.groups for m in group.members] + self.departed
        strays = sum(m.strays for m in members)
        holes = self._holes(topology) if over else 0
        return Outcome(self.seed, verdict, over, len(epochs) - 1, strays, holes, self.world.faults)

    def _holes(self, topology: Topology) -> int:
        """Records that a group passed over although it had an older one of their key: its start was no consistent cut."""
        found = 0
        for group in self.groups:
            rows: dict[bytes, list[tuple[int, int, bool]]] = {}
            for p, log in enumerate(self.cluster.partitions):
                for offset, row in enumerate(log.rows):
                    stay = locate(topology.chain(row.key), p, offset)
                    if stay is not None:
                        rows.setdefault(row.key, []).append((stay, offset, (p, offset) in group.delivered))
            for row in rows.values():
                seen = [delivered for _, _, delivered in sorted(row)]
                found += seen[seen.index(True) :].count(False) if True in seen else 0
        return found

    # Writers.

    def _writer(self, name: str, writer_id: str = "") -> WriterProcess:
        sequences = self.sequences.setdefault(name, {})
        return WriterProcess(self.world, self.cluster, name, sequences, self.joins, writer_id or name)

    def _produce(self) -> None:
        world = self.world
        if self.to_write <= 0:
            for writer in [*self.writers.values(), *self.others]:
                writer.leave()
            return
        if world.chance("writer killed", 0.012):
            self._replace(world.rng.choice(sorted(self.writers)))
        elif world.chance("writer restarted", 0.006):
            name = world.rng.choice(sorted(self.writers))
            self.writers[name].leave()
            world.after(20 * world.random(), self._again, name)
        elif world.chance("writer id used twice", 0.004):
            name = world.rng.choice(sorted(self.writers))
            self.others.append(self.writers[name])
            self._others += 1
            self.writers[name] = self._writer(f"{name}-{self._others}", self.writers[name].writer_id)
        for _ in range(world.rng.randrange(1, 4)):
            writer = self.writers[world.rng.choice(sorted(self.writers))]
            if writer.alive:
                self.to_write -= 1
                writer.run(writer.produce, world.rng.choice(self.keys))
        # While nothing changes there is nothing to see; and at times nobody writes, whatever changes.
        quick = self.pace if self.cluster.timeline.change is not None else self.pace * 6
        pause = 5 + 20 * world.random() if world.random() < self.theme.quiet else 0.0
        world.after(pause + quick * 2 * world.random(), self._produce)

    def _replace(self, name: str) -> None:
        if self.writers[name].over:
            return
        self.writers[name].die()
        self.world.after(LATE + 60 * self.world.random() ** 3, self._again, name)

    def _again(self, name: str) -> None:
        before = self.writers[name]
        if not before.over or self.world.now < before.ended_at + LATE:
            self.world.after(1.0, self._again, name)
            return
        self.writers[name] = self._writer(before.name, before.writer_id)
        if self.to_write <= 0:
            self.writers[name].leave()

    # Changes.

    def _change(self) -> None:
        if self.controller is not None and self.controller.alive:
            # Somebody else begins one beside it.
            self.world.faults["second controller"] = self.world.faults.get("second controller", 0) + 1
        elif self.to_change <= 0:
            return
        self.to_change -= 1
        count = self.cluster.timeline.newest.count
        if self.world.random() < self.theme.doubling and count * 2 <= 9 * self.initial:
            self._control(count * 2)
            return
        choices = {
            count + 1,
            count + 2,
            count * 2,
            max(self.initial, count - 1),
            max(self.initial, count // 2),
            self.initial,
        }
        self._control(self.world.rng.choice(sorted(c for c in choices if c != count and c <= 9 * self.initial)))

    def _control(self, target: int) -> None:
        self.controller = Controller(
            self.world,
            self.cluster,
            target,
            self.theme.controller_killed,
            lambda error: self._controlled(target, error),
            self.lying,
        )

    def _controlled(self, target: int, error: BaseException | None) -> None:
        newest = self.cluster.timeline.newest
        if newest.count != target and not isinstance(error, ControllerFencedError):
            # Killed, or without a result: whoever comes next resumes.
            self.world.after(8 * self.world.random() ** 2, self._control, target)
        else:
            self.world.after(1 + 15 * self.world.random() ** 2, self._change)

    def _in_the_middle(self, timeline: Timeline) -> None:
        """Faults where they hurt most: around a PREPARE."""
        world, rng = self.world, self.world.rng
        change = timeline.change
        if change is None or self.to_write <= 0:
            return
        name = rng.choice(sorted(self.writers))
        if change.phase is ChangePhase.PLAN:
            # PREPARE follows when two view ages have passed.
            if world.chance("writer joins before PREPARE", self.theme.newcomer):
                world.after(3.9 + 0.4 * world.random(), self._newcomer, f"p{change.epoch}")
        elif world.chance("writer joins under PREPARE", self.theme.newcomer):
            world.after(0.06 * world.random(), self._newcomer, f"q{change.epoch}")
        elif world.chance("writer cut off under PREPARE", 0.1):
            self.writers[name].cut_off(rng.choice((1.0, 19.0, 20.5)))
        elif world.chance("writer killed under PREPARE", 0.05):
            world.after(0.05 * world.random(), self._replace, name)

    def _newcomer(self, name: str) -> None:
        if self.to_write <= 0:
            return
        self.writers[name] = writer = self._writer(name)
        writer.hear_late(self.world.rng.choice((0.0, 0.5, 1.5)))
        for _ in range(5):
            self.world.after(0.4 * self.world.random(), self._first_words, name)

    def _first_words(self, name: str) -> None:
        writer = self.writers[name]
        self.to_write -= 1
        writer.run(writer.produce, self.world.rng.choice(self.keys))

    # Groups.

    def _begin(self, group: Group, members: int) -> None:
        """One that begins at the ends does it while a change is under way."""
        if group.from_latest and self.cluster.timeline.change is None and self.to_change > 0:
            self.world.after(0.2, self._begin, group, members)
            return
        for _ in range(members):
            self.world.after(self.world.random(), self._join, group)

    def _join(self, group: Group) -> None:
        self._names += 1
        group.members.append(Member(self.world, self.cluster, group, f"{group.name}m{self._names}"))
        group.rebalance()

    def _metadata(self, seen: int) -> None:
        """Members find new partitions after a while."""
        count = len(self.cluster.partitions)
        if count != seen:
            for group in self.groups:
                self.world.after(4 * self.world.random(), group.rebalance)
        self.world.after(1.0, self._metadata, count)

    # Trouble.

    def _trouble(self) -> None:
        world, rng = self.world, self.world.rng
        self.cluster.clock.trouble()
        if self.to_write > 0:
            if world.chance("leader away", self.theme.leader_away):
                seconds = rng.choice((0.5, 3.0, 10.0, 24.0))
                self.cluster.stall(rng.randrange(len(self.cluster.partitions)), seconds)
            for writer in self.writers.values():
                if writer.alive and writer.on_the_way == 0 and world.chance("writer frozen", 0.015):
                    writer.freeze(rng.choice((1.0, 8.0, 70.0, 100.0)))
                if writer.alive and world.chance("writer cut off", 0.02):
                    writer.cut_off(rng.choice((0.5, 5.0, 19.0, 20.5, 24.0)))
                if writer.alive and world.chance("lease cut off", self.theme.lease_cut_off):
                    writer.cut_off_lease(rng.choice((5.0, 30.0, 42.0, 60.0)))
            if self.controller is not None and self.controller.alive and world.chance("controller frozen", 0.02):
                self.controller.freeze(rng.choice((1.0, 6.0, 30.0)))
            self.last_write = world.now
        if world.now < self.last_write + 60:
            for group in self.groups:
                self._member_trouble(group)
        world.after(1.0, self._trouble)

    def _member_trouble(self, group: Group) -> None:
        world, rng = self.world, self.world.rng
        if group.members and world.chance("member killed", self.theme.member_killed):
            member = rng.choice(group.members)
            member.die()
            self.departed.append(member)
            world.after(6.0, group.remove, member)
            world.after(6.0 + world.random(), self._join, group)
        elif group.members and world.chance("member frozen", 0.02):
            rng.choice(group.members).freeze(rng.choice((0.5, 2.0, 4.0)))
        elif world.chance("rebalance", self.theme.rebalance):
            if len(group.members) < 3 and rng.random() < 0.5:
                self._join(group)
            else:
                group.rebalance()

    def _over(self) -> bool:
        return (
            self.to_write <= 0
            and self.to_change <= 0
            and not (self.controller is not None and self.controller.alive)
            and all(w.over for w in [*self.writers.values(), *self.others])
            and all(group.done() for group in self.groups)
        )


def simulate(seed: int, lying: bool = False) -> Outcome:
    """The history of one seed. lying: controllers' wall clocks lie as the broker's does, so that nothing gives it away."""
    return Scenario(seed, lying).run()
