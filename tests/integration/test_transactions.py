"""Exactly once through transactions, while the topic that is read grows and shrinks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.verify.events import decode_value, encode_value
from keyorder.partitioner.errors import ConfigError
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_that, group_config, moving_key, read, send
from support.workload import Workload


def committed(kafka: KafkaUnderTest, topic: str) -> dict[str, list[int]]:
    """{key: sequence numbers in the order of the log}, as a read_committed reader sees them.

    A transaction that its process left open hides what lies behind it until the broker aborts it, so an end counts only
    where the log ends for readers of everything.
    """
    config = {**kafka.client_config(), "group.id": "log", "enable.partition.eof": True}
    consumer = Consumer(config)
    partitions = [
        TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, timeout=120).topics[topic].partitions
    ]
    with Consumer({**config, "isolation.level": "read_uncommitted"}) as everything:
        log_ends = {each.partition: everything.get_watermark_offsets(each, 120)[1] for each in partitions}
    consumer.assign(partitions)
    found: dict[str, list[int]] = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(1000, 0.2):
            partition, error = message.partition() or 0, message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                if (message.offset() or 0) >= log_ends[partition]:
                    ended.add(partition)
            else:
                value = decode_value(message.value() or b"")
                assert value is not None
                found[(message.key() or b"").decode()].append(value.seq)
    consumer.close()
    return found


class AbortingWriter(threading.Thread):
    """Writes transactions of a few keys, and aborts every third; numbers count what was committed."""

    def __init__(self, run: Workload) -> None:
        super().__init__(daemon=True)
        self.run_, self.stop_, self.failure = run, threading.Event(), None
        self.seqs = {f"t-{i}": 0 for i in range(20)}

    def run(self) -> None:
        config = {**self.run_.kafka.client_config(), "transactional.id": f"t-{self.run_.run}", "log_level": 0}
        with OrderedProducer(config) as producer:
            producer.init_transactions(20)
            number = 0
            while not self.stop_.wait(0.02):  # the pace of the load
                number += 1
                producer.begin_transaction()
                for key, seq in self.seqs.items():
                    value = encode_value(self.run_.run, "t", key, seq + 1)
                    producer.produce(self.run_.topic, value, key)
                if number % 3 == 0:
                    producer.flush(120)
                    producer.abort_transaction(20)
                else:
                    producer.commit_transaction(20)
                    self.seqs = {key: seq + 1 for key, seq in self.seqs.items()}
            producer.begin_transaction()
            producer.produce(self.run_.topic, b"aborted tail", "t-0")
            producer.flush(120)
            producer.abort_transaction(20)


@pytest.mark.kip("C-10", "K253-01")
def test_exactly_once_across_a_growth_and_a_shrink(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Two transformers, one killed and replaced; writers with aborted transactions. Each number once, in order."""
    out = f"{topic_name}-out"
    TopicAdmin(kafka.client_config()).create(out, 2)
    with Workload(kafka, tmp_path, topic_name, partitions=2, config=QUICK) as run:
        plain = run.writer("w1", rate=300, keys=40)
        aborting = AbortingWriter(run)
        aborting.start()
        first = run.transformer("e1", "eos", out)
        run.transformer("e2", "eos", out)
        plain.expect_progress(run)
        assert run.expand(4) == 0
        run.kill(first)
        run.transformer("e3", "eos", out)
        assert run.shrink(3) == 0
        aborting.stop_.set()
        aborting.join(120)
        assert not aborting.is_alive()
        facts = plain.stop()
        assert facts["left"] == 0
        ends: dict[int, int] = {}  # of what can be seen: a transformer commits with the next batch that it sees
        for partition, offset, *_ in run.log():
            ends[partition] = offset + 1
        run.drain(120, below=ends)
        for worker in [w for w in run.workers if w.actor in ("e2", "e3")]:
            worker.stop()

        sent = committed(kafka, topic_name)
        moved = committed(kafka, out)

    assert {k: v[-1] for k, v in moved.items() if k.startswith("t-")} == aborting.seqs
    wrong = {key: seqs for key, seqs in moved.items() if seqs != list(range(1, len(sent[key]) + 1))}
    assert wrong == {}
    assert moved.keys() == sent.keys()


@pytest.mark.kip("C-10")
def test_markers_behind_the_last_record_open_the_gate(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The cut counts the marker of an aborted transaction, which no offset of the application does."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    with OrderedProducer({**kafka.client_config(), "transactional.id": topic_name}) as writer:
        writer.init_transactions(20)
        for end in (writer.commit_transaction, writer.abort_transaction):
            writer.begin_transaction()
            writer.produce(topic_name, "old", key)
            writer.flush(120)
            end(20)
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new"))
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.subscribe([topic_name])
    (old,) = read(consumer, 1)

    with OrderedProducer({**kafka.client_config(), "transactional.id": f"{topic_name}-2"}) as producer:
        producer.init_transactions(20)
        producer.begin_transaction()
        place = TopicPartition(topic_name, 0, (old.offset() or 0) + 1)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 20)
        assert consumer.poll(0.5) is None  # pending is not committed
        producer.abort_transaction(20)
        assert consumer.poll(0.5) is None
        assert consumer.gates()
        producer.begin_transaction()
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(20)

        assert [m.value() for m in read(consumer, 1)] == [b"new"]
    consumer.close()
    with Consumer(group_config(kafka, topic_name)) as stock:
        (found,) = stock.committed([TopicPartition(topic_name, 0)], 120)
    assert (found.offset, found.metadata) == (4, "ko1:1")


@pytest.mark.kip("C-10")
def test_a_producer_is_made_anew_after_an_unknown_result(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The old one is closed with its transaction open; the new one's start decides it, and the consumer learns it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("k", "v"))
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.subscribe([topic_name])
    read(consumer, 1)
    config = {**kafka.client_config(), "transactional.id": topic_name}
    place = TopicPartition(topic_name, 0, 1)
    lost = OrderedProducer(config)
    lost.init_transactions(20)
    lost.begin_transaction()
    lost.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 20)
    newer = OrderedProducer(config)
    newer.init_transactions(20)  # fences the other one and ends what it left
    with pytest.raises(KafkaException) as fenced:
        lost.commit_transaction(20)
    assert fenced.value.args[0].fatal()
    assert lost.close() is True

    await_that(consumer, lambda: not consumer._commits.transactions.unknown)
    assert consumer.committed([place], 120)[0].offset == 0
    newer.begin_transaction()
    newer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 20)
    newer.commit_transaction(20)
    assert consumer.committed([place], 120)[0].offset == 1
    newer.close()
    consumer.close()


FROZEN = """
import json, sys
from confluent_kafka import KafkaException
from keyorder import OrderedProducer

config, topic, key = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
first = OrderedProducer(config)
first.init_transactions(20)
first.begin_transaction()
first.produce(topic, "stale", key)
first.flush(120)
print("open", flush=True)
sys.stdin.readline()
try:
    first.commit_transaction(20)
    print("committed", flush=True)
except KafkaException as error:
    print("fatal" if error.args[0].fatal() else str(error), flush=True)
first.close()
second = OrderedProducer(config)
second.init_transactions(20)
second.begin_transaction()
second.produce(topic, "again", key)
second.commit_transaction(20)
second.close()
"""


@pytest.mark.kip("C-20")
def test_a_transactional_writer_that_outlives_its_lease_is_fenced(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Frozen with a record of a moving key in an open transaction: the change fences it, and the record never was."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    config = {
        **kafka.client_config(), "transactional.id": topic_name, "log_level": 0, "delivery.timeout.ms": 3_000,
        "keyorder.lease.ms": 6_000, "keyorder.lease.renew.interval.ms": 1_000, "keyorder.lease.margin.ms": 500,
    }  # fmt: skip
    words = [sys.executable, "-c", FROZEN, json.dumps(config), topic_name, key]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as frozen:
        try:
            assert frozen.stdout is not None
            assert frozen.stdin is not None
            assert frozen.stdout.readline() == "open\n"
            frozen.send_signal(signal.SIGSTOP)
            change = admin.expand(topic_name, 2)
            assert any(step.name.startswith("expelled ") for step in change.steps), change.steps
            send(kafka, topic_name, (key, "new"))
            frozen.send_signal(signal.SIGCONT)
            frozen.stdin.write("go on\n")
            frozen.stdin.flush()
            assert frozen.stdout.readline() == "fatal\n"
            assert frozen.wait(120) == 0
        finally:
            frozen.kill()

    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        assert [(m.partition(), m.value()) for m in read(consumer, 2)] == [(1, b"new"), (1, b"again")]
        assert consumer.poll(0.5) is None


def test_a_consumer_that_commits_by_itself_is_refused(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its own commits would stand beside the transaction's, and win."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with (
        OrderedConsumer(group_config(kafka, topic_name)) as consumer,
        OrderedProducer({**kafka.client_config(), "transactional.id": topic_name}) as producer,
    ):
        producer.init_transactions(20)
        producer.begin_transaction()
        place = TopicPartition(topic_name, 0, 0)
        with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 20)
        producer.abort_transaction(20)
