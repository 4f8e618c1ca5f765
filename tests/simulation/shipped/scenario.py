"""One history of the shipped clients: writers, groups, changes, and what goes wrong, all by the seed. And its verdict."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from keyorder.connector.admin import TopicAdmin
from keyorder.connector.verify.anomalies import OBSERVED, Anomaly
from keyorder.connector.verify.events import Kind, Value
from keyorder.connector.verify.history import History
from keyorder.connector.verify.topology import Epoch, Topology
from keyorder.connector.verify.verdict import Verdict, judge
from keyorder.errors import KeyorderError
from keyorder.partitioner.gates.starts import ahead_of
from keyorder.partitioner.records.control_records import decode_record, timeline_key
from keyorder.partitioner.timeline import Timeline
from simulation.shipped.applications import HEARTBEATS, SERVERS, SESSION, TOPIC, Habits, Member, Writer
from simulation.shipped.broker import SLOWEST, Cluster, Log, Place
from simulation.shipped.client import connect_to
from simulation.shipped.coordinator import Group
from simulation.shipped.scheduler import HistoryFailed, Process, Scheduler, Task, sleep, take_place

#: Virtual seconds: how long all may last, and how long after the faults have stopped.
_CALM, _PATIENCE = 150.0, 400.0
# How long a member is frozen with a batch in hand, at most. Beyond its session the rest of the batch is another member's,
# whatever we do; and its session is over when a slow message is the next that its coordinator hears after a freeze.
_IN_A_BATCH = SESSION - HEARTBEATS - SLOWEST - 0.1


@dataclass
class Outcome:
    """verdict: the history checker's; None when the history broke off. stuck: what did not come to its end."""

    seed: int
    digest: str
    seconds: float
    steps: int
    changes: int = 0
    verdict: Verdict | None = None
    stuck: list[str] = field(default_factory=list)
    error: str = ""
    faults: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Nothing lost, reordered or stuck."""
        return self.verdict is not None and not self.wrong and not self.stuck and not self.error

    @property
    def wrong(self) -> list[str]:
        """The ids of the anomalies, without what no client can prevent.

        A record behind one that timed out may be there, as a stock client's would be (R11). And what a frozen application had
        in its hands when it lost the partition ends when it thaws, be that after all else of the key (A13).
        """
        if self.verdict is None:
            return []
        forgiven = set(OBSERVED)
        if self.verdict.unknown_absent > 0:
            forgiven.add("R11")
        if all(self._of_a_zombie(each) for each in self.verdict.anomalies if each.id == "A13"):
            forgiven.add("A13")
        return [id for id in self.verdict.counts if id not in forgiven]

    def _of_a_zombie(self, last: Anomaly) -> bool:
        """Whether a key's last record was in the hands of an application that was frozen until it had lost the partition."""
        assert self.verdict is not None
        inside = f"is inside {last.detail.partition(' came last')[0]}"
        return any(
            (each.id, each.group, each.key) == ("A7z", last.group, last.key) and each.detail.endswith(inside)
            for each in self.verdict.anomalies
        )

    def __str__(self) -> str:
        said = "" if self.verdict is None else self.verdict.summary()
        head = f"SEED={self.seed}: {self.seconds:.0f} s, {self.steps} steps, {self.changes} changes, {self.faults}"
        return "\n".join(part for part in (head, *self.stuck, self.error, said) if part)


class Scenario:
    """The cast of one history. plan: the seed's choices; the scheduler has chance of its own."""

    def __init__(self, seed: int, log: list[str] | None = None) -> None:
        self.seed = seed
        self.plan = plan = Random(seed * 7919 + 1)
        self.scheduler = Scheduler(seed, switching=plan.choice((0.02, 0.2, 0.5)))
        self.scheduler.log = log
        take_place(self.scheduler)
        self.cluster = Cluster(self.scheduler)
        connect_to(self.cluster)
        self._rows: list[tuple[Kind, str, str, int, int, Value | None]] = []
        self.calm = False
        self.counts: dict[str, int] = {}
        self.initial = plan.choice((1, 1, 2, 2, 3))
        self.keys = self._keys(plan.choice((3, 6, 12, 20)))
        self.to_write = plan.randrange(60, 220)
        self.to_change = plan.randrange(1, 5)
        self.pace = plan.choice((0.02, 0.1, 0.2))
        self.troubled = plan.random() < 0.7
        self.kills = plan.choice((0.005, 0.01, 0.05))
        if plan.random() < 0.5:
            # What is held is held for a while, and views are old.
            self.cluster.slow["_keyorder"] = plan.choice((0.0, 0.05, 0.3))
            self.cluster.slow["_keyorder_writers"] = plan.choice((0.0, 0.05, 0.3))
        self.sequences: dict[str, dict[str, int]] = {}
        self.writers: dict[str, Writer] = {}
        self.members: list[Member] = []
        self.habits = {f"g{n}": Habits.of(plan) for n in range(plan.randrange(1, 3))}
        self.stuck: list[str] = []
        self.stacks = ""
        self._refusals: set[tuple[str, str, int]] = set()  # (group, member, partition) whose newest commit was refused
        self._refused_members: set[tuple[str, str]] = set()
        self._names = 0
        self._operator: Process | None = None
        self._changing = False
        Group.committed_hook = self._committed
        Group.refused_hook = self._refused
        self.cluster.control_hook = self._control_written
        self.starts: dict[str, dict[int, int]] = {}

    def _keys(self, count: int) -> list[str]:
        """Most of them move when the count doubles."""
        topology = Topology(self.initial, [Epoch(1, self.initial), Epoch(2, 2 * self.initial)])
        names = [f"k{n}" for n in self.plan.sample(range(64), 64)]
        names.sort(key=lambda name: topology.home(name.encode(), self.initial * 2) < self.initial)
        stay = count // 4
        return names[: count - stay] + names[len(names) - stay :]

    @property
    def pause(self) -> float:
        """Between two records of a writer: short while a change is open."""
        return self.pace * (0.3 if self._changing else 1.0)

    # What is written down.

    def record(
        self,
        kind: Kind,
        actor: str,
        group: str = "",
        partition: int = -1,
        offset: int = -1,
        value: Value | None = None,
    ) -> None:
        """One event of the history that is judged."""
        if kind is Kind.ASSIGN:
            self._refusals.discard((group, actor, partition))
        elif kind is Kind.REVOKE and self._ends_refused(group, actor, partition):
            kind = Kind.LOST
        self._rows.append((kind, actor, group, partition, offset, value))
        self.scheduler.note(kind.name, actor, group, partition, offset, value)

    def count(self, what: str) -> None:
        """For people."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def _committed(self, group: str, client: str, places: dict[Place, tuple[int, str]]) -> None:
        first = {p: offset for (topic, p), (offset, _) in places.items() if topic == TOPIC}
        if self.habits[group].latest and first:
            # Its beginning is one commit of all partitions; what is made later is read from its start.
            self.starts.setdefault(group, first)
        for (topic, partition), (offset, _) in places.items():
            if topic == TOPIC:
                self._refusals.discard((group, client, partition))
                self.record(Kind.COMMIT_OK, client, group, partition, offset)

    def _refused(self, group: str, member: str, places: dict[Place, tuple[int, str]]) -> None:
        """A revocation whose commit the broker refuses was none: the member had lost its partitions."""
        name = member.rsplit("-", 2)[0]
        self._refused_members.add((group, name))
        self._refusals |= {(group, name, partition) for topic, partition in places if topic == TOPIC}
        self.not_revoked(group, name, places)

    def not_revoked(self, group: str, member: str, places: Iterable[Place]) -> None:
        """Their last revocation counts as a loss: one that was cut short, too, has told nobody how far the member was."""
        for partition in (partition for topic, partition in places if topic == TOPIC):
            for at in reversed(range(len(self._rows))):
                kind, actor, of, which, offset, value = self._rows[at]
                if (actor, of, which) == (member, group, partition):
                    if kind is Kind.REVOKE:
                        self._rows[at] = (Kind.LOST, actor, of, which, offset, value)
                    if kind in (Kind.REVOKE, Kind.ASSIGN):
                        break

    def take_refusal(self, group: str, member: str) -> bool:
        """Whether a commit of this member was refused since the last call: an application that cares commits again."""
        refused = (group, member) in self._refused_members
        self._refused_members.discard((group, member))
        return refused

    def _ends_refused(self, group: str, member: str, partition: int) -> bool:
        """Whether the last commit before a revocation was refused, and was the application's own: it is not tried again.

        The next owner has to deliver again what that commit named, as with any consumer.
        """
        own = self.habits[group].commits in ("record", "batch", "late")
        return own and (group, member, partition) in self._refusals

    # The play.

    def run(self) -> Outcome:
        """Let it happen, and judge it."""
        outcome = Outcome(self.seed, "", 0.0, 0, faults=self.cluster.faults)
        main = Task(Process(self.scheduler, "play"), "play", lambda: None)
        self.scheduler.run(main)
        try:
            self._play()
            outcome.stuck, outcome.error = self.stuck, self.stacks
            outcome.verdict = self._judge(not outcome.stuck)
            outcome.changes = len(self._timeline().epochs) - 1
        except HistoryFailed as failed:
            outcome.error = str(failed)
        except Exception:
            outcome.error = traceback.format_exc()
        outcome.digest, outcome.seconds, outcome.steps = self.scheduler.digest, self.scheduler.now, self.scheduler.steps
        outcome.faults = {**self.cluster.faults, **self.counts}
        return outcome

    def _play(self) -> None:
        plan = self.plan
        TopicAdmin(SERVERS).create(TOPIC, self.initial)
        for n in range(plan.randrange(1, 4)):
            name = f"w{n}"
            self.sequences[name] = {}
            self._write(name)
        for group in self.habits:
            begins = plan.choice((0.0, 0.0, 0.0, plan.uniform(5, 25)))
            for _ in range(plan.randrange(1, 4)):
                self.scheduler.after(begins, self._join, group)
        self.cluster.trouble = 1.0 if self.troubled else 0.0
        self.scheduler.after(plan.uniform(0.3, 4), self._change)
        until = self.scheduler.now + _PATIENCE
        while self.scheduler.now < until and not self._written():
            sleep(0.25)
            if self.troubled:
                self._trouble()
        self._settle()
        until = self.scheduler.now + _CALM
        while self.scheduler.now < until and self._unfinished():
            sleep(0.5)
        self.stuck = self._unfinished()
        if self.stuck:
            self.stacks = self.scheduler.stacks()
        for member in self.members:
            member.leaving = True
        until = self.scheduler.now + 60
        while self.scheduler.now < until and not all(member.over for member in self.members):
            sleep(0.5)

    def _settle(self) -> None:
        """No more faults."""
        self.calm = True
        self.cluster.trouble = 0.0
        self.cluster.slow.clear()

    def _written(self) -> bool:
        return self.to_write <= 0 and self.to_change <= 0 and not self._changing

    def _write(self, name: str) -> None:
        self.writers[name] = Writer(self, name, self.sequences[name], transactional=name == "w2")

    def _join(self, group: str) -> None:
        self._names += 1
        self.members.append(Member(self, group, f"{group}m{self._names}", self.habits[group]))

    def _change(self) -> None:
        if self.to_change <= 0 or self._changing:
            return
        self.to_change -= 1
        count = self._timeline().newest.count
        choices = {count + 1, count + 2, count * 2, max(self.initial, count - 1), self.initial} - {count}
        self._control(self.plan.choice(sorted(c for c in choices if c <= 6 * self.initial)))

    def _control(self, target: int) -> None:
        self._changing = True
        self._names += 1
        self._operator = process = Process(self.scheduler, f"op{self._names}", ahead=self.plan.uniform(0, 1e6))
        self.scheduler.begin(process, "operator", lambda: self._operate(target))
        if self.troubled and self.plan.random() < 0.4:
            self.scheduler.after(self.plan.uniform(0, 8), self._kill_operator, process, target)

    def _kill_operator(self, process: Process, target: int) -> None:
        if self._operator is process:
            self.count("controller killed")
            process.kill()
            self._operator = None
            self.scheduler.after(self.plan.uniform(0, 10), self._control, target)

    def _operate(self, target: int) -> None:
        process = self._operator
        while self._operator is process:
            try:
                with TopicAdmin(SERVERS) as admin:
                    grows = target > admin.timeline(TOPIC).newest.count
                    (admin.expand if grows else admin.shrink)(TOPIC, target, timeout=200)
                break
            except KeyorderError as error:
                self.count(f"change: {type(error).__name__}")
                if not error.retriable:
                    raise
                sleep(0.5)
        self._operator, self._changing = None, False
        self.scheduler.after(self.plan.choice((0.1, 1.0, 6.0)) * self.plan.random(), self._change)

    def _trouble(self) -> None:
        cluster, rng = self.cluster, self.scheduler.rng
        alive = [member for member in self.members if not member.over]
        if cluster.chance("member killed", self.kills) and alive:
            self._replace_member(rng.choice(alive))
        elif cluster.chance("member leaves", 0.01) and len(alive) > 1:
            leaver = rng.choice(alive)
            leaver.leaving = True
            self.scheduler.after(rng.uniform(0, 4), self._join, leaver.group)
        elif cluster.chance("member joins", 0.01) and len(alive) < 5:
            self._join(rng.choice(sorted(self.habits)))
        elif cluster.chance("member frozen", 0.01) and alive:
            frozen = rng.choice(alive)
            single, until = self.habits[frozen.group].batch == 1, frozen.process.frozen_until
            seconds = rng.choice((0.5, 3.0, 9.0) if single else (0.5, 1.5, _IN_A_BATCH))
            # Two that follow each other closely add up.
            if single or not until or until + SESSION <= self.scheduler.now:
                frozen.process.freeze(seconds)
        elif cluster.chance("writer killed", 0.008):
            self._replace_writer(rng.choice(sorted(self.writers)))
        elif cluster.chance("writer frozen", 0.008):
            rng.choice(list(self.writers.values())).process.freeze(rng.choice((0.5, 5.0, 50.0)))
        elif cluster.chance("leader away", 0.02):
            topic = cluster.topics[TOPIC if rng.random() < 0.7 else rng.choice(sorted(cluster.topics))]
            self._away(rng.choice(topic.logs), rng.choice((0.3, 2.0, 8.0, 22.0)))
        elif cluster.chance("control topic slow", 0.01):
            name = rng.choice(("_keyorder", "_keyorder_writers"))
            cluster.slow[name] = rng.choice((0.0, 0.2, 1.0))
        elif cluster.chance("broker clock set", 0.005):
            cluster.ahead_ms += rng.choice((-50_000, -3_000, 2_000, 60_000))

    def _control_written(self) -> None:
        """Faults where they hurt most: around the steps of a change."""
        cluster, rng = self.cluster, self.scheduler.rng
        change = self._timeline().change
        if change is None or self.calm or not self.troubled:
            return
        alive = [member for member in self.members if not member.over]
        soon = 0.3 * rng.random()
        if cluster.chance("writer joins in a change", 0.25):
            self._names += 1
            name = f"v{self._names}"
            self.sequences[name] = {}
            self.scheduler.after(soon if rng.random() < 0.5 else 4.0 + 0.4 * rng.random(), self._write, name)
        elif cluster.chance("writer frozen in a change", 0.1):
            rng.choice(list(self.writers.values())).process.freeze(rng.choice((0.3, 3.0, 25.0)))
        elif cluster.chance("leader away in a change", 0.1):
            log = rng.choice(cluster.topics[TOPIC].logs)
            self.scheduler.after(soon, self._away, log, rng.choice((0.5, 3.0, 19.0, 21.0)))
        elif cluster.chance("writer killed in a change", 0.06):
            self.scheduler.after(soon, self._replace_writer, rng.choice(sorted(self.writers)))
        elif alive and cluster.chance("member killed in a change", 0.06):
            self.scheduler.after(soon, self._replace_member, rng.choice(alive))

    def _away(self, log: Log, seconds: float) -> None:
        log.leader_back = max(log.leader_back, self.scheduler.now + seconds)
        log.leader, log.leader_epoch = (log.leader + 1) % 3, log.leader_epoch + 1

    def _replace_writer(self, name: str) -> None:
        if not self.writers[name].over and not self.calm:
            self.writers[name].kill()
            self.scheduler.after(self.scheduler.rng.uniform(1.6, 6), self._write, name)

    def _replace_member(self, member: Member) -> None:
        if not member.over and not self.calm:
            member.kill()
            self.scheduler.after(self.scheduler.rng.uniform(0, 4), self._join, member.group)

    # The end.

    def _timeline(self) -> Timeline:
        key = timeline_key(TOPIC)
        for log in reversed(self.cluster.topics["_keyorder"].logs):
            for record in reversed(log.records):
                if record.key == key and record.transaction and record.transaction.ended:
                    found = decode_record(record.key, record.value)
                    if isinstance(found, Timeline):
                        return found
        raise AssertionError("no timeline")

    def _unfinished(self) -> list[str]:
        """What has not come to its end."""
        found = [f"writer {name} is not done" for name, writer in self.writers.items() if not writer.over]
        if self._changing or self._timeline().change is not None:
            found.append("a change has not ended")
        for name, habits in self.habits.items():
            group = self.cluster.group(name)
            for log in self.cluster.topics[TOPIC].logs:
                at, note = group.offsets.get((TOPIC, log.partition), (0, ""))
                # Where a commit of the application's was refused and its member ended, the note says what it had processed. It
                # is not delivered again, so that no application commits it before there is a newer record.
                ahead = None if habits.commits == "auto" else ahead_of(note, at)
                beyond = (o for o in range(at, log.end) if ahead is None or not ahead.covers(o))
                left = [o for o in beyond if not log.records[o].marker]
                visible = [o for o in left if (t := log.records[o].transaction) is None or t.ended]
                if visible:
                    found.append(f"{name} ({habits}) has committed {at} of {log.end} on partition {log.partition}")
        return found

    def _judge(self, over: bool) -> Verdict:
        timeline = self._timeline()
        epochs = [Epoch(e.number, e.count, e.ends, e.begins) for e in timeline.epochs]
        rows = []
        for log in self.cluster.topics[TOPIC].logs:
            for offset, record in enumerate(log.records):
                if not record.marker and (record.transaction is None or record.transaction.ended):
                    hint = next((int(v) for k, v in record.headers or () if k == "keyorder-epoch" and v), None)
                    rows.append((log.partition, offset, record.key, record.value, hint))
        history = History()
        for at, (kind, actor, group, partition, offset, value) in enumerate(self._rows):
            history.add(at, kind, actor, group, partition, offset, value)
        return judge(
            history.finish(), rows, Topology(self.initial, epochs, timeline.hash), quiesced=over, starts=self.starts
        )
