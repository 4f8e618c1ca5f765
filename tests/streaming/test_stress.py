"""What comes in no order that anybody planned: data, partitions more and fewer, topics, stops and starts, by a seed.

KEYORDER_SPARK_STRESS says how many steps (12), KEYORDER_SEED which (1). `make spark-stress` takes a hundred.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_source import delete, reading, rows_of

STEPS = int(os.environ.get("KEYORDER_SPARK_STRESS", "12"))
SEED = int(os.environ.get("KEYORDER_SEED", "1"))
KEYS = 12


class Stress:
    """Managed topics of one name pattern, and a query over the pattern. The n-th record of a key has the value n."""

    def __init__(self, spark: Any, kafka: KafkaUnderTest, prefix: str, checkpoint: Path) -> None:
        self.random = Random(SEED)
        self.admin = TopicAdmin(kafka.client_config())
        self.producer = OrderedProducer({**kafka.client_config(), "linger.ms": 1, "log_level": 0})
        self.kafka, self.prefix, self.made = kafka, prefix, 0
        self.sent: dict[str, int] = {}
        self.done: Counter[str] = Counter()
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        options = {
            "subscribePattern": f"{prefix}-.*",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "150",
            "failOnDataLoss": "false",  # for topics that are deleted, once all of them was read
        }
        self._stream = reading(spark, kafka, "keyorder", options, stream=True).writeStream.foreachBatch(self._take)
        self._stream = self._stream.option("checkpointLocation", str(checkpoint))
        self.query: Any = None

    def _take(self, frame: Any, number: int) -> None:
        rows = rows_of(frame)
        assert self.batches.get(number, rows) == rows, "a batch was planned otherwise after a restart"
        self.batches[number] = rows

    def start(self) -> None:
        """Begin, or go on from the checkpoint."""
        self.query = self._stream.start()

    def stop(self) -> None:
        """In the middle of whatever it does."""
        self.query.stop()

    def restart(self) -> None:
        """The same query, from its checkpoint."""
        self.stop()
        self.start()

    def add_topic(self) -> None:
        """A new topic comes under the pattern."""
        topic = f"{self.prefix}-{self.made}"
        self.admin.create(topic, self.random.randint(1, 4), initial_partition_count=1)
        self.made += 1
        self.sent[topic] = 0

    def delete_topic(self) -> None:
        """The last one is left alone; of the others nothing may be unread, or it would be lost indeed."""
        if len(self.sent) > 1:
            topic = self.random.choice(sorted(self.sent))
            self.catch_up()
            delete(self.kafka, topic)
            self.done[topic] = self.sent.pop(topic)

    def resize(self) -> None:
        """Another number of partitions, in a moment when records are on their way."""
        topic = self.random.choice(sorted(self.sent))
        before, count = self.admin.timeline(topic).newest.count, self.random.randint(1, 7)
        if count != before:
            (self.admin.expand if count > before else self.admin.shrink)(topic, count)

    def add_data(self) -> None:
        """Some records, or some hundreds, over all topics."""
        for _ in range(self.random.choice((3, 40, 400))):
            topic = self.random.choice(sorted(self.sent))
            number = self.sent[topic]
            self.producer.produce(topic, b"%d" % (number // KEYS), b"k%d" % (number % KEYS))
            self.sent[topic] = number + 1
        self.producer.poll(0)

    def catch_up(self) -> None:
        """Everything that was sent has been read."""
        assert self.producer.flush(120) == 0
        self.query.processAllAvailable()

    def faults(self) -> dict[str, int]:
        """Rows of one key in two partitions of a batch count as reordered: a batch's partitions have no order."""
        seen: dict[tuple[str, bytes], list[int]] = {}
        reordered = 0
        for _, rows in sorted(self.batches.items()):
            homes: dict[tuple[str, bytes], int] = {}
            for key, value, topic, partition, *_ in rows:
                reordered += homes.setdefault((topic, key), partition) != partition
                numbers = seen.setdefault((topic, key), [])
                reordered += bool(numbers) and int(value) < numbers[-1]
                numbers.append(int(value))
        total = sum(self.sent.values()) + sum(self.done.values())
        found = sum(len(set(numbers)) for numbers in seen.values())
        return {
            "lost": total - found,
            "doubled": sum(len(numbers) - len(set(numbers)) for numbers in seen.values()),
            "reordered": reordered,
        }


@pytest.mark.scala(
    "KafkaDontFailOnDataLossSuite",
    "stress test for failOnDataLoss=false",
)
@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "stress test with multiple topics and partitions",
)
@pytest.mark.timeout(180 + 20 * STEPS)
def test_random_steps(spark: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Nothing lost, doubled or out of order, whatever happened beneath the query."""
    spark.dataSource.register(KeyorderDataSource)
    stress = Stress(spark, kafka, topic_name, tmp_path)
    stress.add_topic()
    stress.start()
    weights = {stress.add_data: 5, stress.resize: 4, stress.restart: 2, stress.add_topic: 2, stress.delete_topic: 1}
    steps = stress.random.choices(list(weights), list(weights.values()), k=STEPS)
    for step in steps:
        print(step.__name__, dict(stress.sent))  # shown when it fails
        step()
        stress.add_data()
    stress.catch_up()
    stress.stop()
    stress.producer.close()

    assert stress.faults() == {"lost": 0, "doubled": 0, "reordered": 0}, f"KEYORDER_SEED={SEED}"
    assert len(stress.batches) > 1
