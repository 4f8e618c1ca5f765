"""Runs one plan on both sides at the same time, keyorder's and the client library's own, and judges what came of each.

python run.py --bootstrap HOST:PORT --seed 17 [--ours] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from integration.applications.judge import Judgement, judge_side
from integration.applications.plan import PROTOCOLS, Plan, plan_of
from keyorder import KeyorderError, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.connector.groups.group_admin import GroupAdmin
from keyorder.connector.groups.resetting import Point, Target
from keyorder.partitioner.records.control_records import timeline_key
from support.groups import committed_by
from support.silent_writer import SilentWriter

SIDE = Path(__file__).with_name("side.py")
# A side that shows no progress for so long stands still. Progress is what counts, so a slow machine is given all its time.
STILL_S = float(os.environ.get("KEYORDER_STILL_S", "45"))


class StandstillError(Exception):
    """A side does not go on."""


@dataclass
class Outcome:
    """What came of one plan."""

    plan: Plan
    ours: Judgement
    stock: Judgement | None = None
    coverage: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [f"seed {self.plan.seed} ({self.seconds:.0f} s): {self.plan}", f"  keyorder: {self.ours}"]
        if self.stock is not None:
            lines.append(f"  stock:    {self.stock.short()}")
        return "\n".join(lines)


class Process:
    """One side's process, followed line by line."""

    def __init__(self, spec: dict[str, Any], folder: Path) -> None:
        self.library, self.folder = spec["library"], folder
        self.log = open(folder / "side.log", "ab")  # noqa: SIM115 - closed with the process
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(SIDE), json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=env,
        )
        self.progress: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.finished: dict[str, Any] | None = None
        self.started = threading.Event()
        self._changed = clock.now()
        self._ended = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                facts = json.loads(line)
            except ValueError:
                continue
            if facts["event"] == "started":
                self.started.set()
            if facts["event"] in ("beat", "finished"):
                if facts["progress"] != self.progress:
                    self._changed = clock.now()
                self.progress, self.errors = facts["progress"], facts["errors"]
            if facts["event"] == "finished":
                self.finished = facts
        self._ended.set()

    def tell(self, word: str) -> None:
        """What happens now."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(word.encode() + b"\n")
            self._process.stdin.flush()

    def check(self) -> None:
        """Raise StandstillError where it has ended, or shows no progress."""
        if self._ended.is_set() and self.finished is None:
            raise StandstillError(f"the process ended with {self._process.wait()}: see {self.folder}/side.log")
        if clock.now() - self._changed > STILL_S and self.finished is None:
            raise StandstillError(f"no call returned for {STILL_S:.0f} s: {self.where()}")

    def pace(self, what: str, more: int, most: float) -> None:
        """Let it go on by so many of something, or for so long: a habit may hold it up. No judgement."""
        before, deadline = self.progress.get(what, 0), clock.now() + most
        while self.progress.get(what, 0) < before + more and clock.now() < deadline and not self._ended.is_set():
            self.check()
            time.sleep(0.05)

    def wait_end(self) -> None:
        """Until it has said all."""
        deadline = clock.now() + STILL_S
        while not self._ended.wait(0.2):
            if clock.now() > deadline:
                raise StandstillError(f"it does not end: {self.where()}")
        if self.finished is None:
            raise StandstillError(f"the process ended with {self._process.wait()}: see {self.folder}/side.log")

    def where(self) -> str:
        """Where its threads are, in its log."""
        if self._process.poll() is None:
            self.tell("explain")
            time.sleep(0.5)  # for its words to come before the traceback
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)  # for the traceback to be written
        return f"threads in {self.folder}/side.log; {self.errors}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.log.close()


class SideRun:
    """One side of a scenario from its topics to its judgement."""

    def __init__(self, connection: dict[str, str], plan: Plan, ours: bool, folder: Path) -> None:
        self.plan, self.ours, self.connection = plan, ours, connection
        self.folder = folder / ("keyorder" if ours else "stock")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        name = f"app-{plan.seed}-{uuid.uuid4().hex[:6]}-{'k' if ours else 's'}"
        self.topic, self.other, self.out, self.group = name, f"{name}-other", f"{name}-out", f"{name}-group"
        self.run = uuid.uuid4().hex[:8]
        self.admin = AdminClient({**connection, "log_level": 0})
        self.uses_other = plan.has("topic-made-again") or plan.has("broken-topic")
        self.count = plan.partitions
        self.notes: list[str] = []

    def create(self, topic: str, count: int) -> None:
        if self.ours:
            TopicAdmin(self.connection).create(topic, count, config={"keyorder.view.age.ms": "400"})
        else:
            self.admin.create_topics([NewTopic(topic, count, 1)], operation_timeout=20)[topic].result(30)

    def prepare(self) -> None:
        """Topics, and the process."""
        self.create(self.topic, self.plan.partitions)
        if self.uses_other:
            self.create(self.other, 1)
        if self.plan.kind == "transactions":
            self.create(self.out, 2)
        spec = {
            "library": "keyorder" if self.ours else "stock", "plan": self.plan.as_dict(), "connection": self.connection,
            "topic": self.topic, "other": self.other, "out": self.out, "group": self.group, "run": self.run,
            "folder": str(self.folder), "protocol": PROTOCOLS[self.plan.protocol], "uses_other": self.uses_other,
        }  # fmt: skip
        self.process = Process(spec, self.folder)

    @property
    def what_moves(self) -> str:
        return "hard records" if self.plan.kind in ("producer", "async-producer") else "delivered"

    def act(self) -> None:
        """The scenario itself."""
        process = self.process
        while not process.started.wait(0.2):
            process.check()
        process.tell("phase before")
        process.pace(self.what_moves, 150, 8)
        if self.ours and self.plan.has("blind"):
            process.pace("blind is over", 1, 30)
        for number, count in enumerate(self.plan.changes, 1):
            self.change(count, number)
            process.tell(f"phase after change {number}")
            process.pace(self.what_moves, 150, 5)
            if number == 1:
                self.between()
        process.pace("turns", 30, 3)
        process.tell("settle")
        self.drain()
        process.tell("stop")
        process.wait_end()

    def change(self, count: int, number: int) -> None:
        """Grow or shrink while the application goes on."""
        held = self.plan.has("held-long") and number == 1
        topic = self.topic
        if held and self.ours and self.plan.kind == "transactions":
            topic, count = self.out, 4
        kind = "growth" if count > self.count else "shrink"
        if not self.ours:
            if count > self.count:
                self.process.tell(f"phase {kind}")
                self.admin.create_partitions([NewPartitions(self.topic, count)])[self.topic].result(30)
                self.count = count
            return
        failure: queue.Queue[BaseException | None] = queue.Queue()
        prepared = threading.Event()

        def told(step: str) -> None:
            self.process.tell(f"phase {kind}: {step}")
            if step == "collecting":  # PREPARE stands: writers hold the keys that move
                prepared.set()

        def change() -> None:
            try:
                admin = TopicAdmin(self.connection, told)
                getattr(admin, "expand" if kind == "growth" or topic == self.out else "shrink")(
                    topic, count, timeout=120
                )
                failure.put(None)
            except BaseException as error:
                failure.put(error)

        with ExitStack() as stack:
            if held:
                stack.enter_context(SilentWriter(self.connection, topic))
            thread = threading.Thread(target=change, daemon=True)
            thread.start()
            if held:
                while not prepared.wait(0.1) and thread.is_alive():
                    self.process.check()
                self.process.tell("phase held by a change")
                self.process.pace("turns", 40, 4)
        while thread.is_alive():
            thread.join(0.2)
            self.process.check()
        error = failure.get()
        if error is not None:
            raise StandstillError(f"the change to {count} failed: {error!r}"[:400])
        if topic == self.topic:
            self.count = count

    def between(self) -> None:
        """What happens beside the group between two changes."""
        if self.plan.has("reset"):
            self.reset()
        if self.plan.has("topic-made-again"):
            self.process.tell("phase topic deleted")
            if self.plan.kind == "consumer":
                self.process.tell("delete")
                self.process.pace("turns", 40, 8)
            if self.other in self.admin.list_topics(timeout=10).topics:
                self.admin.delete_topics([self.other], operation_timeout=20)[self.other].result(30)
            self.process.pace("turns", 20, 3)
            self._until(lambda: self.other not in self.admin.list_topics(timeout=10).topics, "the topic is gone")
            self._until(self._made_again, "the topic is made again")
            self.process.tell("phase topic made again")
            self.process.pace("turns", 20, 3)
        if self.plan.has("broken-topic") and self.ours:
            self.process.tell("phase other topic broken")
            topic, partition = timeline_slot(self.other)
            with Producer({**self.connection, "log_level": 0}) as pen:
                pen.produce(topic, b"KO\x01\xff\x00no timeline", timeline_key(self.other), partition)
                pen.flush(20)
            self.process.pace("turns", 20, 3)

    def _made_again(self) -> bool:
        """A broker that has just deleted a topic may say for a moment that the new one is not there, or still is."""
        try:
            self.create(self.other, 1)
        except (KafkaException, KeyorderError) as error:
            self.notes.append(f"create: {error!r}"[:200])
            return self.ours and TopicAdmin(self.connection).managed(self.other) is not None
        return True

    def reset(self) -> None:
        """All members unsubscribe, the group goes back to the beginning, they subscribe again."""
        self.process.tell("reset")
        self._until(lambda: not self._members(), "the group is empty")
        if self.ours:
            self._until(lambda: self._reset_ours(), "the group is reset")
        else:
            places = [TopicPartition(self.topic, p, 0) for p in self._ends()]
            wanted = ConsumerGroupTopicPartitions(self.group, places)
            self.admin.alter_consumer_group_offsets([wanted])[self.group].result(20)
        self.process.tell("back")
        self.process.tell("phase after reset")

    def _reset_ours(self) -> bool:
        try:
            return (
                GroupAdmin(self.connection).reset(self.topic, self.group, Target(Point.EARLIEST), execute=True).executed
            )
        except KeyorderError as error:
            self.notes.append(f"reset: {error!r}"[:200])
            return False

    def _members(self) -> int:
        try:
            return len(self.admin.describe_consumer_groups([self.group])[self.group].result(20).members)
        except KafkaException:
            return 0

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = clock.now() + STILL_S
        while not holds():
            self.process.check()
            if clock.now() > deadline:
                raise StandstillError(f"never: {what}; {self.process.where()}")
            time.sleep(0.2)

    def _ends(self) -> dict[int, int]:
        from confluent_kafka.admin import OffsetSpec

        for attempt in range(6):
            partitions = self.admin.list_topics(self.topic, timeout=20).topics[self.topic].partitions
            asked = self.admin.list_offsets({TopicPartition(self.topic, p): OffsetSpec.latest() for p in partitions})
            try:
                return {place.partition: found.result(20).offset for place, found in asked.items()}
            except KafkaException:
                if attempt == 5:
                    raise
                # A client that asked before a partition's leader was there goes on asking with what it knew then.
                self.admin = AdminClient({**self.connection, "log_level": 0})
        raise AssertionError("one of the attempts returns or raises")

    def committed(self) -> dict[int, int]:
        """What the group has committed, by partition."""
        return committed_by(self.connection, self.group, [(self.topic, p) for p in self._ends()])

    def drain(self) -> None:
        """Until the group has committed all there is. Whoever stands still meanwhile is a finding."""
        process, seen, changed = self.process, None, clock.now()
        limit = STILL_S if self.ours else 15
        while True:
            process.check()
            with suppress(KafkaException):
                ends, committed = self._ends(), self.committed()
                now = (ends, committed, process.progress.get("delivered"), process.progress.get("hard records"))
                written = process.progress.get("settled", 0) or self.plan.kind not in ("producer", "async-producer")
                if written and now == seen and all(committed.get(p, 0) >= end for p, end in ends.items()):
                    return
                if now != seen:
                    seen, changed = now, clock.now()
                elif clock.now() - changed > limit:
                    behind = {p: (committed.get(p), end) for p, end in ends.items() if committed.get(p, 0) < end}
                    what = f"the group stands still, partition -> (committed, end) {behind}, settled={bool(written)}"
                    raise StandstillError(f"{what}; {process.where()}")
            time.sleep(0.3)

    def judge(self) -> Judgement:
        """Carry it out, and say what came of it."""
        still = None
        try:
            self.prepare()
            self.act()
        except StandstillError as error:
            still = str(error)
        except KafkaException as error:
            still = f"the scenario failed: {error!r}"
        finally:
            if hasattr(self, "process"):
                self.process.kill()
        facts = self.process.finished or {"findings": [], "coverage": {}, "errors": self.process.errors, "progress": {}}
        judgement = judge_side(self, facts, still)
        judgement.notes = self.notes
        return judgement


def coverage_report(coverage: Counter[str]) -> str:
    """What was done how often, and in which phases of a change."""
    phases: dict[str, Counter[str]] = {}
    for entry, times in coverage.items():
        what, _, phase = entry.partition("|")
        phases.setdefault(what, Counter())[phase] += times
    lines = ["what the applications did, how often, and when:"]
    for what, when in sorted(phases.items()):
        where = ", ".join(f"{phase} {times}" for phase, times in when.most_common(6))
        lines.append(f"  {what:<44} {when.total():>6}   {where}")
    return "\n".join(lines)


def run_seed(connection: dict[str, str], seed: int, folder: Path, stock: bool = True) -> Outcome:
    """One seed on both sides."""
    plan = plan_of(seed)
    began = clock.now()
    results: dict[bool, Judgement] = {}
    failures: list[BaseException] = []

    def side(ours: bool) -> None:
        try:
            results[ours] = SideRun(connection, plan, ours, folder / str(seed)).judge()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=side, args=(ours,)) for ours in ((True, False) if stock else (True,))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if True not in results:
        raise failures[0]
    outcome = Outcome(plan, results[True], results.get(False), seconds=clock.now() - began)
    outcome.coverage.update(results[True].coverage)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--seed", type=int, action="append", default=[])
    parser.add_argument("--seeds", help="FIRST-LAST")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", default="/tmp/applications")
    options = parser.parse_args()
    seeds = options.seed
    if options.seeds:
        first, _, last = options.seeds.partition("-")
        seeds += range(int(first), int(last) + 1)
    from concurrent.futures import ThreadPoolExecutor

    connection = {"bootstrap.servers": options.bootstrap}
    total: Counter[str] = Counter()
    red = []

    def one(seed: int) -> Outcome:
        return run_seed(connection, seed, Path(options.folder), stock=not options.ours)

    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(one, seeds):
            print(outcome, flush=True)
            total += outcome.coverage
            if outcome.ours.problems:
                red.append(outcome.plan.seed)
    print(coverage_report(total))
    print(f"{len(seeds) - len(red)} of {len(seeds)} good; red: {red}")


if __name__ == "__main__":
    main()
