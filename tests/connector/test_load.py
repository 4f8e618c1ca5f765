"""Rates out of samples, and the samples out of a real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.topology.load import LoadMeter, Sample, load_between
from keyorder.partitioner.changes.scaling_policy import GroupLag
from support.cluster import KafkaUnderTest


def test_rates_are_differences_over_time() -> None:
    """Records by watermarks, bytes by the newest sizes, for active partitions alone."""
    before = Sample(10.0, 2, {0: 100, 1: 0, 2: 7}, sizes={})
    after = Sample(14.0, 2, {0: 500, 1: 20, 2: 7}, sizes={0: 50.0, 1: 10.0})

    load = load_between(before, after)

    assert load is not None
    assert load.records == {0: 100.0, 1: 5.0}
    assert load.bytes == {0: 5_000.0, 1: 50.0}


def test_bytes_that_were_not_read_are_unknown_not_nothing() -> None:
    """Without sizes there is no rate of bytes."""
    load = load_between(Sample(0.0, 1, {0: 0}), Sample(1.0, 1, {0: 9}))

    assert load is not None
    assert load.bytes is None


def test_lag_counts_retired_partitions_too() -> None:
    """A group is behind by all that it has not committed; a partition that was set back consumes nothing."""
    before = Sample(0.0, 1, {0: 90, 1: 10}, {"g": {0: 40, 1: 9}})
    after = Sample(2.0, 1, {0: 100, 1: 10}, {"g": {0: 70, 1: 4}})

    load = load_between(before, after)

    assert load is not None
    assert load.groups == {"g": GroupLag(36, 15.0)}


@pytest.mark.parametrize(
    "after",
    [
        Sample(0.0, 2, {0: 9, 1: 9}),
        Sample(5.0, 3, {0: 9, 1: 9, 2: 0}),
        Sample(5.0, 2, {0: 9, 1: 4}),
        Sample(5.0, 2, {}),
    ],
)
def test_what_cannot_be_compared_gives_no_rate(after: Sample) -> None:
    """No time between, another layout, or logs that are shorter than they were."""
    assert load_between(Sample(0.0, 2, {0: 5, 1: 5}), after) is None


def test_a_partition_that_is_new_has_no_rate_yet() -> None:
    """It is left out, so that the decision waits for the next sample."""
    load = load_between(Sample(0.0, 2, {0: 5}), Sample(1.0, 2, {0: 6, 1: 3}))

    assert load is not None
    assert load.records == {0: 1.0}


def test_a_broker_is_measured(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Two samples around some records: their rate and size, and the lag of a group that has committed a part."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    group = f"group-of-{topic_name}"
    meter = LoadMeter(kafka.client_config())
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(60):
            producer.produce(topic_name, b"v" * 94, f"key {number:02}")
        assert producer.flush(120) == 0
        assert meter.measure(topic_name, 2, 2, 0.2, [group], sizes=True) is None
        assert meter.measure(topic_name, 2, 2, 60.0, [group], sizes=True) is None
        for number in range(40):
            producer.produce(topic_name, b"v" * 94, f"key {number:02}")
        assert producer.flush(120) == 0
    client = Consumer({**kafka.client_config(), "group.id": group})
    client.commit(offsets=[TopicPartition(topic_name, 0, 5)], asynchronous=False)
    client.close()
    time.sleep(0.25)

    load = meter.measure(topic_name, 2, 2, 0.2, [group], sizes=True)
    meter.close()

    assert load is not None
    assert load.bytes is not None
    assert set(load.records) == {0, 1}
    assert all(rate > 0 for rate in load.records.values())
    assert load.bytes == {p: pytest.approx(rate * 100) for p, rate in load.records.items()}
    assert load.groups[group].records == 95
    assert load.groups[group].consumed_per_s > 0
