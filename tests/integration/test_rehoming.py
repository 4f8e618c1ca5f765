"""Surviving values of a compacted topic's retired partitions go home: under live writers, killed anywhere, called off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.compaction.compactor import TopicCompactor
from keyorder.compaction.strategy import encode_version
from keyorder.compaction.view import CompactedView
from keyorder.connector.control.timeline_edit import edit
from keyorder.connector.crash import REHOMING_STEPS
from keyorder.connector.topology.claims import Claims
from keyorder.connector.topology.drain_job import DrainJob
from keyorder.connector.topology.rehoming import RehomingTerms
from keyorder.partitioner.changes.rehoming import REHOMED_HEADER, origin_of_copy
from keyorder.partitioner.epochs import Retirement
from keyorder.partitioner.errors import ControllerFencedError
from keyorder.partitioner.modes import Mode
from support.cluster import KafkaUnderTest
from support.workload import Workload, assert_in_order

COMPACTED = {
    "keyorder.view.age.ms": "300",
    "cleanup.policy": "compact",
    "delete.topic.partition.enable": "true",
}
Table = dict[bytes, bytes]


def log(kafka: KafkaUnderTest, topic: str, partition: int) -> list[Message]:
    """Every record of a partition, as a plain reader sees it."""
    consumer = Consumer({**kafka.client_config(), "group.id": "log", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append(message)


def last_values(kafka: KafkaUnderTest, topic: str, partition: int) -> Table:
    """What the cleaner would leave of a partition."""
    found: dict[bytes, bytes | None] = {m.key(): m.value() for m in log(kafka, topic, partition)}  # type: ignore[misc]
    return {key: value for key, value in found.items() if value is not None}


def rebuilt(kafka: KafkaUnderTest, topic: str, group: str, strays: bool = False) -> Table:
    """The table that a fresh ordered group builds from the beginning. strays: whether some are to be expected."""
    config = {**kafka.client_config(), "group.id": group, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    wanted = {p: len(log(kafka, topic, p)) for p in range(TopicAdmin(kafka.client_config()).describe(topic).partitions)}
    table: Table = {}
    read = dict.fromkeys(wanted, 0)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic])
        quiet = 0
        deadline = time.monotonic() + 120
        while quiet < 4 or consumer.gates():
            assert time.monotonic() < deadline, (read, wanted, consumer.gates())
            messages = consumer.consume(500, 0.5)
            quiet = 0 if messages or not sum(read.values()) else quiet + 1
            for message in messages:
                assert message.error() is None
                read[message.partition() or 0] += 1
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = bytes(value)
        assert strays or consumer.strays == 0
    return table


def keys_of(admin: TopicAdmin, topic: str, partition: int, count: int, wanted: int) -> list[str]:
    """Keys that live in `partition` when the topic has `count` partitions."""
    layout = admin.describe(topic).layout.resized(count)
    return [k for k in (f"k{i}" for i in range(wanted * count * 4)) if layout.home(k) == partition][:wanted]


def retire(
    kafka: KafkaUnderTest, topic: str, config: dict[str, str] | None = None
) -> tuple[TopicAdmin, list[str], Table]:
    """1 -> 2 -> 1 with 12 keys written at 2, some deleted there, one written again at home: the state before a drain."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic, 1, config=config or COMPACTED)
    names = keys_of(admin, topic, 1, 2, 12)
    table: Table = {}
    with OrderedProducer(kafka.client_config()) as producer:
        for name in names[6:]:
            producer.produce(topic, "old", name)
        producer.flush(120)
        admin.expand(topic, 2)
        for name in names:
            producer.produce(topic, f"{name} at 1", name, headers={"mine": b"x"})
            table[name.encode()] = f"{name} at 1".encode()
        for name in names[:2]:
            producer.produce(topic, None, name)
            del table[name.encode()]
        producer.flush(120)
        admin.shrink(topic, 1, immediate=True)
        producer.produce(topic, "again", names[2])
        producer.produce(topic, None, names[3])
        table[names[2].encode()] = b"again"
        del table[names[3].encode()]
        assert producer.flush(120) == 0
    return admin, names, table


@pytest.mark.kip("C-22")
def test_surviving_values_go_home_and_are_tombstoned(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Copies with their headers and times where no newer record is; nothing is left behind, nothing deleted comes back."""
    admin, names, table = retire(kafka, topic_name)
    before = {m.key(): m for m in log(kafka, topic_name, 1) if m.value() is not None}
    (plan,) = admin.rehoming_plans(topic_name)
    assert (plan.partition, plan.keys, plan.superseded, plan.foreign) == (1, 8, 0, 0)
    assert rebuilt(kafka, topic_name, f"{topic_name}-before") == table

    (step,) = admin.drain(topic_name, rehoming=RehomingTerms(slice_keys=3))

    assert (step.done, step.what) == (True, "8 values re-homed, 8 keys cleared")
    (retired,) = admin.describe(topic_name).retired
    assert (retired.mode, retired.emptied) == (Mode.NONE, True)
    assert admin.timeline(topic_name).purged == {1: retired.upto}
    assert last_values(kafka, topic_name, 1) == {}
    assert last_values(kafka, topic_name, 0) == table
    copies = {m.key(): m for m in log(kafka, topic_name, 0) if REHOMED_HEADER in dict(m.headers() or [])}
    assert {key for key in copies if key is not None} == {name.encode() for name in names[4:]}
    for key, copy in copies.items():
        original, headers = before[key], dict(copy.headers() or [])
        assert copy.timestamp() == original.timestamp()
        assert headers["mine"] == b"x"
        assert origin_of_copy(headers[REHOMED_HEADER]) == (1, original.offset())
    assert rebuilt(kafka, topic_name, f"{topic_name}-after") == table
    assert admin.drain(topic_name, rehoming=RehomingTerms()) == []
    with OrderedProducer(kafka.client_config()) as producer:
        before_writes = len(log(kafka, topic_name, 1))
        producer.produce(topic_name, "next", names[5])
        assert producer.flush(120) == 0
    assert len(log(kafka, topic_name, 1)) == before_writes, "behind the purge watermark no move tombstone is needed"


@pytest.mark.kip("C-22", "C-19", "K280-08")
def test_by_version_the_highest_goes_home(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Also over a lower version that was written at home since; a copy never displaces a higher one; a deletion may win."""
    admin = TopicAdmin(kafka.client_config())
    settings = {"compaction.strategy": "header", "compaction.strategy.header": "v", "min.compaction.lag.ms": "3600000"}
    admin.create(topic_name, 1, config={**COMPACTED, **settings})
    late, higher, deleted, before, tie, alone, gone = names = keys_of(admin, topic_name, 1, 2, 7)
    with OrderedProducer(kafka.client_config()) as producer:

        def write(*records: tuple[str, str | None, int]) -> None:
            for name, value, version in records:
                producer.produce(topic_name, value, name, headers=[("v", encode_version(version))])
            assert producer.flush(120) == 0

        write((before, "first home 9", 9))
        admin.expand(topic_name, 2)
        write((late, "5", 5), (late, "late 3", 3), (higher, "1", 1), (deleted, "8", 8), (deleted, None, 9))
        write(
            (before, "8", 8), (tie, "old 5", 5), (alone, "7", 7), (alone, "late 6", 6), (gone, None, 9), (gone, "8", 8)
        )
        admin.shrink(topic_name, 1, immediate=True)
        write((late, "4", 4), (higher, "2", 2), (deleted, "home 4", 4), (tie, "new 5", 5))
    with CompactedView(kafka.client_config(), topic_name) as view:
        table = dict(view.load().items())
    assert table == {
        name.encode(): value
        for name, value in [(late, b"5"), (higher, b"2"), (before, b"first home 9"), (tie, b"new 5"), (alone, b"7")]
    }

    (step,) = admin.drain(topic_name, rehoming=RehomingTerms(slice_keys=2))

    assert step.done
    assert last_values(kafka, topic_name, 1) == {}
    # What a move tombstone precedes in another partition is about to go: that is a compactor's work.
    left = last_values(kafka, topic_name, 0)
    assert left == {**table, before.encode(): b"8"}, (names, left)
    with CompactedView(kafka.client_config(), topic_name) as view:
        assert dict(view.load().items()) == table
    with TopicCompactor(kafka.client_config(), topic_name) as compactor:
        compactor.run()
    assert last_values(kafka, topic_name, 0) == table
    assert admin.drain(topic_name, rehoming=RehomingTerms()) == []


def drain(kafka: KafkaUnderTest, topic: str, env: dict[str, str] | None = None, slice_keys: int = 1) -> int:
    """Re-home in a process of its own, so that it may be killed. Returns its exit status."""
    code = (
        "import json, sys; from keyorder import TopicAdmin; from keyorder.connector.topology.rehoming import RehomingTerms; "
        "TopicAdmin(json.loads(sys.argv[1])).drain(sys.argv[2], rehoming=RehomingTerms(slice_keys=int(sys.argv[3])))"
    )
    command = [sys.executable, "-c", code, json.dumps(kafka.client_config()), topic, str(slice_keys)]
    done = subprocess.run(command, env={**os.environ, **(env or {})}, check=False, stderr=subprocess.PIPE, text=True)
    print(done.stderr)  # shown where the test fails
    return done.returncode


@contextmanager
def writing(kafka: KafkaUnderTest, topic: str, names: list[str], table: Table) -> Iterator[None]:
    """Somebody who writes and deletes these keys all the time; `table` says what is left in the end."""
    done, failures = threading.Event(), []
    producer = OrderedProducer({**kafka.client_config(), "linger.ms": 1})

    def write() -> None:
        rng, number = Random(7), 0
        while not done.wait(0.002):
            name, number = rng.choice(names), number + 1
            value = None if rng.random() < 0.3 else f"{name} live {number}".encode()
            producer.produce(topic, value, name, on_delivery=lambda error, _: failures.append(error) if error else None)
            producer.poll(0)
            table.pop(name.encode(), None)
            if value is not None:
                table[name.encode()] = value

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        left = producer.flush(120)
        producer.close()
    assert (left, failures) == (0, [])


@pytest.mark.kip("C-22")
@pytest.mark.timeout(400)
def test_killed_at_every_step_it_goes_on_under_live_writers(kafka: KafkaUnderTest, topic_name: str) -> None:
    """4 -> 6 -> 4: after each kill the same call resumes; in the end a fresh group builds the table of a dumb model."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, config=COMPACTED)
    quiet = keys_of(admin, topic_name, 4, 6, 20) + keys_of(admin, topic_name, 5, 6, 10)
    live = quiet[::3] + keys_of(admin, topic_name, 1, 6, 5)
    table: Table = {}
    admin.expand(topic_name, 6)
    with OrderedProducer(kafka.client_config()) as producer:
        for i, name in enumerate(quiet):
            producer.produce(topic_name, f"{name} quiet", name)
            table[name.encode()] = f"{name} quiet".encode()
            if i % 5 == 1 and name not in live:
                producer.produce(topic_name, None, name)
                del table[name.encode()]
        assert producer.flush(120) == 0
    with writing(kafka, topic_name, live, table):
        admin.shrink(topic_name, 4, immediate=True)
        for step in REHOMING_STEPS:
            assert drain(kafka, topic_name, {"KEYORDER_CRASH_AT": step}, slice_keys=4) == -9, step
        assert drain(kafka, topic_name) == 0

    timeline = admin.timeline(topic_name)
    assert [(d.partition, d.emptied) for d in timeline.drains] == [(4, True), (5, True)]
    assert timeline.purged == {d.partition: d.upto for d in timeline.drains}
    assert last_values(kafka, topic_name, 4) == last_values(kafka, topic_name, 5) == {}
    homes = [last_values(kafka, topic_name, p) for p in range(4)]
    assert {key: value for home in homes for key, value in home.items()} == table
    assert rebuilt(kafka, topic_name, topic_name) == table


def test_a_growth_calls_it_off(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Killed in the middle, the partition comes into use again: what was not re-homed is read from it as ever."""
    admin, names, table = retire(kafka, topic_name)
    assert drain(kafka, topic_name, {"KEYORDER_CRASH_AT": "rehome-written"}, slice_keys=3) == -9
    assert drain(kafka, topic_name, {"KEYORDER_CRASH_AT": "prepare-written"}, slice_keys=3) == -9

    admin.expand(topic_name, 2)

    assert admin.drain(topic_name, rehoming=RehomingTerms()) == []
    assert admin.timeline(topic_name).purged == {}
    assert 0 < len(last_values(kafka, topic_name, 1)) < 8
    with OrderedProducer(kafka.client_config()) as producer:
        for name in names[::2]:
            producer.produce(topic_name, "after", name)
            table[name.encode()] = b"after"
        assert producer.flush(120) == 0
    assert rebuilt(kafka, topic_name, topic_name) == table


def test_a_growth_that_takes_over_ends_it_at_once(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Between two slices a growth fences the re-homing, which writes nothing more and says so."""
    admin, _, table = retire(kafka, topic_name)
    grown = []

    def grow(done: int, total: int) -> None:
        if not grown:
            grown.append(TopicAdmin(kafka.client_config()).expand(topic_name, 2))

    with pytest.raises(ControllerFencedError):
        admin.drain(topic_name, rehoming=RehomingTerms(slice_keys=3, progress=grow))

    assert grown[0].changed
    assert 0 < len(last_values(kafka, topic_name, 1)) < 8
    assert rebuilt(kafka, topic_name, topic_name) == table


def test_a_key_in_an_open_transaction_waits_for_its_end(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Committed it supersedes the value, aborted it does not; until then the value stays where it is."""
    admin, names, table = retire(kafka, topic_name)
    config = {**kafka.client_config(), "transaction.timeout.ms": 60_000}
    ends = {}
    for name, end in ((names[5], "commit"), (names[6], "abort")):
        writer = OrderedProducer({**config, "transactional.id": f"{topic_name}-{end}"})
        writer.init_transactions(10)
        writer.begin_transaction()
        writer.produce(topic_name, "in a transaction", name)
        writer.flush(120)
        ends[end] = writer

    (step,) = admin.drain(topic_name, rehoming=RehomingTerms())
    assert (step.done, step.what) == (False, "open transactions, in which 2 of its keys were written")
    assert not admin.timeline(topic_name).purged

    ends["commit"].commit_transaction(10)
    ends["abort"].abort_transaction(10)
    for writer in ends.values():
        writer.close()
    table[names[5].encode()] = b"in a transaction"
    (step,) = admin.drain(topic_name, rehoming=RehomingTerms())
    assert step.done
    assert last_values(kafka, topic_name, 0) == table
    assert rebuilt(kafka, topic_name, topic_name) == table


def test_a_foreign_writers_keys_stay(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What never belonged there is counted and left."""
    admin, _, _ = retire(kafka, topic_name)
    stranger = Producer(kafka.client_config())
    key = keys_of(admin, topic_name, 0, 2, 1)[0].encode()
    stranger.produce(topic_name, b"stray", key, 1)
    stranger.flush(120)
    (step,) = admin.drain(topic_name, rehoming=RehomingTerms())
    assert step.what.endswith("1 records of keys that never lived here stay")
    assert last_values(kafka, topic_name, 1) == {key: b"stray"}


def cli(kafka: KafkaUnderTest, *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command."""
    command = [sys.executable, "-m", "keyorder", *words, "--bootstrap-server", kafka.bootstrap_servers]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_command_asks_for_consent_where_the_cleaner_deletes_too(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Dry run, refusal, consent; without --rehome nothing is touched."""
    admin, _, table = retire(kafka, topic_name, {**COMPACTED, "cleanup.policy": "compact,delete"})
    words = ("topics", "drain", "--topic", topic_name, "--output", "json")
    code, out, _ = cli(kafka, *words, "--dry-run")
    assert code == 0
    (plan,) = json.loads(out)["rehoming"]
    assert (plan["partition"], plan["keys"]) == (1, 8)
    code, out, _ = cli(kafka, *words)
    assert (code, json.loads(out)["drained"][0]["done"]) == (0, False)
    code, out, _ = cli(kafka, *words, "--rehome")
    assert (code, json.loads(out)["error"]["type"]) == (3, "ConsentNeededError")
    message = json.loads(out)["error"]["message"]
    assert [part in message for part in ("older value", "keep the time", "--allow-delete-policy")] == [True] * 3
    assert len(last_values(kafka, topic_name, 1)) == 8

    job = DrainJob(kafka.client_config(), lambda: {topic_name: admin.timeline(topic_name)}, Claims())
    told = job.run()
    assert told is not None
    (waiting,) = told["steps"]  # type: ignore[misc]
    assert "--allow-delete-policy" in waiting["what"]  # type: ignore[index]
    assert job.run() is None, "a wait is told once"

    code, out, err = cli(kafka, *words, "--rehome", "--allow-delete-policy")

    assert (code, json.loads(out)["drained"][0]["done"]) == (0, True)
    assert "re-homed 8 of 8 keys" in err
    assert last_values(kafka, topic_name, 0) == table


@pytest.mark.timeout(300)
def test_a_group_that_was_there_all_the_time_keeps_its_order(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Two groups, one of them born late, read through growth, shrink and re-homing: the checker finds copies in place."""
    with Workload(kafka, tmp_path, topic_name, partitions=2, config=COMPACTED) as run:
        run.consumer("c1", "g")
        run.consumer("c2", "g")
        run.writer("w1", rate=400, keys=60, seed=1)
        assert run.resize(4) == 0
        run.writer("w2", rate=2_000, count=600, keys=200, seed=2).expect("finished")
        assert run.resize(2) == 0
        timeline = run.admin.timeline(topic_name)
        edit(kafka.client_config(), topic_name, lambda t: t.retired_by(Retirement(immediate=True)))
        steps = run.admin.drain(topic_name, rehoming=RehomingTerms(slice_keys=20))
        assert [step.done for step in steps] == [True, True]
        run.consumer("c3", "late")
        running = [w for w in run.workers if w.process.poll() is None]
        for worker in [w for w in running if w.actor.startswith("w")]:
            assert worker.stop()["left"] == 0
        # Nobody reads a partition of mode None above its cut: only tombstones are there.
        run.drain(below={drain.partition: drain.upto for drain in timeline.drains})
        for worker in [w for w in running if not w.actor.startswith("w")]:
            worker.stop()

        verdict = run.verdict()

        assert_in_order(verdict)
        assert len(run.copies) > 20


@pytest.mark.kip("C-22")
@pytest.mark.timeout(200)
def test_the_controller_s_job_re_homes_and_the_cleaner_then_empties(
    kafka_factory: Callable[..., KafkaUnderTest], topic_name: str
) -> None:
    """With a real cleaner at work: originals and tombstones are gone in the end, who comes late is given the copies."""
    kafka = kafka_factory(properties={"log.cleaner.backoff.ms": "200"})
    quick = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": "0"}
    admin, _, table = retire(kafka, topic_name, {**COMPACTED, **quick})
    job = DrainJob(kafka.client_config(), lambda: {topic_name: admin.timeline(topic_name)}, Claims())

    told = job.run()

    assert told is not None
    (step,) = told["steps"]  # type: ignore[misc]
    assert step["what"] == "8 values re-homed, 8 keys cleared"  # type: ignore[index]
    # A later record closes the segment; the cleaner leaves the active one alone. It belongs to nobody here.
    stranger = Producer(kafka.client_config())
    home = keys_of(admin, topic_name, 0, 2, 1)[0].encode()
    deadline = time.monotonic() + 100
    while any(m.key() != home for m in log(kafka, topic_name, 1)):
        assert time.monotonic() < deadline, [(m.offset(), m.key(), m.value()) for m in log(kafka, topic_name, 1)]
        stranger.produce(topic_name, None, home, 1)
        stranger.flush(120)
        time.sleep(0.3)  # the age at which a segment may close
    assert rebuilt(kafka, topic_name, topic_name, strays=True) == table
