"""The job that empties retired partitions, on a real broker."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.log_offsets import LogOffsets
from keyorder.connector.topology.claims import Claims
from keyorder.connector.topology.drain_job import DrainJob
from keyorder.connector.topology.draining import Drainer
from keyorder.connector.topology.supervised import SupervisedCluster
from keyorder.partitioner.modes import Mode
from support.cluster import KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "200"}


def test_it_is_due_from_time_to_time(kafka: KafkaUnderTest) -> None:
    """The first time at once, then after its pause."""
    job = DrainJob(kafka.client_config(), dict, Claims(), every=10)

    assert [now for now in (0.0, 5.0, 9.9, 10.0, 19.0, 20.0) if job.due(now)] == [0.0, 10.0, 20.0]


@pytest.mark.kip("K253-03", "K253-34", "K694-01", "K694-03", "K694-20", "K694-22")
def test_a_retired_partition_is_emptied_once_it_may_be(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A wait is told once; a topic that is being changed here is left alone; what is done is told and not done again."""
    config = {**QUICK, "delete.topic.partition.enable": "true", "delete.topic.partition.interval.delay.ms": "1"}
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, config=config, initial_partition_count=2)
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(80):
            producer.produce(topic_name, b"v", f"key {number}")
        assert producer.flush(120) == 0
    admin.shrink(topic_name, 2, wait_for_groups=[f"nobody-{topic_name}"])
    cluster = SupervisedCluster(kafka.client_config())

    def mine() -> dict[str, object]:
        return {topic_name: cluster.timelines()[topic_name]}

    claims = Claims()
    claims.take(topic_name)
    job = DrainJob(kafka.client_config(), mine, claims)  # type: ignore[arg-type]
    assert job.run() is None
    claims.give_back(topic_name)
    waiting = job.run()
    assert waiting is not None
    assert [(step["partition"], step["done"]) for step in waiting["steps"]] == [(2, False), (3, False)]  # type: ignore
    assert job.run() is None

    admin.expand(topic_name, 4)
    admin.shrink(topic_name, 2, immediate=True)
    emptied = job.run()
    assert emptied is not None
    assert [(step["partition"], step["done"]) for step in emptied["steps"]] == [(2, True), (3, True)]  # type: ignore
    assert job.run() is None
    cluster.close()
    offsets = LogOffsets(kafka.client_config())
    places = [(topic_name, p) for p in range(4)]
    starts, ends = offsets.earliest(places), offsets.high_watermarks(places)
    offsets.close()
    assert all(starts[topic_name, p] == ends[topic_name, p] > 0 for p in (2, 3))
    assert all(starts[topic_name, p] == 0 < ends[topic_name, p] for p in (0, 1))


def retired(kafka: KafkaUnderTest, topic: str, settings: dict[str, str], **wishes: Any) -> TopicAdmin:
    """2 -> 1 with records in the retired partition."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic, 2, config={**QUICK, **settings}, initial_partition_count=1)
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(40):
            producer.produce(topic, b"v", f"key {number}")
        assert producer.flush(120) == 0
    admin.shrink(topic, 1, **wishes)
    return admin


@pytest.mark.kip("K694-04", "K694-20")
def test_a_topic_is_looked_at_at_its_interval(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What may be emptied since the last look waits for the next one, an interval later, by the job's own clock."""
    config = {"delete.topic.partition.enable": "true", "delete.topic.partition.interval.delay.ms": "3600000"}
    group = f"reader-{topic_name}"
    admin = retired(kafka, topic_name, config, delay_ms=0, wait_for_groups=[group])
    now = [1000.0]
    job = DrainJob(
        kafka.client_config(), lambda: {topic_name: admin.timeline(topic_name)}, Claims(), now=lambda: now[0]
    )
    (waiting,) = (job.run() or {})["steps"]  # type: ignore[misc]
    assert (waiting["done"], waiting["what"][: len("group reader")]) == (False, "group reader")
    with OrderedConsumer({**kafka.client_config(), "group.id": group, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic_name])
        assert len(consumer.consume(40, 60)) == 40

    now[0] += 3_599
    assert job.run() is None
    assert [drain.emptied for drain in admin.timeline(topic_name).drains] == [False]
    now[0] += 1
    (emptied,) = (job.run() or {})["steps"]  # type: ignore[misc]
    assert (emptied["done"], emptied["state"]) == (True, "purged")


@pytest.mark.kip("K694-20", "K694-16")
def test_a_delay_goes_on_over_a_restart(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A controller that begins when it is over empties at its first look; one that begins before waits for what is left."""
    delay_ms = 2_000
    admin = retired(kafka, topic_name, {"delete.topic.partition.enable": "true"}, delay_ms=delay_ms)
    committed_at_ms = admin.timeline(topic_name).newest.committed_at_ms
    pause = threading.Event()
    while clock.wall_ms() < committed_at_ms + delay_ms:
        pause.wait(0.05)

    (step,) = admin.drain(topic_name, Drainer(kafka.client_config()))

    assert (step.done, step.state.value) == (True, "purged")


@pytest.mark.kip("K253-03", "K253-34")
def test_a_partition_that_retention_has_emptied_counts_as_emptied(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The switch is off, so nobody empties it; when its log start has reached the cut there is nothing left to empty."""
    admin = retired(kafka, topic_name, {})
    (waiting,) = admin.drain(topic_name)
    assert (waiting.done, waiting.what) == (False, "delete.topic.partition.enable is false")
    (drain,) = admin.timeline(topic_name).drains
    client = kafka.admin()
    place = TopicPartition(topic_name, drain.partition, drain.upto)
    client.delete_records([place])[place].result(120)

    (step,) = admin.drain(topic_name)

    assert (step.done, step.state.value) == (True, "purged")
    (drain,) = admin.timeline(topic_name).drains
    assert (drain.emptied, drain.mode) == (True, Mode.NONE)
    assert admin.drain(topic_name) == []
