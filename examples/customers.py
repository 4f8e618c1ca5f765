"""A table of customers from change events that arrive in any order, while their topic grows and shrinks.

    python examples/customers.py localhost:9092 customers

Each event carries its row's version, which Spark's sink writes as a header. Who chooses by it has the truth, whatever came
late or twice: the view, a batch of Spark's source, a stream of what supersedes, and the log itself once it was compacted.
"""

from __future__ import annotations

import random
import sys
import tempfile
from typing import Any

from keyorder import TopicAdmin
from keyorder.compaction import CompactedView, Strategy, TopicCompactor, compact
from keyorder.streaming.java import prepare_java
from pyspark.sql import SparkSession

BY_VERSION = {"cleanup.policy": "compact", "compaction.strategy": "header", "compaction.strategy.header": "version"}
# The lag lets the compactor come before the log cleaner, which keeps last records.
TOPIC_CONFIG = {**BY_VERSION, "message.timestamp.type": "LogAppendTime", "min.compaction.lag.ms": "3600000"}
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Event = tuple[str, str | None, int]  # customer, town or None for a deletion, version
Table = dict[bytes, bytes]


def changes(chance: random.Random) -> list[Event]:
    """Some changes of each of 50 customers, shuffled, and some of them twice."""
    events = [
        (f"customer-{number}", None if chance.random() < 0.15 else f"town {chance.randrange(100)}", version)
        for number in range(50)
        for version in range(1, chance.randrange(2, 8))
    ]
    return chance.sample(events, len(events)) + chance.sample(events, len(events) // 5)


def write(spark: Any, servers: str, topic: str, events: list[Event]) -> None:
    """The column `version` becomes the header that the topic's own strategy names."""
    rows = spark.createDataFrame(events, "key string, value string, version long")
    rows.write.format("keyorder").options(**{"kafka.bootstrap.servers": servers, "topic": topic}).mode("append").save()


def by_the_source(spark: Any, servers: str, topic: str) -> Table:
    """A batch: each customer once."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "keyorder.compact": "topic"}
    rows = spark.read.format("keyorder").options(**options).load().collect()
    return {bytes(row["key"]): bytes(row["value"]) for row in rows}


def by_a_stream(spark: Any, servers: str, topic: str) -> Table:
    """A stream: a row whenever it supersedes what its customer had; a sink that keeps the last one has the truth."""
    table: Table = {}

    def upsert(batch: Any, number: int) -> None:
        table.update({bytes(row["key"]): bytes(row["value"] or b"") for row in batch.select("key", "value").collect()})

    rows = compact(spark, {"bootstrap.servers": servers}, topic, streaming=True)
    query = rows.writeStream.foreachBatch(upsert).option("checkpointLocation", tempfile.mkdtemp())
    query.trigger(availableNow=True).start().awaitTermination()
    return {customer: value for customer, value in table.items() if value}


def by_the_view(config: dict[str, str], topic: str, strategy: Strategy | None = None) -> Table:
    """The whole topic as a table, in this process."""
    with CompactedView(config, topic, strategy) as view:
        return dict(view.load().items())


def main(spark: Any, servers: str, topic: str) -> dict[str, bool]:
    """By what the table was had, and whether it was the truth."""
    config, by_offset = {"bootstrap.servers": servers}, Strategy.parse("offset")
    admin = TopicAdmin(config)
    admin.create(topic, 2, config=TOPIC_CONFIG)
    events = changes(random.Random(17))
    newest = {customer: value for customer, value, _ in sorted(events, key=lambda event: event[2])}
    truth = {customer.encode(): value.encode() for customer, value in newest.items() if value is not None}
    write(spark, servers, topic, events[0::3])
    admin.expand(topic, 5)
    write(spark, servers, topic, events[1::3])
    admin.shrink(topic, 3)
    write(spark, servers, topic, events[2::3])
    found = {
        "the view": by_the_view(config, topic) == truth,
        "Spark's source": by_the_source(spark, servers, topic) == truth,
        "a stream": by_a_stream(spark, servers, topic) == truth,
        "the last record of each customer": by_the_view(config, topic, by_offset) == truth,
    }
    with TopicCompactor(config, topic) as compactor:
        compactor.run()
    return found | {"the last record after the compactor": by_the_view(config, topic, by_offset) == truth}


if __name__ == "__main__":
    prepare_java()
    for way, right in main(SparkSession.builder.config(STATE_STORE, ROCKSDB).getOrCreate(), *sys.argv[1:3]).items():
        print(f"{'the truth' if right else 'not the truth'}: {way}")
