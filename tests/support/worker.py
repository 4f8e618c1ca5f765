"""A writer or a consumer as a process of its own, driven by one JSON object and by the end of its standard input.

    python worker.py '{"role": "writer", ...}'

It runs until its input closes, finishes cleanly, and writes all that it saw into a history file.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import logging
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from keyorder import KeyRebalanceListener, OrderedConsumer, OrderedProducer
from keyorder.connector import clock
from keyorder.connector.verify.events import decode_value, encode_value
from keyorder.connector.verify.recorder import Recorder
from keyorder.partitioner.errors import KeyBlockedError, PeerError


def stopped_by_input() -> threading.Event:
    """An event that is set when the parent closes our input, or is gone."""
    done = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    return done


def say(**facts: Any) -> None:
    """One status line for the parent."""
    print(json.dumps(facts), flush=True)


class NewEpochs(logging.Handler):
    """Notes in the history when the client library begins a new producer epoch, by what it logs of idempotence."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.logger = logging.Logger("client library", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if " epoch bump " in record.getMessage():
            self._recorder.new_epoch()


def write(spec: dict[str, Any], done: threading.Event) -> None:
    """Send numbered records of the spec's keys at its rate, until told to stop or `count` are sent.

    With "stock" it is a stock producer with that partitioner.
    """
    rng = random.Random(spec.get("seed", 0))
    keys: list[str] = [f"{spec['actor']}-{i}" for i in range(spec["keys"])] + spec.get("shared_keys", [])
    seqs = dict.fromkeys(keys, 0)
    recorder = Recorder(spec["history"], spec["actor"], run=spec["run"])
    stock = spec.get("stock")
    config = {**spec["config"], "debug": "eos", "logger": NewEpochs(recorder).logger}
    producer: Any = (
        Producer({**config, "partitioner": stock, "enable.idempotence": True}) if stock else OrderedProducer(config)
    )
    interval = 1 / spec["rate"]
    limit = spec.get("count")

    def report(key: str, seq: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                recorder.send_ok(key, seq, message.partition(), message.offset())
            else:
                recorder.send_unknown(key, seq)

        return delivered

    columns = Columns(spec, producer) if spec.get("columns") else None
    sent = 0
    say(event="started")
    due = time.monotonic()
    while not done.is_set() and (limit is None or sent < limit):
        key = rng.choice(keys) if rng.random() < 0.8 else keys[rng.randrange(min(5, len(keys)))]
        seqs[key] += 1
        recorder.send_invoke(key, seqs[key])
        value = encode_value(spec["run"], spec["actor"], key, seqs[key])
        if columns is not None and columns.takes(key, seqs[key], value):
            sent += 1
            due += interval
            continue
        while True:
            try:
                producer.produce(spec["topic"], value, key, on_delivery=report(key, seqs[key]))
                break
            except BufferError:
                producer.poll(0.05)
            except KeyBlockedError:
                # An earlier record of the key has failed, which its report tells now. This one was never taken.
                recorder.send_fail(key, seqs[key])
                producer.poll(0.05)
                break
        sent += 1
        producer.poll(0)
        due += interval
        if sent % 20 == 0 and due > time.monotonic():
            done.wait(due - time.monotonic())  # the pace of the load, nothing is awaited
    if columns is not None:
        columns.send()
    left = producer.flush(120)
    if columns is not None:
        columns.report(recorder)
    say(event="finished", sent=sent, left=left, holds=0 if stock else len(producer.hold_times()))
    if spec.get("linger"):
        done.wait()
    producer.close()
    recorder.close()


class Columns:
    """Sends records as Arrow batches, all of them or, with "mixed", by turns with single ones.

    Batches have no callbacks: where the records went is looked up in the log at the end.
    """

    def __init__(self, spec: dict[str, Any], producer: OrderedProducer) -> None:
        self._spec, self._producer = spec, producer
        self._rows: list[tuple[str, bytes]] = []
        self._sent: set[tuple[str, int]] = set()
        self._turn = 0

    def takes(self, key: str, seq: int, value: bytes) -> bool:
        """Take a record, unless it is to go alone; then all that was taken before it has been sent."""
        self._turn += 1
        alone = self._spec["columns"] == "mixed" and self._turn % 90 > 60
        if not alone:
            self._rows.append((key, value))
            self._sent.add((key, seq))
        if alone or len(self._rows) >= 40:
            self.send()
        return not alone

    def send(self) -> None:
        """Send what was taken."""
        import pyarrow as pa

        rows, self._rows = self._rows, []
        if rows:
            batch = pa.RecordBatch.from_pydict({"key": [key for key, _ in rows], "value": [value for _, value in rows]})
            taken = self._producer.produce_arrow(self._spec["topic"], batch)
            assert taken == len(rows), f"{taken} of {len(rows)}"
            time.sleep(len(rows) / self._spec["rate"])  # the pace of the load

    def report(self, recorder: Recorder) -> None:
        """Note where each record is. All were acknowledged, or this fails.

        Others may still write: it reads to the ends as they are now. Where records keep coming the library tells of no end.
        """
        assert self._producer.arrow_failures() == []
        config = {k: v for k, v in self._spec["config"].items() if not k.startswith("keyorder.")}
        reader = Consumer({**config, "group.id": "log", "enable.partition.eof": True})
        partitions = reader.list_topics(self._spec["topic"], timeout=120).topics[self._spec["topic"]].partitions
        places = [TopicPartition(self._spec["topic"], p, 0) for p in partitions]
        ends = {place.partition: reader.get_watermark_offsets(place, timeout=120)[1] for place in places}
        reader.assign(places)
        open_ends = set(partitions)
        while open_ends:
            for message in reader.consume(1000, 0.2):
                if message.error() is not None:
                    open_ends.discard(message.partition())
                    continue
                if message.offset() + 1 >= ends[message.partition()]:
                    open_ends.discard(message.partition())
                if message.value() is not None:
                    record = decode_value(message.value())
                    if (
                        record is not None
                        and (record.key, record.seq) in self._sent
                        and record.writer == self._spec["actor"]
                    ):
                        self._sent.discard((record.key, record.seq))
                        recorder.send_ok(record.key, record.seq, message.partition(), message.offset())
        reader.close()
        assert not self._sent, f"{len(self._sent)} acknowledged records are not in the log"


class Recording(KeyRebalanceListener):
    """Notes assignments in the history."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def on_assign(self, partitions: list[TopicPartition]) -> None:
        self._recorder.assign([p.partition for p in partitions])

    def on_revoke(self, partitions: list[TopicPartition]) -> None:
        self._recorder.revoke([p.partition for p in partitions])

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self._recorder.lost([p.partition for p in partitions])


def explain_on_signal(consumer: OrderedConsumer) -> None:
    """SIGUSR1: say on stderr what this member owns and waits for, and where its threads are."""

    def explain(*_: Any) -> None:
        for place, owned in consumer._members.owned.items():
            facts = {name: str(getattr(owned, name))[:40] for name in owned.__slots__}
            print(place, facts, file=sys.stderr)
        print(
            consumer.gates(),
            consumer._members.starts.waiting,
            len(consumer._delivery.out.ready),
            file=sys.stderr,
            flush=True,
        )
        faulthandler.dump_traceback(all_threads=True)

    signal.signal(signal.SIGUSR1, explain)


def columns_of(batch: Any) -> list[tuple[int, int, Any]]:
    """The rows of an Arrow batch as the recorder takes them."""
    partitions, offsets, values = (batch.column(name).to_pylist() for name in ("partition", "offset", "value"))
    return [
        (p, offset, None if value is None else decode_value(value))
        for p, offset, value in zip(partitions, offsets, values, strict=True)
    ]


def process(recorder: Recorder, rows: list[Any], pause: float) -> int:
    """Note one batch, with the work between its two notes."""
    if rows:
        recorder.deliver_starts(rows)
        if pause:
            time.sleep(pause * len(rows))
        recorder.deliver_ends(rows)
    return len(rows)


def read(spec: dict[str, Any], done: threading.Event) -> None:
    """Consume until told to stop; each batch is 'processed' between deliver-start and deliver-end."""
    recorder = Recorder(spec["history"], spec["actor"], group=spec["config"]["group.id"], run=spec["run"])

    def committed(error: Any, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            failed = error is not None or p.error is not None
            recorder.commit(p.partition, p.offset, "unknown" if failed else "ok")
            if failed:
                print(f"{spec['actor']}: commit of {p.partition} to {p.offset}: {error or p.error}", file=sys.stderr)

    consumer = OrderedConsumer({**spec["config"], "on_commit": committed})
    consumer.subscribe([spec["topic"]], listener=Recording(recorder))
    explain_on_signal(consumer)
    say(event="started")
    delivered = 0
    pause = spec.get("work_s", 0.0)
    batch = spec.get("batch", 200)
    turn = 0

    def take() -> list[Any]:
        if spec.get("columns") == "always" or (spec.get("columns") == "mixed" and turn % 3):
            return columns_of(consumer.consume_arrow(batch, 0.05))
        messages = consumer.consume(batch, 0.05) if batch > 1 else [m for m in [consumer.poll(0.05)] if m is not None]
        rows = []
        for message in messages:
            if message.error() is not None:
                say(event="error", error=str(message.error()))
                continue
            data = message.value()
            rows.append((message.partition(), message.offset(), decode_value(data) if data is not None else None))
        return rows

    while not done.is_set():
        turn += 1
        try:
            rows = take()
        except PeerError as error:
            if not error.retriable:
                raise
            print(f"{spec['actor']}: {error}", file=sys.stderr)  # a broker that is away: the next call tries again
            continue
        delivered += process(recorder, rows, pause)
    consumer.close()
    recorder.close()
    say(event="finished", delivered=delivered, strays=consumer.strays)


def transform(spec: dict[str, Any], done: threading.Event) -> None:
    """Consume, write the same to another topic, and move the offsets, in one transaction per batch.

    After any error the producer is made anew, which decides what it left open, and the consumer goes back to what the
    group has committed.
    """
    consumer = OrderedConsumer({**spec["config"], "enable.auto.commit": False, "isolation.level": "read_committed"})
    settings = {
        **spec["producer"],
        "transactional.id": f"{spec['run']}-{spec['actor']}",
        "transaction.timeout.ms": 15_000,
    }

    def fresh() -> OrderedProducer:
        made = OrderedProducer(settings)
        made.init_transactions(30)
        return made

    producer = fresh()
    consumer.subscribe([spec["topic"]])
    explain_on_signal(consumer)
    say(event="started")
    moved = errors = 0
    while not done.is_set():
        messages = [m for m in consumer.consume(spec.get("batch", 50), 0.1) if m.error() is None]
        if not messages:
            continue
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(spec["out"], message.value(), message.key())
            positions: dict[tuple[str, int], int] = {}
            for message in messages:
                positions[message.topic(), message.partition()] = message.offset() + 1
            places = [TopicPartition(t, p, offset) for (t, p), offset in positions.items()]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 20)
            producer.commit_transaction(30)
            moved += len(messages)
        except KafkaException as error:
            errors += 1
            print(f"{spec['actor']}: {error}", file=sys.stderr)
            with suppress(KafkaException):  # after a fatal error it complains once more, as the client library's does
                producer.close()
            producer = fresh()
            mine = consumer.assignment()
            for place in consumer.committed(mine, 20) if mine else []:
                if consumer.position([place])[0].offset >= 0:  # else nothing of it was in the transaction
                    place.offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                    consumer.seek(place)
    consumer.close()
    producer.close()
    say(event="finished", moved=moved, errors=errors)


def bend_clocks(spec: dict[str, Any]) -> None:
    """wall_jumps_ms: the wall clock goes so far on and back with every look. sleep_s: SIGUSR2 moves the other one on."""
    jumps, slept, awake = spec.get("wall_jumps_ms"), [0.0], clock.now
    if jumps is not None:
        looks = itertools.cycle([jumps, -jumps])
        clock.wall_ms = lambda: next(looks)
    if "sleep_s" in spec:
        clock.now = lambda: awake() + slept[0]
        signal.signal(signal.SIGUSR2, lambda *_: slept.__setitem__(0, slept[0] + spec["sleep_s"]))


def main() -> None:
    spec = json.loads(sys.argv[1])
    bend_clocks(spec)
    done = stopped_by_input()
    {"writer": write, "consumer": read, "transformer": transform}[spec["role"]](spec, done)


if __name__ == "__main__":
    main()
