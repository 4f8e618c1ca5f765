"""Consumers that are dropped, that assign by hand, whose positions were misjudged, that read foreign headers."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, Producer, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.consuming.records.reading import Intake
from keyorder.connector.consuming.view import ViewKeeper
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_that, group_config, read, send

BOTH = pytest.mark.parametrize("api", [confluent_kafka.Consumer, OrderedConsumer])


def filled(kafka: KafkaUnderTest, topic: str, records: int, partitions: int = 1) -> None:
    TopicAdmin(kafka.client_config()).create(topic, partitions, config=QUICK)
    send(kafka, topic, *((f"k{n}", f"{n}") for n in range(records)))


def test_a_consumer_that_is_dropped_is_freed_and_its_threads_end(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Without close(): nothing keeps it, no thread, no callback, and it does not wait for the garbage collector.

    Until it is freed the group takes it for a member, and nobody reads its partitions.
    """
    filled(kafka, topic_name, 3)
    before = set(threading.enumerate())
    heard = {name: lambda *_: None for name in ("on_commit", "error_cb", "stats_cb", "throttle_cb")}
    consumer = OrderedConsumer({**group_config(kafka, topic_name), **heard})
    consumer.subscribe([topic_name], on_assign=lambda *_: None)
    read(consumer, 3)
    threads = set(threading.enumerate()) - before
    freed = weakref.ref(consumer)
    gc.disable()
    try:
        del consumer
        assert freed() is None
    finally:
        gc.enable()
    admin = kafka.admin()
    assert admin.describe_consumer_groups([topic_name], request_timeout=60)[topic_name].result(120).members == []
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), thread.name


COLUMNS = """
import gc, json, sys
from keyorder import OrderedConsumer
consumer = OrderedConsumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
rows = 0
while rows < 300:
    rows += consumer.consume_arrow(100, 1.0).num_rows
print("read", flush=True)
if sys.argv[3] == "dropped":
    consumer.itself = consumer
    del consumer
    gc.collect()
    print("collected", flush=True)
elif sys.argv[3] == "in a circle":
    consumer.itself = consumer
    gc.disable()
    del consumer
"""


@pytest.mark.parametrize("how", ["dropped", "in a circle", "open"])
def test_a_program_that_reads_columns_ends_without_close(kafka: KafkaUnderTest, topic_name: str, how: str) -> None:
    """Nor does it wait where it drops the consumer: what is held of the client library would keep the client for ever."""
    filled(kafka, topic_name, 300, partitions=2)
    config = json.dumps(group_config(kafka, topic_name))
    done = subprocess.run(
        [sys.executable, "-c", COLUMNS, config, topic_name, how], capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == ("collected" if how == "dropped" else "read")


FORKED = """
import gc, json, os, signal, sys
from keyorder import OrderedConsumer

gc.disable()
consumer = OrderedConsumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while consumer.poll(0.5) is None:
    pass
consumer.itself = consumer
del consumer
child = os.fork()
if child == 0:
    signal.alarm(20)
    gc.enable()
    gc.collect()
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
"""


def test_a_forked_child_frees_no_client_of_its_parent(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its threads are not there: the child that collects what its parent has dropped would wait for them, or crash."""
    filled(kafka, topic_name, 1)
    done = subprocess.run(
        [sys.executable, "-c", FORKED, json.dumps(group_config(kafka, topic_name)), topic_name],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["0"]), done.stderr


DROPPED = """
import gc, json, sys, time
from confluent_kafka import KafkaError
from keyorder import OrderedConsumer

def run():
    consumer = OrderedConsumer(json.loads(sys.argv[1]))
    consumer.subscribe([sys.argv[2]])
    while consumer.poll(0.5) is None:
        pass
    time.sleep(7)
    while (message := consumer.poll(0.5)) is None or message.error() is None:
        pass
    print(message.error().name(), flush=True)

gc.disable()
run()
gc.collect()
print("collected", flush=True)
"""


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_a_member_that_was_expelled_and_is_dropped_holds_nobody_up(
    kafka: KafkaUnderTest, topic_name: str, protocol: str
) -> None:
    """Right after it was told, without close(): the garbage collector goes on, and the program ends."""
    filled(kafka, topic_name, 1)
    more: dict[str, object] = {"group_protocol": protocol}
    if protocol != "consumer":
        more = {"partition_assignment_strategy": protocol, "session_timeout_ms": 6_000}
    config = json.dumps(group_config(kafka, topic_name, max_poll_interval_ms=6_000, **more))
    done = subprocess.run(
        [sys.executable, "-c", DROPPED, config, topic_name],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["_MAX_POLL_EXCEEDED", "collected"]


@BOTH
def test_what_was_assigned_by_hand_is_committed_at_the_end(kafka: KafkaUnderTest, topic_name: str, api: Any) -> None:
    """close() commits what was read where automatic commits are on, as it does for a member of the group."""
    filled(kafka, topic_name, 10)
    consumer = api(group_config(kafka, topic_name))
    consumer.assign([TopicPartition(topic_name, 0, OFFSET_BEGINNING)])
    read(consumer, 10)
    consumer.close()
    with OrderedConsumer(group_config(kafka, topic_name)) as check:
        assert check.committed([TopicPartition(topic_name, 0)], 120)[0].offset == 10


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
@BOTH
def test_a_member_that_was_expelled_closes_without_an_error(
    kafka: KafkaUnderTest, topic_name: str, api: Any, protocol: str
) -> None:
    """It has not polled for too long and another member has its partition: nothing is left to be committed."""
    filled(kafka, topic_name, 40)
    more: dict[str, object] = {"group_protocol": protocol}
    if protocol != "consumer":
        more = {"partition_assignment_strategy": protocol, "session_timeout_ms": 6_000}
    config = group_config(kafka, topic_name, max_poll_interval_ms=6_000, **more)
    slow, other = api(config), api(config)
    slow.subscribe([topic_name])
    read(slow, 3)
    other.subscribe([topic_name])
    while not other.assignment():
        other.poll(0.2)
    slow.close()
    other.close()


@BOTH
def test_one_of_two_that_were_assigned_by_hand_goes(kafka: KafkaUnderTest, topic_name: str, api: Any) -> None:
    """incremental_unassign() of one: the other one is read on, where it was."""
    filled(kafka, topic_name, 100, partitions=2)
    ends = {}
    with OrderedConsumer(group_config(kafka, topic_name)) as check:
        for p in (0, 1):
            marks = check.get_watermark_offsets(TopicPartition(topic_name, p), 120)
            assert marks is not None
            ends[p] = marks[1]
    consumer = api(group_config(kafka, topic_name))
    places = [TopicPartition(topic_name, p, OFFSET_BEGINNING) for p in (0, 1)]
    if api is OrderedConsumer:
        consumer.assign(places)
    else:
        consumer.incremental_assign(places)
    first = read(consumer, 1)
    consumer.incremental_unassign([TopicPartition(topic_name, 0)])
    seen = [m.offset() for m in first if m.partition() == 1]
    deadline = time.monotonic() + 120
    while len(seen) < ends[1]:
        assert time.monotonic() < deadline, seen
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and message.partition() == 1:
            seen.append(message.offset())
    assert seen == list(range(ends[1]))
    consumer.close()


def test_a_position_that_was_called_out_of_range_and_is_not_is_read_on(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The log's end lay elsewhere when the fetch was answered; the library has stopped the partition all the same."""
    filled(kafka, topic_name, 20)
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        read(consumer, 5)
        assert consumer.position([TopicPartition(topic_name, 0)])[0].offset == 5
        owned = consumer._members.owned[topic_name, 0]
        out = consumer._delivery.out
        consumer._raw.unassign()
        out.drop_all()
        owned.begin_again()
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range")
        out.waiting.append(Message(topic=topic_name, partition=0, offset=5, error=error))
        assert [m.offset() for m in read(consumer, 15)] == list(range(5, 20))


def test_an_eager_assignment_replaces_what_was_assigned_before(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Even if nothing was said to be revoked: what is not in it is lost, and the application is told."""
    filled(kafka, topic_name, 40, partitions=3)
    lost: list[int] = []
    config = group_config(kafka, topic_name, partition_assignment_strategy="range")
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name], on_lost=lambda _, partitions: lost.extend(p.partition for p in partitions))
        read(consumer, 40)
        consumer._members.assigned(consumer._raw, [TopicPartition(topic_name, 2)])
        assert sorted(lost) == [0, 1, 2]
        assert [p.partition for p in consumer.assignment()] == [2]


def test_foreign_hint_headers_cost_a_look_now_and_then(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records whose header names an epoch that there is not: not one look at the control topic for each batch of 500."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    producer = Producer(kafka.client_config())
    for _ in range(30_000):
        while True:
            try:
                producer.produce(topic_name, b"v", b"k", headers={"keyorder-epoch": b"77"})
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    looks = [0]
    whole = ViewKeeper.await_epoch

    def counted(*arguments: Any) -> bool:
        looks[0] += 1
        return whole(*arguments)

    monkeypatch.setattr(ViewKeeper, "await_epoch", counted)
    monkeypatch.setattr(Intake, "_hints", lambda *_: True)  # as if they were no backlog
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        await_that(consumer, lambda: consumer._delivery.out.run is not None)
        first = consumer.position([TopicPartition(topic_name, 0)])[0].offset
        assert len(read(consumer, 30_000 - first, timeout=90)) == 30_000 - first
    assert looks[0] < 30
