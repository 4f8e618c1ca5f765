"""The job that empties retired partitions, on a real broker."""

from __future__ import annotations

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.log_offsets import LogOffsets
from keyorder.connector.topology.drain_job import DrainJob
from keyorder.connector.topology.supervised import SupervisedCluster
from support.cluster import KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "200"}


def test_it_is_due_from_time_to_time(kafka: KafkaUnderTest) -> None:
    """The first time at once, then after its pause."""
    job = DrainJob(kafka.client_config(), dict, tuple, every=10)

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
        assert producer.flush(30) == 0
    admin.shrink(topic_name, 2, wait_for_groups=[f"nobody-{topic_name}"])
    cluster = SupervisedCluster(kafka.client_config())

    def mine() -> dict[str, object]:
        return {topic_name: cluster.timelines()[topic_name]}

    busy = [topic_name]
    job = DrainJob(kafka.client_config(), mine, lambda: busy)  # type: ignore[arg-type]
    assert job.run() is None
    busy.clear()
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
