"""Shrinking, retiring and using partitions again, under load on real brokers."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.crash import CONTROLLER_STEPS
from keyorder.connector.doctor.examine import examine
from keyorder.connector.doctor.findings import Status
from keyorder.connector.log_offsets import LogOffsets
from keyorder.partitioner.errors import CountError, PartitionRefusedError
from keyorder.partitioner.modes import Mode
from support.cluster import KafkaUnderTest
from support.groups import read
from support.workload import Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "300"}
SWITCHED_ON = {"delete.topic.partition.enable": "true"}


@pytest.mark.kip("K253-01", "K253-02", "K253-33", "K253-35", "K253-59", "K253-67", "K694-02")
def test_shrinks_to_the_initial_count_and_grows_again_under_load(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """2 -> 6 -> 3 -> 5 -> 2 -> 4: retired partitions are drained in order, and used again while others still drain."""
    with Workload(kafka, tmp_path, topic_name, partitions=2, config=QUICK) as run:
        run.consumer("c1", "g", work_s=0.0005)
        run.consumer("c2", "g", work_s=0.0005)
        run.writer("w1", rate=700, shared_keys=["hot"], seed=1)
        run.writer("w2", rate=700, shared_keys=["hot"], seed=2)
        for count in (6, 3, 5, 2, 4):
            assert run.resize(count) == 0
            assert run.count() == count

        verdict = run.finish()

        assert_in_order(verdict)
        assert verdict.keys_moved > 100


@pytest.mark.nightly
@pytest.mark.kip("K253-29")
@pytest.mark.kafka
@pytest.mark.timeout(1_800)
def test_a_random_chain_of_changes_with_kills(request: pytest.FixtureRequest, topic_name: str, tmp_path: Path) -> None:
    """Changes between 1 and 64 partitions, the controller killed at a named step of each, end in order.

    KEYORDER_CHAIN sets how many (10 by default), KEYORDER_SEED which, KEYORDER_BROKERS=3 runs it on three brokers.
    """
    brokers = int(os.environ.get("KEYORDER_BROKERS", "1"))
    kafka: KafkaUnderTest = request.getfixturevalue("kafka3" if brokers == 3 else "kafka")
    config = {**QUICK, "min.insync.replicas": "2" if brokers == 3 else "1"}
    rng = random.Random(int(os.environ.get("KEYORDER_SEED", "7")))
    changes = int(os.environ.get("KEYORDER_CHAIN", "10"))
    steps = [step for step in CONTROLLER_STEPS if step != "abort-sent"]
    with Workload(kafka, tmp_path, topic_name, partitions=1, config=config, replication_factor=brokers) as run:
        run.consumer("c1", "g")
        run.consumer("c2", "g")
        run.writer("w1", rate=300, keys=150, seed=1)
        run.writer("w2", rate=300, keys=150, seed=2)
        counts = [64, 1]
        while len(counts) < changes:
            counts.append(rng.choice([n for n in range(1, 65) if n != counts[-1]]))
        for number, count in enumerate(counts):
            step = steps[number % len(steps)]
            assert run.resize(count, env={**os.environ, "KEYORDER_CRASH_AT": step}) == -9, step
            assert run.resize(count) == 0
            assert run.count() == count

        assert_in_order(run.finish())


@pytest.mark.kip("K253-01", "K253-35")
def test_a_backlog_across_growth_and_shrink_is_read_in_order(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """A group that was away reads 1 -> 2 -> 4 -> 1 -> 3 in order, also through partitions without a record of a key."""
    with Workload(kafka, tmp_path, topic_name, partitions=1, config=QUICK) as run:
        for number, count in enumerate((2, 4, 1, 3)):
            run.writer(f"w{number}", rate=20_000, count=3_000, keys=100, linger=True).expect("finished")
            assert run.resize(count) == 0
        run.writer("w9", rate=20_000, count=3_000, keys=100, linger=True).expect("finished")
        run.consumer("c1", "g", batch=500)
        run.consumer("c2", "g", batch=500)
        run.drain()

        verdict = run.verdict(quiesced=False)

        assert_in_order(verdict)
        assert verdict.records == 15_000


@pytest.mark.kip(
    "K253-09", "K253-31", "K694-05", "K253-39", "K253-56", "K694-08", "K694-11", "K694-12", "K694-13", "K694-21"
)
def test_limits_modes_and_reports(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Not below the initial count, not upwards; retired partitions are ReadOnly and no longer written."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, initial_partition_count=2, config=QUICK)
    with pytest.raises(CountError, match="initial"):
        admin.shrink(topic_name, 1)
    with pytest.raises(CountError, match="expand"):
        admin.shrink(topic_name, 5)

    change = admin.shrink(topic_name, 2)

    assert (change.before, change.after, change.changed) == (4, 2, True)
    assert not admin.shrink(topic_name, 2).changed
    description = admin.describe(topic_name)
    assert (description.layout.count, description.partitions) == (2, 4)
    assert [(d.partition, d.mode) for d in description.retired] == [(2, Mode.READ_ONLY), (3, Mode.READ_ONLY)]

    placed = []
    config = {**kafka.client_config(), "keyorder.allow.explicit.partition": True}
    with OrderedProducer(config) as producer:
        with pytest.raises(PartitionRefusedError, match="retired"):
            producer.produce(topic_name, b"v", None, 3)
        for _ in range(50):
            producer.produce(topic_name, b"v", on_delivery=lambda error, message: placed.append(message.partition()))
        assert producer.flush(120) == 0
    assert set(placed) <= {0, 1}


@pytest.mark.kip("K694-14")
def test_unkeyed_records_of_a_retired_partition_are_still_read(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What lies in a partition when it is retired reaches the group."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, initial_partition_count=1, config=QUICK)
    config = {**kafka.client_config(), "keyorder.allow.explicit.partition": True}
    with OrderedProducer(config) as producer:
        for partition in range(4):
            producer.produce(topic_name, str(partition), partition=partition)
        assert producer.flush(120) == 0
    admin.shrink(topic_name, 1)
    group = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        values = {m.value() for m in read(consumer, 4)}
    assert values == {b"0", b"1", b"2", b"3"}


@pytest.mark.kip("K253-03", "K253-34", "K694-01", "K694-14", "K694-21", "K694-22")
def test_a_retired_partition_is_emptied_exactly_to_its_cut(kafka: KafkaUnderTest, topic_name: str) -> None:
    """ReadOnly until the named group has read it, then None, then empty up to the cut and no further; then used again."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, initial_partition_count=1, config={**QUICK, **SWITCHED_ON})
    explicit = {**kafka.client_config(), "keyorder.allow.explicit.partition": True}
    with OrderedProducer(explicit) as producer:
        for i in range(10):
            producer.produce(topic_name, str(i), partition=1)
        assert producer.flush(120) == 0
    admin.shrink(topic_name, 1, immediate=True, wait_for_groups=["reader"])
    stock = Producer(kafka.client_config())  # it knows of no cut: what it writes lies above
    stock.produce(topic_name, b"above", partition=1)
    assert stock.flush(120) == 0

    (waiting,) = admin.drain(topic_name)
    assert (waiting.done, waiting.what) == (False, "group reader to reach 10")
    assert admin.describe(topic_name).retired[0].mode is Mode.READ_ONLY

    group = {**kafka.client_config(), "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        assert len(consumer.consume(10, 30)) == 10
    (emptied,) = admin.drain(topic_name)
    assert emptied.done
    (retired,) = admin.describe(topic_name).retired
    assert (retired.mode, retired.emptied, retired.upto) == (Mode.NONE, True, 10)
    assert admin.drain(topic_name) == []
    with closing(LogOffsets(kafka.client_config())) as offsets:
        place = (topic_name, 1)
        assert (offsets.earliest([place]), offsets.high_watermarks([place])) == ({place: 10}, {place: 11})
    found = [f for f in examine(kafka.client_config(), (topic_name,), 100, 20.0) if f.check == "retired"]
    assert [(f.about, f.status, "1 offsets lie above its cut 10" in f.text) for f in found] == [
        (f"{topic_name}[1]", Status.WARN, True)
    ]

    admin.expand(topic_name, 2)
    description = admin.describe(topic_name)
    assert description.retired == ()
    assert description.epochs[-1].begins == {1: 11}
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(40):
            producer.produce(topic_name, b"again", f"k{i}")
        assert producer.flush(120) == 0
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        messages = consumer.consume(41, 30)
    assert {m.value() for m in messages} == {b"above", b"again"}
    assert {m.partition() for m in messages} == {0, 1}


def test_a_group_that_was_not_waited_for_goes_on_behind_the_emptied_partition(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """It loses what was deleted, as the plan says, but its gates open and later records arrive."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, initial_partition_count=1, config={**QUICK, **SWITCHED_ON})
    group = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest", "log_level": 0}
    with OrderedConsumer(group) as consumer:  # the group is born before there is anything to read
        consumer.subscribe([topic_name])
        assert consumer.consume(1, 3) == []
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(40):
            producer.produce(topic_name, b"before", f"k{i}")
        assert producer.flush(120) == 0
        admin.shrink(topic_name, 1, immediate=True)
        assert [step.done for step in admin.drain(topic_name)] == [True]
        for i in range(40):
            producer.produce(topic_name, b"after", f"k{i}")
        assert producer.flush(120) == 0

    seen = []
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        while sum(1 for value in seen if value == b"after") < 40:
            messages = consumer.consume(100, 5)
            assert messages, consumer.gates()
            seen += [m.value() for m in messages]
    assert 0 < seen.count(b"before") < 40
