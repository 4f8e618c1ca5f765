"""What runs while faults are done: writers and members of a group in processes, by kind."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from faults.cluster import PATIENCE, FaultyCluster
from keyorder.connector import clock
from keyorder.connector.verify.events import decode_value
from keyorder.connector.verify.verdict import Verdict
from support.asking import answered
from support.workload import Worker, Workload

# A timeout beyond the faults and what a busy machine adds: which of the records that are given up are in the log, and how
# often, is the client library's business, and a test's of its own. A change waits for a killed writer's lease. With more than
# one request in flight the library writes batches again more often after leaders have moved: docs/faults.md, "Not shown".
WRITER = {
    "max.in.flight.requests.per.connection": 1,
    "delivery.timeout.ms": 60_000,
    "keyorder.lease.ms": 80_000,
    "keyorder.lease.renew.interval.ms": 3_000,
    "keyorder.lease.margin.ms": 1_000,
}
# Rows of an Arrow batch have no reports of their own: a campaign only knows them sent when all are acknowledged.
COLUMNS_WRITER = {**WRITER, "delivery.timeout.ms": 90_000, "keyorder.lease.ms": 110_000}
TOPIC = {"keyorder.view.age.ms": "400", "min.insync.replicas": "2"}

KINDS = ("plain", "consumer-protocol", "arrow", "exactly-once")


class Load:
    """The processes of one kind on one topic of four partitions. Use as a context manager."""

    def __init__(self, kafka: FaultyCluster, folder: Path, topic: str, kind: str, seed: int) -> None:
        self.kafka, self.kind, self._folder, self._seed = kafka, kind, folder, seed
        self.run = Workload(kafka, folder, topic, replication_factor=3, config=TOPIC)
        self._out = f"{topic}-out"
        self._lives = 0
        self.writers: list[Worker] = []
        self.readers: list[Worker] = []

    def __enter__(self) -> Load:
        try:
            if self.kind == "exactly-once":
                self.run.admin.create(self._out, 3, 3, config=TOPIC)
            for _ in range(2):
                self.readers.append(self._reader())
            for _ in range(2):
                self.writers.append(self._writer())
            self.await_progress()
        except BaseException:
            self.run.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.run.__exit__()

    def start(self, dead: Worker) -> Worker:
        """Another worker in a dead one's place."""
        return self._writer() if dead.actor.startswith("w") else self._reader()

    def _writer(self) -> Worker:
        self._lives += 1
        name = f"w{self._lives}"
        columns = self.kind == "arrow" and self._lives % 2 == 0
        config = {**(COLUMNS_WRITER if columns else WRITER), "client.id": name}
        more: dict[str, Any] = {"columns": "mixed"} if columns else {}
        return self.run.writer(name, rate=150, keys=100, seed=self._seed + self._lives, config=config, **more)

    def _reader(self) -> Worker:
        self._lives += 1
        if self.kind == "exactly-once":
            name = f"e{self._lives}"
            return self.run.transformer(name, "g", self._out, config={"client.id": name})
        name = f"c{self._lives}"
        config: dict[str, Any] = {"client.id": name}
        if self.kind == "consumer-protocol":
            config["group.protocol"] = "consumer"
        more = {"columns": "mixed"} if self.kind == "arrow" else {}
        return self.run.consumer(name, "g", config=config, **more)

    def _done(self) -> dict[str, int]:
        """How far each writer, and the group as a whole, has come."""
        mark = b',"si",' if self.kind == "arrow" else b',"so",'  # a row of a batch is not reported by itself
        found = {w.actor: (self._folder / f"{w.actor}.jsonl").read_bytes().count(mark) for w in self.writers}
        if self.kind == "exactly-once":
            found["group"] = sum(ends(self.kafka, self._out).values())
        else:
            found["group"] = sum(path.read_bytes().count(b',"de",') for path in self._folder.glob("c*.jsonl"))
        return found

    def await_progress(self, patience: float = PATIENCE) -> None:
        """Return when each writer and the group have got on. A worker that has ended fails it."""
        before, deadline = self._done(), clock.now() + patience
        while True:
            for worker in self.writers + self.readers:
                assert worker.process.poll() is None, f"{worker.actor} has ended with {worker.process.returncode}"
            now = self._done()
            waiting = [name for name, done in now.items() if done < before.get(name, 0) + 50]
            if not waiting:
                return
            if clock.now() >= deadline:
                self.run.explain()
                raise AssertionError(f"{waiting} stand still: {before}, {now}")
            wait(0.5)

    def finish(self) -> tuple[Verdict, list[str]]:
        """Stop the writers, let the group read to the ends, and judge. The texts name what the verdict does not cover."""
        for writer in self.writers:
            facts = writer.stop()
            assert facts["left"] == 0, f"{writer.actor} keeps {facts['left']} records"
        if self.kind == "exactly-once":
            below = {partition: offset + 1 for partition, offset, *_ in self.run.log()}
            self.run.drain(2 * PATIENCE, below=below)
        else:
            self.run.drain(2 * PATIENCE)
        for reader in self.readers:
            reader.stop()
        return self.run.verdict(refusals_excuse=True), self._copied() if self.kind == "exactly-once" else []

    def _copied(self) -> list[str]:
        """Each record of the topic has to be in the other one once, a key's in their order."""
        sent = {key: sorted(seqs) for key, seqs in values(self.kafka, self.run.topic).items()}
        moved = values(self.kafka, self._out)
        return [f"key {key}: {moved.get(key)} for {seqs}" for key, seqs in sent.items() if moved.get(key) != seqs]


def wait(seconds: float) -> None:
    """The pace of a question that is asked again."""
    threading.Event().wait(seconds)


def ends(kafka: FaultyCluster, topic: str) -> dict[int, int]:
    """The end of each partition that a reader of committed records sees."""
    consumer = Consumer({**kafka.client_config(), "group.id": "ends", "log_level": 0})
    try:
        partitions = answered(lambda: consumer.list_topics(topic, timeout=120).topics[topic].partitions)
        # One that was just made, or moves, may have a leader that does not know of it yet.
        return {
            p: answered(lambda p=p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=120))[1]
            for p in partitions
        }
    finally:
        consumer.close()


def values(kafka: FaultyCluster, topic: str) -> dict[str, list[int]]:
    """The numbers of each key's committed records, in the order of their partition."""
    consumer = Consumer({**kafka.client_config(), "group.id": "values", "enable.partition.eof": True, "log_level": 0})
    found: dict[str, list[int]] = defaultdict(list)
    try:
        partitions = set(answered(lambda: consumer.list_topics(topic, timeout=120).topics[topic].partitions))
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        while partitions:
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    partitions.discard(message.partition() or 0)
                elif (value := decode_value(message.value() or b"")) is not None:
                    found[(message.key() or b"").decode()].append(value.seq)
    finally:
        consumer.close()
    return found
