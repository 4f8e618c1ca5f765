"""A steady load for long, with a change of the count every half minute and processes that are killed: what grows?

    python tests/faults/soak.py --minutes 45

Each process that lives through the run is sampled every five seconds. After a warm-up of a third each series gets a slope. A
slope whose interval lies above its bound fails the run, as an anomaly in the judged history does.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from faults import soak_report
from faults.change import OVER, PHASES, ChangeProcess
from faults.cluster import PATIENCE
from faults.slopes import Bound, slope
from faults.workloads import WRITER, wait
from keyorder.connector import clock
from keyorder.connector.local.versions import DEFAULT_KAFKA_VERSION
from keyorder.partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from support.cluster import ClusterSpec, ProcessKafka
from support.workload import Worker, Workload

ROOT = Path(__file__).parents[2]
RECORD, PAGE, PICTURE = ROOT / "docs" / "soak.json", ROOT / "docs" / "soak.md", ROOT / "docs" / "images" / "soak.svg"
COUNTS = (4, 8)
EVERY, SAMPLE = 30.0, 5.0  # seconds between changes, and between samples
WARM_UP = 1 / 3
MIB = 2**20
#: A growth below `least` is what an allocator takes at once, or a connection that is opened anew while a sample is taken.
BOUNDS = {
    "memory": Bound("MiB/h", 20.0, 8.0),
    "descriptors": Bound("per hour", 10.0, 5.0),
    "threads": Bound("per hour", 1.0, 1.0),
}
#: What is shown without a bound: the brokers' processes are not ours, a control topic shrinks when its cleaner comes.
UNBOUND = ("broker",)


@dataclass
class Soak:
    """What was seen. Times are seconds since the start. series: {"w1 memory": [(seconds, value), ...]}; sizes in MiB."""

    seed: int
    seconds: float = 0.0
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    changes: list[tuple[float, float]] = field(default_factory=list)
    """(when it began, how long it took) of each."""
    kills: dict[str, int] = field(default_factory=lambda: {"member": 0, "controller": 0})
    figures: dict[str, int] = field(default_factory=dict)
    wrong: str = ""


class Rig:
    """The broker, the processes on it, and what they are asked for."""

    def __init__(self, kafka: ProcessKafka, run: Workload, soak: Soak) -> None:
        self.kafka, self.run, self.soak = kafka, run, soak
        self._chance = random.Random(soak.seed)
        self._began = clock.now()
        self._lives = 0
        self.writers = [run.writer(f"w{n}", rate=150, keys=100, seed=soak.seed + n, config=WRITER) for n in (1, 2)]
        self.stays = run.consumer("c-stays", "g")
        self.other = self._member()

    def _member(self) -> Worker:
        self._lives += 1
        return self.run.consumer(f"c{self._lives}", "g")

    def elapsed(self) -> float:
        """Seconds since the start."""
        return clock.now() - self._began

    def sample(self) -> None:
        """Look at each process that stays, and at the control topics."""
        now = self.elapsed()
        pids = {worker.actor: worker.process.pid for worker in (*self.writers, self.stays)}
        pids["broker"] = _pid(self.kafka)
        for name, pid in pids.items():
            process = psutil.Process(pid)
            with process.oneshot():
                self._note(f"{name} memory", now, process.memory_info().rss / MIB)
                self._note(f"{name} descriptors", now, process.num_fds())
                self._note(f"{name} threads", now, process.num_threads())
        for topic in (CONTROL_TOPIC, WRITERS_TOPIC):
            files = self.kafka.cluster.data_dir.glob(f"**/{topic}-[0-9]*/*.log")
            self._note(f"{topic} size", now, sum(each.stat().st_size for each in files) / MIB)

    def _note(self, name: str, now: float, value: float) -> None:
        self.soak.series.setdefault(name, []).append((round(now, 1), round(float(value), 3)))

    def change(self, number: int) -> None:
        """Grow or shrink. A member is killed in every third change, the controller in every fourth."""
        config = {**self.kafka.client_config(), "client.id": "controller"}
        topic, count, began = self.run.topic, COUNTS[(number + 1) % 2], self.elapsed()
        changes: list[ChangeProcess] = []
        try:
            if number % 4 == 3:
                changes.append(ChangeProcess(config, topic, count, [self._chance.choice(PHASES[1:-1])]))
                changes[0].reached(PATIENCE)
                changes[0].kill()
                self.soak.kills["controller"] += 1
            changes.append(ChangeProcess(config, topic, count))
            if number % 3 == 2:
                self.run.kill(self.other)
                self.other = self._member()
                self.soak.kills["member"] += 1
            while not changes[-1].succeeded(PATIENCE):
                assert len(changes) < 5, changes[-1].notes[-5:]
                changes.append(ChangeProcess(config, topic, count))
        finally:
            for each in changes:
                each.kill()
        assert any(step.phase == OVER for step in changes[-1].steps)
        assert self.run.count() == count
        self.soak.changes.append((round(began, 1), round(self.elapsed() - began, 2)))

    def judge(self) -> None:
        """Stop the writers, let the group read to the ends, and judge."""
        for writer in self.writers:
            facts = writer.stop()
            assert facts["left"] == 0, f"{writer.actor} keeps {facts['left']} records"
        self.run.drain(PATIENCE)
        for reader in (self.stays, self.other):
            reader.stop()
        verdict = self.run.verdict(refusals_excuse=True)
        names = ("records", "keys_moved", "acknowledged", "lost", "reordered_keys", "illegal_duplicates")
        self.soak.figures = {name: getattr(verdict, name) for name in names}
        if not verdict.valid:
            self.soak.wrong = verdict.summary()


def _pid(kafka: ProcessKafka) -> int:
    identity = kafka.cluster.brokers[0].identity
    assert identity is not None
    return identity.pid


def run(minutes: float, seed: int, folder: Path) -> Soak:
    """One soak, judged."""
    soak = Soak(seed)
    kafka = ProcessKafka(ClusterSpec(), DEFAULT_KAFKA_VERSION)
    try:
        with Workload(kafka, folder, "soak", COUNTS[0], config={"keyorder.view.age.ms": "400"}) as load:
            rig = Rig(kafka, load, soak)
            number, next_sample = 0, 0.0
            while rig.elapsed() < 60 * minutes:
                if rig.elapsed() >= next_sample:
                    rig.sample()
                    next_sample = (rig.elapsed() // SAMPLE + 1) * SAMPLE
                if rig.elapsed() >= (number + 1) * EVERY:
                    rig.change(number)
                    number += 1
                wait(max(0.0, min(next_sample, (number + 1) * EVERY) - rig.elapsed()))
            soak.seconds = round(rig.elapsed())
            rig.judge()
    finally:
        kafka.stop()
    return soak


def slopes(soak: Soak) -> dict[str, dict[str, Any]]:
    """By series: its slope with the interval, its bound where it has one, and whether that is broken."""
    found = {}
    for name, samples in soak.series.items():
        warm = [(t, v) for t, v in samples if t >= soak.seconds * WARM_UP]
        line = slope([t for t, _ in warm], [v for _, v in warm])
        bound = None if name.startswith(UNBOUND) else BOUNDS.get(name.rpartition(" ")[2])
        found[name] = {
            "slope": None if line is None else {k: round(v, 2) for k, v in asdict(line).items()},
            "last": samples[-1][1],
            "bound": None if bound is None else bound.per_hour,
            "broken": bound is not None and bound.broken(line),
        }
    return found


def document(soak: Soak) -> Mapping[str, Any]:
    """A soak as it is written and shown."""
    return {**asdict(soak), "slopes": slopes(soak)}


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(100_000))
    parser.add_argument("--folder", type=Path, default=None, help="where histories, the samples and the picture go")
    parser.add_argument("--keep", action="store_true", help=f"add to {RECORD.relative_to(ROOT)}")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="keyorder-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    found = document(run(options.minutes, options.seed, folder))
    soak_report.write(found, folder)
    print(soak_report.summary(found, BOUNDS))
    print(f"samples and picture: {folder}")
    if options.keep:
        soak_report.add(RECORD, found)
        soak_report.draw(found, PICTURE)
        soak_report.update_page(PAGE, soak_report.load(RECORD))
    return 1 if found["wrong"] or any(each["broken"] for each in found["slopes"].values()) else 0


if __name__ == "__main__":
    sys.exit(_main())
