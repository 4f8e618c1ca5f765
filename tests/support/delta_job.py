"""A Spark session with Delta Lake, in a process of its own: it has to have Delta's jars from its start.

Writes the table of a topic twice: as a batch, and by a stream whose rows are merged. Prints both as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from keyorder.compaction import compact
from keyorder.connector.local.jars import ensure_jars
from keyorder.connector.local.repository import cache_dir
from keyorder.connector.local.versions import parse_lock
from keyorder.streaming.data_source import KeyorderDataSource
from support.spark_session import native_jars, start_spark

# The newest Delta for Spark 4.2. `kafka` in the lock is its version.
_LOCK = Path(__file__).with_name("delta-4.4.0.lock.json")
_SESSION = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def main(servers: str, topic: str, folder: Path) -> None:
    """Batch and stream, each to a Delta table."""
    lock = parse_lock(json.loads(_LOCK.read_text("utf-8")))
    jars = [*native_jars(), *ensure_jars(lock, cache_dir() / f"delta-{lock.version}")]
    spark = start_spark(folder / "spark", **{**_SESSION, "spark.jars": ",".join(map(str, jars))})
    spark.dataSource.register(KeyorderDataSource)
    config = {"bootstrap.servers": servers}
    batch, streamed = str(folder / "batch"), str(folder / "streamed")
    compact(spark, config, topic).write.format("delta").save(batch)

    spark.sql(f"CREATE TABLE delta.`{streamed}` (key BINARY, value BINARY) USING delta")

    def merge(frame: Any, _: int) -> None:
        frame.createOrReplaceTempView("changes")
        frame.sparkSession.sql(
            f"""MERGE INTO delta.`{streamed}` AS known USING changes ON known.key = changes.key
            WHEN MATCHED AND changes.value IS NULL THEN DELETE
            WHEN MATCHED THEN UPDATE SET value = changes.value
            WHEN NOT MATCHED AND changes.value IS NOT NULL THEN INSERT (key, value) VALUES (changes.key, changes.value)"""
        )

    query = (
        compact(spark, config, topic, streaming=True, options={"maxOffsetsPerTrigger": "200"})
        .select("key", "value")
        .writeStream.outputMode("append")
        .foreachBatch(merge)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    tables = [spark.read.format("delta").load(path).select("key", "value").collect() for path in (batch, streamed)]
    print(json.dumps([{bytes(key).decode(): bytes(value).decode() for key, value in rows} for rows in tables]))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
