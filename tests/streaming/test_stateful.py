"""A stateful operator behind the source: per key, state sees the numbers in the order in which they were sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.spark_source import reading

KEYS, ROUND = 20, 600


def sequence_check() -> Callable[..., Iterator[Any]]:
    """For applyInPandasWithState: how many rows a key had, and how many did not continue its count by one.

    A function within: workers cannot import test modules, so that it has to travel whole.
    """

    def check(key: Any, batches: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        (last,) = state.get if state.exists else (-1,)
        rows = pd.concat(list(batches)).sort_values(["timestamp", "offset"])
        wrong = 0
        for number in rows["number"].tolist():
            wrong += number != last + 1
            last = max(last, number)
        state.update((last,))
        yield pd.DataFrame({"key": [key[0]], "rows": [len(rows)], "wrong": [wrong]})

    return check


class Query:
    """The check as a query, which may be stopped and started again. `rows`, `wrong`: sums over all keys and batches."""

    def __init__(self, spark: Any, kafka: KafkaUnderTest, form: str, topic: str, checkpoint: Path) -> None:
        self._spark, self._kafka, self._form, self._topic = spark, kafka, form, topic
        self._checkpoint = checkpoint
        self._batches: dict[int, tuple[int, int]] = {}

    def start(self, **trigger: Any) -> Any:
        """From the checkpoint, where there is one."""
        options = {"subscribe": self._topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
        rows = reading(self._spark, self._kafka, self._form, options, stream=True)
        rows = rows.selectExpr("string(key) as key", "bigint(string(value)) as number", "timestamp", "offset")
        checked = rows.groupBy("key").applyInPandasWithState(
            sequence_check(), "key string, rows long, wrong long", "last long", "append", "NoTimeout"
        )

        def take(frame: Any, number: int) -> None:
            found = frame.selectExpr("sum(rows)", "sum(wrong)").first()
            self._batches[number] = (found[0] or 0, found[1] or 0)

        writer = checked.writeStream.foreachBatch(take).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start()

    def finish(self) -> None:
        """Read all that is there."""
        assert self.start(availableNow=True).awaitTermination(600)

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self._batches.values())

    @property
    def wrong(self) -> int:
        return sum(wrong for _, wrong in self._batches.values())


@pytest.mark.timeout(600)
def test_state_sees_each_key_in_order_through_growth_shrink_and_a_restart(
    spark: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2)
    producer = OrderedProducer({**kafka.client_config(), "linger.ms": 5})

    def send(turn: int) -> None:
        for number in range(turn * ROUND, (turn + 1) * ROUND):
            producer.produce(topic_name, str(number // KEYS), f"k{number % KEYS}")
        assert producer.flush(120) == 0

    send(0)
    ours = Query(spark, kafka, "keyorder", topic_name, tmp_path / "ours")
    running = ours.start(processingTime="0 seconds")
    try:
        admin.expand(topic_name, 5)
        send(1)
        while ours.rows < ROUND * 3 // 2:
            assert not running.awaitTermination(0.1), "the query stopped"
    finally:
        running.stop()
    admin.shrink(topic_name, 3)
    send(2)
    ours.finish()
    producer.close()
    native = Query(spark, kafka, "kafka", topic_name, tmp_path / "native")
    native.finish()

    print(f"rows out of order: keyorder {ours.wrong}, kafka {native.wrong}, of {native.rows}")
    assert (ours.rows, ours.wrong) == (3 * ROUND, 0)
    assert native.rows == 3 * ROUND
    assert native.wrong > 0, "this topic does not tell the two sources apart"
