"""A run: writers and consumers as processes on one topic, changes of its layout, and the checker's verdict at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from keyorder import TopicAdmin
from keyorder.connector import clock
from keyorder.connector.verify.history import load
from keyorder.connector.verify.recorder import Recorder
from keyorder.connector.verify.topology import Epoch, Topology
from keyorder.connector.verify.verdict import Verdict, judge
from keyorder.partitioner.changes.rehoming import origin_of_copy
from support.asking import answered
from support.cluster import KafkaUnderTest
from support.spark_source import create as create_unmanaged

WORKER = Path(__file__).parent / "worker.py"


class Worker:
    """One worker process. Its status lines are read on demand."""

    def __init__(self, spec: dict[str, Any], env: Mapping[str, str] | None = None) -> None:
        self.actor = spec["actor"]
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def expect(self, event: str) -> dict[str, Any]:
        """The next status line of that event; fails with what the process said if it ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            facts: dict[str, Any] = json.loads(line)
            if facts["event"] == event:
                return facts
        raise AssertionError(f"{self.actor} ended with {self.process.wait()} before {event!r}")

    def stop(self) -> dict[str, Any]:
        """Let it finish in its own way."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        facts = self.expect("finished")
        assert self.process.wait(120) == 0
        return facts

    def expect_progress(self, run: Workload, more: int = 0) -> None:
        """Return once some of its records were acknowledged; with `more`, so many beyond those that are by now."""
        path = run.folder / f"{self.actor}.jsonl"

        def acknowledged() -> int:
            return path.read_bytes().count(b',"so",')

        enough = acknowledged() + more if more else 1
        deadline = clock.now() + 180
        while acknowledged() < enough:
            assert clock.now() < deadline, f"{self.actor} sends nothing"
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Workload:
    """Everything that happens on one topic. Use as a context manager: nothing is left running."""

    def __init__(
        self, kafka: KafkaUnderTest, folder: Path, topic: str, partitions: int = 4, managed: bool = True, **create: Any
    ) -> None:
        self.kafka, self.folder, self.topic = kafka, folder, topic
        self.run = uuid.uuid4().hex[:8]
        self.admin = TopicAdmin(kafka.client_config())
        if managed:
            self.admin.create(topic, partitions, **create)
        else:
            create_unmanaged(kafka, topic, partitions)
        self.workers: list[Worker] = []
        self.groups: set[str] = set()
        self.copies: dict[tuple[int, int], tuple[int, int]] = {}
        self._own = Recorder(folder / "test.jsonl", "test", run=self.run)

    def __enter__(self) -> Workload:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        self._own.close()

    def writer(self, actor: str, **spec: Any) -> Worker:
        """Start a writer. spec: rate (records/s), keys, count, seed, config, env; stock: the partitioner of a stock producer."""
        config = {**self.kafka.client_config(), "linger.ms": 2, "log_level": 0, **spec.pop("config", {})}
        full = {"rate": 1_000, "keys": 200, **spec, "role": "writer", "config": config}
        return self._start(actor, full)

    def consumer(self, actor: str, group: str, **spec: Any) -> Worker:
        """Start a consumer. spec: work_s per record, batch, config, env. Groups of different runs are different groups."""
        group = f"{group}-{self.run}"
        self.groups.add(group)
        config = {
            **self.kafka.client_config(),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 300,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            **spec.pop("config", {}),
        }
        if config.get("group.protocol") == "consumer":
            del config["session.timeout.ms"], config["heartbeat.interval.ms"]
        return self._start(actor, {**spec, "role": "consumer", "config": config})

    def transformer(self, actor: str, group: str, out: str, **spec: Any) -> Worker:
        """Start a process that moves this topic's records to `out` in transactions."""
        group = f"{group}-{self.run}"
        self.groups.add(group)
        base = {**self.kafka.client_config(), "log_level": 0}
        config = {
            **base,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "fetch.wait.max.ms": 50,
            **spec.pop("config", {}),
        }
        producer = {**base, "linger.ms": 1, "client.id": actor}  # by their names clients are struck
        return self._start(actor, {**spec, "role": "transformer", "out": out, "config": config, "producer": producer})

    def _start(self, actor: str, spec: dict[str, Any]) -> Worker:
        env = spec.pop("env", None)
        spec |= {
            "actor": actor,
            "topic": self.topic,
            "run": self.run,
            "history": str(self.folder / f"{actor}.jsonl"),
        }
        worker = Worker(spec, env)
        self.workers.append(worker)
        worker.expect("started")
        return worker

    def kill(self, worker: Worker) -> None:
        """SIGKILL, noted in the history."""
        worker.kill()
        self._own.crash(worker.actor)

    def expand(self, count: int, env: Mapping[str, str] | None = None) -> int:
        """Grow in a process of its own, so that it may be killed. Returns its exit status."""
        return self._change("expand", count, env)

    def shrink(self, count: int, env: Mapping[str, str] | None = None) -> int:
        """Shrink in a process of its own, so that it may be killed. Returns its exit status."""
        return self._change("shrink", count, env)

    def resize(self, count: int, env: Mapping[str, str] | None = None) -> int:
        """Grow or shrink, whichever it takes."""
        return self._change("expand" if count >= self.count() else "shrink", count, env)

    def count(self) -> int:
        """How many partitions are active."""
        return self.admin.timeline(self.topic).newest.count

    def _change(self, what: str, count: int, env: Mapping[str, str] | None) -> int:
        code = (
            "import json, sys; from keyorder import TopicAdmin; from keyorder.connector import clock; began = clock.now(); "
            "say = lambda step: print(f'{clock.now() - began:.1f} s: {step}', file=sys.stderr); "
            "getattr(TopicAdmin(json.loads(sys.argv[1]), say), sys.argv[4])(sys.argv[2], int(sys.argv[3]))"
        )
        config = json.dumps(self.kafka.client_config())
        command = [sys.executable, "-c", code, config, self.topic, str(count), what]
        done = subprocess.run(command, env=env, check=False, stderr=subprocess.PIPE, text=True)
        print(done.stderr)  # shown where the test fails
        return done.returncode

    def ends(self) -> dict[int, int]:
        """The high watermark of every partition."""
        consumer = Consumer({**self.kafka.client_config(), "group.id": "ends"})
        try:
            partitions = answered(lambda: consumer.list_topics(self.topic, timeout=120).topics[self.topic].partitions)
            places = [TopicPartition(self.topic, p) for p in partitions]
            return {
                place.partition: answered(lambda place=place: consumer.get_watermark_offsets(place, timeout=120))[1]
                for place in places
            }
        finally:
            consumer.close()

    def drain(self, patience: float = 180.0, below: Mapping[int, int] | None = None) -> None:
        """Wait until every group has committed every partition's end, or what `below` says of it.

        patience: seconds without any progress of the group after which this gives up.
        """
        ends = {**self.ends(), **(below or {})}
        for group in self.groups:
            client = Consumer({**self.kafka.client_config(), "group.id": group, "isolation.level": "read_uncommitted"})
            deadline, before = clock.now() + patience, {}
            while True:
                wanted = [TopicPartition(self.topic, p) for p in ends]
                places = answered(lambda client=client, wanted=wanted: client.committed(wanted, timeout=120))
                behind = {p.partition: (p.offset, ends[p.partition]) for p in places if p.offset < ends[p.partition]}
                behind = {p: gap for p, gap in behind.items() if gap[1] > 0}
                if not behind:
                    break
                if behind != before:
                    deadline, before = clock.now() + patience, behind
                if clock.now() >= deadline:
                    self.explain()
                    raise AssertionError(f"group {group} is stuck: {behind}, {self.admin.describe(self.topic)}")
            client.close()

    def explain(self) -> None:
        """Let every consumer say where it is, for the reader of the failure."""
        for worker in self.workers:
            if worker.process.poll() is None and not worker.actor.startswith("w"):
                worker.signal(signal.SIGUSR1)
                time.sleep(1)  # for its words to arrive before it is killed

    def log(self) -> Iterator[tuple[int, int, bytes, bytes | None, int | None]]:
        """Every record, read by a plain read_committed consumer."""
        consumer = Consumer(
            {**self.kafka.client_config(), "group.id": "log", "enable.partition.eof": True, "enable.auto.commit": False}
        )
        partitions = consumer.list_topics(self.topic, timeout=120).topics[self.topic].partitions
        consumer.assign([TopicPartition(self.topic, p, 0) for p in partitions])
        open_ends = set(partitions)
        while open_ends:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_ends.discard(message.partition())
                    continue
                headers = dict(message.headers() or [])
                hint = headers.get("keyorder-epoch")
                origin = origin_of_copy(headers.get("keyorder-rehomed"))
                if origin is not None:
                    self.copies[message.partition() or 0, message.offset() or 0] = origin
                yield (
                    message.partition(),
                    message.offset(),
                    message.key() or b"",
                    message.value(),
                    None if hint is None else int(hint),
                )
        consumer.close()

    def verdict(self, **options: Any) -> Verdict:
        """What the checker says of it all."""
        timeline = self.admin.timeline(self.topic)
        epochs = [Epoch(e.number, e.count, dict(e.ends), dict(e.begins)) for e in timeline.epochs]
        history = load(sorted(self.folder.glob("*.jsonl")))
        rows = list(self.log())
        options.setdefault("copies", self.copies)
        return judge(history, rows, Topology(timeline.initial, epochs, timeline.hash), **options)

    def finish(self, **options: Any) -> Verdict:
        """Stop the writers, drain, stop the consumers, judge. options: the checker's."""
        running = [w for w in self.workers if w.process.poll() is None]
        for worker in [w for w in running if w.actor.startswith("w")]:
            facts = worker.stop()
            assert facts["left"] == 0
        self.drain()
        for worker in [w for w in running if not w.actor.startswith("w")]:
            worker.stop()
        return self.verdict(**options)


def assert_in_order(verdict: Verdict) -> None:
    """0 lost, 0 reordered, 0 illegal duplicates, and no other anomaly."""
    assert (verdict.reordered_keys, verdict.lost, verdict.illegal_duplicates) == (0, 0, 0), verdict.summary()
    assert verdict.valid, verdict.summary()
