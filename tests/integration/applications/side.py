"""One side of a scenario as a process: the hard application, beside a calm member of its group and a calm writer.

    python side.py '{"library": "keyorder", "plan": {...}, ...}'

On standard input it is told what happens ("phase NAME", "delete", "reset", "back", "settle", "stop"); every fifth of a second
it says how far it is. SIGUSR1 makes it print where its threads are. Its end without "finished", or no progress, is a finding.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import confluent_kafka
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector.verify.events import encode_value
from keyorder.connector.verify.recorder import Recorder


class Side:
    """What the parts of one side share: what is to be run, how far the scenario is, and what was done when."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.plan = spec, spec["plan"]
        self.ours = spec["library"] == "keyorder"
        self.topic, self.other, self.out = spec["topic"], spec["other"], spec["out"]
        self.phase = "start"
        self.settling, self.stopping = threading.Event(), threading.Event()
        self.resetting, self.back, self.deleting = threading.Event(), threading.Event(), threading.Event()
        self.full = threading.Event()  # what the consumers find when they begin is there
        self.coverage: Counter[str] = Counter()
        self.progress: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.findings: list[str] = []
        self.group = spec["group"]
        self.generation = 1
        self.clients: list[Any] = []  # those that can say where they are
        self._lock = threading.Lock()

    @property
    def consumer_class(self) -> Any:
        return OrderedConsumer if self.ours else confluent_kafka.Consumer

    @property
    def producer_class(self) -> Any:
        return OrderedProducer if self.ours else confluent_kafka.Producer

    def random(self, what: str) -> random.Random:
        """Chance of its own for each part, so that one does not change another's."""
        return random.Random(f"{self.plan['seed']} {what}")

    def did(self, what: str) -> None:
        """Count something hard that was done, under the phase in which it was."""
        with self._lock:
            self.coverage[f"{what}|{self.phase}"] += 1

    def moved(self, what: str = "turns", by: int = 1) -> None:
        """Count what shows that this side goes on."""
        self.progress[what] += by

    def failed(self, where: str, error: BaseException) -> None:
        """Note an error that the application was given. Whether it is one too many is judged by what comes of it."""
        what = f"{where}: {type(error).__name__}: {str(error)[:160]}"
        self.errors[what] += 1
        if self.errors[what] == 1:
            print(f"{self.phase}: {what}", file=sys.stderr)
            traceback.print_exception(error)
            sys.stderr.flush()

    def found(self, what: str) -> None:
        """Note a finding of the application itself."""
        with self._lock:
            if len(self.findings) < 50:
                self.findings.append(what)

    def recorder(self, actor: str, group: str = "") -> Recorder:
        """A new part of the history. After a reset of the group it is another group's."""
        if group and self.generation > 1:
            group = f"{group}#{self.generation}"
        name = f"{actor}-{self.generation}" if group else actor
        return Recorder(Path(self.spec["folder"]) / f"{name}.jsonl", actor, group=group, run=self.spec["run"])

    def consumer_config(self, **more: Any) -> dict[str, Any]:
        """Settings of a member of the group under this plan."""
        config: dict[str, Any] = {
            **self.spec["connection"],
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            **self.spec["protocol"],
        }
        if config.get("group.protocol") == "consumer":
            del config["session.timeout.ms"], config["heartbeat.interval.ms"]
        if not self.ours:
            config["topic.metadata.refresh.interval.ms"] = 500
        return config | more

    def producer_config(self, **more: Any) -> dict[str, Any]:
        """Settings of a writer, which places keys as keyorder does while the count is the first one."""
        config = {**self.spec["connection"], "linger.ms": 2, "log_level": 0, "acks": "all"}
        if self.ours:
            # A writer that ends without a word, as one that has purged does, holds a change up for its lease.
            config |= {
                "delivery.timeout.ms": 10_000,
                "keyorder.lease.ms": 18_000,
                "keyorder.lease.renew.interval.ms": 3_000,
                "keyorder.lease.margin.ms": 2_000,
            }
        else:
            config |= {
                "partitioner": "murmur2_random",
                "topic.metadata.refresh.interval.ms": 500,
                "enable.idempotence": True,
            }
        return config | more

    def listen(self) -> None:
        """Follow what the scenario says, until it is gone."""
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "phase":
                self.phase = rest
            elif word == "explain":
                for client in self.clients:
                    explain(client)
            elif word == "delete":
                self.deleting.set()
            elif word == "reset":
                self.back.clear()
                self.resetting.set()
            elif word == "back":
                self.generation += 1
                self.resetting.clear()
                self.back.set()
            elif word == "settle":
                self.phase = "settling"
                self.settling.set()
            elif word == "stop":
                self.settling.set()
                self.stopping.set()
        self.settling.set()
        self.stopping.set()

    def beat(self) -> None:
        """Say how far this side is."""
        while True:
            self.say(event="beat", progress=dict(self.progress), errors=dict(self.errors.most_common(6)))
            time.sleep(0.2)  # the rhythm of the reports

    def say(self, **facts: Any) -> None:
        line = json.dumps(facts)
        with self._lock:
            os.write(1, line.encode() + b"\n")


def explain(consumer: Any) -> None:
    """What a member of ours owns and waits for, on standard error: for the reader of a failure."""
    try:
        print(consumer.assignment(), consumer.gates(), file=sys.stderr)
        for place, owned in list(consumer._members.owned.items()):
            names = getattr(owned, "__slots__", None) or vars(owned)
            print(place, {name: str(getattr(owned, name, None))[:60] for name in names}, file=sys.stderr)
    except Exception:
        traceback.print_exc()
    sys.stderr.flush()


class Values:
    """Numbered records of a few keys, one writer's."""

    def __init__(self, side: Side, writer: str, keys: int) -> None:
        self._run, self._writer = side.spec["run"], writer
        self._rng = side.random(f"keys of {writer}")
        self.keys = [f"{writer}-{i}" for i in range(keys)]
        self._seqs = dict.fromkeys(self.keys, 0)

    def next(self, key: str | None = None, pad: int = 0) -> tuple[str, int, bytes]:
        """(key, number, value) of the next record."""
        key = key if key is not None else self._rng.choice(self.keys)
        seq = self._seqs[key] = self._seqs.get(key, 0) + 1
        return key, seq, encode_value(self._run, self._writer, key, seq, pad)


# It is nobody's test that a busy machine delivers within ten seconds.
_CALM = {"delivery.timeout.ms": 30_000, "keyorder.lease.ms": 38_000}


class CalmWriter(threading.Thread):
    """Keeps the topic busy until the scenario settles."""

    def __init__(self, side: Side, rate: int, topics: list[str]) -> None:
        super().__init__(name="calm-writer", daemon=True)
        self._side, self._rate, self._topics = side, rate, topics

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self._side.found(f"the calm writer ended: {error!r}")
            traceback.print_exc()

    def _write(self) -> None:
        side = self._side
        values = Values(side, "calm", 24)
        recorder = side.recorder("calm")
        producer = side.producer_class(side.producer_config(**(_CALM if side.ours else {})))

        def report(key: str, seq: int) -> Any:
            def delivered(error: Any, message: Any) -> None:
                if error is None:
                    recorder.send_ok(key, seq, message.partition(), message.offset())
                    side.moved("calm records")
                else:
                    recorder.send_unknown(key, seq)
                    side.failed("calm writer", RuntimeError(str(error)))

            return delivered

        backlog = side.plan["backlog"]
        while not side.settling.wait(0 if backlog > 0 else 10 / self._rate):
            backlog -= 10
            for _ in range(10):
                key, seq, value = values.next()
                recorder.send_invoke(key, seq)
                producer.produce(side.topic, value, key, on_delivery=report(key, seq))
            producer.poll(0)
            if backlog in range(-9, 1):
                producer.flush(20)
                side.full.set()
        while producer.flush(5):
            pass
        producer.close()
        recorder.close()


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    side = Side(json.loads(sys.argv[1]))
    threading.Thread(target=side.listen, daemon=True).start()
    from integration.applications.applications import application_of

    threading.Thread(target=side.beat, daemon=True).start()
    writer = None
    if side.plan["kind"] not in ("producer", "async-producer"):
        writer = CalmWriter(side, 250, [side.topic])
        writer.start()
        if side.plan["backlog"]:
            side.full.wait(60)
    side.say(event="started")
    try:
        application_of(side).run()
    except BaseException as error:
        traceback.print_exc()
        side.found(f"the application ended: {error!r}")
    if writer is not None:
        side.settling.set()
        writer.join(60)
    side.say(
        event="finished", findings=side.findings, coverage=dict(side.coverage), progress=dict(side.progress),
        errors=dict(side.errors.most_common(12)),
    )  # fmt: skip
    sys.stdout.flush()


if __name__ == "__main__":
    main()
