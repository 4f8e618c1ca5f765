"""Running the same scenario through Spark's own Kafka source and through keyorder's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from keyorder.connector.metadata import wait_for_partitions
from support.cluster import KafkaUnderTest

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def create(kafka: KafkaUnderTest, topic: str, partitions: int, **config: str) -> None:
    """A topic that nobody manages."""
    admin = kafka.admin()
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        future.result(120)
    wait_for_partitions(admin, topic, partitions, kafka.bootstrap_servers)


def delete(kafka: KafkaUnderTest, topic: str) -> None:
    """The topic is gone when this returns."""
    admin = kafka.admin()  # it has to outlive the answer
    admin.delete_topics([topic])[topic].result(120)


def send(kafka: KafkaUnderTest, topic: str, records: list[tuple[int, Any, Any]], **more: Any) -> None:
    """(partition, key, value), each acknowledged when this returns."""
    producer = Producer({**kafka.client_config(), "linger.ms": 1, "log_level": 0})
    for partition, key, value in records:
        producer.produce(topic, value, key, partition, **more)
    assert producer.flush(120) == 0


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    """All rows in an order of their own, so that two reads can be compared."""
    rows = [tuple(bytes(c) if isinstance(c, bytearray) else c for c in row) for row in frame.collect()]
    place = (frame.columns.index("topic"), frame.columns.index("partition"), frame.columns.index("offset"))
    return sorted(rows, key=lambda row: tuple(row[i] for i in place))


def reading(spark: Any, kafka: KafkaUnderTest, form: str, options: Mapping[str, str], stream: bool = False) -> Any:
    """A DataFrame of one of the sources."""
    source = (spark.readStream if stream else spark.read).format(form)
    return source.option("kafka.bootstrap.servers", kafka.bootstrap_servers).options(**options).load()


@dataclass
class Ran:
    """What a query did. batches: rows by batch id. ends: end offsets by batch id, where there were new ones."""

    batches: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    ends: dict[int, Any] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, batch by batch."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


def run(
    spark: Any,
    kafka: KafkaUnderTest,
    form: str,
    options: Mapping[str, str],
    checkpoint: Path,
    between: Callable[[], None] | None = None,
) -> Ran:
    """Run to the end with Trigger.AvailableNow; `between` runs after it, and then once more with the same checkpoint."""
    ran = Ran()
    for again in (False, True) if between else (False,):
        if again and between is not None:
            between()
        # A client of its own for each run: a warm one may have fetched what `between` deletes.
        frame = reading(spark, kafka, form, {**options, "kafka.client.id": f"run-{again}"}, stream=True)

        def take(batch: Any, number: int) -> None:
            ran.batches[number] = rows_of(batch)

        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
    ran.ends = ends_of(checkpoint)
    return ran


def ends_of(checkpoint: Path) -> dict[int, Any]:
    """The end offsets of each planned batch, as Spark's own source reads them: {batch: {topic: {partition: offset}}}."""
    logs = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    found: dict[int, Any] = {}
    for path in logs:
        saved = json.loads(path.read_text().splitlines()[2])
        found[int(path.name)] = {t: {str(int(p)): offset for p, offset in parts.items()} for t, parts in saved.items()}
    return found
